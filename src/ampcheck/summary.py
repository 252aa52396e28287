"""The evidence summed up by mode. Loads no torch."""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ampcheck.aa import itself
from ampcheck.comparison import memory_ratio, of_mode, parity, speed
from ampcheck.evidence import MEASURED, Evidence
from ampcheck.steady import steady_seconds, warmups


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One mode over all its repeats; None is what was not measured. Ratios compare with the baseline."""

    trained: bool
    step_seconds: float | None
    total_seconds: float | None
    compile_seconds: float | None
    compiled_graphs: int | None
    first_step_seconds: float | None
    warmup_steps: int | None  # the most of any trial; they are not among the steady steps
    warmup_seconds: float | None  # likewise the most
    unsettled_trials: int | None
    samples_per_second: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    pairs: int
    verdict: str | None
    pairs_to_settle: int | None  # where the verdict is inconclusive; None is more than anybody takes
    again_low: float | None  # where the speed-up of another run with as many pairs should fall
    again_high: float | None
    aa_mean: float | None  # of the mode's successive repeats
    aa_low: float | None
    aa_high: float | None
    aa_scatter: float | None
    smallest_effect: float | None  # that pairs with this scatter show; of the baseline by A/A
    peak_bytes: int | None
    net_peak_bytes: int | None  # less the fixed data, which stays resident
    peak_reserved_bytes: int | None
    memory_ratio: float | None  # of the net peaks
    final_loss: float | None
    largest_loss_difference: float | None  # of all steps, relative to the baseline's loss at that step
    final_loss_difference: float | None
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
    trials = of_mode(evidence.trials, mode)
    trained, failed = trials[trials["trained"]], trials[~trials["trained"]]
    median = trained[[*MEASURED, "net_peak_bytes"]].median()
    step_seconds = _number(of_mode(steady, mode).median())
    return Summary(
        trained=not trained.empty,
        step_seconds=step_seconds,
        total_seconds=_number(median["total_seconds"]),
        compile_seconds=_number(median["compile_seconds"]),
        compiled_graphs=_whole(median["compiled_graphs"]),
        first_step_seconds=_number(median["first_step_seconds"]),
        samples_per_second=_samples_a_step(evidence) / step_seconds if step_seconds else None,
        peak_bytes=_whole(median["peak_bytes"]),
        net_peak_bytes=_whole(median["net_peak_bytes"]),
        peak_reserved_bytes=_whole(median["peak_reserved_bytes"]),
        memory_ratio=memory_ratio(evidence, mode),
        final_loss=_number(median["final_loss"]),
        optimizer_steps=_whole(median["optimizer_steps"]),
        skipped_steps=_whole(median["skipped_steps"]),
        reproducible=len(set(trained["digest"])) == 1 if len(trained) > 1 else None,
        resume_bit_exact=evidence.resume.get(mode, {}).get("bit_exact"),
        why=None if failed.empty else str(failed["why"].iloc[0]),
        **_warmup(evidence, mode),
        **speed(evidence, mode, steady),
        **parity(evidence, mode),
        **asdict(itself(of_mode(steady, mode))),
    )


def _warmup(evidence: Evidence, mode: str) -> dict[str, Any]:
    found = warmups(evidence.steps[evidence.steps["mode"] == mode])
    return {
        "warmup_steps": _whole(found["steps"].max()),
        "warmup_seconds": _number(found["seconds"].max()),
        "unsettled_trials": None if found.empty else int((~found["settled"]).sum()),
    }


def _samples_a_step(evidence: Evidence) -> int:
    """Of a full window of accumulated batches: the median step is one."""
    return int(evidence.params.sizes["batch_size"]) * min(
        evidence.params.train.accumulate, evidence.params.data.num_batches
    )


def _number(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _whole(value: float) -> int | None:
    return None if pd.isna(value) else round(value)
