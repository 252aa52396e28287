"""Two untimed steps on a run that is thrown away: which dtypes ran, and how long a step takes, roughly."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ampcheck.identity import walk
from ampcheck.training import Run, train
from ampcheck.workloads import Batch, Modules


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`dtypes` maps each kind of module, and "loss", to the floating dtypes of its outputs, e.g. "bfloat16"."""

    step_seconds: float
    dtypes: dict[str, str]


def rehearse(run: Run, batch: Batch) -> Rehearsal:
    """Take two steps with `run`: the first with hooks on the modules, the second with a clock."""
    dtypes = _observed_dtypes(run, batch)
    started = time.perf_counter()
    history = train(run, [batch], run.step + 1)
    history.losses[0].item()  # waits for the device
    return Rehearsal(time.perf_counter() - started, dtypes)


def _observed_dtypes(run: Run, batch: Batch) -> dict[str, str]:
    seen: dict[str, set[str]] = defaultdict(set)

    def record(kind: str, outputs: object) -> None:
        tensors = (leaf for _, leaf in walk(outputs) if isinstance(leaf, torch.Tensor))
        seen[kind] |= {str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()}

    def hook(module: torch.nn.Module, _: Any, outputs: Any) -> None:  # noqa: ANN401
        record(type(module).__name__, outputs)

    leaf_modules = [leaf for module in run.modules.values() for leaf in module.modules() if not list(leaf.children())]
    handles = [leaf.register_forward_hook(hook) for leaf in leaf_modules]
    workload = run.workload
    run.workload = replace(workload, losses=_recorded(workload.losses, record))
    train(run, [batch], run.step + 1)
    run.workload = workload
    for handle in handles:
        handle.remove()
    return {kind: ", ".join(sorted(dtypes)) for kind, dtypes in seen.items()}


def _recorded(
    losses: Callable[[Modules, Batch], Iterable[torch.Tensor]], record: Callable[[str, object], None]
) -> Callable[[Modules, Batch], Iterable[torch.Tensor]]:
    def recorded(modules: Modules, batch: Batch) -> Iterable[torch.Tensor]:
        made = list(losses(modules, batch))
        record("loss", made)
        return made

    return recorded
