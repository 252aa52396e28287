"""The forward pass alone, for every mode that is trained."""

from dataclasses import asdict
from pathlib import Path

from ampcheck import inference, params
from ampcheck.files import read_json, replaced_folder, write_json
from stages import run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/infer/MODE.json."""
    given, machine, modes = (
        params.load(),
        read_json(Path("results/machine.json")),
        read_json(Path("results/modes.json")),
    )
    with replaced_folder(Path("results/infer")) as folder:
        for mode in given.train.modes:
            result = inference.infer(given, machine, mode, modes[mode])
            write_json(folder / f"{mode}.json", asdict(result))
            print(inference.line(result), flush=True)


run(main)
