"""What sizes that were measured say side by side: nothing is said of sizes between them. Loads no torch."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from ampcheck.fields import flat

GOOD_MULTIPLE = 8  # of elements of 16 bits, from which on matrix units are fed well


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Sizes that differ in one parameter only, measured on one machine.

    `points` has a row for each size and mode, in the order of `axis`, with the columns size, mode, x and the keys of
    metrics.json and summary.json; `fixed` has what the sizes share.
    """

    axis: str
    fixed: dict[str, Any]
    points: pd.DataFrame


def curves(sizes: list[dict[str, Any]]) -> list[Curve]:
    """Find the curves in measured sizes, of which each has size, params, machine and modes (its figures by mode)."""
    found = []
    flats = [flat(size["params"]["sizes"]) for size in sizes]
    for axis in _axes(flats):
        keys = axis.split(" = ")
        own = {f"sizes.{key}" for key in keys}
        groups: dict[str, list[int]] = {}
        for place, size in enumerate(sizes):
            if keys[0] in flats[place]:
                rest = {key: value for key, value in flat(size["params"]).items() if key not in own}
                groups.setdefault(json.dumps([rest, size["machine"]], sort_keys=True), []).append(place)
        for places in groups.values():
            if len({flats[place][keys[0]] for place in places}) > 1:
                shared = {key: value for key, value in flats[places[0]].items() if key not in keys}
                points = [row | {"x": flats[place][keys[0]]} for place in places for row in rows(sizes[place])]
                table = pd.DataFrame(points).sort_values("x", kind="stable", ignore_index=True)
                found.append(Curve(axis=axis, fixed=shared, points=table))
    return found


def rows(size: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of one size, a row a mode."""
    return [{"size": size["size"], "mode": mode} | figures for mode, figures in size["modes"].items()]


def _axes(flats: list[dict[str, Any]]) -> list[str]:
    """Name the numbers that differ between sizes; those that are always equal to each other are one axis."""
    columns: dict[tuple[Any, ...], list[str]] = {}
    for key in dict.fromkeys(key for each in flats for key in each):
        values = tuple(each.get(key) for each in flats)
        numbers = {value for value in values if isinstance(value, int | float)}
        if len(numbers) > 1:
            columns.setdefault(values, []).append(key)
    return [" = ".join(keys) for keys in columns.values()]


def begins_to_win(curve: Curve) -> Iterator[tuple[str, str]]:
    """Say for each mode that was compared from which measured size on it is faster than the baseline."""
    for mode, points in curve.points.groupby("mode", sort=False):
        compared = points.dropna(subset=["verdict"])
        if not compared.empty:
            yield str(mode), _begins(curve.axis, list(zip(compared["x"], compared["verdict"], strict=True)))


def _begins(axis: str, verdicts: list[tuple[float, str]]) -> str:
    (first, _), (last, _) = verdicts[0], verdicts[-1]
    wins = [x for x, verdict in verdicts if verdict == "faster"]
    lost = [(x, verdict) for x, verdict in verdicts if verdict != "faster"]
    if not wins:
        return f"faster nowhere from {axis} {first} to {last}"
    if not lost:
        return f"faster at every size measured, from {axis} {first} to {last}"
    below, verdict = lost[-1]
    if below < wins[0]:
        return f"faster from {axis} {wins[0]} on, to {last}; at {below} {verdict}"
    return f"faster at {axis} {', '.join(map(str, wins))}; at {below} {verdict}"


def multiples(curve: Curve) -> Iterator[dict[str, Any]]:
    """Compare neighbours less than 8 apart of which one is a multiple of 8: what that one gains in samples/s."""
    for mode, points in curve.points.dropna(subset=["samples_per_second"]).groupby("mode", sort=False):
        for below, above in pairwise(points.astype(object).where(points.notna(), None).to_dict("records")):
            even = [point for point in (below, above) if point["x"] % GOOD_MULTIPLE == 0]
            if len(even) == 1 and above["x"] - below["x"] < GOOD_MULTIPLE:
                [good], odd = even, below if even[0] is above else above
                gain = good["samples_per_second"] / odd["samples_per_second"]
                yield {"mode": str(mode), "axis": curve.axis, "good": good, "odd": odd, "gain": gain}
