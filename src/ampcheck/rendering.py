"""A plain context -> jinja2 -> Markdown: every string escaped, every value in its unit. Loads no torch."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

MISSING = "n/a"
MANY = 1e6  # beyond it no figure here has digits that mean anything


def render(values: dict[str, Any], template: Path) -> str:
    """Fill `template`; every string is escaped, a missing value reads n/a."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        finalize=_cell,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS
    return environment.get_template(template.name).render(values)


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


def _verbatim(value: object) -> Markup:
    """Escape nothing: for a block of code, of our own lines."""
    return Markup(str(value))


def _known(form: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: MISSING if value is None else form(value)


def _seconds(value: float) -> str:
    return _scaled(value, {"s": 1, "ms": 1e-3, "µs": 1e-6})


def _bytes(value: float) -> str:
    return _scaled(value, {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1})


def _flops(value: float) -> str:
    return _scaled(value, {"TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6})


def _scaled(value: float, units: dict[str, float]) -> str:
    """Write `value` in the largest unit of which it has at least one, else in the smallest."""
    unit = next((unit for unit, size in units.items() if abs(value) >= size), list(units)[-1])
    return f"{_figures(value / units[unit])} {unit}"


def _figures(value: float) -> str:
    """Three significant figures, or all digits before the point below a million; 0 is no measurement's rounding."""
    if abs(value) >= MANY:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) >= 100 or not value else f"{value:#.3g}"


FILTERS = {
    "code": _code,
    "verbatim": _verbatim,
    "flops": _known(_flops),
    "rate": _known(lambda value: f"{_flops(value)}/s"),
    "seconds": _known(_seconds),
    "bytes": _known(_bytes),
    "figures": _known(_figures),
    "percent": _known(lambda value: f"{value * 100:.3g} %"),
    "loss": _known(lambda value: f"{value:.6g}"),
    "yes_no": lambda value: {None: MISSING, True: "yes", False: Markup("**NO**")}[value],
}
