"""The figures of a sweep: a dot a size and mode, and no line between them. Loads no torch."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ampcheck import drawing
from ampcheck.curves import Curve
from ampcheck.figures import NO_METADATA
from ampcheck.files import replaced_folder

MARKERS = "osD^v"
DODGE = 0.012  # of the axis's range, by which modes stand apart at one size


def named(curves: list[Curve]) -> dict[str, Curve]:
    """Return the curves by the names of their figures."""
    return {f"{curve.axis.split(' = ')[0]}-{place}": curve for place, curve in enumerate(curves, start=1)}


def write(curves: list[Curve], folder: Path) -> None:
    """Replace `folder` by one with NAME.svg for each of `curves`."""
    with replaced_folder(folder) as beside, mpl.rc_context():
        drawing.style()
        for name, curve in named(curves).items():
            _figure(curve).savefig(beside / f"{name}.svg", metadata=NO_METADATA)


def _figure(curve: Curve) -> Figure:
    """Draw speed-up with its interval on the left, and peak memory less the data on the right."""
    figure = Figure(figsize=(drawing.WIDTH, 3))
    left, right = figure.subplots(1, 2)
    left.axhline(1, color=drawing.INK, linewidth=1, zorder=1)
    for place, (mode, points) in enumerate(curve.points.groupby("mode", sort=False)):
        colour, marker = drawing.COLOURS[place % len(drawing.COLOURS)], MARKERS[place % len(MARKERS)]
        x = points["x"].astype(float) * (1 + DODGE * place)
        speed = points[["speedup", "speedup_low", "speedup_high"]].astype(float)
        left.vlines(x, speed["speedup_low"], speed["speedup_high"], color=colour, linewidth=2)
        left.plot(x, speed["speedup"], marker, color=colour, markersize=4)
        memory = points["net_peak_bytes"].astype(float) / 2**20
        if memory.notna().any():
            right.plot(x, memory, marker, color=colour, markersize=4, label=str(mode))
    for axes, title in ((left, "speed-up (ratio)"), (right, "peak memory less the data (MiB)")):
        _scales(axes, curve, title)
    figure.legend(loc="outside upper left", ncols=len(drawing.COLOURS))
    return figure


def _scales(axes: Axes, curve: Curve, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    measured = sorted(set(curve.points["x"]))
    axes.set_xticks(measured, labels=[f"{x:g}" for x in measured], rotation=45)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=curve.axis, ylabel=title)
