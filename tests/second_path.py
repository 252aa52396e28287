"""The report's main figures from the raw files by a second path: csv, json and statistics, none of our own modules."""

import csv
import json
import math
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import Any

import pytest

T = {1: 12.706204736432095, 2: 4.302652729911275, 3: 3.1824463052842624, 4: 2.7764451051977987}  # 97.5 % quantiles

Trial = dict[str, Any]


def agrees(project: Path, modes: list[str], repeats: list[int], batch_size: int) -> None:
    """Hold metrics.json, summary.json and the table of report.md against the raw files of every trained mode."""
    base = trials(project, modes[0], repeats)
    for mode in modes:
        if found := trials(project, mode, repeats):
            expected = figures(found, batch_size) | ({} if mode == modes[0] else against(found, base))
            written = reported(project, mode)

            assert {key: written[key] for key in expected} == pytest.approx(expected), mode
            assert row(mode, expected) in (project / "reports/report.md").read_text()


def reported(project: Path, mode: str) -> dict[str, Any]:
    """What the report's files for programs say of a mode."""
    texts = [(project / f"reports/{name}.json").read_text() for name in ("metrics", "summary")]
    return {key: value for text in texts for key, value in json.loads(text)[mode].items()}


def trials(project: Path, mode: str, repeats: list[int]) -> dict[int, Trial]:
    """The raw values of a mode's trials, by repeat; of those that were not trained none."""
    found = {}
    for repeat in repeats:
        path = project / f"results/train/{repeat}/{mode}.json"
        trial = json.loads(path.read_text())
        if trial["trained"]:
            rows = list(csv.DictReader(path.with_suffix(".csv").read_text().splitlines()))
            steps = {key: [float(row[key]) for row in rows] for key in ("seconds", "loss")}
            found[repeat] = trial | steps | {"steady": median(without_warmup(steps["seconds"]))}
    return found


def without_warmup(seconds: list[float]) -> list[float]:
    """The steps after the first and after those that follow it above Tukey's fence of the second half."""
    rest = seconds[1:]
    half = rest[len(rest) // 2 :]
    if len(half) < 8:
        return rest
    lower, _, upper = quantiles(half, n=4, method="inclusive")
    while rest[0] > upper + 1.5 * (upper - lower):
        rest = rest[1:]
    return rest


def figures(found: dict[int, Trial], batch_size: int) -> dict[str, float]:
    """A mode's own figures, each the median of its repeats."""
    step = median(trial["steady"] for trial in found.values())
    keys = ["total_seconds", "first_step_seconds", "final_loss"]
    peaks = [trial["peak_bytes"] for trial in found.values() if trial["peak_bytes"] is not None]
    return (
        {key: median(trial[key] for trial in found.values()) for key in keys}
        | {"step_seconds": step, "samples_per_second": batch_size / step}
        | ({"peak_bytes": round(median(peaks))} if peaks else {})
    )


def against(found: dict[int, Trial], base: dict[int, Trial]) -> dict[str, float]:
    """A mode's figures beside the baseline's, of the repeats that have both."""
    both = [repeat for repeat in found if repeat in base]
    logs = [math.log(base[repeat]["steady"] / found[repeat]["steady"]) for repeat in both]
    half = T[len(logs) - 1] * stdev(logs) / math.sqrt(len(logs))
    losses = zip(found[both[0]]["loss"], base[both[0]]["loss"], strict=True)
    strayed = [(mine - theirs) / abs(theirs) for mine, theirs in losses]
    return {
        "speedup": math.exp(mean(logs)),
        "speedup_low": math.exp(mean(logs) - half),
        "speedup_high": math.exp(mean(logs) + half),
        "again_low": math.exp(mean(logs) - half * math.sqrt(2)),
        "largest_loss_difference": max(strayed, key=abs),
        "final_loss_difference": strayed[-1],
    }


def row(mode: str, expected: dict[str, float]) -> str:
    """How the table begins a mode's row."""
    times = " | ".join(duration(expected[f"{key}_seconds"]) for key in ("total", "first_step", "step"))
    speedup = "1 | baseline"
    if "speedup" in expected:
        low, high = digits(expected["speedup_low"]), digits(expected["speedup_high"])
        speedup = f"{digits(expected['speedup'])} ({low} to {high})"
    return f"| `{mode}` | {times} | {digits(expected['samples_per_second'])} | {speedup} |"


def duration(seconds: float) -> str:
    """A time with its unit."""
    scale, unit = next(pair for pair in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if seconds * pair[0] >= 1)
    return f"{digits(seconds * scale)} {unit}"


def digits(value: float) -> str:
    """Three significant figures, or all before the point below a million."""
    if value >= 1e6:
        return f"{value:.3g}"
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"
