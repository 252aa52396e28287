"""Across precision: a checkpoint of one mode goes on in another, by declared rules. Never an exception, nor a guess."""

import math
from itertools import permutations
from typing import Any

from ampcheck import checkpoint, identity, state
from ampcheck.precision import MODES
from ampcheck.reference import STOP, Setup
from ampcheck.training import train

# (the saved run had a scaler, the mode has one) -> what becomes of it
RULES = {(True, True): "restored", (True, False): "ignored", (False, True): "fresh", (False, False): "none"}


def across(setup: Setup, modes: list[str]) -> list[dict[str, Any]]:
    """Return for every ordered pair of `modes` what was told, which leaves differ, and whether all went by the rule."""
    return [_pair(setup, saved, mode) for saved, mode in permutations(modes, 2)]


def _pair(setup: Setup, saved_mode: str, mode: str) -> dict[str, Any]:
    path = setup.checkpoint(saved_mode, STOP)
    run, saved = setup.run(mode, other_seed=1), checkpoint.read(path).state
    rule = RULES[MODES[saved_mode].scaler, MODES[mode].scaler]
    scaler = saved["scaler"] if rule == "restored" else run.scaler.state_dict()
    told = checkpoint.load(run, path)
    differing = identity.differing(identity.leaves(saved | {"scaler": scaler}), identity.leaves(state.get(run)))
    [loss] = train(run, setup.batches(), run.step + 1).losses.tolist()
    return {
        "from": saved_mode,
        "to": mode,
        "scaler": rule,
        "told": told,
        "differing": differing,
        "next_loss_finite": math.isfinite(loss),
    }
