"""How the report's figures are drawn: each from a table of its own, in the colours of the modes. Loads no torch."""

import math

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

WIDTH, ROW = 7.5, 0.26  # inches
DASH = 2.5  # line widths
# Of Okabe and Ito's colours those with a contrast of 3 to a white and to a dark page; INK has one of 4.3.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
INK = "#767A80"


def style() -> None:
    """Set matplotlib's defaults for the figures, whatever the user's own are."""
    mpl.rcdefaults()  # a matplotlibrc must not change the bytes
    mpl.rc("svg", fonttype="none", hashsalt="ampcheck")
    mpl.rc("figure", facecolor="none")
    mpl.rc("figure.constrained_layout", use=True)
    mpl.rc("axes", facecolor="none", edgecolor=INK, labelcolor=INK)
    mpl.rc("axes.spines", right=False, top=False)
    mpl.rc("legend", frameon=False)
    mpl.rc("text", color=INK)
    mpl.rc("xtick", color=INK)
    mpl.rc("ytick", color=INK)


def step_times(steady: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """Draw a strip a trial: time to the right, steps downwards."""
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


def loss(finite: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """Draw a line a mode; its dashes leave room for the others', so that lines that coincide alternate."""
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


def loss_parity(differences: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """Draw a line a mode: its loss less the baseline's, in per cent of that."""
    figure = Figure(figsize=(WIDTH, 2.8))
    axes = figure.subplots()
    axes.axhline(0, color=INK, linewidth=1, zorder=1)
    for mode, line in differences.groupby("mode", sort=False):
        axes.plot(line["step"], 100 * line["difference"], color=colours[str(mode)], linewidth=1.2, label=str(mode))
    axes.set(xlabel="step", ylabel="difference of loss (%)")
    figure.legend(loc="outside upper left", ncols=len(COLOURS))
    return figure


def ratios(ratios: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """Draw two panels of one scale, a row a mode."""
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
