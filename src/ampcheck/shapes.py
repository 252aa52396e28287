"""The workload's own shapes: which matmuls and convolutions dominate, how fast they are alone, and padded."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import torch

from ampcheck.operations import CONVOLUTIONS, MATMULS, Call
from ampcheck.rates import alone_seconds

DOMINANT = 0.95  # of the flops
MOST = 12  # shapes that are measured
MULTIPLE = 8  # https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A matmul or convolution of a step: how often it is called, and what one call alone takes."""

    kind: str
    operation: str
    operands: str
    dtype: str
    calls: int
    flops: int
    seconds: float


def by_kind(calls: Counter[Call]) -> dict[str, int]:
    """Return a step's flops of convolutions, and of all the rest as "matmul"."""
    flops: Counter[str] = Counter()
    for call, times in calls.items():
        flops[_kind(call)] += call.flops * times
    return dict(flops)


def by_dtype(calls: Counter[Call]) -> dict[str, int]:
    """Return a step's flops by the dtype that they were computed in."""
    flops: Counter[str] = Counter()
    for call, times in calls.items():
        flops[call.dtype] += call.flops * times
    return dict(flops)


def measured_alone(calls: Counter[Call], device: torch.device) -> tuple[list[Shape], float]:
    """Return the dominant shapes with the seconds of a call alone, and the seconds of all of a step's calls.

    What is not measured is taken to be as fast as what is.
    """
    shapes = [
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
    measured = sum(shape.calls * shape.flops for shape in shapes)
    total = sum(call.flops * times for call, times in calls.items())
    alone = sum(shape.calls * shape.seconds for shape in shapes)
    return shapes, alone * total / measured if measured else 0.0


def padding_seconds(calls: Counter[Call], device: torch.device) -> dict[str, float]:
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


def _dominant(calls: Counter[Call]) -> Counter[Call]:
    """Return those with most flops, until they have DOMINANT of all."""
    ordered = sorted(calls.items(), key=lambda item: item[0].flops * item[1], reverse=True)
    measurable = [(call, times) for call, times in ordered if call.name in MATMULS + CONVOLUTIONS]
    total, kept = sum(call.flops * times for call, times in measurable), 0
    dominant: Counter[Call] = Counter()
    for call, times in measurable[:MOST]:
        if kept < DOMINANT * total:
            dominant[call] = times
            kept += call.flops * times
    return dominant


def _kind(call: Call) -> str:
    return "convolution" if "convolution" in call.name else "matmul"
