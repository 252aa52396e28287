"""Does a stopped run resume to the same bits? Per mode, each leg in its own process, compared leaf by leaf."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ampcheck import checkpoint, data, identity, state
from ampcheck.launch import Failure, attempt, fresh_run
from ampcheck.plan import shortened
from ampcheck.precision import MODES
from ampcheck.processes import Progress
from ampcheck.rehearsal import step_seconds
from ampcheck.run import Run
from ampcheck.schema import Params, Resume
from ampcheck.training import scaler_numbers, train


@dataclass(frozen=True, slots=True)
class Leg:
    """What one process did and ended with."""

    losses: list[float]
    leaves: identity.Leaves
    scaler: dict[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """The resume check of one mode: what its legs share."""

    params: Params
    machine: Mapping[str, Any]
    mode: str
    plan: Resume
    checkpoint: Path

    def run(self, seed: int) -> Run:
        """Build a fresh run; modes with a scaler have their overflows forced and a growth that shows."""
        if not MODES[self.mode].scaler:
            return fresh_run(self.params, self.machine, self.mode, seed=seed)
        scaler = {"growth_factor": self.plan.growth_factor, "growth_interval": self.plan.growth_interval}
        overflow_at = frozenset(self.plan.overflow_at)
        return fresh_run(self.params, self.machine, self.mode, seed=seed, scaler=scaler, overflow_at=overflow_at)


def check_resume(
    params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the result of the check of `mode`, JSON-ready; `folder` takes its checkpoint."""
    result: dict[str, Any] = {"mode": mode, "available": available["available"], "why": available["why"]}
    if not available["available"]:
        return result | _nothing_compared()
    check = Check(params, machine, mode, params.resume, folder / f"{mode}.pt")
    if available["emulated"]:
        seconds = attempt(lambda _: _step_seconds(check), f"resume {mode}, estimate")
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
    straight = _attempted(check, "straight", until=plan.steps)
    stopped = _attempted(check, "stopped", until=plan.stop_after, save=True)
    resumed = _attempted(check, "resumed", until=plan.steps, load=True)
    control = _attempted(check, "without scaler", until=plan.steps, load=True, lost="scaler") if has_scaler else None
    for leg in (straight, stopped, resumed, control):
        if isinstance(leg, Failure):
            return _nothing_compared() | {"why": leg.why}
    assert isinstance(straight, Leg) and isinstance(stopped, Leg) and isinstance(resumed, Leg)  # noqa: PT018
    lost = identity.first_not_finite(straight.losses, plan.overflow_at if has_scaler else [])
    if lost is not None:
        return _nothing_compared() | {
            "why": f"the loss is {straight.losses[lost]} at step {lost}: equal bits prove nothing"
        }
    differing = identity.differing(straight.leaves, resumed.leaves)
    first_loss = identity.first_different_loss(straight.losses, stopped.losses + resumed.losses)
    bit_exact = not differing and first_loss is None
    controls = [_judged("scaler", straight, control, plan, bit_exact=bit_exact)] if isinstance(control, Leg) else []
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


def _judged(part: str, straight: Leg, control: Leg, plan: Resume, *, bit_exact: bool) -> dict[str, Any]:
    """Say whether the loss of `part` showed; it counts as caught only if the plain resume was bit-exact."""
    differing = identity.differing(straight.leaves, control.leaves)
    first_loss = identity.first_different_loss(straight.losses[plan.stop_after :], control.losses, plan.stop_after)
    by = differing[:1] + ([f"the loss of step {first_loss['step']}"] if first_loss else [])
    return {"part": part, "caught": bit_exact and bool(by), "by": by}


def _attempted(
    check: Check,
    label: str,
    *,
    until: int,
    load: bool = False,
    save: bool = False,
    lost: str = "",
) -> Leg | Failure:
    def leg(progress: Progress) -> Leg:
        # A resumed leg starts from other seeds, so that nothing is right by accident.
        run = check.run(seed=(check.params.seed + load) % 2**32)
        batches = data.load(
            data.PATH, run.device, num_batches=until * run.options.accumulate, rows=check.params.resume.batch_size
        )
        if lost:
            checkpoint.load_without(lost, run, check.checkpoint)
        elif load:
            checkpoint.load(run, check.checkpoint)

        def lap() -> None:
            progress.value = run.step

        losses = train(run, batches, until, lap).losses.tolist()
        if save:
            checkpoint.save(run, check.checkpoint)
        return Leg(losses, identity.leaves(state.get(run)), scaler_numbers(run))

    return attempt(leg, f"resume {check.mode}, {label}", until)


def _step_seconds(check: Check) -> float:
    run = check.run(seed=check.params.seed)
    return step_seconds(run, data.load(data.PATH, run.device, num_batches=1, rows=check.params.resume.batch_size)[0])


def _nothing_compared() -> dict[str, Any]:
    nulls = dict.fromkeys(["steps", "stop_after", "bit_exact", "first_different_loss"])
    return nulls | {"differing": [], "scaler_at_stop": {}, "scaler_at_end": {}, "controls": []}
