"""An operation that makes a number that is not finite from finite ones: which, where, and of how large numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ampcheck.precision import dtype_name
from ampcheck.refusals import HALF

# What writes infinities on purpose, as masks have them, or leaves memory as it finds it.
ON_PURPOSE = ("empty", "new_empty", "empty_strided", "full", "new_full", "fill", "masked_fill", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What an operation did.

    `phase` is forward, backward or optimizer. `module` is its path, empty outside of all; backward it is the one whose
    output's gradient came last. `largest` is the largest magnitude that came in, `in_float32` that of the result with
    float32 inputs, None if it is not finite then either.
    """

    module: str
    kind: str
    operation: str
    phase: str
    dtype: str
    largest: float
    in_float32: float | None
    line: str


def is_birth(func: Callable[..., Any], given: tuple[Any, Any], result: Any) -> bool:  # noqa: ANN401
    """Whether `func`, which was not meant to, made `result` not finite from finite arguments."""
    on_purpose = operation_name(func).rstrip("_").removesuffix("_like") in ON_PURPOSE
    return not on_purpose and not finite(result) and finite(given)


def operation_name(func: Any) -> str:  # noqa: ANN401 - one of torch's operators
    """Return the name of an operation of torch, such as "addmm"."""
    return str(func.overloadpacket.__name__)


def floating(tree: Any) -> list[torch.Tensor]:  # noqa: ANN401
    """Return the floating tensors of a tree."""
    return [leaf for leaf in tree_leaves(tree) if torch.is_tensor(leaf) and leaf.is_floating_point()]


def magnitude(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of a floating tensor, nan if one of its numbers is nan."""
    if not tensor.numel():
        return 0.0
    low, high = torch.aminmax(tensor.detach())  # an eighth of isfinite's time
    return (high if high.isnan() else torch.maximum(-low, high)).item()


def finite(tree: Any) -> bool:  # noqa: ANN401
    """Whether all floating tensors and numbers of a tree are."""
    numbers = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, float)]
    return all(math.isfinite(each) for each in [*numbers, *map(magnitude, floating(tree))])


def dtype_of_birth(result: Any) -> str:  # noqa: ANN401
    """Return the dtype of the first tensor that is not finite."""
    return next(dtype_name(leaf.dtype) for leaf in floating(result) if not finite(leaf))


def largest(tree: Any) -> float | None:  # noqa: ANN401
    """Return the largest magnitude of a tree's floating tensors, None if one is not finite."""
    found = max(map(magnitude, floating(tree)), default=0.0)
    return found if finite(tree) else None


def largest_in_float32(func: Callable[..., Any], given: tuple[Any, Any]) -> float | None:
    """Return the largest magnitude of the result with float32 in the place of 16 bits, None if it is not finite."""

    def widened(leaf: Any) -> Any:  # noqa: ANN401
        if torch.is_tensor(leaf) and leaf.dtype in HALF:
            return leaf.float()
        return torch.float32 if isinstance(leaf, torch.dtype) and leaf in HALF else leaf

    args, kwargs = tree_map(widened, given)
    try:
        return largest(func(*args, **kwargs))
    except (RuntimeError, TypeError):  # an operation of 16 bits only
        return None
