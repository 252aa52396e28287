"""A mode against itself, and the least effect that a run can see, against numbers worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from ampcheck.aa import Itself, itself
from ampcheck.stats import paired_ratio, smallest_effect, verdict


def by_repeat(values: list[float]) -> "pd.Series[float]":
    """Seconds indexed by repeat."""
    return pd.Series(values, index=pd.RangeIndex(len(values), name="repeat"), dtype=float)


def test_successive_repeats_are_compared() -> None:
    """1, 2, 1: ratios of 1/2 and 2, a mean of 1, and a scatter of log 2 around it."""
    found = itself(by_repeat([1.0, 2.0, 1.0]))
    half = 4.302652729911275 * math.log(2) / math.sqrt(3)

    assert (found.aa_mean, found.aa_low, found.aa_high) == pytest.approx((1.0, 0.5, 2.0))
    assert found.aa_scatter == pytest.approx(math.log(2))
    assert smallest_effect(found.aa_scatter, 3, band=0.01) == pytest.approx(1.01 * math.exp(half) - 1)


@pytest.mark.parametrize("seconds", [[], [1.0], [0.0, 1.0]])
def test_it_takes_two_repeats(seconds: list[float]) -> None:
    """Nothing is said of one repeat, or of durations of zero."""
    assert itself(by_repeat(seconds)) == Itself()
    assert smallest_effect(None, len(seconds), band=0.01) is None


def test_a_quiet_machine_sees_all_beyond_the_band() -> None:
    """Without scatter the smallest effect is the band."""
    assert smallest_effect(itself(by_repeat([0.25] * 3)).aa_scatter, 3, band=0.01) == pytest.approx(0.01)


def test_an_effect_of_the_smallest_size_is_seen_half_of_the_time() -> None:
    """The scatter of A/A is that of pairs of identical processes, so it foretells what their intervals show."""
    random, seen = np.random.default_rng(7), []
    for _ in range(400):
        baseline, mode = np.exp(random.normal(0, 0.03, size=(2, 5)))
        effect = smallest_effect(itself(by_repeat(list(baseline))).aa_scatter, 5, band=0.01)
        assert effect
        seen.append(verdict(paired_ratio(by_repeat(list(baseline)), by_repeat(list(mode / (1 + effect)))), 0.01))

    assert seen.count("slower") == 0
    assert 0.4 < seen.count("faster") / len(seen) < 0.7
