"""What a run may be asked for beyond the plain recipe, and the optimizers and schedulers that torch has by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ampcheck.fields import closest, flow
from ampcheck.refusals import by_name, what_step_needs
from ampcheck.workloads import Modules, Optimizers, Schedulers, Workload

OF_OBJECTS = ("ChainedScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR")  # no YAML holds their keywords


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to train; the names are those of the section `train`, and so is what they mean. None is not asked for."""

    lr: float
    zero_grad: str
    optimizer: Mapping[str, Any] | None = None  # name in torch.optim, and keywords
    scheduler: Mapping[str, Any] | None = None  # name in torch.optim.lr_scheduler, and keywords
    clip_norm: float | None = None
    accumulate: int = 1
    gradient_penalty: float | None = None
    compile: bool = False


def optimizers(workload: Workload, modules: Modules, options: Options) -> Optimizers:
    """Return the workload's own optimizers, or those of `options` in their places, for the same parameters."""
    own = by_name("optimizers", workload.optimizers(modules, options.lr), torch.optim.Optimizer)
    if options.optimizer is None:
        return own
    groups = {name: [{"params": group["params"]} for group in each.param_groups] for name, each in own.items()}
    make = _made_by_name("train.optimizer", torch.optim, torch.optim.Optimizer, options.optimizer)
    return {name: make(group, lr=options.lr) for name, group in groups.items()}


def schedulers(workload: Workload, made: Optimizers, options: Options) -> Schedulers:
    """Return the workload's own schedulers, or one of `options` for each optimizer."""
    scheduler = torch.optim.lr_scheduler.LRScheduler
    if options.scheduler is None:
        return by_name("schedulers", workload.schedulers(made), scheduler, may_be_empty=True)
    make = _made_by_name("train.scheduler", torch.optim.lr_scheduler, scheduler, options.scheduler)
    return {name: make(optimizer) for name, optimizer in made.items()}


def _made_by_name(key: str, module: Any, base: type, asked: Mapping[str, Any]) -> Callable[..., Any]:  # noqa: ANN401
    """Return what makes an object of the subclass of `base` that `asked` names in `module`. ValueError without one."""
    public = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and name[0] != "_"}
    kinds = {name: kind for name, kind in public.items() if issubclass(kind, base) and kind is not base}
    name, keywords = asked["name"], {keyword: value for keyword, value in asked.items() if keyword != "name"}
    needs = what_step_needs(kinds[name]) if name in kinds else ""
    if name not in kinds or name in OF_OBJECTS or needs:
        why = f"its step() needs more than the loop gives ({needs}); " if needs else ""
        why = f"it takes Python objects: make it in the workload's {key[6:]}s; " if name in OF_OBJECTS else why
        allowed = sorted(name for name, kind in kinds.items() if name not in OF_OBJECTS and not what_step_needs(kind))
        raise ValueError(f"{key}.name: got {name!r}; {why}allowed: {', '.join(allowed)}{closest(name, allowed)}")

    def make(*given: Any, **also: Any) -> Any:  # noqa: ANN401
        try:
            return kinds[name](*given, **also, **keywords)
        except Exception as error:  # whatever torch makes of a wrong keyword
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"{key}: {name} refuses {flow(keywords)}: {why}; see torch's documentation") from error

    return make
