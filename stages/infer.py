"""The forward pass alone, for every mode that is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages import examine, run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/infer/MODE.json."""
    examine(Path("results/infer"), tools)


def tools() -> tuple[Callable[..., Any], Callable[[Any], str]]:
    """Load what examines a mode, and torch with it."""
    from ampcheck import inference

    return inference.infer, inference.line


run(main)
