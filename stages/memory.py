"""What the tensors of every mode take, counted here and foreseen for CUDA."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages import examine, run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/memory/MODE.json."""
    examine(Path("results/memory"), tools)


def tools() -> tuple[Callable[..., Any], Callable[[Any], str]]:
    """Load what examines a mode, and torch with it."""
    from ampcheck import memory

    return memory.measure, memory.line


run(main)
