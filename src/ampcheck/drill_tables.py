"""The drill's results as the tables of the report: plain values, in the order of params.yaml. Loads no torch."""

from collections.abc import Mapping
from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.findings import inexact


def drill_tables(evidence: Evidence) -> dict[str, Any]:
    """Return what the template shows of the drill; `modes` is empty where no mode is available."""
    results = evidence.drill
    return {
        "modes": [_mode(result) for result in results.values()],
        "controls": _controls(results),
        "across": _across(evidence),
        "kills": len(evidence.kills),
        "survived": sum(not kill["differing"] for kill in evidence.kills),
        "while_writing": sum(kill["while_writing"] for kill in evidence.kills),
        "scales": {mode: _scales(result["first_scales"]) for mode, result in results.items() if result["first_scales"]},
        "rules": [result for result in results.values() if result["runaway"]],
    }


def _mode(result: Mapping[str, Any]) -> dict[str, Any]:
    exact = {stop["stop"]: stop["bit_exact"] for stop in result["stops"]}
    named = {name: None if stop is None else (stop, exact[stop]) for name, stop in result["named"].items()}
    resumed = [(each["stop"], not each["differing"]) for each in result["in_new_processes"]]
    return {
        "mode": result["mode"],
        "stops": len(exact),
        "exact_stops": sum(exact.values()),
        "named": named,
        "in_new_processes": resumed,
        "same_save_points": result["same_save_points"],
    }


def _controls(results: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return for each part a cell by mode; a control `proves` something only where a whole state resumes exactly."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for result in results.values():
        proves = not inexact(result)
        for control in result["controls"]:
            rows.setdefault(control["part"], []).append(control | {"proves": proves})
    return rows


def _scales(tried: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the first scales with which the weights end the same; other, with skips; or other, without any."""
    told: dict[str, list[str]] = {"same": [], "skipped": [], "underflowed": []}
    for each in tried:
        other = "skipped" if each["skipped_steps"] else "underflowed"
        told[other if each["differing"] else "same"].append(f"{each['first_scale']:g}")
    return told


def _across(evidence: Evidence) -> dict[str, list[dict[str, Any] | None]]:
    """Return for each saved mode a cell by the mode it goes on in, None for itself; {} of a single mode."""
    pairs = {(pair["from"], pair["to"]): pair for pair in evidence.across}
    modes = list(evidence.drill) if pairs else []
    return {saved: [pairs.get((saved, mode)) for mode in modes] for saved in modes}
