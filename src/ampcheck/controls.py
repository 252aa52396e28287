"""Controls: a check that can't fail proves nothing, so each part of the state is lost in turn and must be missed."""

from typing import Any

from ampcheck import checkpoint, identity, state
from ampcheck.precision import MODES
from ampcheck.reference import STEPS, STOP, Ending, Reference, Setup, ending
from ampcheck.training import train

EARLY = "save between step() and update()"
NEED_A_SCALER = ("scaler", "growth tracker", EARLY)


def controls(setup: Setup, mode: str, reference: Reference, *, bit_exact: bool) -> list[dict[str, Any]]:
    """Return for every part if its loss can matter in `mode` and why not, if it was caught, and what gave it away.

    It counts as caught only if plain resumes were `bit_exact`.
    """
    told = []
    for part in [*checkpoint.LOSABLE, EARLY]:
        why_not = _why_not(setup, mode, part)
        by = [] if why_not else _given_away(setup, mode, part, reference)
        if not (why_not or by) and _changes_nothing(setup, mode, part, reference):
            why_not = "at no stop other than in a fresh run"
        told.append(
            {"part": part, "matters": not why_not, "why_not": why_not, "caught": bit_exact and bool(by), "by": by}
        )
    return told


def _why_not(setup: Setup, mode: str, part: str) -> str:
    """Say why the loss of `part` can't matter; empty if it can."""
    if part in NEED_A_SCALER and not MODES[mode].scaler:
        return "no scaler"
    if part == "gradients" and setup.params.train.zero_grad == "set_to_none":
        return "dropped after every step"
    return ""


def _given_away(setup: Setup, mode: str, part: str, reference: Reference) -> list[str]:
    if part == EARLY:
        return _saved_early(setup, mode, reference).differs(reference)
    # A loss need not show at every stop: a gradient of zero does if the next step does not use its module.
    found = (_without(setup, mode, part, stop).differs(reference) for stop in [STOP, *range(STEPS)])
    return next(filter(None, found), [])


def _without(setup: Setup, mode: str, part: str, stop: int) -> Ending:
    run = setup.run(mode, other_seed=1)
    checkpoint.load_without(part, run, setup.checkpoint(mode, stop))
    return ending(run, setup.batches())


def _changes_nothing(setup: Setup, mode: str, part: str, reference: Reference) -> bool:
    """Whether a fresh run has `part` as it was saved, at every stop: as an optimizer does that keeps no state."""
    if part == EARLY:
        return False
    for stop in range(STEPS):
        run = setup.run(mode, other_seed=1)
        checkpoint.load_without(part, run, setup.checkpoint(mode, stop))
        if identity.differing(reference.leaves[stop], identity.leaves(state.get(run))):
            return False
    return True


def _saved_early(setup: Setup, mode: str, reference: Reference) -> Ending:
    """Save the first step that is skipped before the scaler has heard of it, and go on from there."""
    stop = reference.after_skip()
    assert stop is not None, "an overflow is forced"
    path = setup.checkpoint(mode, -stop)
    run = setup.run(mode)
    update = run.scaler.update

    def early() -> None:
        run.step += 1  # as whoever saves here counts
        checkpoint.save(run, path)
        run.step -= 1
        update()

    run.scaler.update = early  # type: ignore[method-assign, assignment]
    train(run, setup.batches(), stop)
    resumed, _ = setup.loaded(mode, path)
    return ending(resumed, setup.batches())
