"""The workload's own shapes: which matmuls and convolutions dominate, how fast they are alone."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ampcheck.calls import Call
from ampcheck.rates import alone_seconds

DOMINANT = 0.95  # of the flops
MOST = 12  # shapes that are measured
MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A matmul or convolution of a step: how often it is called, and what a call takes in a row of the same."""

    kind: str
    operation: str
    operands: str
    dtype: str
    calls: int
    flops: int
    seconds: float


def by_kind(calls: list[Call]) -> dict[str, int]:
    """Return a step's flops of convolutions, and of all the rest as "matmul"."""
    flops: Counter[str] = Counter()
    for call in calls:
        flops[call.kind] += call.flops
    return dict(flops)


def by_dtype(calls: list[Call]) -> dict[str, int]:
    """Return a step's flops by the dtype that they were computed in."""
    flops: Counter[str] = Counter()
    for call in calls:
        flops[call.dtype] += call.flops
    return dict(flops)


def in_order(calls: list[Call], device: torch.device) -> tuple[Callable[[], object], float]:
    """Return a step's matmuls and convolutions as one operation, and the share that they have of the flops.

    With caches and memory as in the step: what lay in one place does so again; results are kept, and between them there
    is room for those of other operations, so that a CPU's memory grows and is given back as there: to map it anew takes
    time. Beyond MOST_BYTES operands share their places, and nothing is kept.
    """
    held: dict[Any, torch.Tensor] = {}
    again = [call for call in calls if call.again]
    row = [(call if _nbytes(held) < MOST_BYTES else call.anywhere()).made(device, held) for call in again]
    rooms = [call.made_before_bytes for call in again]
    most_kept = 2 * len(row) if _nbytes(held) + sum(rooms) < MOST_BYTES else 1

    def one_after_the_other() -> None:
        kept: deque[object] = deque(maxlen=most_kept)
        for room, operation in zip(rooms, row, strict=True):
            kept.append(torch.empty(room, dtype=torch.uint8, device=device))
            kept.append(operation())

    total = sum(call.flops for call in calls)
    return one_after_the_other, sum(call.flops for call in again) / total if total else 1.0


def dominant_shapes(calls: list[Call], device: torch.device) -> list[Shape]:
    """Return those with most flops, with the seconds of a call, as in a row of the same."""
    return [
        Shape(
            kind=call.kind,
            operation=call.name.removeprefix("aten."),
            operands=call.operands,
            dtype=call.dtype,
            calls=times,
            flops=call.flops,
            seconds=alone_seconds(call, device),
        )
        for call, times in _dominant(calls).items()
    ]


def _dominant(calls: list[Call]) -> Counter[Call]:
    """Return those with most flops, until they have DOMINANT of all."""
    times = Counter(each for each in calls if each.again)
    ordered = sorted(times, key=lambda call: call.flops * times[call], reverse=True)
    total, kept = sum(call.flops * times[call] for call in times), 0
    dominant: Counter[Call] = Counter()
    for call in ordered[:MOST]:
        if kept < DOMINANT * total:
            dominant[call] = times[call]
            kept += call.flops * times[call]
    return dominant


def _nbytes(held: Mapping[Any, torch.Tensor]) -> int:
    return sum(each.nbytes for each in held.values())
