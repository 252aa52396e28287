"""Checkpoint, stop and resume, for every mode that can run here."""

from pathlib import Path

from ampcheck import params, resume
from ampcheck.files import read_json, replaced_folder, write_json
from stages import run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/resume/MODE.json, checkpoints/MODE.pt."""
    given, machine, modes = (
        params.load(),
        read_json(Path("results/machine.json")),
        read_json(Path("results/modes.json")),
    )
    with (
        replaced_folder(Path("results/resume")) as folder,
        replaced_folder(Path("checkpoints")) as checkpoints,
    ):
        for mode in given.train.modes:
            result = resume.check_resume(given, machine, mode, modes[mode], checkpoints)
            write_json(folder / f"{mode}.json", result)
            print(resume.line(result), flush=True)


run(main)
