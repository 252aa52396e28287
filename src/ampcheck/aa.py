"""A mode against itself (A/A): what its own repeats tell of the least effect that a run can see. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Itself:
    """Ratios of a mode's successive repeats, which would all be 1 on a quiet machine; None of fewer than two.

    `aa_scatter` is the standard deviation of the logarithm of such a ratio.
    """

    aa_mean: float | None = None
    aa_low: float | None = None
    aa_high: float | None = None
    aa_scatter: float | None = None


def itself(seconds: pd.Series[float]) -> Itself:
    """Compare a mode's steady steps, indexed by repeat, with those of its next repeat.

    The scatter is taken around a ratio of 1, which is the truth here, from successive differences, so that a slow
    drift over the repeats counts little: von Neumann, The mean square successive difference, 1941.
    """
    positive = seconds[seconds > 0].sort_index()
    if len(positive) < 2:
        return Itself()
    logs = -np.diff(np.log(positive.to_numpy()))
    return Itself(
        aa_mean=float(np.exp(logs.mean())),
        aa_low=float(np.exp(logs.min())),
        aa_high=float(np.exp(logs.max())),
        aa_scatter=float(np.sqrt(np.mean(logs**2))),
    )
