"""The device's arithmetic rate, and what our timers cost, for every mode that is trained."""

from pathlib import Path

from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/limits/MODE.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/limits"))
        return
    from ampcheck import limits

    write_by_mode(
        Path("results/limits"),
        given.train.modes,
        lambda mode: limits.find_limits(given, machine, mode, modes[mode]),
        limits.line,
    )


run(main)
