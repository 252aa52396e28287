"""Facts of the machine, the modes that can run on it, and the workload's source; always run, and quick."""

from pathlib import Path

from ampcheck import environment, params
from stages import run


def main() -> None:
    """params.yaml -> results/machine.json, modes.json, workload.json."""
    print(environment.update(Path("results"), params.read()))


run(main)
