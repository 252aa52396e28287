"""How many steps the resume check takes where a mode is emulated."""

from itertools import count

from ampcheck.schema import Resume

EMULATED_SECONDS = 30.0  # an emulated mode takes fewer steps where its legs would last longer than this
FEWEST_STEPS = 4


def shortened(plan: Resume, step_seconds: float) -> Resume:
    """Return `plan` with as many steps as its legs can take in EMULATED_SECONDS, overflows still on both sides."""
    executed = 3 * plan.steps - plan.stop_after  # straight, stopped, resumed, control
    steps = max(FEWEST_STEPS, int(plan.steps * EMULATED_SECONDS / (executed * step_seconds)))
    if steps >= plan.steps:
        return plan
    stop_after = max(2, plan.stop_after * steps // plan.steps)
    scaled = [(step, step * steps // plan.steps) for step in plan.overflow_at]
    before = {min(short, stop_after - 2) for step, short in scaled if step < plan.stop_after}
    after = {max(short, stop_after) for step, short in scaled if step >= plan.stop_after}
    taken = stop_after - 1 - max(before)  # steps between the last overflow and the stop
    wished = max(2, plan.growth_interval * steps // plan.steps)
    growth_interval = next(interval for interval in count(wished) if taken % interval)  # the tracker must not be 0
    return plan.model_copy(
        update={
            "steps": steps,
            "stop_after": stop_after,
            "overflow_at": sorted(before | after),
            "growth_interval": growth_interval,
        }
    )
