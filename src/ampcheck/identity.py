"""Byte-exact comparison of nested state. Bit-exact means dtype, shape and raw bytes: 0.0 is not -0.0."""

import hashlib
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

Leaves = dict[str, str]  # path -> SHA-256 of the leaf, in the state's own order


def leaves(state: object) -> Leaves:
    """Return the digest of every leaf of nested dicts, lists and tuples.

    Leaves are tensors of any dtype and shape, numbers, strings, None, and empty containers. TypeError for
    anything else: what can't be compared must not be skipped.
    """
    found: Leaves = {}
    for path, leaf in walk(state):
        assert path not in found, f"two leaves are called {path}"
        found[path] = hashlib.sha256(_encoded(leaf, path)).hexdigest()
    return found


def walk(node: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) of nested dicts, lists and tuples; an empty one is a leaf. Every path begins with `path`."""
    children: list[tuple[object, object]] = []
    if isinstance(node, Mapping):
        children = list(node.items())
    elif isinstance(node, list | tuple):
        children = list(enumerate(node))
    for key, child in children:
        yield from walk(child, f"{path}/{key}" if path else str(key))
    if not children:
        yield path, node


def digest(state: object) -> str:
    """One SHA-256 over the paths and leaves of `state`."""
    return hashlib.sha256(repr(leaves(state)).encode()).hexdigest()


def differing(expected: Leaves, actual: Leaves) -> list[str]:
    """Paths that differ or exist on one side only, in the order of `expected`, extra ones last."""
    paths = dict.fromkeys([*expected, *actual])
    return [path for path in paths if expected.get(path) != actual.get(path)]


def first_different_loss(expected: list[float], actual: list[float], first_step: int = 0) -> dict[str, Any] | None:
    """Return the step and both values of the first loss whose bits differ, or None. Both lists have one length."""
    for step, (a, b) in enumerate(zip(expected, actual, strict=True), first_step):
        if not _same_bits(a, b):
            return {"step": step, "straight": _json_number(a), "resumed": _json_number(b)}
    return None


def first_not_finite(losses: list[float], expected: Collection[int] = ()) -> int | None:
    """Return the first step whose loss is nan or infinite, those `expected` apart, or None."""
    steps = (step for step, loss in enumerate(losses) if step not in expected and not math.isfinite(loss))
    return next(steps, None)


def _same_bits(a: float, b: float) -> bool:
    """Nan is the same as nan, 0.0 differs from -0.0."""
    return struct.pack("d", a) == struct.pack("d", b)


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _encoded(leaf: object, path: str) -> bytes:
    if isinstance(leaf, torch.Tensor):
        flat = leaf.detach().cpu().contiguous().reshape(-1)
        return f"{leaf.dtype} {tuple(leaf.shape)} ".encode() + flat.view(torch.uint8).numpy().tobytes()
    if isinstance(leaf, float):
        return b"float " + struct.pack("d", leaf)
    if isinstance(leaf, Mapping):
        return b"empty mapping"
    if leaf is None or isinstance(leaf, bool | int | str | list | tuple):
        return f"{type(leaf).__name__} {leaf!r}".encode()
    raise TypeError(f"state leaf {path}: {type(leaf).__name__} can't be compared byte for byte")
