"""One untimed step in every mode, before anything is trained: what can't be trained is refused here."""

from pathlib import Path

from ampcheck import rehearsal
from stages import inputs, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/rehearse/MODE.json."""
    given, machine, modes = inputs()
    write_by_mode(
        Path("results/rehearse"),
        given.train.modes,
        lambda mode: rehearsal.rehearse(given, machine, mode, modes[mode]),
        rehearsal.line,
    )


run(main)
