"""One thin script a stage: read, call, write. Run as modules from the project's root: python -m stages.train 0."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A queued experiment runs in a copy of this folder: it must use the copy's library, not an editable install's.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from ampcheck import params
from ampcheck.files import read_json, replaced_folder, write_json
from ampcheck.processes import ChildError, die_with_parent
from ampcheck.schema import Params

die_with_parent(os.getppid())
gc.disable()  # a stage loads much and soon ends; what it forks turns the collector on


def run(main: Callable[[], None]) -> None:
    """Run a stage. What the user can mend is told in one line each, without a traceback; the exit code is then 1."""
    try:
        main()
    except (ValueError, OSError, ChildError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what was finished before this stage is kept")
    sys.stdout.flush()
    os._exit(0)  # all is written, and taking torch's modules down would take half a second more


def inputs() -> tuple[Params, dict[str, Any], dict[str, Any]]:
    """Return params.yaml, results/machine.json and results/modes.json."""
    return params.load(), read_json(Path("results/machine.json")), read_json(Path("results/modes.json"))


def leave_out(folder: Path) -> None:
    """Replace `folder` by an empty one: with params.trials_only nothing older may pass for a result."""
    with replaced_folder(folder):
        print("left out: trials_only")


def examine(folder: Path, tools: Callable[[], tuple[Callable[..., Any], Callable[[Any], str]]]) -> None:
    """Replace `folder` by what is found of each mode; with params.trials_only it is left out, and nothing loaded.

    `tools` loads and returns what examines a mode, called with params.yaml, machine.json, the mode and its entry in
    modes.json, and what tells its result in a line.
    """
    given, machine, modes = inputs()
    if given.trials_only:
        leave_out(folder)
        return
    find, line = tools()
    write_by_mode(folder, given.train.modes, lambda mode: find(given, machine, mode, modes[mode]), line)


def write_by_mode(folder: Path, modes: list[str], measure: Callable[[str], Any], line: Callable[[Any], str]) -> None:
    """Replace `folder` by a MODE.json for each of `modes`: what `measure` returns; print a `line` of each."""
    with replaced_folder(folder) as beside:
        for mode in modes:
            result = measure(mode)
            write_json(beside / f"{mode}.json", result)
            print(line(result), flush=True)
