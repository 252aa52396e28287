"""Learning rate schedulers advance with their optimizers' real steps."""

from functools import partial

import torch
from torch.optim.lr_scheduler import LRScheduler

from ampcheck.workloads import Optimizers, Schedulers


def attach(schedulers: Schedulers, optimizers: Optimizers) -> None:
    """Have each scheduler advance behind its optimizer's `step`, which the scaler does not call on a skip."""
    for name, scheduler in schedulers.items():
        optimizers[name].register_step_post_hook(partial(_advance, scheduler))


def refuse_short(schedulers: Schedulers, steps: int) -> None:
    """Raise ValueError if one has a `total_steps`, as OneCycleLR has, below `steps`: it would refuse to go on."""
    for scheduler in schedulers.values():
        total_steps = getattr(scheduler, "total_steps", steps)
        if total_steps < steps:
            raise ValueError(
                f"train.scheduler, or the workload's schedulers: {type(scheduler).__name__} ends after {total_steps} "
                f"steps, but the longer of a trial and the resume check (resume.steps) takes {steps}; give it as many"
            )


def that_wait(schedulers: Schedulers, optimizers: Optimizers) -> list[str]:
    """Name the fused optimizers with a scheduler: under a scaler, to know of a skip waits for the device."""
    return [name for name in schedulers if getattr(optimizers[name], "_step_supports_amp_scaling", False)]


def _advance(scheduler: LRScheduler, optimizer: torch.optim.Optimizer, *_: object) -> None:
    found_inf = getattr(optimizer, "found_inf", None)
    # A fused optimizer's `step` runs even on a skip: to know costs a synchronisation, where it has a scheduler.
    if found_inf is None or not found_inf.item():
        try:
            scheduler.step()
        except Exception as error:  # whatever a wrong keyword brings
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(
                f"train.scheduler, or the workload's schedulers: {type(scheduler).__name__} fails with {why}"
            ) from error
