"""Ratios, intervals and verdicts, against numbers worked out by hand."""

import math

import pandas as pd
import pytest

from ampcheck.stats import Ratio, paired_ratio, verdict
from ampcheck.steady import steady_seconds


def by_repeat(*values: float) -> "pd.Series[float]":
    """Seconds indexed by repeat."""
    return pd.Series(values, index=pd.RangeIndex(len(values), name="repeat"))


def test_the_first_step_is_not_steady() -> None:
    """The median is of the steps after the first; each trial has its own."""
    steps = pd.DataFrame(
        {"repeat": [0] * 4, "mode": ["a"] * 4, "step": range(4), "seconds": [9.0, 1.0, 3.0, 2.0], "loss": [0.0] * 4}
    )

    assert steady_seconds(steps).to_dict() == {("a", 0): 2.0}


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
