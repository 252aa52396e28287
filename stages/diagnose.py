"""Where training breaks, and what cures it: of the modes whose trial broke; by hand, of those that are named, or all.

It needs the data and results/modes.json only: `dvc repro data`, then `python -m stages.diagnose all`.
"""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ampcheck.broken import broken_modes, named_modes
from ampcheck.files import write_text
from ampcheck.sentences import sentences
from stages import inputs, leave_out, run, write_by_mode

FOLDER = Path("results/diagnose")


def main() -> None:
    """data/, results/machine.json, modes.json, train/ -> results/diagnose/MODE.json, MODE.stack.txt."""
    given, machine, modes = inputs()
    by_hand = named_modes(given, sys.argv[1:])
    if given.trials_only and not by_hand:
        leave_out(FOLDER)
        return
    wanted = dict.fromkeys(by_hand, 0) if by_hand else broken_modes(given, Path("results/train"))
    stacks = {}

    def diagnosed(mode: str) -> dict[str, Any]:
        if mode not in wanted:
            return {"mode": mode, "why": "it was not asked for" if by_hand else "none of its trials broke"}
        from ampcheck.diagnosis import diagnose

        result = asdict(diagnose(given, machine, mode, modes[mode], wanted[mode]))
        stacks[mode] = result["place"].pop("stack")
        return result

    def told(result: dict[str, Any]) -> str:
        return "\n".join([*sentences(result), result.get("code", "")]).rstrip()

    write_by_mode(FOLDER, given.train.modes, diagnosed, told)
    for mode, stack in stacks.items():
        write_text(FOLDER / f"{mode}.stack.txt", stack)


# Read by torch once, when it is loaded: its errors then bear their C++ stack, without looking up the lines in it.
os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"
os.environ.setdefault("TORCH_DISABLE_ADDR2LINE", "1")
run(main)
