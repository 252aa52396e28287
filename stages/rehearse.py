"""One untimed step in every mode, before anything is trained: what can't be trained is refused here."""

from dataclasses import asdict
from pathlib import Path

from ampcheck import params, rehearsal
from ampcheck.files import read_json, replaced_folder, write_json
from stages import run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/rehearse/MODE.json."""
    given, machine, modes = (
        params.load(),
        read_json(Path("results/machine.json")),
        read_json(Path("results/modes.json")),
    )
    with replaced_folder(Path("results/rehearse")) as folder:
        for mode in given.train.modes:
            result = rehearsal.rehearse(given, machine, mode, modes[mode])
            write_json(folder / f"{mode}.json", asdict(result))
            print(rehearsal.line(result), flush=True)


run(main)
