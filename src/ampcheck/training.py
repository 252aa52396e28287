"""The loop: PyTorch's AMP recipe, the same for every mode. Precision costs it no branch.

https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler

from ampcheck.precision import Mode
from ampcheck.refusals import by_name, refuse
from ampcheck.runaway import SKIPS_IN_A_ROW, stop_a_runaway
from ampcheck.schedulers import attach
from ampcheck.workloads import Batch, Modules, Optimizers, Schedulers, Workload


@dataclass(slots=True, kw_only=True)
class Run:
    """All that a step reads and changes; `step` counts optimizer steps, skipped ones included."""

    mode: Mode
    device: torch.device
    autocast: torch.autocast  # made once: it is entered at every step
    workload: Workload
    modules: Modules
    optimizers: Optimizers
    schedulers: Schedulers
    scaler: GradScaler
    set_to_none: bool
    overflow_at: frozenset[int] = frozenset()  # steps whose losses are multiplied by inf
    step: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What was logged, float64, on the device until it is read: reading waits for it.

    `losses` has shape (steps,). `scales` has shape (steps + 1,): the loss scale before the first step and after each,
    1.0 without a scaler.
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

    Sets the process's float32 precision to the mode's. ValueError if the scaler disables itself, or if the workload
    brings what the loop can't train.
    """
    torch.backends.fp32_precision = mode.fp32_precision  # type: ignore[attr-defined] # its module hides it
    made = by_name("modules", workload.modules(), torch.nn.Module)
    modules = {name: module.to(device) for name, module in made.items()}
    optimizers = by_name("optimizers", workload.optimizers(modules, lr), torch.optim.Optimizer)
    schedulers = by_name("schedulers", workload.schedulers(optimizers), LRScheduler, may_be_empty=True)
    refuse(mode, device, modules, optimizers, schedulers)
    attach(schedulers, optimizers)
    grad_scaler = GradScaler(device.type, enabled=mode.scaler, **(scaler or {}))  # type: ignore[arg-type]
    if grad_scaler.is_enabled() != mode.scaler:
        raise ValueError(f"device: GradScaler disables itself on {device}; choose a mode without a scaler")
    return Run(
        mode=mode,
        device=device,
        autocast=torch.autocast(device.type, dtype=getattr(torch, mode.dtype), enabled=mode.autocast),
        workload=workload,
        modules=modules,
        optimizers=optimizers,
        schedulers=schedulers,
        scaler=grad_scaler,
        set_to_none=zero_grad == "set_to_none",
        overflow_at=overflow_at,
    )


def train(run: Run, batches: list[Batch], until: int, lap: Callable[[], None] = lambda: None) -> History:
    """Train up to step `until`, calling `lap` after each step; the batch is a function of the step.

    RunawayError after SKIPS_IN_A_ROW steps in which the scaler skipped every one.
    """
    steps = until - run.step
    # Into tensors made beforehand: a small new one a step would break up the heap between the large blocks of a step.
    losses, scales = torch.ones(2, steps + 1, dtype=torch.float64, device=run.device)
    slots = list(zip(losses.unbind(), scales.unbind(), strict=True))
    slots[0][1].copy_(run.scaler.scale(slots[0][1]))
    for taken, (loss, scale) in enumerate(slots[1:], 1):
        loss.copy_(train_step(run, batches[run.step % len(batches)]))
        scale.copy_(run.scaler.scale(scale))  # of 1.0: the scale itself, without a synchronisation
        lap()
        if run.scaler.is_enabled() and taken % SKIPS_IN_A_ROW == 0:
            stop_a_runaway(scales[taken - SKIPS_IN_A_ROW : taken + 1], run.step)
    return History(losses[1:], scales)


def train_step(run: Run, batch: Batch) -> torch.Tensor:
    """Take one optimizer step and return the sum of the losses, a detached scalar on the device.

    Nothing here waits for the device but `GradScaler.step`, which reads found_inf: AMP's own cost.
    """
    with run.autocast:
        losses = list(run.workload.losses(run.modules, batch))
    if run.step in run.overflow_at:
        losses = [loss * math.inf for loss in losses]
    torch.autograd.backward([run.scaler.scale(loss) for loss in losses])  # one pass, since losses may share a graph
    for optimizer in run.optimizers.values():
        if _has_gradients(optimizer):  # else no loss of this step used its parameters
            run.scaler.step(optimizer)
    run.scaler.update()
    for optimizer in run.optimizers.values():
        optimizer.zero_grad(set_to_none=run.set_to_none)
    run.step += 1
    return reduce(operator.add, [loss.detach() for loss in losses])


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(weight.grad is not None for group in optimizer.param_groups for weight in group["params"])


def skipped_steps(scales: list[float]) -> int:
    """Count the steps that the scaler skipped: those after which the scale is lower. Growth is not a skip.

    This is right for fused optimizers too, whose `step` runs even on a skip.
    """
    return sum(after < before for before, after in pairwise(scales))


def scaler_numbers(run: Run) -> dict[str, float]:
    """Return the scaler's five numbers, or {} without one."""
    return {key.removeprefix("_"): value for key, value in run.scaler.state_dict().items()}
