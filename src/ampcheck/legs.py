"""A leg of the resume check: one process, which trains from the start or from a checkpoint, and may save one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ampcheck import checkpoint, data, identity, state
from ampcheck.launch import Failure, attempt, fresh_run
from ampcheck.processes import Progress
from ampcheck.rehearsal import step_seconds
from ampcheck.run import Run
from ampcheck.schema import Params, Resume
from ampcheck.training import scaler_numbers, skipped_steps, train


@dataclass(frozen=True, slots=True)
class Leg:
    """What one process did and ended with."""

    losses: list[float]
    skipped: list[int]  # counted from its first step
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
        scaler = {"growth_factor": self.plan.growth_factor, "growth_interval": self.plan.growth_interval}
        overflow_at = frozenset(self.plan.overflow_at)
        return fresh_run(self.params, self.machine, self.mode, seed=seed, scaler=scaler, overflow_at=overflow_at)


def attempted(
    check: Check,
    label: str,
    *,
    until: int,
    load: bool = False,
    save: bool = False,
    lost: str = "",
) -> Leg | Failure:
    """Run the leg called `label` up to step `until`; `lost` names a part that is left out of what is loaded."""

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

        history = train(run, batches, until, lap)
        if save:
            checkpoint.save(run, check.checkpoint)
        skipped = skipped_steps(history.scales.tolist())
        return Leg(history.losses.tolist(), skipped, identity.leaves(state.get(run)), scaler_numbers(run))

    return attempt(leg, f"resume {check.mode}, {label}", until)


def seconds_of_a_step(check: Check) -> float:
    """Return how long a step of the check takes, roughly."""
    run = check.run(seed=check.params.seed)
    return step_seconds(run, data.load(data.PATH, run.device, num_batches=1, rows=check.params.resume.batch_size)[0])
