"""Which steps are steady: the rule, on trials of all kinds."""

import numpy as np
import pandas as pd
import pytest

from ampcheck.steady import FEWEST, settled, steady_seconds, steady_steps, warmup_steps, warmups

QUIET = 0.1 + 0.001 * np.random.default_rng(0).random(40)


def table(*trials: "np.ndarray[tuple[int], np.dtype[np.float64]] | list[float]") -> pd.DataFrame:
    """Steps of one mode, a repeat a trial."""
    steps = [
        pd.DataFrame({"repeat": repeat, "mode": "a", "step": range(len(seconds)), "seconds": seconds, "loss": 0.0})
        for repeat, seconds in enumerate(trials)
    ]
    return pd.concat(steps, ignore_index=True)


@pytest.mark.parametrize("slow", [0, 1, 2, 7, 19])
def test_slow_first_steps_are_warm_up(slow: int) -> None:
    """Every step before the first that is as fast as those of the second half, and the first in any case."""
    seconds = np.concatenate([np.full(slow, 0.2), QUIET])

    assert warmup_steps(seconds) == max(slow, 1)
    assert settled(seconds)


def test_a_slow_step_in_the_middle_is_no_warm_up() -> None:
    """A stall after a steady step stays among the steps, whose median it does not move."""
    seconds = QUIET.copy()
    seconds[[5, 25]] = 3.0

    assert warmup_steps(seconds) == 1
    assert settled(seconds)


def test_fast_first_steps_are_no_warm_up_but_may_be_a_drift() -> None:
    """A device that throttles is slower later on; nothing is left out, and the trial did not settle."""
    seconds = np.concatenate([QUIET, QUIET * 1.3])

    assert warmup_steps(seconds) == 1
    assert not settled(seconds)


def test_a_trial_that_is_slow_for_half_of_its_time_did_not_settle() -> None:
    """What is left out is half of it, and this is told."""
    seconds = np.concatenate([QUIET * 2.6, QUIET])

    assert warmup_steps(seconds) == 40
    assert settled(np.concatenate([QUIET[:30] * 2.6, QUIET]))
    assert not settled(np.concatenate([QUIET * 2.6, QUIET[:39]]))


@pytest.mark.parametrize("count", range(1, 2 * FEWEST))
def test_of_few_steps_only_the_first_is_left_out(count: int) -> None:
    """Quartiles of a handful mean nothing."""
    seconds = np.linspace(2, 1, count)

    assert warmup_steps(seconds) == 1
    assert settled(seconds)


def test_each_trial_has_its_own_warm_up() -> None:
    """Its steps, its seconds, and the median of what is left; the order of the trials does not matter."""
    steps = table(QUIET, np.concatenate([[9.0, 0.5], QUIET]), [4.0, 1.0, 3.0, 2.0])
    found = warmups(steps)

    assert found["steps"].to_list() == [1, 2, 1]
    assert found["seconds"].to_list() == pytest.approx([QUIET[0], 9.5, 4.0])
    assert found["settled"].all()
    assert steady_seconds(steps).to_list() == pytest.approx([np.median(QUIET[1:]), np.median(QUIET), 2.0])
    assert len(steady_steps(steps)) == 39 + 40 + 3


def test_a_trial_of_one_step_has_no_steady_steps() -> None:
    """No median, rather than one of the first step; of no trial, nothing."""
    assert steady_seconds(table([9.0])).empty
    assert steady_seconds(table([9.0]).iloc[:0]).empty


def test_steps_that_take_all_the_same_time_are_steady() -> None:
    """A clock too coarse for the quartiles to differ leaves nothing out."""
    assert warmup_steps(np.full(100, 0.5)) == 1


def test_many_steps_are_as_good_as_few() -> None:
    """A trial of 400,000 steps, half of them slow."""
    assert warmup_steps(np.repeat([2.0, 1.0], 200_000)) == 200_000


def test_a_trial_whose_seconds_are_missing_has_no_row() -> None:
    """A timing that can't be is no warm-up, and no doubt of its own."""
    steps = table(QUIET, QUIET)
    steps.loc[steps["repeat"] == 1, "seconds"] = np.nan

    assert warmups(steps).index.to_list() == [("a", 0)]
    assert steady_seconds(steps).index.to_list() == [("a", 0)]
