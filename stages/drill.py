"""Resume under adversity, on a small network with all kinds of state."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ampcheck import drill, params
from ampcheck.files import read_json, replaced_folder, write_json
from stages import run


def main() -> None:
    """results/machine.json, modes.json -> results/drill/MODE.json, across.json, kills.json."""
    given, machine, modes = (
        params.load(),
        read_json(Path("results/machine.json")),
        read_json(Path("results/modes.json")),
    )
    with replaced_folder(Path("results/drill")) as folder, TemporaryDirectory(dir=folder) as checkpoints:
        for name, result in drill.run_drill(given, machine, modes, Path(checkpoints)).items():
            write_json(folder / f"{name}.json", result)
            print(drill.line(name, result), flush=True)


run(main)
