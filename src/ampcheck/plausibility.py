"""Which timings can't be: their steps would need a higher arithmetic rate than the device reaches. Loads no torch."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ampcheck.schema import Params

BEYOND = 1.1  # times the measured rate: both are measured, and scatter; a clock stopped too early is beyond by far


def implausible(
    params: Params, trials: pd.DataFrame, steps: pd.DataFrame, limits: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """Return why, by (mode, repeat), for each trial whose total or median step implies more than `limits` allow."""
    medians = steps.groupby(["mode", "repeat"])["seconds"].median()
    batches = params.train.epochs * params.data.num_batches
    full = min(params.train.accumulate, params.data.num_batches)  # batches of the step whose flops were counted
    found = {}
    for trial in trials[trials["trained"]].reset_index().to_dict("records"):
        mode, repeat = trial["mode"], trial["repeat"]
        limit = limits.get(mode)
        if limit is None or limit["flops_per_second"] is None:
            continue
        rates = {
            "total": limit["step_flops"] * batches / full / trial["total_seconds"],
            "median step": limit["step_flops"] / medians[mode, repeat],
        }
        what, rate = max(rates.items(), key=lambda item: item[1])
        if rate > BEYOND * limit["flops_per_second"]:
            found[mode, repeat] = (
                f"its {what} implies {rate / 1e12:.3g} TFLOP/s, but this device reaches "
                f"{limit['flops_per_second'] / 1e12:.3g}: the clock did not wait for the work"
            )
    return found
