"""The figures of the report, as SVG for light and for dark pages; the same results give the same bytes. No torch."""

import math
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

from ampcheck import drawing
from ampcheck.files import replaced_folder
from ampcheck.parity import loss_differences
from ampcheck.steady import steady_steps
from ampcheck.summary import Summary

MARKS = 2800  # steps in a figure, of 90 bytes each: its file stays below 300 kB
DRAW = {"step-times": drawing.step_times, "loss": drawing.loss}
DRAW |= {"loss-parity": drawing.loss_parity, "ratios": drawing.ratios}
NO_METADATA = dict.fromkeys(["Creator", "Date", "Format", "Type"])


def write(summed: dict[str, Summary], steps: pd.DataFrame, folder: Path) -> None:
    """Replace `folder` by one with NAME.svg for each of `names`.

    `summed` is by mode, the baseline first; `steps` has the columns repeat, mode, step, seconds, loss.
    """
    colours = {mode: drawing.COLOURS[place % len(drawing.COLOURS)] for place, mode in enumerate(summed)}
    with replaced_folder(folder) as beside, mpl.rc_context():
        drawing.style()
        for name, table in _tables(summed, steps).items():
            DRAW[name](table, colours).savefig(beside / f"{name}.svg", metadata=NO_METADATA)


def names(summed: dict[str, Summary], steps: pd.DataFrame) -> list[str]:
    """Return the names of the figures that have something to show: of step-times, loss, loss-parity and ratios."""
    return list(_tables(summed, steps))


def steps_per_group(steps: pd.DataFrame) -> int:
    """Return of how many successive steps a figure shows the first, the least and the greatest; 1 if it shows all."""
    return 1 if len(steps) <= MARKS else math.ceil(3 * len(steps) / MARKS)


def _tables(summed: dict[str, Summary], steps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    steady = steady_steps(steps)
    steady = steady.assign(median=steady.groupby(["mode", "repeat"])["seconds"].transform("median"))
    finite = steps[np.isfinite(steps["loss"])]
    ratios = pd.DataFrame([asdict(row) for row in summed.values()], index=list(summed))
    ratios = ratios[["speedup", "speedup_low", "speedup_high", "memory_ratio"]].astype(float)
    differences = loss_differences(steps, next(iter(summed)))
    tables = {
        "step-times": _thinned(steady, "seconds", steps_per_group(steps)),
        "loss": _thinned(finite, "loss", steps_per_group(steps)),
        "loss-parity": _thinned(differences, "difference", steps_per_group(steps)),
        "ratios": ratios.dropna(subset=["speedup", "memory_ratio"], how="all"),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def _thinned(steps: pd.DataFrame, column: str, per_group: int) -> pd.DataFrame:
    values = steps.groupby(["mode", "repeat", steps["step"] // per_group])[column]
    first = steps.index[steps["step"] % per_group == 0]
    return steps.loc[np.unique(np.concatenate([first, values.idxmin(), values.idxmax()]))]
