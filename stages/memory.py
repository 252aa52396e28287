"""What the tensors of every mode take, counted here and foreseen for CUDA."""

from pathlib import Path

from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/memory/MODE.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/memory"))
        return
    from ampcheck import memory

    write_by_mode(
        Path("results/memory"),
        given.train.modes,
        lambda mode: memory.measure(given, machine, mode, modes[mode]),
        memory.line,
    )


run(main)
