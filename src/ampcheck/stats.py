"""Paired ratios, their intervals, and the verdicts on them. Loads no torch."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95
MOST_PAIRS = 1000  # nobody repeats more often


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of the baseline to a mode, paired by repeat: the geometric mean with its interval.

    `scatter` is the standard deviation of the logarithms of single pairs. From `again_low` to `again_high` is where
    the mean of another run with as many pairs should fall.
    """

    mean: float | None
    low: float | None
    high: float | None
    pairs: int
    scatter: float | None = None
    again_low: float | None = None
    again_high: float | None = None


def paired_ratio(baseline: pd.Series[float], mode: pd.Series[float]) -> Ratio:
    """Return baseline over mode, by repeat: geometric mean and 95 % Student t interval on the log ratio.

    Both are indexed by repeat. Repeats that lack one side, or have no positive value, make no pair. Of two means of
    one distribution both scatter, so the interval for another run's mean is wider by the square root of 2: Hahn and
    Meeker, Statistical Intervals, 1991; Patil, Peng and Leek, What should researchers expect when they replicate
    studies?, 2016.
    """
    pairs = pd.concat([baseline, mode], axis=1, join="inner").dropna()
    pairs = pairs[(pairs > 0).all(axis=1)]
    logs = [math.log(before / after) for before, after in pairs.itertuples(index=False)]
    if not logs:
        return Ratio(mean=None, low=None, high=None, pairs=0)
    mean = sum(logs) / len(logs)
    if len(logs) == 1:
        return Ratio(mean=math.exp(mean), low=None, high=None, pairs=1)
    scatter = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    half = half_interval(scatter, len(logs))
    return Ratio(
        mean=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        pairs=len(logs),
        scatter=scatter,
        again_low=math.exp(mean - half * math.sqrt(2)),
        again_high=math.exp(mean + half * math.sqrt(2)),
    )


def half_interval(scatter: float, pairs: int) -> float:
    """Return half of the 95 % Student t interval of a mean of `pairs` values with this standard deviation."""
    return float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2)) * scatter / math.sqrt(pairs)


def verdict(ratio: Ratio, band: float) -> str | None:
    """Say faster, slower, same or inconclusive; "single run" of one pair; None where nothing was compared.

    Faster and slower need the whole interval beyond the band, same needs it inside; the band reaches from
    1 / (1 + band) to 1 + band.
    """
    if ratio.mean is None:
        return None
    if ratio.low is None or ratio.high is None:
        return "single run"
    if ratio.low > 1 + band:
        return "faster"
    if ratio.high < 1 / (1 + band):
        return "slower"
    if ratio.low >= 1 / (1 + band) and ratio.high <= 1 + band:
        return "same"
    return "inconclusive"


def smallest_effect(scatter: float | None, pairs: int, band: float) -> float | None:
    """Return by which share a mode must be faster for the interval of so many pairs to lie beyond the band.

    `scatter` is the standard deviation of the logarithms of their ratios; None of fewer than two pairs.
    """
    if scatter is None or pairs < 2:
        return None
    return math.expm1(math.log1p(band) + half_interval(scatter, pairs))


def pairs_to_settle(ratio: Ratio, band: float) -> int | None:
    """Return the fewest pairs that would settle the verdict if mean and scatter stayed as they are.

    None of fewer than two pairs, and where MOST_PAIRS would not do.
    """
    if ratio.mean is None or ratio.scatter is None:
        return None
    pairs = np.arange(2, MOST_PAIRS + 1)
    half = stdtrit(pairs - 1, (1 + CONFIDENCE) / 2) * ratio.scatter / np.sqrt(pairs)
    distance, edge = abs(math.log(ratio.mean)), math.log1p(band)
    settles = (distance - half > edge) | (distance + half <= edge)
    return int(pairs[settles.argmax()]) if settles.any() else None


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median of at least 10 values, and its distribution-free 95 % interval: the ranks of a sign test.

    Ranks by the normal approximation of the binomial: Conover, Practical Nonparametric Statistics, 3.2.
    """
    ordered, middle = sorted(values), len(values) / 2
    reach = 1.96 * math.sqrt(len(values)) / 2
    return statistics.median(ordered), ordered[math.floor(middle - reach) - 1], ordered[math.ceil(middle + reach)]
