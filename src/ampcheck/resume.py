"""Does a stopped run resume to the same bits? Per mode, each leg in its own process, compared leaf by leaf."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ampcheck import identity
from ampcheck.launch import Failure, attempt
from ampcheck.legs import Check, Leg, attempted, seconds_of_a_step
from ampcheck.plan import shortened
from ampcheck.precision import MODES
from ampcheck.schema import Params, Resume

WITHOUT = "without scaler"


def check_resume(
    params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the result of the check of `mode`, JSON-ready; `folder` takes its checkpoint."""
    result: dict[str, Any] = {"mode": mode, "available": available["available"], "why": available["why"]}
    if not available["available"]:
        return result | _nothing_compared()
    check = Check(params, machine, mode, params.resume, folder / f"{mode}.pt")
    if available["emulated"]:
        seconds = attempt(lambda _: seconds_of_a_step(check), f"resume {mode}, estimate")
        if isinstance(seconds, Failure):
            return result | _nothing_compared() | {"why": seconds.why}
        check = replace(check, plan=shortened(params.resume, seconds))
    return result | _compared(check)


def line(result: Mapping[str, Any]) -> str:
    """Tell the result in one line of a log."""
    if result["bit_exact"] is None:
        return f"{result['mode']}: not checked: {result['why']}"
    told = "bit-exact" if result["bit_exact"] else "NOT bit-exact"
    caught = "".join(f"; lost {control['part']} caught: {control['caught']}" for control in result["controls"])
    return f"{result['mode']}: {told}, {result['steps']} steps with a stop after {result['stop_after']}{caught}"


def _compared(check: Check) -> dict[str, Any]:
    plan, has_scaler = check.plan, MODES[check.mode].scaler
    legs: dict[str, Leg] = {}
    for label, how in _legs(plan, has_scaler=has_scaler).items():
        leg = attempted(check, label, **how)
        if isinstance(leg, Failure):
            return _nothing_compared() | {"why": leg.why}
        legs[label] = leg
    straight, stopped, resumed, control = (legs.get(label) for label in ("straight", "stopped", "resumed", WITHOUT))
    assert straight and stopped and resumed  # noqa: PT018
    lost = identity.first_not_finite(straight.losses, straight.skipped)
    if lost is not None:
        return _nothing_compared() | {
            "why": f"the loss is {straight.losses[lost]} at step {lost}: equal bits prove nothing"
        }
    differing = identity.differing(straight.leaves, resumed.leaves)
    first_loss = identity.first_different_loss(straight.losses, stopped.losses + resumed.losses)
    bit_exact = not differing and first_loss is None
    controls = [_judged("scaler", straight, control, plan, bit_exact=bit_exact)] if control else []
    return {
        "steps": plan.steps,
        "stop_after": plan.stop_after,
        "overflow_at": plan.overflow_at if has_scaler else [],
        "bit_exact": bit_exact,
        "differing": differing,
        "first_different_loss": first_loss,
        "scaler_at_stop": stopped.scaler,
        "scaler_at_end": {"straight": straight.scaler, "resumed": resumed.scaler},
        "controls": controls,
    }


def _legs(plan: Resume, *, has_scaler: bool) -> dict[str, dict[str, Any]]:
    legs: dict[str, dict[str, Any]] = {
        "straight": {"until": plan.steps},
        "stopped": {"until": plan.stop_after, "save": True},
        "resumed": {"until": plan.steps, "load": True},
    }
    return legs | ({WITHOUT: {"until": plan.steps, "load": True, "lost": "scaler"}} if has_scaler else {})


def _judged(part: str, straight: Leg, control: Leg, plan: Resume, *, bit_exact: bool) -> dict[str, Any]:
    """Say whether the loss of `part` showed; it counts as caught only if the plain resume was bit-exact."""
    differing = identity.differing(straight.leaves, control.leaves)
    first_loss = identity.first_different_loss(straight.losses[plan.stop_after :], control.losses, plan.stop_after)
    by = differing[:1] + ([f"the loss of step {first_loss['step']}"] if first_loss else [])
    return {"part": part, "caught": bit_exact and bool(by), "by": by}


def _nothing_compared() -> dict[str, Any]:
    nulls = dict.fromkeys(["steps", "stop_after", "bit_exact", "first_different_loss"])
    return nulls | {"differing": [], "scaler_at_stop": {}, "scaler_at_end": {}, "controls": []}
