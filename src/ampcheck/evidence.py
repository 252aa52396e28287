"""What the trials and the resume checks left, read back, summed up by mode, and judged. Loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ampcheck.files import read_json
from ampcheck.params import Params
from ampcheck.precision import MODES
from ampcheck.stats import Ratio, paired_ratio, steady_seconds, verdict

STEP_COLUMNS = ["repeat", "mode", "step", "seconds", "loss"]
MEASURED = ["total_seconds", "first_step_seconds", "peak_bytes", "peak_reserved_bytes", "data_bytes", "final_loss"]
MEASURED += ["optimizer_steps", "skipped_steps"]
NO_RATIO = Ratio(mean=None, low=None, high=None, pairs=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the stages before the report wrote, by the modes and repeats of params.yaml.

    `trials` is indexed by (mode, repeat) and has the keys of MODE.json; `steps` has STEP_COLUMNS.
    """

    params: Params
    machine: dict[str, Any]
    modes: dict[str, dict[str, Any]]
    trials: pd.DataFrame
    steps: pd.DataFrame
    resume: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One mode over all its repeats; None is what was not measured. Ratios compare with the baseline."""

    trained: bool
    step_seconds: float | None
    total_seconds: float | None
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


def read(params: Params, folder: Path) -> Evidence:
    """Read results/. Walks params.yaml, never a glob: a mode that was dropped may have left its file behind."""
    results, steps = [], []
    for repeat in params.train.repeats:
        for mode in params.train.modes:
            trial = read_json(folder / "train" / str(repeat) / f"{mode}.json")
            results.append(trial)
            if trial["trained"]:
                table = pd.read_csv(folder / "train" / str(repeat) / f"{mode}.csv")
                steps.append(table.assign(repeat=repeat, mode=mode)[STEP_COLUMNS])
    trials = pd.DataFrame(results).set_index(["mode", "repeat"])
    trials[MEASURED] = trials[MEASURED].apply(pd.to_numeric)
    trials["net_peak_bytes"] = trials["peak_bytes"] - trials["data_bytes"]
    return Evidence(
        params=params,
        machine=read_json(folder / "machine.json"),
        modes=read_json(folder / "modes.json"),
        trials=trials,
        steps=pd.concat([_no_steps(), *steps], ignore_index=True),
        resume={mode: read_json(folder / "resume" / f"{mode}.json") for mode in params.train.modes},
    )


def _no_steps() -> pd.DataFrame:
    return pd.DataFrame({"repeat": [0], "mode": [""], "step": [0], "seconds": [0.0], "loss": [0.0]}).iloc[:0]


def summaries(evidence: Evidence) -> dict[str, Summary]:
    """Sum up every mode of params.yaml, in its order."""
    steady = steady_seconds(evidence.steps)
    return {mode: _summary(evidence, mode, steady) for mode in evidence.params.train.modes}


def findings(evidence: Evidence) -> list[str]:
    """One line for each thing that is wrong. A mode that this device lacks or emulates is no finding."""
    found = []
    for mode, summary in summaries(evidence).items():
        if summary.why and _could_be_trained(evidence, mode):
            found.append(f"{mode}: not trained: {summary.why}")
        if summary.reproducible is False:
            found.append(f"{mode}: not reproducible: its repeats ended with different bits")
        found += [f"{mode}: {line}" for line in _resume_findings(mode, evidence.resume[mode])]
    return found


def _could_be_trained(evidence: Evidence, mode: str) -> bool:
    entry = evidence.modes[mode]
    return bool(entry["available"] and (evidence.params.train.emulated or not entry["emulated"]))


def _resume_findings(mode: str, result: dict[str, Any]) -> list[str]:
    if not result["available"]:
        return []
    if result["bit_exact"] is None:
        return [f"resume was not checked: {result['why']}"]
    found = [] if result["bit_exact"] else [f"resume is not bit-exact: {differences(result)}"]
    missed = [control["part"] for control in result["controls"] if not control["caught"]]
    found += [f"a resume without its {part} was not caught" for part in missed]
    if MODES[mode].autocast and not any(MODES[mode].dtype in dtypes for dtypes in _module_dtypes(result)):
        found.append(f"autocast had no effect: no module's output is {MODES[mode].dtype}")
    return found


def _module_dtypes(result: dict[str, Any]) -> list[str]:
    return [dtypes for kind, dtypes in result["dtypes"].items() if kind != "loss"]


def differences(result: dict[str, Any]) -> str:
    """Name what the resumed run ended with that the straight run did not: first leaf, first loss, both values."""
    said = []
    if leaves := result["differing"]:
        said.append(f"{len(leaves)} leaves differ, first {leaves[0]}")
    if loss := result["first_different_loss"]:
        values = f"{loss['straight']} straight, {loss['resumed']} resumed"
        said.append(f"first different loss at step {loss['step']}: {values}")
    return "; ".join(said)


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
        first_step_seconds=_number(median["first_step_seconds"]),
        samples_per_second=evidence.params.sizes["batch_size"] / step_seconds if step_seconds else None,
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
