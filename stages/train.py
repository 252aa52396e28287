"""One repeat: every mode trained in turn, in the reverse order on odd repeats, so that order favours none."""

import sys
from pathlib import Path

from ampcheck import trial
from ampcheck.files import replaced_folder
from stages import inputs, run


def main() -> None:
    """data/, results/machine.json, modes.json -> results/train/REPEAT/MODE.json, MODE.csv."""
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        raise ValueError(f"stages.train: got {' '.join(sys.argv[1:]) or 'nothing'}; give one number of train.repeats")
    repeat = int(sys.argv[1])
    given, machine, modes = inputs()
    with replaced_folder(Path("results/train") / str(repeat)) as folder:
        for mode in reversed(given.train.modes) if repeat % 2 else given.train.modes:
            result = trial.run_trial(given, machine, mode, repeat, modes[mode])
            trial.write_trial(result, folder)
            print(trial.line(result), flush=True)


run(main)
