"""One trial: a mode in a process of its own, timed once more if something disturbed it."""

import csv
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ampcheck import data
from ampcheck.files import write_json
from ampcheck.launch import Failure, attempt, fresh_run
from ampcheck.processes import Progress
from ampcheck.rehearsal import step_seconds
from ampcheck.schema import Params
from ampcheck.timed import Trial, timed


def run_trial(
    params: Params, machine: Mapping[str, Any], mode: str, repeat: int, available: Mapping[str, Any]
) -> Trial:
    """Train `mode` in a child and return its result; `available` is the mode's entry in modes.json.

    A try that something else disturbed is repeated once, whatever its figures; the result keeps those of both.
    """
    if not params.train.takes(available):
        return Trial(mode=mode, repeat=repeat, trained=False, why=available["why"])
    label = f"train {mode}, repeat {repeat}"
    if available["emulated"]:
        _print_estimate(params, machine, mode)
    once = partial(attempt, lambda progress: timed(params, machine, mode, repeat, progress), label, params.steps)
    result, first_try = once(), None
    if isinstance(result, Trial) and result.trained and result.conditions["disturbed"]:
        print(f"{mode}: disturbed, so tried again: {'; '.join(result.conditions['disturbed'])}", flush=True)
        first_try = _timings(result)
        result = once()
    if isinstance(result, Failure):
        result = Trial(mode=mode, repeat=repeat, trained=False, why=result.why)
    return replace(result, first_try=first_try)


def line(trial: Trial) -> str:
    """Tell the result in one line of a log."""
    if trial.total_seconds is None:
        return f"{trial.mode}: not trained: {trial.why}"
    loss = "n/a" if trial.final_loss is None else f"{trial.final_loss:.6g}"
    return f"{trial.mode}: {trial.steps} steps in {trial.total_seconds:.1f} s, loss {loss}"


def write_trial(trial: Trial, folder: Path) -> None:
    """Write MODE.json, and MODE.csv (step, seconds, loss) if the mode was trained."""
    result = asdict(trial)
    losses, step_seconds = result.pop("losses"), result.pop("step_seconds")
    write_json(folder / f"{trial.mode}.json", result)
    if trial.trained:
        with (folder / f"{trial.mode}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["step", "seconds", "loss"])
            writer.writerows(zip(range(len(losses)), step_seconds, losses, strict=True))


def _timings(trial: Trial) -> dict[str, Any]:
    seconds = median(trial.step_seconds)
    return {"total_seconds": trial.total_seconds, "step_seconds": seconds, "conditions": trial.conditions}


def _print_estimate(params: Params, machine: Mapping[str, Any], mode: str) -> None:
    def estimate(_: Progress) -> float:
        run = fresh_run(params, machine, mode, seed=params.seed)
        return step_seconds(run, data.load(data.PATH, run.device, num_batches=1)[0])

    seconds = attempt(estimate, f"estimate {mode}")
    if not isinstance(seconds, Failure):
        minutes = seconds * params.steps / 60
        print(f"{mode} is emulated here: about {minutes:.1f} minutes for {params.steps} steps", flush=True)
