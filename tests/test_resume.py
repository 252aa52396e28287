"""The plan of the resume check, and how a difference is told."""

import math

import pytest

from ampcheck.identity import first_different_loss
from ampcheck.plan import EMULATED_SECONDS, shortened
from ampcheck.schema import Params


@pytest.mark.parametrize("step_seconds", [i / 20 for i in range(1, 200)])
def test_an_emulated_mode_takes_the_steps_it_has_time_for(tiny_params: Params, step_seconds: float) -> None:
    """Fewer steps (to within one), but always a stop between two overflows, and a tracker that shows."""
    whole = tiny_params.resume.model_copy(
        update={"steps": 24, "stop_after": 12, "overflow_at": [5, 15], "growth_interval": 4}
    )
    plan = shortened(whole, step_seconds)
    executed = 3 * plan.steps - plan.stop_after

    assert plan.steps == 4 or (executed - 1) * step_seconds <= EMULATED_SECONDS or plan == whole
    assert 0 < plan.stop_after < plan.steps
    assert any(step < plan.stop_after for step in plan.overflow_at)
    assert any(plan.stop_after <= step < plan.steps for step in plan.overflow_at)
    assert plan.tracker_at_stop > 0


def test_a_quick_mode_takes_all_steps(tiny_params: Params) -> None:
    """Where there is time the plan is the parameters' own."""
    assert shortened(tiny_params.resume, 0.001) == tiny_params.resume


def test_the_first_different_loss_is_told_with_both_values() -> None:
    """By bits: nan equals nan, and the step is that of the run."""
    nan = math.nan

    assert first_different_loss([1.0, nan], [1.0, nan]) is None
    assert first_different_loss([1.0, 2.0, 3.0], [1.0, nan, 4.0], 7) == {"step": 8, "straight": 2.0, "resumed": "nan"}
    assert first_different_loss([0.0], [-0.0]) == {"step": 0, "straight": 0.0, "resumed": -0.0}
