"""Two runs of the same thing side by side: what is now over what was then, more being worse. Loads no torch."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import stdtrit

from ampcheck.comparison import of_mode
from ampcheck.stats import CONFIDENCE, Ratio
from ampcheck.steady import steady_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ampcheck.evidence import Evidence

MEASURES = ["steady step time", "slowness beside the baseline", "peak memory less the data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One measure of one mode, now over then."""

    mode: str
    measure: str
    ratio: Ratio

    def __str__(self) -> str:
        """Tell it in one line."""
        ratio = self.ratio
        if ratio.mean is None or ratio.low is None or ratio.high is None:
            return f"{self.mode}: {self.measure}: not measured on both sides"
        interval = f"95 % interval {ratio.low:.3g} to {ratio.high:.3g}"
        return f"{self.mode}: {self.measure} is {ratio.mean:.3g} times what it was ({interval})"


def compare(mode: str, then: Evidence, now: Evidence) -> Iterator[Comparison]:
    """Compare every measure of `mode`; slowness beside the baseline is the inverse of the speed-up."""
    before, after = (_measures(each, mode) for each in (then, now))
    for measure in MEASURES:
        if measure in before and measure in after:
            yield Comparison(mode=mode, measure=measure, ratio=independent_ratio(after[measure], before[measure]))


def independent_ratio(above: list[float], below: list[float]) -> Ratio:
    """Return the ratio of two geometric means with Welch's 95 % interval on its logarithm.

    The two were not measured in pairs: Welch, The generalization of Student's problem when several different
    population variances are involved, Biometrika 1947.
    """
    logs = [[math.log(value) for value in values if value > 0] for values in (above, below)]
    if min(len(values) for values in logs) < 2:
        return Ratio(mean=None, low=None, high=None, pairs=0)
    difference = statistics.mean(logs[0]) - statistics.mean(logs[1])
    squares = [statistics.variance(values) / len(values) for values in logs]
    half = 0.0
    if sum(squares) > 0:
        per_degree = sum(square**2 / (len(values) - 1) for square, values in zip(squares, logs, strict=True))
        half = float(stdtrit(sum(squares) ** 2 / per_degree, (1 + CONFIDENCE) / 2)) * math.sqrt(sum(squares))
    return Ratio(
        mean=math.exp(difference),
        low=math.exp(difference - half),
        high=math.exp(difference + half),
        pairs=min(len(values) for values in logs),
    )


def _measures(found: Evidence, mode: str) -> dict[str, list[float]]:
    """Return what was measured of `mode`, a value a repeat."""
    steady, baseline = steady_seconds(found.steps), found.params.train.modes[0]
    own: pd.Series[float] = of_mode(steady, mode)
    measures = {
        "steady step time": own,
        "slowness beside the baseline": (own / of_mode(steady, baseline)).dropna(),
        "peak memory less the data": of_mode(found.trials, mode)["net_peak_bytes"].dropna(),
    }
    return {name: values.tolist() for name, values in measures.items() if name != MEASURES[1] or mode != baseline}
