"""A run: all that a step reads and changes, made fresh from a workload, a mode and options."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.amp.grad_scaler import GradScaler

from ampcheck import options as options_module
from ampcheck.options import Options
from ampcheck.precision import Mode
from ampcheck.refusals import by_name, refuse
from ampcheck.schedulers import attach
from ampcheck.workloads import Modules, Optimizers, Schedulers, Workload


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
    options: Options
    overflow_at: frozenset[int] = frozenset()  # steps whose losses are multiplied by inf
    step: int = 0


def start(
    workload: Workload,
    mode: Mode,
    device: torch.device,
    options: Options,
    *,
    scaler: Mapping[str, float] | None = None,
    overflow_at: frozenset[int] = frozenset(),
) -> Run:
    """Build a fresh run at step 0 from the current seeds; `scaler` holds keywords of its one GradScaler.

    Sets the process's float32 precision to the mode's. ValueError if the scaler disables itself, or if the workload
    or the options bring what the loop can't train.
    """
    torch.backends.fp32_precision = mode.fp32_precision  # type: ignore[attr-defined] # its module hides it
    made = by_name("modules", workload.modules(), torch.nn.Module)
    modules = {name: module.to(device) for name, module in made.items()}
    optimizers = options_module.optimizers(workload, modules, options)
    schedulers = options_module.schedulers(workload, optimizers, options)
    refuse(mode, device, modules, optimizers, schedulers)
    attach(schedulers, optimizers)
    grad_scaler = GradScaler(device.type, enabled=mode.scaler, **(scaler or {}))  # type: ignore[arg-type]
    if grad_scaler.is_enabled() != mode.scaler:
        raise ValueError(f"device: GradScaler disables itself on {device}; choose a mode without a scaler")
    if options.compile:
        for module in modules.values():
            # Not module.compile(), which compiles nothing of torch's own modules, such as Sequential.
            module.forward = torch.compile(module.forward)
    return Run(
        mode=mode,
        device=device,
        autocast=torch.autocast(device.type, dtype=getattr(torch, mode.dtype), enabled=mode.autocast),
        workload=workload,
        modules=modules,
        optimizers=optimizers,
        schedulers=schedulers,
        scaler=grad_scaler,
        options=options,
        overflow_at=overflow_at,
    )
