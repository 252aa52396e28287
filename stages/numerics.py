"""The health of the numbers of every mode that can run here, in a few untimed steps."""

from pathlib import Path

from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/numerics/MODE.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/numerics"))
        return
    from ampcheck import numerics

    write_by_mode(
        Path("results/numerics"),
        given.train.modes,
        lambda mode: numerics.examine(given, machine, mode, modes[mode]),
        numerics.line,
    )


run(main)
