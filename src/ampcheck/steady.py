"""Which steps of a trial are steady: warm-up is found by a published rule, not assumed. Loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

FENCE = 1.5  # interquartile ranges above the upper quartile: Tukey, Exploratory Data Analysis, 1977
FEWEST = 8  # steps whose quartiles mean something
DRIFT = 0.1  # between the halves of the steady steps; pyperf bounds their means so


def warmup_steps(seconds: NDArray[np.float64]) -> int:
    """Return how many of a trial's first steps are warm-up.

    The first always is: it sets libraries, caches and gradients up. Then each is as long as it lies above the upper
    fence of the trial's second half. This is pyperf's test of a first value, with the half that surely is warm as the
    measure: https://github.com/psf/pyperf/blob/main/pyperf/_worker.py (test_calibrate_warmups)
    """
    rest = seconds[1:]
    later = rest[len(rest) // 2 :]
    if len(later) < FEWEST:
        return 1
    lower, upper = np.percentile(later, [25, 75])
    return 1 + int(np.argmax(rest <= upper + FENCE * (upper - lower)))


def settled(seconds: NDArray[np.float64]) -> bool:
    """Say whether warm-up ended within the trial's first half, and the medians of what is left agree."""
    warmup = warmup_steps(seconds)
    steady = seconds[warmup:]
    if len(steady) < 2 * FEWEST:
        return warmup == 1
    early, late = (np.median(half) for half in np.array_split(steady, 2))
    return 2 * warmup <= len(seconds) and bool(abs(early - late) <= DRIFT * late)


def warmups(steps: pd.DataFrame) -> pd.DataFrame:
    """Return for every (mode, repeat) its warm-up in `steps` and `seconds`, and whether it `settled`.

    `steps` has the columns repeat, mode, step, seconds, in the order of the steps; a trial whose seconds are
    missing has no row.
    """
    rows = []
    for key, trial in steps.dropna(subset="seconds").groupby(["mode", "repeat"])["seconds"]:
        seconds = trial.to_numpy(dtype=float)
        count = warmup_steps(seconds)
        rows.append((*key, count, float(seconds[:count].sum()), settled(seconds)))
    table = pd.DataFrame(rows, columns=["mode", "repeat", "steps", "seconds", "settled"])
    return table.set_index(["mode", "repeat"])


def steady_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `steps` after the warm-up of their trial."""
    timed = steps.dropna(subset="seconds")
    seconds = timed.groupby(["mode", "repeat"])["seconds"]
    return timed[timed["step"] >= seconds.transform(lambda trial: warmup_steps(trial.to_numpy(dtype=float)))]


def steady_seconds(steps: pd.DataFrame) -> pd.Series[float]:
    """Return the median of the steady steps' seconds for every (mode, repeat); a trial of one step has none."""
    return steady_steps(steps).groupby(["mode", "repeat"])["seconds"].median()
