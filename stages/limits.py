"""The device's arithmetic rate, and what our timers cost, for every mode that is trained."""

from pathlib import Path

from ampcheck import limits
from stages import inputs, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/limits/MODE.json."""
    given, machine, modes = inputs()
    write_by_mode(
        Path("results/limits"),
        given.train.modes,
        lambda mode: limits.find_limits(given, machine, mode, modes[mode]),
        limits.line,
    )


run(main)
