"""The forward pass alone, for every mode that is trained."""

from pathlib import Path

from ampcheck import inference
from stages import inputs, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/infer/MODE.json."""
    given, machine, modes = inputs()
    write_by_mode(
        Path("results/infer"),
        given.train.modes,
        lambda mode: inference.infer(given, machine, mode, modes[mode]),
        inference.line,
    )


run(main)
