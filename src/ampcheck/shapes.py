"""The workload's own shapes: which matmuls and convolutions dominate, how fast they are alone and padded."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ampcheck.operations import CONVOLUTIONS, MATMULS, Call
from ampcheck.rates import alone_seconds

DOMINANT = 0.95  # of the flops
MOST = 12  # shapes that are measured
MOST_BYTES = 2**30
MULTIPLE = 8  # https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication


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
        flops[_kind(call)] += call.flops
    return dict(flops)


def by_dtype(calls: list[Call]) -> dict[str, int]:
    """Return a step's flops by the dtype that they were computed in."""
    flops: Counter[str] = Counter()
    for call in calls:
        flops[call.dtype] += call.flops
    return dict(flops)


def in_order(calls: list[Call], device: torch.device) -> tuple[Callable[[], object], float]:
    """Return a step's matmuls and convolutions as one operation, and the share that they have of the flops.

    Each has operands of its own, which no cache holds, as in a step, until those take MOST_BYTES.
    """
    made: dict[Call, Callable[[], Any]] = {}
    row, held = [], 0
    for call in filter(_can_be_called, calls):
        if call not in made or held < MOST_BYTES:
            made[call] = call.made(device)
            held += call.nbytes
        row.append(made[call])

    def one_after_the_other() -> None:
        for operation in row:
            operation()

    total = sum(call.flops for call in calls)
    return one_after_the_other, sum(call.flops for call in filter(_can_be_called, calls)) / total if total else 1.0


def dominant_shapes(calls: list[Call], device: torch.device) -> list[Shape]:
    """Return those with most flops, with the seconds of a call, as in a row of the same."""
    return [
        Shape(
            kind=_kind(call),
            operation=call.name.removeprefix("aten."),
            operands=call.operands,
            dtype=call.dtype,
            calls=times,
            flops=call.flops,
            seconds=alone_seconds(call, device),
        )
        for call, times in _dominant(calls).items()
    ]


def padding_seconds(calls: list[Call], device: torch.device) -> dict[str, float]:
    """Return what a step saves, by dimension, if the dominant matmuls' is raised to the next multiple of 8."""
    saved: defaultdict[str, float] = defaultdict(float)
    for call, times in _dominant(calls).items():
        if _kind(call) == "convolution":
            continue
        dimensions = {each for tensor in call.tensors for each in tensor.shape[-2:]}
        for dimension in sorted(each for each in dimensions if each > MULTIPLE and each % MULTIPLE):
            wider = call.padded(dimension, -(-dimension // MULTIPLE) * MULTIPLE)
            saved[str(dimension)] += times * (alone_seconds(call, device) - alone_seconds(wider, device))
    return dict(saved)


def _dominant(calls: list[Call]) -> Counter[Call]:
    """Return those with most flops, until they have DOMINANT of all."""
    times = Counter(filter(_can_be_called, calls))
    ordered = sorted(times, key=lambda call: call.flops * times[call], reverse=True)
    total, kept = sum(call.flops * times[call] for call in times), 0
    dominant: Counter[Call] = Counter()
    for call in ordered[:MOST]:
        if kept < DOMINANT * total:
            dominant[call] = times[call]
            kept += call.flops * times[call]
    return dominant


def _can_be_called(call: Call) -> bool:
    return call.name in MATMULS + CONVOLUTIONS


def _kind(call: Call) -> str:
    return "convolution" if "convolution" in call.name else "matmul"
