"""The health of the numbers of every mode that can run here, in a few untimed steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages import examine, run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/numerics/MODE.json."""
    examine(Path("results/numerics"), tools)


def tools() -> tuple[Callable[..., Any], Callable[[Any], str]]:
    """Load what examines a mode, and torch with it."""
    from ampcheck import numerics

    return numerics.examine, numerics.line


run(main)
