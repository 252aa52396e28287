"""Evidence -> a plain context -> jinja2 -> reports/. The same results give the same bytes. Loads no torch."""

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ampcheck import evidence as evidence_module
from ampcheck import figures
from ampcheck.doubts import doubts
from ampcheck.drill_tables import drill_tables
from ampcheck.evidence import Evidence
from ampcheck.files import write_json, write_text
from ampcheck.findings import differences, findings
from ampcheck.headline import headline
from ampcheck.schema import Params
from ampcheck.summary import Summary, summaries

METRICS = ["step_seconds", "speedup", "peak_bytes", "resume_bit_exact"]
MISSING = "n/a"


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
    write_text(reports / "report.md", render(shown, reports))
    return list(shown["headline"])


def context(evidence: Evidence, summed: dict[str, Summary]) -> dict[str, Any]:
    """Return all that the template shows, as plain values in base units."""
    return {
        "headline": headline(evidence, summed),
        "doubts": doubts(evidence, summed),
        "findings": findings(evidence),
        "baseline": evidence.params.train.modes[0],
        "modes": [{"mode": mode} | asdict(summary) for mode, summary in summed.items()],
        "not_trained": {mode: summary.why for mode, summary in summed.items() if summary.why},
        "figures": figures.names(summed, evidence.steps),
        "steps_per_group": figures.steps_per_group(evidence.steps),
        "memory": _memory(evidence),
        "resume": list(evidence.resume.values()),
        "differences": {mode: differences(result) for mode, result in evidence.resume.items()},
        "drill": drill_tables(evidence),
        "rehearse": [result for result in evidence.rehearse.values() if result["dtypes"]],
        "infer": list(evidence.infer.values()),
        "batch_size": evidence.params.sizes["batch_size"],
        "machine": evidence.machine,
        "params": _flat(evidence.params.model_dump()),
        "num_repeats": len(evidence.params.train.repeats),
        "band": evidence.params.report.band,
        "steps": evidence.params.train.epochs * evidence.params.data.num_batches,
        "planned_steps": evidence.params.resume.steps,
    }


def render(values: dict[str, Any], templates: Path) -> str:
    """Fill template.md.j2 in `templates`; every string is escaped, a missing value reads n/a."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        finalize=_cell,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS
    return environment.get_template("template.md.j2").render(values)


def _cell(value: object) -> object:
    """Make any value safe in a Markdown table cell, without markup of its own."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(re.sub(r"([\\|`*\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text).split())


def _code(value: object) -> Markup:
    text = " ".join(str(value).replace("`", "'").split())
    return Markup("`{}`").format(Markup(text.replace("|", "\\|"))) if text else Markup(MISSING)


def _known(form: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: MISSING if value is None else form(value)


def _seconds(value: float) -> str:
    return _scaled(value, {"s": 1, "ms": 1e-3, "µs": 1e-6})


def _bytes(value: float) -> str:
    return _scaled(value, {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1})


def _scaled(value: float, units: dict[str, float]) -> str:
    """Write `value` in the largest unit of which it has at least one, else in the smallest."""
    unit = next((unit for unit, size in units.items() if abs(value) >= size), list(units)[-1])
    return f"{_figures(value / units[unit])} {unit}"


def _figures(value: float) -> str:
    """Three significant figures, or all digits before the point; 0 is no measurement's rounding."""
    return f"{value:.0f}" if abs(value) >= 100 or not value else f"{value:#.3g}"


FILTERS = {
    "code": _code,
    "seconds": _known(_seconds),
    "bytes": _known(_bytes),
    "figures": _known(_figures),
    "percent": _known(lambda value: f"{value * 100:g} %"),
    "loss": _known(lambda value: f"{value:.6g}"),
    "yes_no": lambda value: {None: MISSING, True: "yes", False: Markup("**NO**")}[value],
}


def _memory(evidence: Evidence) -> list[str]:
    """Which kinds of peak the trials measured."""
    return sorted({str(kind) for kind in evidence.trials["memory"].dropna()})


def _flat(node: Any, name: str = "") -> dict[str, Any]:  # noqa: ANN401 - a tree of parameters
    if not isinstance(node, dict):
        return {name: "null" if node is None else node}
    found: dict[str, Any] = {}
    for key, child in node.items():
        found |= _flat(child, f"{name}.{key}" if name else key)
    return found
