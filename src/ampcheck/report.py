"""Evidence -> a plain context -> jinja2 -> reports/. The same results give the same bytes. Loads no torch."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ampcheck import evidence as evidence_module
from ampcheck import figures
from ampcheck.doubts import doubts
from ampcheck.drill_tables import drill_tables
from ampcheck.evidence import Evidence
from ampcheck.fields import flat, flow
from ampcheck.files import write_json, write_text
from ampcheck.findings import differences, findings
from ampcheck.gap_tables import gap_tables
from ampcheck.headline import headline
from ampcheck.memory_tables import memory_tables
from ampcheck.numerics_tables import diagnosis_rows, numerics_rows
from ampcheck.rendering import render
from ampcheck.schema import Params, Train
from ampcheck.summary import Summary, summaries
from ampcheck.trial_tables import timer_rows, trial_rows

METRICS = ["step_seconds", "speedup", "peak_bytes", "resume_bit_exact"]


def write(params: Params, results: Path, reports: Path) -> list[str]:
    """Write metrics.json, summary.json, steps.csv, figures/ and report.md; return the headline's sentences."""
    evidence = evidence_module.read(params, results)
    summed = summaries(evidence)
    by_mode = {mode: asdict(summary) for mode, summary in summed.items()}
    write_json(reports / "metrics.json", {mode: {key: row[key] for key in METRICS} for mode, row in by_mode.items()})
    rest = {mode: {key: row[key] for key in row if key not in METRICS} for mode, row in by_mode.items()}
    write_json(reports / "summary.json", rest)
    write_text(reports / "steps.csv", evidence.steps.to_csv(index=False, lineterminator="\n"))
    figures.write(summed, evidence.steps, reports / "figures")
    shown = context(evidence, summed)
    write_text(reports / "report.md", render(shown, reports / "template.md.j2"))
    return list(shown["headline"])


def context(evidence: Evidence, summed: dict[str, Summary]) -> dict[str, Any]:
    """Return all that the template shows, as plain values in base units."""
    return {
        "headline": headline(evidence, summed),
        "doubts": doubts(evidence, summed),
        "findings": findings(evidence),
        "baseline": evidence.params.train.modes[0],
        "asked": _asked(evidence.params.train, evidence.params.data.num_batches),
        "modes": [{"mode": mode} | asdict(summary) for mode, summary in summed.items()],
        "not_trained": {mode: summary.why for mode, summary in summed.items() if summary.why},
        "figures": figures.names(summed, evidence.steps),
        "steps_per_group": figures.steps_per_group(evidence.steps),
        "memory": _memory(evidence),
        "trials": trial_rows(evidence),
        "timers": timer_rows(evidence, summed),
        "tensors": memory_tables(evidence, summed),
        "resume": list(evidence.resume.values()),
        "differences": {mode: differences(result) for mode, result in evidence.resume.items()},
        "drill": drill_tables(evidence),
        "why": gap_tables(evidence, summed),
        "rehearse": [result for result in evidence.rehearse.values() if result["dtypes"]],
        "infer": list(evidence.infer.values()),
        "numerics": numerics_rows(evidence),
        "diagnoses": diagnosis_rows(evidence),
        "machine": evidence.machine,
        "params": _params(evidence.params),
        "num_repeats": len(evidence.params.train.repeats),
        "band": evidence.params.report.band,
        "steps": evidence.params.steps,
        "planned_steps": evidence.params.resume.steps,
    }


def _asked(train: Train, num_batches: int) -> list[str]:
    """Say which options of `train` are not at their plain values."""
    said = {
        f"{min(train.accumulate, num_batches)} batches a step": train.accumulate > 1,
        f"optimizer {flow(train.optimizer or {})}": train.optimizer,
        f"scheduler {flow(train.scheduler or {})}": train.scheduler,
        f"gradients clipped to a norm of {train.clip_norm}": train.clip_norm,
        f"the norm of the gradients, times {train.gradient_penalty}, as a loss": train.gradient_penalty,
        "torch.compile": train.compile,
        "gradients set to zeros instead of none": train.zero_grad == "zeros",
    }
    return [words for words, asked in said.items() if asked]


def _memory(evidence: Evidence) -> list[str]:
    """Which kinds of peak the trials measured."""
    return sorted({str(kind) for kind in evidence.trials["memory"].dropna()})


def _params(params: Params) -> dict[str, Any]:
    return {key: "null" if value is None else value for key, value in flat(params.model_dump()).items()}
