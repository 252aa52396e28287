"""The loop: PyTorch's AMP recipe, the same for every mode. Precision costs it no branch.

https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from torch.amp.grad_scaler import GradScaler

from ampcheck.precision import Mode
from ampcheck.workloads import Batch, Workload


@dataclass(slots=True, kw_only=True)
class Run:
    """All that a step reads and changes; `step` counts optimizer steps, skipped ones included."""

    device: torch.device
    autocast: torch.autocast  # made once: it is entered at every step
    workload: Workload
    modules: Mapping[str, torch.nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    scaler: GradScaler
    set_to_none: bool
    overflow_at: frozenset[int] = frozenset()  # steps whose losses are multiplied by inf
    step: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What was logged of each step, float64 of shape (steps,), on the device until it is read: reading waits for it.

    `scales` holds the loss scale after the step, 1.0 without a scaler.
    """

    losses: torch.Tensor
    scales: torch.Tensor


def start(
    workload: Workload,
    mode: Mode,
    device: torch.device,
    *,
    lr: float,
    zero_grad: str,
    scaler: Mapping[str, float] | None = None,
    overflow_at: frozenset[int] = frozenset(),
) -> Run:
    """Build a fresh run at step 0 from the current seeds; `scaler` holds keywords of its one GradScaler.

    Sets the process's float32 precision to the mode's. ValueError if the scaler disables itself, or if one
    optimizer is listed twice.
    """
    torch.backends.fp32_precision = mode.fp32_precision  # type: ignore[attr-defined] # its module hides it
    modules = {name: module.to(device) for name, module in workload.modules().items()}
    optimizers = workload.optimizers(modules, lr)
    if len({id(optimizer) for optimizer in optimizers.values()}) < len(optimizers):
        raise ValueError(
            "workload: one optimizer is listed twice; each may step once between two updates of the scaler"
        )
    grad_scaler = GradScaler(device.type, enabled=mode.scaler, **(scaler or {}))  # type: ignore[arg-type]
    if grad_scaler.is_enabled() != mode.scaler:
        raise ValueError(f"device: GradScaler disables itself on {device}; choose a mode without a scaler")
    return Run(
        device=device,
        autocast=torch.autocast(device.type, dtype=getattr(torch, mode.dtype), enabled=mode.autocast),
        workload=workload,
        modules=modules,
        optimizers=optimizers,
        scaler=grad_scaler,
        set_to_none=zero_grad == "set_to_none",
        overflow_at=overflow_at,
    )


def train(run: Run, batches: list[Batch], until: int, lap: Callable[[], None] = lambda: None) -> History:
    """Train up to step `until`, calling `lap` after each step; the batch is a function of the step."""
    history = History(*torch.ones(2, until - run.step, dtype=torch.float64, device=run.device))
    # Into tensors made beforehand: a small new one a step would break up the heap between the large blocks of a step.
    for loss, scale in zip(history.losses.unbind(), history.scales.unbind(), strict=True):
        loss.copy_(train_step(run, batches[run.step % len(batches)]))
        scale.copy_(run.scaler.scale(scale))  # of 1.0: the scale itself, without a synchronisation
        lap()
    return history


def train_step(run: Run, batch: Batch) -> torch.Tensor:
    """Take one optimizer step and return the sum of the losses, a detached scalar on the device.

    Nothing here waits for the device but `GradScaler.step`, which reads found_inf: AMP's own cost.
    """
    with run.autocast:
        losses = run.workload.losses(run.modules, batch)
        if isinstance(losses, torch.Tensor):
            raise ValueError("workload: losses returned one tensor; it must return a list of scalar tensors")
        losses = list(losses)
    if run.step in run.overflow_at:
        losses = [loss * math.inf for loss in losses]
    for loss in losses:
        run.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    for optimizer in run.optimizers.values():
        run.scaler.step(optimizer)
    run.scaler.update()
    for optimizer in run.optimizers.values():
        optimizer.zero_grad(set_to_none=run.set_to_none)
    run.step += 1
    return reduce(operator.add, [loss.detach() for loss in losses])


def skipped_steps(scales: list[float], initial: float) -> int:
    """Count the steps that the scaler skipped: those after which the scale is lower. Growth is not a skip."""
    return sum(after < before for before, after in zip([initial, *scales], scales, strict=False))


def scaler_numbers(run: Run) -> dict[str, float]:
    """Return the scaler's five numbers, or {} without one."""
    return {key.removeprefix("_"): value for key, value in run.scaler.state_dict().items()}
