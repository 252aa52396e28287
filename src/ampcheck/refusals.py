"""What a workload may not bring: refused before any training, each with the reason and the way out."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ampcheck.precision import Mode
from ampcheck.workloads import Modules, Optimizers, Schedulers

HALF = (torch.float16, torch.bfloat16)


def refuse(mode: Mode, modules: Modules, optimizers: Optimizers, schedulers: Schedulers) -> None:
    """ValueError, a line a reason, if the loop can't train these in `mode`.

    Under a scaler no trained weight has 16 bits. No optimizer is listed twice, and a scheduler bears its optimizer's
    name. The `step` of both needs no argument.
    """
    wrong = [*_twice(optimizers), *_strangers(optimizers, schedulers)]
    wrong += _needy(optimizers, "SGD or Adam") + _needy(schedulers, "StepLR")
    if mode.scaler:
        wrong += _half(modules)
    if wrong:
        raise ValueError("\n".join(f"workload: {reason}" for reason in wrong))


def _twice(optimizers: Optimizers) -> list[str]:
    if len({id(optimizer) for optimizer in optimizers.values()}) == len(optimizers):
        return []
    return ["one optimizer is listed twice; each may step once between two updates of the scaler"]


def _strangers(optimizers: Optimizers, schedulers: Schedulers) -> list[str]:
    strangers = sorted(set(schedulers) - set(optimizers))
    allowed = ", ".join(optimizers)
    return [f"schedulers got {name}; each bears its optimizer's name: {allowed}" for name in strangers]


def _needy(steppers: Mapping[str, Any], instead: str) -> list[str]:
    """LBFGS wants a closure, ReduceLROnPlateau a metric; the loop has neither: a scaler may tell it to skip."""
    found = []
    for name, each in steppers.items():
        try:
            inspect.signature(type(each).step).bind(each)  # of the class: a scheduler hides its optimizer's own
        except TypeError as error:
            kind = type(each).__name__
            found.append(f"{name} is {kind}, but the loop calls step() and no more ({error}); take {instead}, say")
    return found


def _half(modules: Modules) -> list[str]:
    """GradScaler can't unscale float16 gradients, and weights in 16 bits have no room for small updates."""
    found = [
        f"{name}.{path} is {str(parameter.dtype).removeprefix('torch.')}"
        for name, module in modules.items()
        for path, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.dtype in HALF
    ]
    reason = (
        f"has {len(found)} trained weights in 16 bits ({', '.join(found[:3])}{', ...' * (len(found) > 3)}); under a "
        "scaler they stay float32, and autocast casts: leave half(), bfloat16() and to(dtype) out"
    )
    return [reason] if found else []
