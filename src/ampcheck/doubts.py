"""What makes a reader careful with the figures, in plain words. Loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampcheck.gap import unexplained
from ampcheck.measuring import of_measuring
from ampcheck.steady import DRIFT, steady_seconds

if TYPE_CHECKING:
    import pandas as pd

    from ampcheck.evidence import Evidence
    from ampcheck.summary import Summary

WIDE_SPREAD = 0.1  # between repeats; identical processes scatter by 4 to 7 % on a shared machine
COSTLY_FIRST_STEP = 0.1  # of the trial's total
SHORT_STEP_SECONDS = 1e-3  # below it a step is mostly the host's work, and timers begin to matter
STRAYED_LOSS = 0.1  # of the baseline's final loss; 16 bits alone change it by less than a per cent
GROWN_MEMORY = 2.0  # times: slices that eager steps take in turn, a compiled graph may hold at once
MANY_SKIPS = 0.1  # of the steps; a scaler that finds its scale skips a few


def doubts(evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    """Return a sentence for each doubt, with its figure and what to do."""
    steady = steady_seconds(evidence.steps)
    trained = {mode: summary for mode, summary in summed.items() if summary.trained}
    found = [
        doubt
        for mode, summary in trained.items()
        for doubt in (
            _spread(mode, steady),
            _unsettled(mode, summary),
            _first_step(mode, summary),
            _skips(mode, summary, evidence.trials),
            _strayed(mode, evidence.params.train.modes[0], summed),
        )
    ]
    found += [_grown(mode, summary, evidence) for mode, summary in trained.items()]
    waits = [_waits(mode, evidence.rehearse[mode]["waits"]) for mode in trained]
    found += [
        *waits,
        *unexplained(evidence, summed),
        *of_measuring(evidence),
        _small(trained),
    ]
    return [doubt for doubt in found if doubt]


def _waits(mode: str, optimizers: list[str]) -> str:
    if not optimizers:
        return ""
    return (
        f"{mode}: a scheduler waits for the device at every step (of {', '.join(optimizers)}): its optimizer is fused, "
        "so only the device knows of a skip; without fused=True this wait is the scaler's own."
    )


def _spread(mode: str, steady: pd.Series[float]) -> str:
    medians = steady[steady.index.get_level_values("mode") == mode]
    spread = medians.max() / medians.min() - 1 if len(medians) > 1 else 0.0
    if spread <= WIDE_SPREAD:
        return ""
    return f"{mode}: steady steps differ by {spread * 100:.0f} % between repeats; free the machine or add repeats."


def _unsettled(mode: str, summary: Summary) -> str:
    if not summary.unsettled_trials:
        return ""
    return (
        f"{mode}: the time of a step did not settle (trials: {summary.unsettled_trials}): warm-up took half the trial, "
        f"or the halves after it differ by more than {DRIFT * 100:g} %; free the machine, or take more epochs."
    )


def _first_step(mode: str, summary: Summary) -> str:
    if summary.first_step_seconds is None or summary.total_seconds is None:
        return ""
    share = summary.first_step_seconds / summary.total_seconds
    if share <= COSTLY_FIRST_STEP:
        return ""
    return f"{mode}: the first step took {share * 100:.0f} % of the total; compare steady steps, or take more epochs."


def _skips(mode: str, summary: Summary, trials: pd.DataFrame) -> str:
    if not summary.skipped_steps or summary.optimizer_steps is None:
        return ""
    steps = summary.optimizer_steps + summary.skipped_steps
    skipped = f"{mode}: the scaler skipped {summary.skipped_steps} of {steps} steps"
    interval = next(scaler["growth_interval"] for scaler in trials.xs(mode)["scaler"] if scaler)
    if summary.skipped_steps * interval <= steps:
        return f"{skipped}, which is normal: it tries a larger scale every {interval} steps."
    if summary.skipped_steps / steps <= MANY_SKIPS:
        return f"{skipped}, as it does to find its scale."
    return f"{skipped}; the loss overflows in 16 bits."


def _strayed(mode: str, baseline: str, summed: dict[str, Summary]) -> str:
    if abs(summed[mode].final_loss_difference or 0.0) <= STRAYED_LOSS:
        return ""
    here, there = summed[mode].final_loss, summed[baseline].final_loss
    return (
        f"{mode}: its final loss is {here:.3g}, that of {baseline} {there:.3g}: unless both are as good as 0, "
        "it does not train alike; weights belong in float32, since autocast casts; a smaller lr may help."
    )


def _grown(mode: str, summary: Summary, evidence: Evidence) -> str:
    """Of torch.compile on CUDA, where both peaks are of tensors; a CPU's peak has the whole program in it."""
    counted = evidence.memory[mode]["here"]["peak_bytes"] if mode in evidence.memory else None
    if not evidence.params.train.compile or evidence.machine["device"] == "cpu" or not counted:
        return ""
    times = (summary.peak_bytes or 0) / counted
    if times <= GROWN_MEMORY:
        return ""
    return f"{mode}: compiled, its peak is {times:.1f} times that of eager steps; try train.compile: false."


def _small(trained: dict[str, Summary]) -> str:
    short = [mode for mode, summary in trained.items() if (summary.step_seconds or 1) < SHORT_STEP_SECONDS]
    if not short:
        return ""
    return (
        f"A step takes less than {SHORT_STEP_SECONDS * 1000:g} ms in {', '.join(short)}: the work is too small for "
        "this device, and most of the time is the host's; larger sizes show what precision changes."
    )
