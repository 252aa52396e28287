"""Byte-exact comparison of nested state. Bit-exact means dtype, shape and raw bytes: 0.0 is not -0.0."""

import hashlib
import math
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

BLOCK_BYTES = 4096
Leaves = dict[str, str]  # path -> SHA-256 of the leaf, in the state's own order


def leaves(state: object) -> Leaves:
    """Return the digest of every leaf of nested dicts, lists and tuples.

    Leaves are tensors of any dtype and shape, numbers, strings, None, and empty containers. TypeError for
    anything else: what can't be compared must not be skipped.
    """
    found: Leaves = {}
    for path, leaf in walk(state):
        assert path not in found, f"two leaves are called {path}"
        kind, content = _encoded(leaf, path)
        digest = hashlib.sha256(kind)
        digest.update(content)
        found[path] = digest.hexdigest()
    return found


def checksums(state: object) -> dict[str, str]:
    """Return path -> CRC-32 of each leaf, with tensors as the sums of their blocks: against damage, at little cost.

    TypeError as for `leaves`, and for numpy's numbers, which `torch.load(weights_only=True)` would not read again.
    """
    found = {}
    for path, leaf in walk(state):
        if isinstance(leaf, np.generic):
            raise TypeError(f"state leaf {path}: {type(leaf).__name__} is numpy's; convert it, as with float()")
        kind, content = _encoded(leaf, path)
        found[path] = f"{_checksum(content, zlib.crc32(kind)):08x}"
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


def few(names: list[str], separator: str = ", ") -> str:
    """Join the first three of `names`, and tell how many more there are."""
    more = [f"and {len(names) - 3} more"] if len(names) > 3 else []
    return separator.join([*names[:3], *more])


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


def _checksum(content: Any, crc: int) -> int:  # noqa: ANN401
    """Continue `crc`. Sums of 64-bit words in blocks of 4 KiB come at the memory's speed; a CRC of all takes longer."""
    if isinstance(content, bytes):
        return zlib.crc32(content, crc)
    whole = len(content) // BLOCK_BYTES * BLOCK_BYTES
    sums = content[:whole].view(np.uint64).reshape(-1, BLOCK_BYTES // 8).sum(axis=1)
    return zlib.crc32(content[whole:], zlib.crc32(sums, crc))


def _encoded(leaf: object, path: str) -> tuple[bytes, Any]:
    """Return the leaf's kind, and its content, as bytes or as an array of them."""
    if isinstance(leaf, torch.Tensor):
        flat = leaf.detach().cpu().contiguous().reshape(-1)
        return f"{leaf.dtype} {tuple(leaf.shape)} ".encode(), flat.view(torch.uint8).numpy()
    if isinstance(leaf, float):
        return b"float ", struct.pack("d", leaf)
    if isinstance(leaf, Mapping):
        return b"empty ", b"mapping"
    if leaf is None or isinstance(leaf, bool | int | str | list | tuple):
        return f"{type(leaf).__name__} ".encode(), repr(leaf).encode()
    raise TypeError(f"state leaf {path}: {type(leaf).__name__} can't be compared byte for byte")
