"""What the device reaches and where a step's time goes, for every mode that is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages import examine, run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/ceilings/MODE.json."""
    examine(Path("results/ceilings"), tools)


def tools() -> tuple[Callable[..., Any], Callable[[Any], str]]:
    """Load what examines a mode, and torch with it."""
    from ampcheck import ceilings

    return ceilings.find_ceilings, ceilings.line


run(main)
