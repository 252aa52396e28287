"""Which timings can't be: their steps would need a higher arithmetic rate than the device reaches. Loads no torch."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ampcheck.schema import Params

BEYOND = 1.1  # times the measured rate: both are measured, and scatter; a clock stopped too early is beyond by far


def implausible(
    params: Params, trials: pd.DataFrame, steps: pd.DataFrame, ceilings: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """Return why, by (mode, repeat), for each trial whose total or median step implies more than `ceilings` allow.

    A ceiling that was measured while something disturbed it is none to judge by.
    """
    medians = steps.groupby(["mode", "repeat"])["seconds"].median()
    batches = params.train.epochs * params.data.num_batches
    full = min(params.train.accumulate, params.data.num_batches)  # batches of the step whose flops were counted
    found = {}
    for trial in trials[trials["trained"]].reset_index().to_dict("records"):
        mode, repeat = trial["mode"], trial["repeat"]
        ceiling = ceilings.get(mode)
        if ceiling is None or not ceiling["flops_per_second"] or ceiling["disturbed"]:
            continue
        flops = sum(ceiling["step_flops"].values())
        fastest = max(ceiling["flops_per_second"].values())
        rates = {
            "total": _rate(flops * batches / full, trial["total_seconds"]),
            "median step": _rate(flops, medians[mode, repeat]),
        }
        what, rate = max(rates.items(), key=lambda item: item[1])
        if rate > BEYOND * fastest:
            found[mode, repeat] = (
                f"its {what} implies {rate / 1e12:.3g} TFLOP/s, but this device reaches "
                f"{fastest / 1e12:.3g}: the clock did not wait for the work"
            )
    return found


def _rate(flops: float, seconds: float) -> float:
    return flops / seconds if seconds else math.inf
