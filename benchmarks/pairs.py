"""Two ways to do the same, timed in turn in one process, so that what else the machine does falls on both alike."""

import statistics
import time
from collections.abc import Callable

WARM_UP = 2  # pairs that don't count


def ratios(ours: Callable[[], object], other: Callable[[], object], seconds: float) -> list[float]:
    """Return our time over the other's, pair by pair for `seconds`, at least two; every other pair is reversed."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < WARM_UP + 2:
        first, second = (ours, other) if len(found) % 2 else (other, ours)
        taken = {each: _seconds(each) for each in (first, second)}
        found.append(taken[ours] / taken[other])
    return found[WARM_UP:]


def line(name: str, found: list[float]) -> str:
    """Tell the median of `found` and its quartiles."""
    low, median, high = statistics.quantiles(found, n=4)
    return f"{name:<64}{median:.3f}   {low:.3f} to {high:.3f}  {len(found)}"


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
