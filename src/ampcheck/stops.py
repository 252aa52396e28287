"""Every stop: the state before each step, loaded into fresh objects, must give the next state. By induction, all do."""

from typing import Any

from ampcheck import identity, state
from ampcheck.precision import MODES
from ampcheck.reference import STEPS, STOP, Ending, Reference, Setup, ending
from ampcheck.run import Run
from ampcheck.runaway import SKIPS_IN_A_ROW, RunawayError
from ampcheck.training import train

ENDLESS = 10 * SKIPS_IN_A_ROW


def every_stop(setup: Setup, mode: str, reference: Reference) -> list[dict[str, Any]]:
    """Return for each stop k the leaves that differ at k + 1 after one step from the checkpoint, and the losses."""
    batches, told = setup.batches(), []
    for step in range(STEPS):
        run, notes = setup.loaded(mode, setup.checkpoint(mode, step))
        losses = train(run, batches, run.step + 1).losses.tolist()
        differing = identity.differing(reference.leaves[step + 1], identity.leaves(state.get(run)))
        loss = identity.first_different_loss(reference.losses[step : step + 1], losses, step)
        result = {"stop": step, "told": notes, "differing": differing, "first_different_loss": loss}
        told.append(result | {"bit_exact": not (notes or differing or loss)})
    return told


def named_stops(reference: Reference) -> dict[str, int | None]:
    """Return the stops that people ask about; None where the mode has no such one."""
    return {
        "before the first step": 0,
        "right after a skip": reference.after_skip(),
        "on a growth boundary": reference.after_growth(),
        "before the last step": STEPS - 1,
    }


def same_save_points(reference: Reference) -> bool:
    """Whether the start of iteration k and the end of k - 1, after `update()`, are one state: the recipe's two places.

    https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html#saving-resuming
    """
    return reference.begun == reference.leaves[:-1]


def real_stops(reference: Reference) -> list[int]:
    """Return the stops that are resumed in new processes to the end: first, beside a skip (else midway), last."""
    return [0, reference.after_skip() or STEPS // 2, STEPS - 1]


def to_the_end(setup: Setup, chosen: dict[str, int]) -> dict[str, Ending]:
    """Resume each mode from its chosen stop, and train to the end."""
    ended, batches = {}, setup.batches()
    for mode, stop in chosen.items():
        run, _ = setup.loaded(mode, setup.checkpoint(mode, stop))
        ended[mode] = ending(run, batches)
    return ended


def other_growth_interval(setup: Setup, mode: str, reference: Reference) -> dict[str, Any] | None:
    """Resume under another growth interval: the rule is that the checkpoint's is kept, and that this is told."""
    if not MODES[mode].scaler:
        return None
    run, told = setup.loaded(mode, setup.checkpoint(mode, STOP), {"growth_interval": 1})
    return {"told": told, "differing": ending(run, setup.batches()).differs(reference)}


def runaway(setup: Setup, mode: str) -> dict[str, Any] | None:
    """Let every step overflow: the run must stop by itself, with its weights untouched."""
    if not MODES[mode].scaler:
        return None
    run, batches, told = setup.run(mode, overflow_at=range(1, ENDLESS)), setup.batches(), None
    train(run, batches, 1)  # a fused optimizer begins its state in its first step, even in one that is skipped
    before = identity.leaves(_skipped(run))
    try:
        train(run, batches, ENDLESS)
    except RunawayError as error:
        told = str(error)
    differing = identity.differing(before, identity.leaves(_skipped(run)))
    return {"stopped_at": run.step, "told": told, "differing": differing}


def _skipped(run: Run) -> state.State:
    """Return what the skips must leave alone, of the module that every step uses; not BatchNorm's statistics.

    Other modules may have finite gradients, kept as zeros, and their optimizers then step.
    """
    parts = {part: state.PARTS[part].get(run).get("net") for part in ("optimizers", "schedulers")}
    return {"parameters": dict(run.modules["net"].named_parameters())} | parts
