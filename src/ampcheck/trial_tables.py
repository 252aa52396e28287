"""The trials' conditions and the timers' cost as the tables of the report: plain values. Loads no torch."""

import math
from collections.abc import Mapping
from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.stats import median_interval
from ampcheck.summary import Summary


def trial_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a row for each try of a trial; one that was disturbed stands before its repeat."""
    rows: list[dict[str, Any]] = []
    for (mode, repeat), first_try, conditions, total_seconds in _tries(evidence):
        place = {"mode": mode, "repeat": repeat, "invalid": evidence.invalid.get((mode, repeat), "")}
        if first_try:
            first = _row(first_try["conditions"], first_try["total_seconds"])
            rows.append(place | first | {"repeated": True, "invalid": ""})
        if conditions:
            rows.append(place | _row(conditions, total_seconds) | {"repeated": False})
    return rows


def _tries(evidence: Evidence) -> list[tuple[Any, Any, Any, Any]]:
    trials = evidence.trials
    return list(zip(trials.index, trials["first_try"], trials["conditions"], trials["total_seconds"], strict=True))


def _row(conditions: Mapping[str, Any], total_seconds: float) -> dict[str, Any]:
    gpu = [f"{each['megahertz']} MHz, {each['celsius']} °C" for each in conditions["gpu"] if "celsius" in each]
    untold = [each["why"] for each in conditions["gpu"][1:] if "why" in each]
    return dict(conditions) | {
        "total_seconds": None if math.isnan(total_seconds) else total_seconds,
        "gpu": gpu or untold,
    }


def timer_rows(evidence: Evidence, summed: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """Return for each mode that was measured what our timers cost a step, and that as a share of its steady step."""
    return [
        _timers(found["timer_seconds"], summed[mode].step_seconds) | {"mode": mode}
        for mode, found in evidence.ceilings.items()
        if found["timer_seconds"]
    ]


def _timers(differences: list[float], step_seconds: float | None) -> dict[str, Any]:
    middle, low, high = median_interval(differences)
    share = max(high, 0.0) / step_seconds if step_seconds else None
    return {"median": middle, "low": low, "high": high, "pairs": len(differences), "share": share, "shown": low > 0}
