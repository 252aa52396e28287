"""A run's state in one file: written whole or not at all, and every leaf checked before any of it is believed."""

import os
import pickle
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ampcheck import identity, state
from ampcheck.files import replaced_file
from ampcheck.precision import MODES
from ampcheck.run import Run
from ampcheck.state import State

FORMAT = 2
CONTENT = {"format": int, "mode": str, "state": dict, "checksums": dict}  # which are of the mode and of every leaf
LOSABLE = [*state.PARTS, "buffers", "growth tracker"]


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds: the mode of the run that saved it, and the parts of its state."""

    mode: str
    state: State


def save(run: Run, path: Path) -> None:
    """Write the state of `run`, which must be between two steps, that is after the scaler's `update()`.

    The checkpoint before is kept until the new one is on the disk. ValueError if it can't be written, or if a leaf of
    the state could not be read again.
    """
    try:
        content = _content(run.mode.name, state.get(run))
        with replaced_file(path) as beside, beside.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except TypeError as error:
        raise ValueError(f"{path}: not written: {error}") from error
    except (OSError, RuntimeError) as error:
        # When writing fails, torch raises another error out of it, about positions in the file.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError):
            raise
        raise ValueError(
            f"{path}: could not be written ({_why(cause)}); the checkpoint before, if there was one, is as it was; "
            "mend that and run `dvc repro`"
        ) from error


def load(run: Run, path: Path) -> list[str]:
    """Put the state in `path` into `run`, a fresh one of the same workload; return what was not taken over, in lines.

    ValueError, naming file and part, if the file is damaged or doesn't fit the run, which then is as it was.
    """
    saved = read(path)
    try:
        return state.put(run, saved.state, saved.mode)
    except ValueError as error:
        raise ValueError(
            f"{path}: does not fit this run: {error}; resume with the workload, sizes and devices that it was saved "
            "with, or delete it and run `dvc repro`"
        ) from error


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
    """Return what `path` holds, on the CPU. ValueError, naming file and part, if it is no whole checkpoint of ours.

    Nothing that it holds is run. Its zip records have CRCs, but torch looks at none of them; ours are of what was read.
    """
    try:
        with path.open("rb") as file:
            # Mapped, which spares a copy; by its descriptor, since torch opens it twice: a new one may come between.
            opened = f"/proc/self/fd/{file.fileno()}"
            found = torch.load(opened, map_location="cpu", weights_only=True, mmap=True)
        _check(found)
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; `dvc repro` makes it") from None
    except MemoryError:
        raise
    except Exception as error:  # whatever may come of reading a damaged file
        raise ValueError(
            f"{path}: not a whole checkpoint of ours ({_why(error)}); delete it and run `dvc repro`"
        ) from error
    return Saved(found["mode"], found["state"])


def _content(mode: str, parts: State) -> dict[str, Any]:
    checksums = identity.checksums({"mode": mode, **parts})
    return {"format": FORMAT, "mode": mode, "state": parts, "checksums": checksums}


def _check(found: Any) -> None:  # noqa: ANN401 - it may be anything
    """Raise ValueError, naming some of what is wrong, if `found` is not what `save` wrote."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"not of format {FORMAT}, the one that this version reads")
    wrong = [name for name in {**CONTENT, **found} if not isinstance(found.get(name), CONTENT.get(name, ()))]
    wrong = wrong or sorted(set(found["state"]) ^ set(state.PARTS)) + ["mode"] * (found["mode"] not in MODES)
    if wrong:
        raise ValueError(f"missing, unknown or changed: {identity.few(wrong)}")
    saved, held = found["checksums"], _content(found["mode"], found["state"])["checksums"]
    names = {
        "missing": [path for path in saved if path not in held],
        "unknown": [path for path in held if path not in saved],
        "changed": [path for path in held if path in saved and saved[path] != held[path]],
    }
    if saved != held:
        raise ValueError("; ".join(f"{what}: {identity.few(paths)}" for what, paths in names.items() if paths))


def _why(error: BaseException) -> str:
    """Return the error's own words in one line; torch's words on an unpickling tell how to run what the file holds."""
    if isinstance(error, pickle.UnpicklingError):
        return "unreadable, or with objects other than tensors, numbers and strings, which could run code"
    sentence = str(error).partition(". ")[0] or type(error).__name__
    words = textwrap.shorten(sentence, 400, placeholder="...")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in words)
