"""How large activations and gradients are in float32, and how many of the gradients 16 bits would make zero."""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from ampcheck.births import floating, magnitude
from ampcheck.paths import leaf_modules, named_parameters
from ampcheck.precision import dtype_name
from ampcheck.workloads import Modules


@dataclass(slots=True)
class Tally:
    """What was seen of one gradient: its largest magnitude, and counts over all passes."""

    largest: float = 0.0
    nonzero: int = 0
    zero_unscaled: int = 0  # of those that are not zero, how many a cast to 16 bits makes zero
    zero_scaled: int = 0  # how many if they are multiplied by the loss scale before

    def add(self, gradient: torch.Tensor, dtype: torch.dtype, scale: float) -> None:
        """Count in one gradient, unless it is not finite."""
        largest = magnitude(gradient)
        if not math.isfinite(largest):
            return
        nonzero = _nonzero(gradient)
        self.largest = max(self.largest, largest)
        self.nonzero += nonzero
        self.zero_unscaled += nonzero - _nonzero(gradient.to(dtype))
        self.zero_scaled += nonzero - _nonzero((gradient * scale).to(dtype))


@dataclass(slots=True)
class Magnitudes:
    """What was seen, by path: the largest magnitude of each leaf module's outputs; gradients of them and of weights."""

    outputs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    of_outputs: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    of_parameters: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))


@contextmanager
def measured(modules: Modules, dtype: torch.dtype, scale: float) -> Iterator[Magnitudes]:
    """Measure what passes through `modules`, with regard to 16-bit `dtype` and a loss scale."""
    found = Magnitudes()

    def noted(tallies: dict[str, Tally], name: str, gradient: torch.Tensor) -> None:
        tallies[name].add(gradient, dtype, scale)

    def seen(name: str, _: nn.Module, __: object, output: Any) -> None:  # noqa: ANN401
        for leaf in floating(output):
            found.outputs[name] = max(found.outputs[name], magnitude(leaf))
            if leaf.requires_grad:
                leaf.register_hook(partial(noted, found.of_outputs, name))  # type: ignore[no-untyped-call]

    with ExitStack() as hooks:
        for name, module in leaf_modules(modules):
            hooks.enter_context(module.register_forward_hook(partial(seen, name)))
        for name, parameter in named_parameters(modules):
            handle = parameter.register_hook(partial(noted, found.of_parameters, name))  # type: ignore[no-untyped-call]
            hooks.enter_context(handle)
        yield found


@contextmanager
def output_dtypes(modules: Modules) -> Iterator[dict[str, str]]:
    """Note the dtype of each leaf module's output, by path; of several the last."""
    found: dict[str, str] = {}

    def seen(name: str, _: nn.Module, __: object, output: Any) -> None:  # noqa: ANN401
        for leaf in floating(output):
            found[name] = dtype_name(leaf.dtype)

    with ExitStack() as hooks:
        for name, module in leaf_modules(modules):
            hooks.enter_context(module.register_forward_hook(partial(seen, name)))
        yield found


def _nonzero(tensor: torch.Tensor) -> int:
    return int(tensor.count_nonzero().item())
