"""The figures of the report, as SVG for light and for dark pages; the same results give the same bytes. No torch."""

import math
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from ampcheck.files import replaced_folder
from ampcheck.stats import FIRST_STEADY_STEP
from ampcheck.summary import Summary

MARKS = 2800  # steps in a figure, of 90 bytes each: its file stays below 300 kB
WIDTH, ROW = 7.5, 0.26  # inches
DASH = 2.5  # line widths
# Of Okabe and Ito's colours those with a contrast of 3 to a white and to a dark page; INK has one of 4.3.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
INK = "#767A80"
NO_METADATA = dict.fromkeys(["Creator", "Date", "Format", "Type"])


def write(summed: dict[str, Summary], steps: pd.DataFrame, folder: Path) -> None:
    """Replace `folder` by one with NAME.svg for each of `names`.

    `summed` is by mode, the baseline first; `steps` has the columns repeat, mode, step, seconds, loss.
    """
    draw = {"step-times": _step_times, "loss": _loss, "ratios": _ratios}
    with replaced_folder(folder) as beside, mpl.rc_context():
        _style()
        for name, table in _tables(summed, steps).items():
            draw[name](table, _colours(summed)).savefig(beside / f"{name}.svg", metadata=NO_METADATA)


def names(summed: dict[str, Summary], steps: pd.DataFrame) -> list[str]:
    """Return the names of the figures that have something to show: of step-times, loss and ratios."""
    return list(_tables(summed, steps))


def steps_per_group(steps: pd.DataFrame) -> int:
    """Return of how many successive steps a figure shows the first, the least and the greatest; 1 if it shows all."""
    return 1 if len(steps) <= MARKS else math.ceil(3 * len(steps) / MARKS)


def _style() -> None:
    mpl.rcdefaults()  # a user's own matplotlibrc must not change the bytes
    mpl.rc("svg", fonttype="none", hashsalt="ampcheck")
    mpl.rc("figure", facecolor="none")
    mpl.rc("figure.constrained_layout", use=True)
    mpl.rc("axes", facecolor="none", edgecolor=INK, labelcolor=INK)
    mpl.rc("axes.spines", right=False, top=False)
    mpl.rc("legend", frameon=False)
    mpl.rc("text", color=INK)
    mpl.rc("xtick", color=INK)
    mpl.rc("ytick", color=INK)


def _tables(summed: dict[str, Summary], steps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    steady = steps[(steps["step"] >= FIRST_STEADY_STEP) & steps["seconds"].notna()]
    steady = steady.assign(median=steady.groupby(["mode", "repeat"])["seconds"].transform("median"))
    finite = steps[np.isfinite(steps["loss"])]
    ratios = pd.DataFrame([asdict(row) for row in summed.values()], index=list(summed))
    ratios = ratios[["speedup", "speedup_low", "speedup_high", "memory_ratio"]].astype(float)
    tables = {
        "step-times": _thinned(steady, "seconds", steps_per_group(steps)),
        "loss": _thinned(finite, "loss", steps_per_group(steps)),
        "ratios": ratios.dropna(subset=["speedup", "memory_ratio"], how="all"),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def _thinned(steps: pd.DataFrame, column: str, per_group: int) -> pd.DataFrame:
    values = steps.groupby(["mode", "repeat", steps["step"] // per_group])[column]
    first = steps.index[steps["step"] % per_group == 0]
    return steps.loc[np.unique(np.concatenate([first, values.idxmin(), values.idxmax()]))]


def _colours(summed: dict[str, Summary]) -> dict[str, str]:
    return {mode: COLOURS[place % len(COLOURS)] for place, mode in enumerate(summed)}


def _step_times(steady: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """A strip a trial: time to the right, steps downwards."""
    unit, scale = ("s", 1) if steady["seconds"].median() >= 1 else ("ms", 1000)
    modes = [(mode, steady[steady["mode"] == mode]) for mode in colours]
    strips = [(mode, repeat, trial) for mode, trials in modes for repeat, trial in trials.groupby("repeat")]
    figure = Figure(figsize=(WIDTH, 1 + ROW * len(strips)))
    axes = figure.subplots()
    for row, (mode, _, trial) in enumerate(strips):
        spread = row + 0.7 * (trial["step"] / trial["step"].max() - 0.5)
        axes.plot(trial["seconds"] * scale, spread, ".", color=colours[mode], markersize=4, markeredgewidth=0)
        axes.vlines(trial["median"].iloc[0] * scale, row - 0.42, row + 0.42, color=INK, linewidth=2, zorder=3)
    _log(axes, f"time of a steady step ({unit})", ticks=9)
    axes.set_yticks(range(len(strips)), labels=[f"{mode}, repeat {repeat}" for mode, repeat, _ in strips])
    axes.set_ylim(len(strips) - 0.4, -0.6)
    return figure


def _loss(finite: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """A line a mode; its dashes leave room for those of the others, so that lines that coincide alternate."""
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    lines = dict(iter(finite.drop_duplicates(["mode", "step", "loss"]).groupby("mode")))
    handles = {}
    for place, mode in enumerate(mode for mode in colours if mode in lines):
        dashes = (DASH * place, (DASH, DASH * (len(lines) - 1))) if place else "solid"
        for _, line in lines[mode].groupby("repeat"):
            axes.plot(line["step"], line["loss"], color=colours[mode], linewidth=0.7, zorder=1)
            (handles[mode],) = axes.plot(line["step"], line["loss"], color=colours[mode], linewidth=1.8, ls=dashes)
    axes.set(xlabel="step", ylabel="loss")
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=len(COLOURS), handlelength=4)
    return figure


def _ratios(ratios: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """Two panels of one scale, a row a mode."""
    figure = Figure(figsize=(WIDTH, 0.9 + 1.5 * ROW * len(ratios)))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for row, (mode, speedup, low, high, memory) in enumerate(ratios.itertuples()):
        left.plot([low, high], [row, row], color=colours[mode], linewidth=3)
        for axes, value in ((left, speedup), (right, memory)):
            text = "n/a" if math.isnan(value) else f"{value:#.3g}"
            axes.plot(value, row, "o", color=colours[mode])
            axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center")
    for axes, title in ((left, "speed-up (ratio, more is better)"), (right, "peak memory (ratio, less is better)")):
        axes.axvline(1, color=INK, linewidth=1, zorder=1)
        axes.spines.left.set_visible(False)
        axes.tick_params("y", length=0)
        axes.margins(x=0.1)
        _log(axes, title, ticks=5)
    left.set_yticks(range(len(ratios)), labels=ratios.index)
    left.set_ylim(len(ratios) - 0.4, -0.6)
    return figure


def _log(axes: Axes, title: str, ticks: int) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    within_a_decade = MaxNLocator(ticks, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(within_a_decade if high < 10 * low else LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel(title)
