"""Ceilings, steps taken apart, gaps and advice as the tables of the report: plain values. Loads no torch."""

from dataclasses import asdict
from typing import Any

from ampcheck.advice import advice
from ampcheck.decision import switched_on, winner
from ampcheck.evidence import Evidence
from ampcheck.gap import Step, bytes_per_second, ceiling_seconds, gaps, steps
from ampcheck.precision import MODES
from ampcheck.summary import Summary

MOST_SHAPES = 3  # a mode


def gap_tables(evidence: Evidence, summed: dict[str, Summary]) -> dict[str, Any]:
    """Return what the template's section on speed shows."""
    apart, best = steps(evidence, summed), winner(evidence, summed)
    return {
        "advice": advice(evidence, summed),
        "winner": best,
        "code": switched_on(MODES[best], evidence.machine["device"]) if best else [],
        "gigabytes_per_second": bytes_per_second(evidence) / 1e9,
        "ceilings": [
            _row(found, summed[mode], apart.get(mode)) for mode, found in evidence.ceilings.items() if not found["why"]
        ],
        "shapes": [
            shape | {"mode": mode, "rate": shape["flops"] / shape["seconds"]}
            for mode, found in evidence.ceilings.items()
            for shape in found["shapes"][:MOST_SHAPES]
        ],
        "steps": [asdict(step) for step in apart.values()],
        "gaps": [
            asdict(gap)
            | {"unexplained_share": gap.unexplained_share, "unexplained_share_below": gap.unexplained_share_below}
            for gap in gaps(evidence, summed)
        ],
    }


def _row(found: dict[str, Any], summary: Summary, step: Step | None) -> dict[str, Any]:
    """Return a mode's ceilings, and which of it its steps reach."""
    flops, seconds = sum(found["step_flops"].values()), summary.step_seconds
    alone_seconds = step.alone_seconds if step else found["alone_seconds"]
    return found | {
        "alone_rate": flops / alone_seconds if alone_seconds else None,
        "step_rate": flops / seconds if seconds else None,
        "of_ceiling": ceiling_seconds(found) / seconds if seconds else None,
    }
