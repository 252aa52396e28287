"""What our loop costs beside the recipe's own, written by hand, and our checkpoints beside torch's own functions.

It prints ratios of time; it tests nothing. python -m benchmarks.bench, with src/ on PYTHONPATH: a minute, on the CPU.
https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

from dataclasses import dataclass, replace
from multiprocessing import RawValue

import numpy as np
import torch

from ampcheck import environment, launch
from ampcheck.meters import CpuMeter
from ampcheck.options import Options
from ampcheck.precision import MODES, Mode
from ampcheck.run import Run, start
from ampcheck.training import train
from ampcheck.workloads import Batch, mlp
from benchmarks import pairs, saving

SECONDS = 7.0  # of pairs for each case
SAVING_SECONDS = 1.3  # of pairs for each comparison
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
        return start(workload, self.mode, torch.device("cpu"), Options(lr=0.001, zero_grad="set_to_none")), batches


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
    """Return our time over the hand-written loop's, pair by pair for `seconds`."""
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

    return pairs.ratios(ours, by_hand, seconds)


def main() -> None:
    """Print a line for each case, then for each comparison of checkpoints."""
    print(f"{'our time / the other':<64}median  quartiles       pairs")
    for case in cases():
        name = f"{case.batch_size} x {case.width}, {case.name}, loop / by hand"
        print(pairs.line(name, ratios(case, SECONDS)), flush=True)
    for line in saving.lines(SAVING_SECONDS):
        print(line, flush=True)


if __name__ == "__main__":
    main()
