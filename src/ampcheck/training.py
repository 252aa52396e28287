"""The loop: PyTorch's AMP recipe, the same for every mode. Precision costs it no branch.

https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from torch.nn.utils import clip_grad_norm_

from ampcheck.losses import losses_of
from ampcheck.run import Run
from ampcheck.runaway import SKIPS_IN_A_ROW, stop_a_runaway
from ampcheck.workloads import Batch, weights_of


@dataclass(frozen=True, slots=True)
class History:
    """What was logged, float64, on the device until it is read: reading waits for it.

    `losses` has shape (steps,). `scales` has shape (steps + 1,): the loss scale before the first step and after each,
    1.0 without a scaler.
    """

    losses: torch.Tensor
    scales: torch.Tensor


def train(run: Run, batches: list[Batch], until: int, lap: Callable[[], None] = lambda: None) -> History:
    """Train up to step `until`, calling `lap` after each step; what a step trains on is a function of the step.

    RunawayError after SKIPS_IN_A_ROW steps in which the scaler skipped every one.
    """
    steps, windows = until - run.step, windows_of(batches, run.options.accumulate)
    # Into tensors made beforehand: a small new one a step would break up the heap between the large blocks of a step.
    losses, scales = torch.ones(2, steps + 1, dtype=torch.float64, device=run.device)
    slots = list(zip(losses.unbind(), scales.unbind(), strict=True))
    slots[0][1].copy_(run.scaler.scale(slots[0][1]))
    for taken, (loss, scale) in enumerate(slots[1:], 1):
        loss.copy_(train_step(run, windows[run.step % len(windows)]))
        scale.copy_(run.scaler.scale(scale))  # of 1.0: the scale itself, without a synchronisation
        lap()
        if run.scaler.is_enabled() and taken % SKIPS_IN_A_ROW == 0:
            stop_a_runaway(scales[taken - SKIPS_IN_A_ROW : taken + 1], run.step)
    return History(losses[1:], scales)


def windows_of(batches: list[Batch], accumulate: int) -> list[list[Batch]]:
    """Return an epoch's steps: `accumulate` batches each, the last one those that are left. None spans two epochs."""
    return [batches[first : first + accumulate] for first in range(0, len(batches), accumulate)]


def train_step(run: Run, window: list[Batch]) -> torch.Tensor:
    """Take one optimizer step on the mean over `window`; return the sum of the losses, a detached scalar on the device.

    Nothing here waits for the device but `GradScaler.step`, which reads found_inf: AMP's own cost.
    """
    trained_on: list[torch.Tensor] = []
    for batch in window:
        losses = losses_of(run, batch, len(window))
        torch.autograd.backward([run.scaler.scale(loss) for loss in losses])  # one pass, since losses may share a graph
        trained_on += [loss.detach() for loss in losses]
    for optimizer in run.optimizers.values():
        if _has_gradients(optimizer):  # else no loss of this step used its parameters
            _clip(run, optimizer)
            run.scaler.step(optimizer)
    run.scaler.update()
    for optimizer in run.optimizers.values():
        optimizer.zero_grad(set_to_none=run.options.zero_grad == "set_to_none")
    run.step += 1
    return reduce(operator.add, trained_on)


def _clip(run: Run, optimizer: torch.optim.Optimizer) -> None:
    """Scale the gradients of one optimizer down to the norm that was asked for, all of its groups together."""
    if run.options.clip_norm is not None:
        run.scaler.unscale_(optimizer)
        clip_grad_norm_(weights_of(optimizer), run.options.clip_norm)


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(weight.grad is not None for weight in weights_of(optimizer))


def skipped_steps(scales: list[float]) -> list[int]:
    """Return the steps, counted from 0, that the scaler skipped: after which the scale is lower. Growth is no skip.

    This is right for fused optimizers too, whose `step` runs even on a skip.
    """
    return [step for step, (before, after) in enumerate(pairwise(scales)) if after < before]


def scale_changes(scales: list[float]) -> list[tuple[int, float]]:
    """Return the first scale with step 0, and each scale that is another than the one before with the step it led to.

    A lower one is a skip of the step before, a higher one is growth after it.
    """
    changed = [(step, after) for step, (before, after) in enumerate(pairwise(scales), 1) if after != before]
    return [(0, scales[0]), *changed]


def scaler_numbers(run: Run) -> dict[str, float]:
    """Return the scaler's five numbers, or {} without one."""
    return {key.removeprefix("_"): value for key, value in run.scaler.state_dict().items()}
