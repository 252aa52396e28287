"""What our timers cost a step: pairs of steps with them and without, on the drill's network."""

from collections.abc import Callable

from ampcheck.meters import meter_for
from ampcheck.processes import Progress
from ampcheck.rates import seconds
from ampcheck.reference import Setup
from ampcheck.training import train

BLOCK_STEPS = 5
PAIRS = 60


def timer_seconds(setup: Setup, mode: str, progress: Progress) -> list[float]:
    """Return for each of PAIRS the difference of a step's time with a trial's timers and without, in turn."""
    setup.make_data()
    run, batches = setup.run(mode, overflow_at=()), setup.batches()
    meter = meter_for(run.device)

    def timers() -> None:  # as in a trial
        meter.lap()
        progress.value = run.step

    def seconds_of_a_step(lap: Callable[[], None]) -> float:
        return seconds(lambda: train(run, batches, run.step + BLOCK_STEPS, lap), run.device) / BLOCK_STEPS

    meter.start()
    differences = []
    for pair in range(PAIRS):
        order = (timers, _nothing) if pair % 2 else (_nothing, timers)
        taken = {lap: seconds_of_a_step(lap) for lap in order}
        differences.append(taken[timers] - taken[_nothing])
    return differences


def _nothing() -> None:
    """Do what no timer does."""
