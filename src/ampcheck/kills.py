"""Kill: a training process dies by SIGKILL at a random moment, and what is left must go on to the same bits."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from ampcheck import checkpoint, identity, state
from ampcheck.files import partial as partial_file
from ampcheck.identity import Leaves
from ampcheck.processes import KilledError, Progress, in_child
from ampcheck.reference import STEPS, Setup
from ampcheck.training import train


def survive(setup: Setup, ends: dict[str, Leaves], kills: int) -> dict[str, Any]:
    """Kill `kills` runs, the modes of `ends` in turn; compare each that was resumed with its mode's end.

    A moment is a step or the writing of its checkpoint, drawn from the seed. A run that ended before the signal
    came is no kill, and its moment is drawn anew.
    """
    moments = random.Random(setup.params.seed)
    modes = list(ends)
    told: list[dict[str, Any]] = []
    while modes and len(told) < kills:
        mode = modes[len(told) % len(modes)]
        writing = len(told) % 2  # every other one is aimed at the writing of a checkpoint
        killed = _kill(setup, mode, 2 * moments.randrange(STEPS) + writing)
        if killed is not None:
            told.append(killed | _resumed(setup, mode, ends[mode]))
    return {"seed": setup.params.seed, "kills": told}


def _resumed(setup: Setup, mode: str, end: Leaves) -> dict[str, Any]:
    """Go on after a kill, and say from where, and which leaves differ at the end; or why that can't be done."""
    try:
        resumed_from, leaves = in_child(partial(_life, setup, mode), f"drill {mode}, after a kill")
    except ValueError as error:  # no whole checkpoint is left: this is what the drill is for
        return {"resumed_from": None, "differing": [str(error)]}
    return {"resumed_from": resumed_from, "differing": identity.differing(end, leaves)}


def _kill(setup: Setup, mode: str, moment: int) -> dict[str, Any] | None:
    path = _path(setup, mode)
    path.unlink(missing_ok=True)
    try:
        in_child(partial(_life, setup, mode), f"drill {mode}, to be killed", kill_at=moment)
    except KilledError:
        return {"mode": mode, "step": moment // 2, "while_writing": partial_file(path).exists()}
    return None


def _life(setup: Setup, mode: str, progress: Progress) -> tuple[int, Leaves]:
    """Go on from the newest whole checkpoint, if there is one; save after every step. Return where it began."""
    path = _path(setup, mode)
    run = setup.loaded(mode, path)[0] if path.exists() else setup.run(mode)
    begun_at, batches = run.step, setup.batches()
    while run.step < STEPS:
        progress.value = 2 * run.step
        train(run, batches, run.step + 1)
        progress.value = 2 * run.step - 1
        checkpoint.save(run, path)
    return begun_at, identity.leaves(state.get(run))


def _path(setup: Setup, mode: str) -> Path:
    return setup.folder / f"{mode}.killed.pt"
