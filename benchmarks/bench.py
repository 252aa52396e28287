"""What our loop costs beside the recipe's own, written by hand. It prints ratios of time; it tests nothing.

python benchmarks/bench.py, with src/ on PYTHONPATH: on the CPU, in less than a minute.
https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import RawValue

import numpy as np
import torch

from ampcheck import environment, launch
from ampcheck.meters import CpuMeter
from ampcheck.precision import MODES, Mode
from ampcheck.training import Run, start, train
from ampcheck.workloads import Batch, mlp

SECONDS = 9.0  # of pairs for each case
WARM_UP = 2  # pairs that don't count
NUM_BATCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The recipe's network, three square layers, in one mode. Each half of a pair takes `steps` steps."""

    name: str
    mode: Mode
    batch_size: int
    width: int
    threads: int
    steps: int

    def prepared(self) -> tuple[Run, list[Batch]]:
        """Return a fresh run and its data."""
        launch.prepare(seed=0, threads=self.threads, deterministic=True)
        workload = mlp.build(self.batch_size, self.width, self.width, num_layers=3)
        made = [workload.batch(np.random.default_rng(seed)) for seed in range(NUM_BATCHES)]
        batches: list[Batch] = [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in made]
        return start(workload, self.mode, torch.device("cpu"), lr=0.001, zero_grad="set_to_none"), batches


def cases() -> list[Case]:
    """Return what is timed. One thread for the small size: two would mostly wait for each other."""
    fp32, bf16 = MODES["fp32"], MODES["amp-bf16"]
    small = {"batch_size": 16, "width": 64, "threads": 1, "steps": 20}
    laptop = {"batch_size": 512, "width": 1024, "threads": environment.cores(), "steps": 1}
    return [
        Case(name="fp32", mode=fp32, **small),
        Case(name="amp-bf16", mode=bf16, **small),
        # CPUs emulate float16, so slowly that our part would not show: the scaler is timed with bfloat16.
        Case(name="amp-bf16 with a scaler", mode=replace(bf16, scaler=True), **small),
        Case(name="fp32", mode=fp32, **laptop),
        Case(name="amp-bf16", mode=bf16, **laptop),
    ]


def train_by_hand(run: Run, mode: Mode, batches: list[Batch], steps: int) -> None:
    """Train as the recipe's page does, with the network, optimizer and scaler of `run`, and log nothing."""
    net, optimizer, scaler = run.modules["net"], run.optimizers["sgd"], run.scaler
    loss_fn = torch.nn.MSELoss()
    dtype = getattr(torch, mode.dtype)
    for step in range(steps):
        batch = batches[step % len(batches)]
        with torch.autocast(device_type="cpu", dtype=dtype, enabled=mode.autocast):
            loss = loss_fn(net(batch["input"]), batch["target"])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def ratios(case: Case, seconds: float) -> list[float]:
    """Return our time over the hand-written loop's, pair by pair for `seconds`; every other pair is reversed."""
    run, batches = case.prepared()
    meter, progress = CpuMeter(), RawValue("q", 0)
    meter.start()

    def lap() -> None:  # as in a trial
        meter.lap()
        progress.value = run.step

    def ours() -> None:
        train(run, batches, run.step + case.steps, lap)

    def by_hand() -> None:
        train_by_hand(run, case.mode, batches, case.steps)

    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < WARM_UP + 2:
        first, second = (ours, by_hand) if len(found) % 2 else (by_hand, ours)
        taken = {loop: _seconds(loop) for loop in (first, second)}
        found.append(taken[ours] / taken[by_hand])
    return found[WARM_UP:]


def main() -> None:
    """Print a line for each case."""
    print("our time / the hand-written loop's    median  quartiles       pairs")
    for case in cases():
        found = ratios(case, SECONDS)
        low, median, high = statistics.quantiles(found, n=4)
        size = f"{case.batch_size} x {case.width}"
        print(f"{size:<12}{case.name:<26}{median:.3f}   {low:.3f} to {high:.3f}  {len(found)}", flush=True)


def _seconds(loop: Callable[[], None]) -> float:
    started = time.perf_counter()
    loop()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
