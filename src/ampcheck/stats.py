"""Medians, paired ratios, intervals and verdicts over the raw values that the trials left. Loads no torch."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95
FIRST_STEADY_STEP = 1  # the first step sets libraries, caches and gradients up; it is reported apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of the baseline to a mode, paired by repeat: the geometric mean with its interval."""

    mean: float | None
    low: float | None
    high: float | None
    pairs: int


def steady_seconds(steps: pd.DataFrame) -> pd.Series[float]:
    """Return the median of the steady steps' seconds for every (mode, repeat).

    `steps` has the columns repeat, mode, step, seconds; a trial of one step has no steady steps and no median.
    """
    steady = steps[steps["step"] >= FIRST_STEADY_STEP]
    return steady.groupby(["mode", "repeat"])["seconds"].median()


def paired_ratio(baseline: pd.Series[float], mode: pd.Series[float]) -> Ratio:
    """Return baseline over mode, by repeat: geometric mean and 95 % Student t interval on the log ratio.

    Both are indexed by repeat. Repeats that lack one side, or have no positive value, make no pair.
    """
    pairs = pd.concat([baseline, mode], axis=1, join="inner").dropna()
    pairs = pairs[(pairs > 0).all(axis=1)]
    logs = [math.log(before / after) for before, after in pairs.itertuples(index=False)]
    if not logs:
        return Ratio(mean=None, low=None, high=None, pairs=0)
    mean = sum(logs) / len(logs)
    if len(logs) == 1:
        return Ratio(mean=math.exp(mean), low=None, high=None, pairs=1)
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    half = float(stdtrit(len(logs) - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / len(logs))
    return Ratio(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), pairs=len(logs))


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


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median of at least 10 values, and its distribution-free 95 % interval: the ranks of a sign test.

    Ranks by the normal approximation of the binomial: Conover, Practical Nonparametric Statistics, 3.2.
    """
    ordered, middle = sorted(values), len(values) / 2
    reach = 1.96 * math.sqrt(len(values)) / 2
    return statistics.median(ordered), ordered[math.floor(middle - reach) - 1], ordered[math.ceil(middle + reach)]
