"""Controls: a check that can't fail proves nothing, so each part of the state is lost in turn and must be missed."""

from typing import Any

from ampcheck import checkpoint
from ampcheck.precision import MODES
from ampcheck.reference import STOP, Ending, Reference, Setup, ending
from ampcheck.training import train

EARLY = "save between step() and update()"
NEED_A_SCALER = ("scaler", "growth tracker", EARLY)


def controls(setup: Setup, mode: str, reference: Reference, *, bit_exact: bool) -> list[dict[str, Any]]:
    """Return for every part whether its loss can matter in `mode`, whether it was caught, and what gave it away.

    It counts as caught only if plain resumes were `bit_exact`.
    """
    told = []
    for part in [*checkpoint.LOSABLE, EARLY]:
        matters, by = MODES[mode].scaler or part not in NEED_A_SCALER, []
        if matters:
            ended = _saved_early(setup, mode, reference) if part == EARLY else _without(setup, mode, part)
            by = ended.differs(reference)
        told.append({"part": part, "matters": matters, "caught": bit_exact and bool(by), "by": by})
    return told


def _without(setup: Setup, mode: str, part: str) -> Ending:
    run = setup.run(mode, other_seed=1)
    checkpoint.load_without(part, run, setup.checkpoint(mode, STOP))
    return ending(run, setup.batches())


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
