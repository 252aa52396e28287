"""Watches steps: which operation makes a number that is not finite, in which module, and which one torch refuses."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ampcheck.births import Birth, dtype_of_birth, finite, floating, is_birth, largest, largest_in_float32
from ampcheck.births import operation_name as name_of
from ampcheck.paths import named_modules, named_parameters, users_line
from ampcheck.precision import dtype_name
from ampcheck.run import Run
from ampcheck.workloads import Batch, Modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An operation that torch refused, in which module, and the dtypes of the tensors that it was given."""

    module: str
    operation: str
    phase: str
    dtypes: list[str]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operation of the steps that `run` takes inside."""

    def __init__(self, run: Run) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run, self.losses = run, run.workload.losses
        self.kinds = {name: type(module).__name__ for name, module in named_modules(run.modules)}
        self.at, self.phase = [""], "forward"  # the modules at work, innermost last
        self.births: list[Birth] = []
        self.spoiled: set[str] = set()  # modules whose output was not finite
        self.ends: set[object] = set()  # the graph's nodes that are the end of a module
        self.loss_dtypes: set[str] = set()
        self.gradient = ""  # the first parameter whose gradient was not finite
        self.refused: Refused | None = None
        self.hooks = ExitStack()

    def __enter__(self) -> Self:
        """Add hooks to the run's modules, parameters and losses."""
        for name, module in named_modules(self.run.modules):
            self.hooks.enter_context(module.register_forward_pre_hook(partial(self._begins, name)))
            self.hooks.enter_context(module.register_forward_hook(partial(self._ends, name)))
        for name, parameter in named_parameters(self.run.modules):
            handle = parameter.register_hook(partial(self._reached, name))  # type: ignore[no-untyped-call]
            self.hooks.enter_context(handle)
        for optimizer in self.run.optimizers.values():
            self.hooks.enter_context(optimizer.register_step_pre_hook(self._updates))
        self.hooks.callback(setattr, self.run, "workload", self.run.workload)
        self.run.workload = replace(self.run.workload, losses=self._made)
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: object) -> None:
        """Take the hooks away."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.hooks.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run one operation, and note what is wrong with it."""
        given = (args, kwargs or {})
        try:
            result = func(*given[0], **given[1])
        except RuntimeError:
            dtypes = [dtype_name(leaf.dtype) for leaf in tree_leaves(given) if torch.is_tensor(leaf)]
            self.refused = Refused(module=self.at[-1], operation=name_of(func), phase=self.phase, dtypes=dtypes)
            raise
        if is_birth(func, given, result):
            self.births.append(
                Birth(
                    module=self.at[-1],
                    kind=self.kinds.get(self.at[-1], ""),
                    operation=name_of(func),
                    phase=self.phase,
                    dtype=dtype_of_birth(result),
                    largest=largest(given) or 0.0,
                    in_float32=largest_in_float32(func, given),
                    line=users_line(),
                )
            )
        return result

    def culprit(self) -> Birth | None:
        """Return the first birth that spoiled its module's output, or one outside modules; else the first of all."""
        spoilers = [each for each in self.births if each.phase != "forward" or each.module in {"", *self.spoiled}]
        return next(iter(spoilers or self.births), None)

    def _made(self, modules: Modules, batch: Batch) -> Iterable[torch.Tensor]:
        self.at, self.phase, self.ends = [""], "forward", set()
        made = list(self.losses(modules, batch))
        self.loss_dtypes |= {dtype_name(loss.dtype) for loss in made}
        self.at, self.phase = [""], "backward"
        return made

    def _begins(self, name: str, *_: object) -> None:
        self.at.append(name)

    def _ends(self, name: str, _: nn.Module, __: object, output: Any) -> None:  # noqa: ANN401
        self.at.pop()
        if not finite(output):
            self.spoiled.add(name)
        for leaf in floating(output):
            if leaf.requires_grad and leaf.grad_fn not in self.ends:  # else the end of a module inside as well
                self.ends.add(leaf.grad_fn)
                leaf.register_hook(partial(self._goes_back, name))  # type: ignore[no-untyped-call]

    def _goes_back(self, name: str, _: torch.Tensor) -> None:
        self.at = [name]

    def _updates(self, *_: object) -> None:
        self.at, self.phase = [""], "optimizer"

    def _reached(self, name: str, gradient: torch.Tensor) -> None:
        if not self.gradient and not finite(gradient):
            self.gradient = name
