"""Measured sizes -> reports/sweep.md and sweep/: tables and figures side by side. Loads no torch."""

from pathlib import Path
from typing import Any

from ampcheck import sweep_figures
from ampcheck.curves import begins_to_win, curves, multiples, rows
from ampcheck.experiments import Experiment, held, parameter_differences
from ampcheck.files import write_text
from ampcheck.rendering import render


def write(done: list[Experiment], failed: dict[str, str], reports: Path) -> str:
    """Write what the experiments that are done show; return one line for the log. `failed` says why, by name."""
    sizes = [measured(experiment) for experiment in done]
    differing = {each.name: parameter_differences(done[0].name, each.name) for each in done[1:]}
    shown = context(sizes, failed, differing, data_bytes(done))
    sweep_figures.write(curves(sizes), reports / "sweep")
    write_text(reports / "sweep.md", render(shown, reports / "sweep.md.j2"))
    return f"reports/sweep.md: {len(sizes)} {'size' if len(sizes) == 1 else 'sizes'}"


def measured(experiment: Experiment) -> dict[str, Any]:
    """Return what an experiment measured: its parameters, machine, and figures by mode."""
    metrics, rest = (held(experiment.rev, f"reports/{name}.json") for name in ("metrics", "summary"))
    return {
        "size": experiment.name,
        "rev": experiment.rev,
        "params": experiment.params,
        "machine": held(experiment.rev, "results/machine.json"),
        "modes": {mode: figures | rest[mode] for mode, figures in metrics.items()},
    }


def data_bytes(done: list[Experiment]) -> int:
    """Return how much the data of the experiments takes in DVC's cache, where equal data is stored once."""
    return sum({each.data["hash"]: each.data["size"] for each in done if each.data}.values())


def context(
    sizes: list[dict[str, Any]], failed: dict[str, str], differing: dict[str, dict[str, Any]], cached_bytes: int
) -> dict[str, Any]:
    """Return all that the template shows, as plain values in base units."""
    drawn = curves(sizes)
    return {
        "failed": failed,
        "rows": [row for size in sizes for row in rows(size)],
        "repeats": sorted({len(size["params"]["train"]["repeats"]) for size in sizes}),
        "curves": [
            {"figure": name, "axis": curve.axis, "fixed": curve.fixed, "wins": dict(begins_to_win(curve))}
            for name, curve in sweep_figures.named(drawn).items()
        ],
        "multiples": [each for curve in drawn for each in multiples(curve)],
        "differing": _by_parameter([size["size"] for size in sizes], differing),
        "sizes": [size["size"] for size in sizes],
        "machines": _machines(sizes),
        "cached_bytes": cached_bytes,
    }


def _machines(sizes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each machine with its sizes."""
    found: list[dict[str, Any]] = []
    for size in sizes:
        known = next((each for each in found if each["machine"] == size["machine"]), None)
        if known is None:
            known = {"machine": size["machine"], "sizes": []}
            found.append(known)
        known["sizes"].append(size["size"])
    return found


def _by_parameter(sizes: list[str], differing: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Return a row a parameter that differs anywhere, with its value in each size; None is a key that it lacks."""
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for each in differing.values() for key in each):
        first = next(each[key].get("old") for each in differing.values() if key in each)
        others = [differing[size].get(key, {"new": first}).get("new") for size in sizes[1:]]
        found[key] = [first, *others]
    return found
