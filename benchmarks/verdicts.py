"""Does the verdict hold? A mode is compared with itself, as it is and slowed on purpose, again and again.

It prints what each comparison said. python -m benchmarks.verdicts MODE PERCENT RUNS REPEATS, with src/ on PYTHONPATH,
in a folder of its own: at the laptop size a trial takes 7 seconds in fp32, 2 in amp-bf16.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ampcheck import data, environment, params, workloads
from ampcheck.processes import in_child
from ampcheck.schema import Params
from ampcheck.stats import paired_ratio, verdict
from ampcheck.steady import warmup_steps
from ampcheck.timed import Trial
from ampcheck.trial import run_trial

SIZES = {"batch_size": 512, "in_size": 1024, "out_size": 1024, "num_layers": 3}
HERE = {"available": True, "emulated": False, "why": ""}


def compare(given: list[Params], mode: str, repeats: int) -> tuple[str, list[float]]:
    """Train both in turn, `repeats` times, as the train stage does; return the verdict and the ratio of each pair."""
    machine = {"device": "cpu", "threads": environment.threads()}
    seconds: list[list[float]] = [[], []]
    for repeat in range(repeats):
        for place in (1, 0) if repeat % 2 else (0, 1):
            seconds[place].append(_steady(run_trial(given[place], machine, mode, repeat, HERE)))
    ratio = paired_ratio(pd.Series(seconds[0]), pd.Series(seconds[1]))
    return str(verdict(ratio, given[0].report.band)), [a / b for a, b in zip(*seconds, strict=True)]


def _steady(trial: Trial) -> float:
    assert trial.trained, trial.why
    seconds = np.array(trial.step_seconds)
    return float(np.median(seconds[warmup_steps(seconds) :]))


def _make_data(given: Params) -> None:
    workload = workloads.load(given.workload, given.sizes)
    data.make(data.PATH, workload, seed=0, num_batches=given.data.num_batches, batch_size=SIZES["batch_size"])


def main(mode: str, percent: int, runs: int, repeats: int) -> None:
    """Compare `mode` with itself, `percent` slower, in so many runs of so many repeats."""
    raw = params.read() | {"workload": "benchmarks.slowed:build"}
    given = [
        params.validated(raw | {"sizes": SIZES | {"percent": slower}}, Path("params.yaml")) for slower in (0, percent)
    ]
    in_child(lambda _: _make_data(given[0]), "data")  # a process that has computed can't fork one that does
    torch.use_deterministic_algorithms(mode=True)
    said: Counter[str] = Counter()
    for run in range(runs):
        word, ratios = compare(given, mode, repeats)
        said[word] += 1
        print(f"{run}: {word:<12} {' '.join(f'{ratio:.4f}' for ratio in ratios)}", flush=True)
    print(f"{mode}, {percent} % slower, {repeats} repeats: {dict(said)}")


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:5]))
