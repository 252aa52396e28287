"""Checkpoint, stop and resume, for every mode that can run here."""

from pathlib import Path

from ampcheck.files import replaced_folder
from stages import inputs, leave_out, run, write_by_mode


def main() -> None:
    """data/, results/machine.json, modes.json -> results/resume/MODE.json, checkpoints/MODE.pt."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/resume"))
        leave_out(Path("checkpoints"))
        return
    from ampcheck import resume

    with replaced_folder(Path("checkpoints")) as checkpoints:
        write_by_mode(
            Path("results/resume"),
            given.train.modes,
            lambda mode: resume.check_resume(given, machine, mode, modes[mode], checkpoints),
            resume.line,
        )


run(main)
