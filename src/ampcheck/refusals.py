"""What a workload may not bring: refused before any training, each with the reason and the way out."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch.nn.parameter import is_lazy

from ampcheck.precision import Mode, dtype_name
from ampcheck.workloads import Modules, Optimizers, Schedulers, weights_of

T = TypeVar("T")
HALF = (torch.float16, torch.bfloat16)


def by_name(what: str, made: Any, kind: type[T], *, may_be_empty: bool = False) -> Mapping[str, T]:  # noqa: ANN401
    """Return `made`, a mapping from names to objects of `kind`. ValueError, naming what came, if it is none."""
    if not isinstance(made, Mapping):
        raise ValueError(f"workload: {what} returned a {type(made).__name__}; it must return a dict, by name")
    strangers = [f"{name!r}: {type(each).__name__}" for name, each in made.items() if not isinstance(each, kind)]
    strangers += [f"the key {name!r}" for name in made if not isinstance(name, str)]
    if strangers or not (made or may_be_empty):
        came = ", ".join(strangers) or "an empty dict"
        raise ValueError(f"workload: {what} returned {came}; it must return a dict of {kind.__name__} objects by name")
    return made


def refuse(mode: Mode, device: torch.device, modules: Modules, optimizers: Optimizers, schedulers: Schedulers) -> None:
    """ValueError, a line a reason, if the loop can't train these in `mode` on `device`.

    All weights lie on the device, those that an optimizer trains in a module; under a scaler none of them has 16 bits,
    and no fused SGD has momentum. No optimizer is listed twice, and a scheduler bears its optimizer's name. The `step`
    of both needs no argument.
    """
    wrong = [*_lazy(modules), *_elsewhere(device, modules), *_homeless(modules, optimizers)]
    wrong += [*_twice(optimizers), *_strangers(optimizers, schedulers)]
    wrong += _needy(optimizers, "SGD or Adam") + _needy(schedulers, "StepLR")
    if mode.scaler:
        wrong += [*_half(modules), *_uninitialised(optimizers)]
    if wrong:
        raise ValueError("\n".join(f"workload: {reason}" for reason in wrong))


def _tensors(modules: Modules) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the path of each parameter and buffer, and the tensor itself."""
    for name, module in modules.items():
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            yield f"{name}.{path}", tensor


def _lazy(modules: Modules) -> list[str]:
    """A lazy module has no shape before its first step, so that a checkpoint can't be put into a fresh one."""
    return [
        f"{path} is lazy, without a shape before the first step; give its module the sizes"
        for path, tensor in _tensors(modules)
        if is_lazy(tensor)
    ]


def _elsewhere(device: torch.device, modules: Modules) -> list[str]:
    return [
        f"{path} lies on {tensor.device}, not on {device}; leave devices to ampcheck, which moves the modules"
        for path, tensor in _tensors(modules)
        if tensor.device.type != device.type or device.index not in (None, tensor.device.index)
    ]


def _homeless(modules: Modules, optimizers: Optimizers) -> list[str]:
    """What no module holds is in no checkpoint: its state would be lost at a stop."""
    held = {id(parameter) for module in modules.values() for parameter in module.parameters()}
    strays = {
        name: sum(id(weight) not in held for weight in weights_of(optimizer)) for name, optimizer in optimizers.items()
    }
    return [
        f"optimizer {name} trains {count} parameters that no module holds, so that no checkpoint would have them; "
        "make them a module's"
        for name, count in strays.items()
        if count
    ]


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
    return [
        f"{name} is {type(each).__name__}, but the loop calls step() and no more ({needs}); take {instead}, say"
        for name, each in steppers.items()
        if (needs := what_step_needs(type(each)))
    ]


def what_step_needs(kind: Any) -> str:  # noqa: ANN401 - of an optimizer or a scheduler
    """Return what a call of `step()` lacks, in python's words; empty if nothing. A class without a `step` lacks it."""
    try:
        inspect.signature(kind.step).bind(kind)  # of the class: a scheduler hides its optimizer's own
    except (AttributeError, TypeError) as error:
        return str(error)
    return ""


def _uninitialised(optimizers: Optimizers) -> list[str]:
    """Of torch's fused SGD: the momentum of a first step that is skipped is memory as it was allocated."""
    return [
        f"{name} is a fused SGD with momentum, which torch takes from uninitialised memory if the scaler skips "
        "its first step; leave fused out"
        for name, optimizer in optimizers.items()
        if isinstance(optimizer, torch.optim.SGD)
        and any(group["fused"] and group["momentum"] for group in optimizer.param_groups)
    ]


def _half(modules: Modules) -> list[str]:
    """GradScaler can't unscale float16 gradients, and weights in 16 bits have no room for small updates."""
    found = [
        f"{name}.{path} is {dtype_name(parameter.dtype)}"
        for name, module in modules.items()
        for path, parameter in module.named_parameters()
        if parameter.requires_grad and parameter.dtype in HALF
    ]
    reason = (
        f"has {len(found)} trained weights in 16 bits ({', '.join(found[:3])}{', ...' * (len(found) > 3)}); under a "
        "scaler they stay float32, and autocast casts: leave half(), bfloat16() and to(dtype) out"
    )
    return [reason] if found else []
