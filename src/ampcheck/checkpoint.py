"""A run's state in one file: written whole or not at all, checked before a leaf of it is believed."""

import os
import pickle
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ampcheck import state
from ampcheck.files import replaced_file
from ampcheck.precision import MODES
from ampcheck.state import State
from ampcheck.training import Run

FORMAT = 2
LOSABLE = [*state.PARTS, "buffers", "growth tracker"]


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds: the mode of the run that saved it, and the parts of its state."""

    mode: str
    state: State


def save(run: Run, path: Path) -> None:
    """Write the state of `run`, which must be between two steps, that is after the scaler's `update()`.

    The checkpoint before is kept until the new one is on the disk. ValueError if it can't be written.
    """
    parts = state.get(run)
    content = {"format": FORMAT, "mode": run.mode.name, "outline": state.outline(parts), "state": parts}
    try:
        with replaced_file(path) as beside, beside.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        free = shutil.disk_usage(path.parent).free / 2**20
        raise ValueError(
            f"{path}: could not be written ({_first_line(error)}; {free:.0f} MiB are free there); the checkpoint "
            "before, if there was one, is as it was"
        ) from error


def load(run: Run, path: Path) -> list[str]:
    """Put the state in `path` into `run`, a fresh one of the same workload; return what was not taken over, in lines.

    ValueError, naming file and part, if the file is damaged or doesn't fit the run, which then is as it was.
    """
    saved = read(path)
    try:
        return state.put(run, saved.state, saved.mode)
    except (ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"{path}: does not fit this run: {' '.join(str(error).split())}") from error


def load_without(part: str, run: Run, path: Path) -> None:
    """Load `path` into a fresh run, but leave `part` (of LOSABLE) as it is in the fresh run."""
    saved, fresh = read(path).state, state.get(run)
    if part == "buffers":
        for name, module in run.modules.items():
            buffers = dict(module.named_buffers())
            saved["modules"][name] |= {key: leaf for key, leaf in fresh["modules"][name].items() if key in buffers}
    elif part == "growth tracker":
        saved["scaler"]["_growth_tracker"] = fresh["scaler"]["_growth_tracker"]
    else:
        saved[part] = fresh[part]
    state.put(run, saved, run.mode.name)


def read(path: Path) -> Saved:
    """Return what `path` holds, on the CPU. ValueError, naming file and part, if it is no whole checkpoint of ours."""
    found = _unpacked(path)
    if not isinstance(found, dict) or not {"format", "step"} & set(found):
        raise ValueError(f"{path}: not a checkpoint of ours; it holds a {type(found).__name__} of something else")
    if found.get("format") != FORMAT:
        raise ValueError(
            f"{path}: has format {found.get('format', 1)}, this version reads {FORMAT}; make it anew with `dvc repro`"
        )
    if wrong := _wrong_names(found):
        raise ValueError(f"{path}: missing, unknown or changed: {', '.join(wrong)}; make it anew with `dvc repro`")
    return Saved(found["mode"], found["state"])


def _wrong_names(found: dict[str, Any]) -> list[str]:
    """Compare with what a checkpoint must hold, and with the outline that it was saved with."""
    kinds = {"mode": str, "outline": dict, "state": dict}
    wrong = sorted(set(found) ^ {"format", *kinds})
    wrong = wrong or [name for name, kind in kinds.items() if not isinstance(found[name], kind)]
    wrong = wrong or ["mode"] * (found["mode"] not in MODES) + sorted(set(found["state"]) ^ set(state.PARTS))
    if wrong:
        return wrong
    saved, held = found["outline"], state.outline(found["state"])
    return [name for name in {**saved, **held} if saved.get(name) != held.get(name)]


def _unpacked(path: Path) -> Any:  # noqa: ANN401
    """Read the file with nothing run that it holds; torch writes a CRC-32 of every record, but never looks at it."""
    try:
        with zipfile.ZipFile(path) as records:
            if damaged := records.testzip():
                raise ValueError(f"{path}: damaged in its record {damaged} (CRC-32); delete it and run `dvc repro`")
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; `dvc repro` makes it") from None
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: not loaded, since it holds objects other than tensors, numbers and strings, which could run code "
            f"({_first_line(error)})"
        ) from error
    except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(
            f"{path}: truncated or not a checkpoint ({_first_line(error)}); delete it and run `dvc repro`"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
