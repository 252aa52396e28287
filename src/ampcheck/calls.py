"""Matmuls and convolutions as a step called them, so that they can be called again: shapes, no numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ampcheck.precision import dtype_name

MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")


@dataclass(frozen=True, slots=True)
class Like:
    """A tensor's shape, order in memory, dtype, and where it lay: what lies in one place shares a cache."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    address: int = field(default=0, compare=False)

    def made(self, device: torch.device, held: dict[Any, torch.Tensor] | None = None) -> torch.Tensor:
        """Return a tensor of random numbers that is laid out alike, without gaps.

        `held` has the numbers by place, which are taken from there, or else put there.
        """
        held = {} if held is None else held
        order = sorted(range(len(self.shape)), key=lambda dimension: -self.strides[dimension])
        dense = tuple(self.shape[each] if self.strides[each] else 1 for each in order)
        place = (self.address, self.dtype, math.prod(dense))
        if place not in held:
            held[place] = torch.randn(place[-1], device=device).to(self.dtype)
        return held[place].view(dense).permute([order.index(each) for each in range(len(order))]).expand(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operation with flops, and what it was called with: tensors as Like.

    `made_before_bytes` is the memory that others without flops took for their results, since the call before.
    """

    operation: Callable[..., Any]
    args: tuple[Any, ...]
    flops: int
    made_before_bytes: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The operation's name, such as "aten.mm"."""
        return str(self.operation).removesuffix(".default")

    @property
    def kind(self) -> str:
        """Convolution, or matmul for all the rest."""
        return "convolution" if "convolution" in self.name else "matmul"

    @property
    def again(self) -> bool:
        """Whether it can be called again, by what is known of it."""
        return self.name in MATMULS + CONVOLUTIONS

    @property
    def tensors(self) -> list[Like]:
        """Those that have rows and columns: no bias."""
        return [leaf for leaf in tree_leaves(self.args) if isinstance(leaf, Like) and len(leaf.shape) > 1]

    @property
    def dtype(self) -> str:
        """Torch's name of the type that is computed in."""
        return dtype_name(self.tensors[0].dtype)

    @property
    def operands(self) -> str:
        """Describe the operands: "512 x 1024, 1024 x 1024"."""
        return ", ".join(" x ".join(map(str, each.shape)) for each in self.tensors)

    def made(self, device: torch.device, held: dict[Any, torch.Tensor] | None = None) -> Callable[[], Any]:
        """Return the call with operands of its own, or those that are `held` by place."""
        args = tree_map(lambda leaf: leaf.made(device, held) if isinstance(leaf, Like) else leaf, self.args)
        return lambda: self.operation(*args)

    def anywhere(self) -> "Call":
        """Return the call with operands that share a place with all others as large."""
        return replace(self, args=_mapped(self.args, lambda like: replace(like, address=0)))

    def padded(self, dimension: int, to: int) -> "Call":
        """Return the matmul with every row and column count of `dimension` raised to `to`."""

        def wider(like: Like) -> Like:
            matrix = tuple(to if each == dimension else each for each in like.shape[-2:])
            return replace(like, shape=like.shape[:-2] + matrix)

        return replace(self, args=_mapped(self.args, wider))


def _mapped(args: tuple[Any, ...], change: Callable[[Like], Like]) -> Any:  # noqa: ANN401 - as the arguments
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, Like) else leaf, args)
