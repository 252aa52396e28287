"""Do the results depend on the first loss scale? Powers of two change no bit, unless something under- or overflows."""

from typing import Any

from ampcheck import identity, state
from ampcheck.precision import MODES
from ampcheck.reference import STEPS, Setup
from ampcheck.training import skipped_steps, train

FIRST_SCALES = [2.0**exponent for exponent in range(0, 17, 4)]  # 1 to 65536


def first_scales(setup: Setup, mode: str) -> list[dict[str, Any]]:
    """Train from each of FIRST_SCALES, without forced overflows or growth; [] without a scaler.

    Return for each its skips, and the weights that end with other bits than those of the greatest scale without a skip.
    """
    if not MODES[mode].scaler:
        return []
    tried = [_trained(setup, mode, scale) for scale in FIRST_SCALES]
    expected = next((leaves for skipped, leaves in reversed(tried) if not skipped), tried[-1][1])
    return [
        {"first_scale": scale, "skipped_steps": skipped, "differing": identity.differing(expected, leaves)}
        for scale, (skipped, leaves) in zip(FIRST_SCALES, tried, strict=True)
    ]


def _trained(setup: Setup, mode: str, first_scale: float) -> tuple[int, identity.Leaves]:
    run = setup.run(mode, overflow_at=(), scaler={"init_scale": first_scale, "growth_interval": 10 * STEPS})
    history = train(run, setup.batches(), STEPS)
    return len(skipped_steps(history.scales.tolist())), identity.leaves(state.PARTS["modules"].get(run))
