"""The parts of a run's state, listed once; saved to one file, written whole or not at all, and loaded from it.

State crosses a border only as bytes: `state_dict()` is live and `Optimizer.load_state_dict` aliases what it is given.
"""

import os
import pickle
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ampcheck.files import replaced_file
from ampcheck.training import Run


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of a run's state is read and put back, as tensors, numbers, strings and containers of them."""

    get: Callable[[Run], Any]
    put: Callable[[Run, Any], None]


def _get_modules(run: Run) -> Any:  # noqa: ANN401
    return {name: module.state_dict() for name, module in run.modules.items()}


def _put_modules(run: Run, state: dict[str, Any]) -> None:
    _require_same_keys("modules", state, run.modules)
    for name, module in run.modules.items():
        module.load_state_dict(state[name])


def _get_optimizers(run: Run) -> Any:  # noqa: ANN401
    return {name: optimizer.state_dict() for name, optimizer in run.optimizers.items()}


def _put_optimizers(run: Run, state: dict[str, Any]) -> None:
    _require_same_keys("optimizers", state, run.optimizers)
    for name, optimizer in run.optimizers.items():
        optimizer.load_state_dict(state[name])


def _put_scaler(run: Run, state: dict[str, Any]) -> None:
    _require_same_keys("scaler", state, run.scaler.state_dict())
    run.scaler.load_state_dict(state)


def _get_rng(_: Run) -> Any:  # noqa: ANN401
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - users' code may draw from it
    name, keys, *numbers = numpy_state
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *numbers],
        "python": [version, torch.tensor(words), gauss],
    }


def _put_rng(_: Run, state: dict[str, Any]) -> None:
    _require_same_keys("rng", state, ["torch", "cuda", "numpy", "python"])
    devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]
    if len(state["cuda"]) != devices:
        raise ValueError(f"rng: it has the states of {len(state['cuda'])} CUDA devices; this machine has {devices}")
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *numbers = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *numbers))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))


def _put_step(run: Run, step: int) -> None:
    run.step = step


PARTS = {
    "modules": Part(_get_modules, _put_modules),
    "optimizers": Part(_get_optimizers, _put_optimizers),
    "scaler": Part(lambda run: run.scaler.state_dict(), _put_scaler),
    "rng": Part(_get_rng, _put_rng),
    "step": Part(lambda run: run.step, _put_step),
}


def state(run: Run) -> dict[str, Any]:
    """Return every part of the run's state, live: compare it or write it, but don't keep it."""
    return {name: part.get(run) for name, part in PARTS.items()}


def save(run: Run, path: Path) -> None:
    """Write the state of `run`, which must be between two steps, that is after the scaler's `update()`."""
    with replaced_file(path) as beside, beside.open("wb") as file:
        torch.save(state(run), file)
        file.flush()
        os.fsync(file.fileno())


def load(run: Run, path: Path, without: Collection[str] = ()) -> None:
    """Put the state in `path` into `run`, a fresh one of the same workload and mode.

    `without` names parts that are left as they are in the fresh run, to show that the loss is caught. ValueError,
    naming file and part, if the file is damaged, lacks a part, has one too many or doesn't fit the run.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; `dvc repro` makes it") from None
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        first_line = str(error).partition("\n")[0]
        raise ValueError(
            f"{path}: truncated or not a checkpoint ({first_line}); delete it and run `dvc repro`"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a checkpoint of ours; it holds a {type(found).__name__}")
    try:
        _require_same_keys("parts", found, PARTS)
        for name, part in PARTS.items():
            if name not in without:
                part.put(run, found[name])
    except (ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path}: does not fit this run: {' '.join(str(error).split())}") from error


def _require_same_keys(part: str, found: Collection[str], expected: Collection[str]) -> None:
    if set(found) != set(expected):
        raise ValueError(
            f"{part}: got {', '.join(sorted(found)) or 'none'}; expected {', '.join(sorted(expected)) or 'none'}"
        )
