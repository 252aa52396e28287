"""Ratios, intervals and verdicts, against numbers worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from ampcheck.stats import Ratio, half_interval, paired_ratio, pairs_to_settle, verdict


def by_repeat(*values: float) -> "pd.Series[float]":
    """Seconds indexed by repeat."""
    return pd.Series(values, index=pd.RangeIndex(len(values), name="repeat"))


def test_the_interval_is_students_on_the_log_ratio() -> None:
    """Three pairs of ratios 2, 2 and 4: geometric mean 16 ** (1/3), t of 4.3027 at two degrees of freedom."""
    ratio = paired_ratio(by_repeat(2.0, 4.0, 4.0), by_repeat(1.0, 2.0, 1.0))
    half = 4.302652729911275 * (math.log(2) / math.sqrt(3)) / math.sqrt(3)

    assert ratio.mean == pytest.approx(16 ** (1 / 3))
    assert ratio.low == pytest.approx(16 ** (1 / 3) / math.exp(half))
    assert ratio.high == pytest.approx(16 ** (1 / 3) * math.exp(half))
    assert ratio.pairs == 3


def test_pairs_are_of_one_repeat() -> None:
    """A machine that slows down over the repeats does not change the ratio; a repeat with one side makes no pair."""
    ratio = paired_ratio(by_repeat(2.0, 20.0, 200.0, 7.0), by_repeat(1.0, 10.0, 100.0))

    assert (ratio.mean, ratio.low, ratio.high, ratio.pairs) == pytest.approx((2.0, 2.0, 2.0, 3))


def test_nothing_comes_of_nothing() -> None:
    """No pair, or a duration of zero: null, not infinity."""
    nothing = Ratio(mean=None, low=None, high=None, pairs=0)

    assert paired_ratio(by_repeat(), by_repeat()) == nothing
    assert paired_ratio(by_repeat(1.0), by_repeat(0.0)) == nothing
    assert verdict(nothing, 0.01) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.02, 1.5, "faster"),
        (1.005, 1.5, "inconclusive"),
        (0.5, 0.98, "slower"),
        (0.5, 0.995, "inconclusive"),
        (0.995, 1.005, "same"),
        (0.9, 1.1, "inconclusive"),
        (None, None, "single run"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float | None, high: float | None, expected: str) -> None:
    """Beyond the band of 1 %, or inside it, or nothing is said."""
    assert verdict(Ratio(mean=1.0, low=low, high=high, pairs=3), 0.01) == expected


def scattered(speed: float, pairs: int, runs: int, seed: int) -> list[Ratio]:
    """Ratios of runs in which a mode has so many times the baseline's speed, and a pair's log ratio scatters by 5 %."""
    logs = np.random.default_rng(seed).normal(math.log(speed), 0.05, size=(runs, pairs))
    return [paired_ratio(by_repeat(*np.exp(run)), by_repeat(*[1.0] * pairs)) for run in logs]


def share(ratios: list[Ratio], *verdicts: str) -> float:
    """How often the verdict, with a band of 1 %, was one of these."""
    return sum(verdict(ratio, 0.01) in verdicts for ratio in ratios) / len(ratios)


def test_identical_code_is_seldom_called_different() -> None:
    """Of 1000 A/A runs of 5 pairs at most 5 % are called faster or slower, as a 95 % interval promises."""
    assert share(scattered(1.0, pairs=5, runs=1000, seed=1), "faster", "slower") <= 0.05


def test_a_slowdown_of_a_quarter_is_seen() -> None:
    """At 5 pairs nearly every run calls it slower, and none calls it anything but slower or inconclusive."""
    ratios = scattered(1 / 1.25, pairs=5, runs=1000, seed=2)

    assert share(ratios, "slower") >= 0.99
    assert share(ratios, "slower", "inconclusive") == 1


def test_a_slowdown_of_a_tenth_is_never_called_the_same() -> None:
    """What 5 pairs can't settle is called inconclusive; most runs settle it."""
    ratios = scattered(1 / 1.1, pairs=5, runs=1000, seed=3)

    assert share(ratios, "same", "faster") == 0
    assert share(ratios, "slower") >= 0.6


def test_a_repetition_falls_where_it_is_foretold() -> None:
    """Of 1000 runs that are repeated with as many pairs, 95 % of the second means are in the first one's range."""
    first, second = (scattered(1.3, pairs=5, runs=1000, seed=seed) for seed in (4, 5))
    inside = [
        (one.again_low or 0) <= (other.mean or 0) <= (one.again_high or 0)
        for one, other in zip(first, second, strict=True)
    ]

    assert sum(inside) / len(inside) == pytest.approx(0.95, abs=0.02)


def test_the_range_of_a_repetition_is_wider_than_the_interval() -> None:
    """By the square root of two on the logarithmic scale; of one pair there is neither."""
    ratio = paired_ratio(by_repeat(2.0, 4.0, 4.0), by_repeat(1.0, 2.0, 1.0))
    single = paired_ratio(by_repeat(2.0), by_repeat(1.0))
    assert ratio.mean
    assert ratio.high
    assert ratio.again_high

    assert math.log(ratio.again_high / ratio.mean) == pytest.approx(math.sqrt(2) * math.log(ratio.high / ratio.mean))
    assert (single.low, single.again_low, single.scatter) == (None, None, None)


@pytest.mark.parametrize("mean", [1.05, 1 / 1.05, 1.002])
def test_so_many_pairs_settle_the_verdict_and_one_less_does_not(mean: float) -> None:
    """With the same mean and scatter: beyond the band on either side, or inside it."""
    ratio = Ratio(mean=mean, low=0.9, high=1.2, pairs=3, scatter=0.03)
    settled = pairs_to_settle(ratio, 0.01)
    assert settled

    for pairs, expected in ((settled, True), (settled - 1, False)):
        half = half_interval(0.03, pairs)
        again = Ratio(mean=mean, low=mean / math.exp(half), high=mean * math.exp(half), pairs=pairs)
        assert (verdict(again, 0.01) != "inconclusive") is expected


def test_what_no_number_of_pairs_settles() -> None:
    """A mean on the band's edge, one pair, and no pair."""
    assert pairs_to_settle(Ratio(mean=1.01, low=0.9, high=1.2, pairs=3, scatter=0.03), 0.01) is None
    assert pairs_to_settle(paired_ratio(by_repeat(2.0), by_repeat(1.0)), 0.01) is None
    assert pairs_to_settle(paired_ratio(by_repeat(), by_repeat()), 0.01) is None
