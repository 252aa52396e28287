"""What rows and columns that are no multiple of 8 cost here: a step's matmuls as they are beside padded ones, in pairs.

https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ampcheck.calls import Call
from ampcheck.rates import seconds, times_in_a_block
from ampcheck.shapes import in_order

MULTIPLE = 8
MOST_DIMENSIONS = 3  # those with most flops
MATTERS = 0.01  # of a step's flops
PAIRS, FEWEST_PAIRS = 9, 3
PAIRS_SECONDS = 3  # after which there are no more than the fewest


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """The matmuls of a step that have a dimension: their share of the step's flops, and their seconds, pair by pair."""

    flops_share: float
    as_is_seconds: list[float]
    padded_seconds: list[float]


def paddings(calls: list[Call], device: torch.device) -> dict[str, Padding]:
    """Return it by dimension, for rows and columns that are no multiple of 8."""
    flops: Counter[int] = Counter()
    matmuls = [call for call in calls if call.again and call.kind == "matmul"]
    for call in matmuls:
        flops.update(dict.fromkeys(_odd(call), call.flops))
    total = sum(call.flops for call in calls)
    return {
        str(dimension): _padding([call for call in matmuls if dimension in _odd(call)], dimension, share, device)
        for dimension, count in flops.most_common(MOST_DIMENSIONS)
        if (share := count / total) >= MATTERS
    }


def _odd(call: Call) -> set[int]:
    """Return the rows and columns of a matmul that are no multiple of 8."""
    return {each for like in call.tensors for each in like.shape[-2:] if each > MULTIPLE and each % MULTIPLE}


def _padding(calls: list[Call], dimension: int, share: float, device: torch.device) -> Padding:
    multiple = -(-dimension // MULTIPLE) * MULTIPLE
    as_is, _ = in_order(calls, device)
    padded, _ = in_order([call.padded(dimension, multiple) for call in calls], device)
    times = times_in_a_block(as_is, device)

    def block(row: Callable[[], object]) -> float:
        return seconds(lambda: [row() for _ in range(times)], device) / times

    block(padded)  # warm-up
    pairs = PAIRS if 2 * PAIRS * times * block(as_is) < PAIRS_SECONDS else FEWEST_PAIRS
    taken = []
    for pair in range(pairs):
        in_turn = (as_is, padded) if pair % 2 else (padded, as_is)
        taken.append({row: block(row) for row in in_turn})
    return Padding(
        flops_share=share,
        as_is_seconds=[each[as_is] for each in taken],
        padded_seconds=[each[padded] for each in taken],
    )
