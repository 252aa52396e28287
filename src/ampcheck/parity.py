"""How far a mode's losses are from the baseline's, step by step. Loads no torch."""

import numpy as np
import pandas as pd


def loss_differences(steps: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return each loss's relative difference to the baseline's at that step: repeat, mode, step, difference.

    Of each mode the first repeat that the baseline has as well: where a run is reproducible the others are the same.
    Steps at which the baseline's loss is 0, or a loss is not finite, are left out.
    """
    theirs = steps[(steps["mode"] == baseline) & (steps["loss"] != 0)]
    both = steps[steps["mode"] != baseline].merge(theirs, on=["repeat", "step"], suffixes=("", "_of_baseline"))
    both = both[both["repeat"] == both.groupby("mode")["repeat"].transform("min")]
    difference = (both["loss"] - both["loss_of_baseline"]) / both["loss_of_baseline"].abs()
    both = both.assign(difference=difference)[np.isfinite(difference)]
    return both[["repeat", "mode", "step", "difference"]].reset_index(drop=True)


def largest_and_last(differences: pd.DataFrame, mode: str, last_step: int) -> tuple[float | None, float | None]:
    """Return the difference of greatest size and that of `last_step`; None is what could not be compared."""
    found = differences[differences["mode"] == mode]
    if found.empty:
        return None, None
    values = found["difference"].to_numpy(dtype=float)
    last = found.loc[found["step"] == last_step, "difference"]
    return float(values[np.abs(values).argmax()]), None if last.empty else float(last.iloc[0])
