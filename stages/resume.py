"""Checkpoint, stop and resume, for every mode that can run here."""

from pathlib import Path

from ampcheck import resume
from ampcheck.files import replaced_folder
from stages import inputs, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/resume/MODE.json, checkpoints/MODE.pt."""
    given, machine, modes = inputs()
    with replaced_folder(Path("checkpoints")) as checkpoints:
        write_by_mode(
            Path("results/resume"),
            given.train.modes,
            lambda mode: resume.check_resume(given, machine, mode, modes[mode], checkpoints),
            resume.line,
        )


run(main)
