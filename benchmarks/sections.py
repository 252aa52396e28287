"""What benchmarks/gpu.py tries on a card, section by section: each yields lines of the table as it gets them.

Like the stages it reads and writes below the current folder.
"""

import gc
import importlib.util
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ampcheck import data, environment, launch, params, resume, trial, workloads
from ampcheck.files import read_json
from ampcheck.precision import MODES
from ampcheck.processes import in_child
from ampcheck.schema import Params
from ampcheck.timed import Trial
from ampcheck.training import train

ROOT = Path(__file__).resolve().parent.parent
BASELINE = next(iter(MODES))
PUBLISHED_PEAK = 1333887488  # bytes, of default precision: torch 2.8 with CUDA 12.8 on a GPU that isn't named


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table; `good` is False if it tells of something that must not be."""

    text: str
    good: bool = True


@dataclass(frozen=True, slots=True)
class Setup:
    """The parameters, and what results/machine.json and modes.json hold."""

    given: Params
    machine: dict[str, Any]
    modes: dict[str, Any]


def recipe(device: str) -> dict[str, Any]:
    """Return params.yaml with the recipe's sizes, data and training, and all modes."""
    raw = params.read(ROOT / "params.yaml")
    raw["device"] = device
    raw["sizes"] = params.read(ROOT / "sizes.yaml")["recipe"]
    raw["workload"] = raw["sizes"].pop("workload")
    raw["data"] |= {"num_batches": 50}
    raw["train"] |= {"epochs": 3, "zero_grad": "set_to_none", "emulated": False, "modes": list(MODES)}
    return raw


def prepared(raw: dict[str, Any]) -> Setup:
    """Examine the machine and make the data, as the first two stages do. ValueError if a parameter is wrong."""
    environment.update(Path("results"), raw)
    given = Params.model_validate(raw)
    workload = workloads.load(given.workload, given.sizes)
    options = {"seed": given.seed, "num_batches": given.data.num_batches, "batch_size": given.sizes["batch_size"]}
    in_child(lambda _: data.make(data.PATH, workload, **options), "data")
    return Setup(given, read_json(Path("results/machine.json")), read_json(Path("results/modes.json")))


def marked_tests(_: Setup) -> Iterator[Line]:
    """Run the tests marked `cuda`."""
    if importlib.util.find_spec("pytest") is None:
        yield Line("not run: pytest is not installed")
        return
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-ra", "tests/test_cuda.py"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, flush=True)
    summary = done.stdout.rstrip().rpartition("\n")[2].strip("= ")
    yield Line(f"{summary} (exit code {done.returncode})", good=done.returncode == 0)


def trials(setup: Setup) -> Iterator[Line]:
    """Train every mode, each in a process of its own."""
    yield Line("mode        total s    step ms   allocated    reserved  final loss  steps / total")
    for mode, entry in setup.modes.items():
        result = trial.run_trial(setup.given, setup.machine, mode, 0, entry)
        yield Line(f"{mode:<9} {described(result)}", good=result.trained or entry["why"] != "")


def described(result: Trial) -> str:
    """Format a trial: seconds, milliseconds, bytes; the step is the median of all but the first."""
    if not result.trained or result.total_seconds is None:
        return f"not trained: {result.why}"
    step = statistics.median(result.step_seconds[1:]) * 1000
    ratio = sum(result.step_seconds) / result.total_seconds  # of two clocks, where the steps have CUDA's events
    memory = f"{result.peak_bytes or '-':>11} {result.peak_reserved_bytes or '-':>11}"
    return f"{result.total_seconds:9.3f} {step:10.3f} {memory} {result.final_loss:11.6f} {ratio:14.4f}"


def peaks(setup: Setup) -> Iterator[Line]:
    """Measure the peak of default precision, and what of it the libraries keep, which differs from card to card."""
    setting, kept = in_child(lambda _: library_memory(setup), "library memory")
    yield Line(f"published    {PUBLISHED_PEAK} bytes")
    for zero_grad in ("set_to_none", "zeros"):
        training = setup.given.train.model_copy(update={"zero_grad": zero_grad})
        given = setup.given.model_copy(update={"train": training})
        peak = trial.run_trial(given, setup.machine, BASELINE, 0, setup.modes[BASELINE]).peak_bytes
        more = "" if peak is None else f" bytes, {peak - PUBLISHED_PEAK:+} against the published"
        yield Line(f"{zero_grad:<12} {peak}{more}", good=peak is not None)
    yield Line(f"of these, the libraries' workspaces take {kept} bytes (CUBLAS_WORKSPACE_CONFIG={setting})")


def library_memory(setup: Setup) -> tuple[str, int]:
    """Return cuBLAS's setting, and the bytes that stay allocated when a run of one step is gone."""
    run = launch.fresh_run(setup.given, setup.machine, BASELINE, seed=setup.given.seed)
    train(run, data.load(data.PATH, run.device, num_batches=1), 1)
    del run
    gc.collect()
    return os.environ["CUBLAS_WORKSPACE_CONFIG"], torch.cuda.memory_allocated()


def resumes(setup: Setup) -> Iterator[Line]:
    """Stop and resume every mode, emulated ones too."""
    for mode, entry in setup.modes.items():
        yield judged(resume.check_resume(setup.given, setup.machine, mode, entry, Path("checkpoints")))


def judged(result: dict[str, Any]) -> Line:
    """Say whether a resume was bit-exact and its controls were caught, or why nothing was compared."""
    if result["bit_exact"] is None:
        return Line(f"{result['mode']:<9} not compared: {result['why']}", good=not result["available"])
    missed = [control["part"] for control in result["controls"] if not control["caught"]]
    good = result["bit_exact"] and not missed
    told = f"stopped after {result['stop_after']} of {result['steps']} steps, controls: {len(result['controls'])}"
    where = f"; differing: {result['differing'][:3]} {result['first_different_loss']}; not caught: {missed}"
    return Line(f"{result['mode']:<9} {'yes' if good else 'NO'}, {told}{'' if good else where}", good=good)
