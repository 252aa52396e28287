"""What a workload is, and how one is found: by import path only, the user's own and ours alike."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # a workload's source is found without loading torch
    import numpy as np
    import torch

Modules: TypeAlias = "Mapping[str, torch.nn.Module]"
Optimizers: TypeAlias = "Mapping[str, torch.optim.Optimizer]"
Schedulers: TypeAlias = "Mapping[str, torch.optim.lr_scheduler.LRScheduler]"
Batch: TypeAlias = Mapping[str, Any]  # named trees (dicts, lists, tuples) of tensors; dimension 0 is batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network with its data, losses, optimizers and schedulers, as functions.

    Attributes:
        modules: builds the modules, by name; called after seeding, the result is moved to the device.
        batch: makes one batch from a numpy generator: named trees of numpy arrays or CPU tensors, each with
            batch_size rows in dimension 0.
        losses: maps (modules, batch) to scalar losses. It runs under autocast and is made whole before the first
            backward; the logged loss is their sum. No casts by hand, but for an island of float32 (see island.py).
        optimizers: builds the optimizers, by name, from (modules, lr). The `step` of one needs no closure.
        schedulers: builds learning rate schedulers from the optimizers, each under its optimizer's name; none unless
            given. One advances whenever its optimizer has really stepped, not when the scaler skipped, and needs no
            metric for it.
        outputs: what the modules are used for once they are trained: maps (modules, batch) to a tensor, or to a tree of
            them; class scores in the last dimension. Inference is measured only if it is given.

    """

    modules: Callable[[], Modules]
    batch: Callable[[np.random.Generator], Batch]
    losses: Callable[[Modules, Batch], Iterable[torch.Tensor]]
    optimizers: Callable[[Modules, float], Optimizers]
    schedulers: Callable[[Optimizers], Schedulers] = lambda _: {}
    outputs: Callable[[Modules, Batch], Any] | None = None


def load(path: str, sizes: Mapping[str, Any]) -> Workload:
    """Import `package.module:callable` and call it with `sizes`. ValueError, naming the key, if that fails."""
    module_name, _, name = path.partition(":")
    try:
        build = getattr(importlib.import_module(module_name), name)
    except AttributeError:
        raise ValueError(
            f"workload: got {path!r}; {module_name} has no {name!r}; give package.module:callable"
        ) from None
    except Exception as error:  # whatever the user's module raises while it is imported
        raise ValueError(f"workload: got {path!r}; importing it fails with {type(error).__name__}: {error}") from error
    if not callable(build):
        raise ValueError(f"workload: got {path!r}, which is a {type(build).__name__}; give package.module:callable")
    try:
        inspect.signature(build).bind(**sizes)
    except TypeError as error:
        takes = ", ".join(inspect.signature(build).parameters)
        raise ValueError(f"sizes: got {', '.join(sizes)}; {path} takes {takes} ({error})") from None
    try:
        workload = build(**sizes)
    except ValueError:  # a refusal of its own
        raise
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"workload: {path} fails with {told(error)}") from error
    if not isinstance(workload, Workload):
        raise ValueError(f"workload: {path} returned {type(workload).__name__}; it must return an ampcheck Workload")
    return workload


def weights_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield what an optimizer trains, group after group."""
    return (weight for group in optimizer.param_groups for weight in group["params"])


def told(error: BaseException) -> str:
    """Tell in one line what a user's code raised, and where: in its innermost line that is no package's."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent.parent)
    own = [frame for frame in frames if "site-packages" not in frame.filename and not frame.filename.startswith(ours)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}{where}"


def require_counts(**sizes: Any) -> None:  # noqa: ANN401 - whatever params.yaml holds
    """Raise ValueError, naming every one of `sizes` that is no integer of at least 1."""
    wrong = {key: value for key, value in sizes.items() if type(value) is not int or value < 1}
    if wrong:
        raise ValueError(
            "\n".join(f"sizes.{key}: got {value!r}; an integer of at least 1" for key, value in wrong.items())
        )
