"""Resume under adversity, on a small network with all kinds of state."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ampcheck.files import replaced_folder, write_json
from stages import inputs, leave_out, run


def main() -> None:
    """results/machine.json, modes.json -> results/drill/MODE.json, across.json, kills.json."""
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(Path("results/drill"))
        return
    from ampcheck import drill

    with replaced_folder(Path("results/drill")) as folder, TemporaryDirectory(dir=folder) as checkpoints:
        for name, result in drill.run_drill(given, machine, modes, Path(checkpoints)).items():
            write_json(folder / f"{name}.json", result)
            print(drill.line(name, result), flush=True)


run(main)
