"""The evidence summed up by mode. Loads no torch."""

from dataclasses import dataclass

import pandas as pd

from ampcheck.evidence import MEASURED, Evidence
from ampcheck.stats import Ratio, paired_ratio, steady_seconds, verdict

NO_RATIO = Ratio(mean=None, low=None, high=None, pairs=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One mode over all its repeats; None is what was not measured. Ratios compare with the baseline."""

    trained: bool
    step_seconds: float | None
    total_seconds: float | None
    compile_seconds: float | None
    compiled_graphs: int | None
    first_step_seconds: float | None
    samples_per_second: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    pairs: int
    verdict: str | None
    peak_bytes: int | None
    net_peak_bytes: int | None  # less the fixed data, which stays resident
    peak_reserved_bytes: int | None
    memory_ratio: float | None  # of the net peaks
    final_loss: float | None
    optimizer_steps: int | None
    skipped_steps: int | None
    reproducible: bool | None  # whether all repeats ended with one digest; None of fewer than two
    resume_bit_exact: bool | None
    why: str | None


def summaries(evidence: Evidence) -> dict[str, Summary]:
    """Sum up every mode of params.yaml, in its order."""
    steady = steady_seconds(evidence.steps)
    return {mode: _summary(evidence, mode, steady) for mode in evidence.params.train.modes}


def _summary(evidence: Evidence, mode: str, steady: "pd.Series[float]") -> Summary:
    baseline = evidence.params.train.modes[0]
    trials = _trials(evidence, mode)
    trained, failed = trials[trials["trained"]], trials[~trials["trained"]]
    median = trained[[*MEASURED, "net_peak_bytes"]].median()
    step_seconds = _number(_of(steady, mode).median())
    ratio = NO_RATIO if mode == baseline else paired_ratio(_of(steady, baseline), _of(steady, mode))
    return Summary(
        trained=not trained.empty,
        step_seconds=step_seconds,
        total_seconds=_number(median["total_seconds"]),
        compile_seconds=_number(median["compile_seconds"]),
        compiled_graphs=_whole(median["compiled_graphs"]),
        first_step_seconds=_number(median["first_step_seconds"]),
        samples_per_second=_samples_a_step(evidence) / step_seconds if step_seconds else None,
        speedup=ratio.mean,
        speedup_low=ratio.low,
        speedup_high=ratio.high,
        pairs=ratio.pairs,
        verdict=verdict(ratio, evidence.params.report.band),
        peak_bytes=_whole(median["peak_bytes"]),
        net_peak_bytes=_whole(median["net_peak_bytes"]),
        peak_reserved_bytes=_whole(median["peak_reserved_bytes"]),
        memory_ratio=None if mode == baseline else _memory_ratio(trials, _trials(evidence, baseline)),
        final_loss=_number(median["final_loss"]),
        optimizer_steps=_whole(median["optimizer_steps"]),
        skipped_steps=_whole(median["skipped_steps"]),
        reproducible=len(set(trained["digest"])) == 1 if len(trained) > 1 else None,
        resume_bit_exact=evidence.resume[mode]["bit_exact"],
        why=None if failed.empty else str(failed["why"].iloc[0]),
    )


def _samples_a_step(evidence: Evidence) -> int:
    """Of a full window of accumulated batches: the median step is one."""
    return int(evidence.params.sizes["batch_size"]) * min(
        evidence.params.train.accumulate, evidence.params.data.num_batches
    )


def _trials(evidence: Evidence, mode: str) -> pd.DataFrame:
    return evidence.trials[evidence.trials.index.get_level_values("mode") == mode].droplevel("mode")


def _memory_ratio(mode: pd.DataFrame, baseline: pd.DataFrame) -> float | None:
    ratios = mode["net_peak_bytes"] / baseline["net_peak_bytes"].where(baseline["net_peak_bytes"] > 0)
    return _number(ratios.median())


def _of(steady: "pd.Series[float]", mode: str) -> "pd.Series[float]":
    return steady[steady.index.get_level_values("mode") == mode].droplevel("mode")


def _number(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _whole(value: float) -> int | None:
    return None if pd.isna(value) else round(value)
