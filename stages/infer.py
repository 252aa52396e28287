"""The forward pass alone, for every mode that is trained."""

from pathlib import Path

from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/infer/MODE.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/infer"))
        return
    from ampcheck import inference

    write_by_mode(
        Path("results/infer"),
        given.train.modes,
        lambda mode: inference.infer(given, machine, mode, modes[mode]),
        inference.line,
    )


run(main)
