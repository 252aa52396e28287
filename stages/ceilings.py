"""What the device reaches and where a step's time goes, for every mode that is trained."""

from pathlib import Path

from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/ceilings/MODE.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/ceilings"))
        return
    from ampcheck import ceilings

    write_by_mode(
        Path("results/ceilings"),
        given.train.modes,
        lambda mode: ceilings.find_ceilings(given, machine, mode, modes[mode]),
        ceilings.line,
    )


run(main)
