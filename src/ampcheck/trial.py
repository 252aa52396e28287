"""One timed trial: a mode in a process of its own, measured from first step to last."""

import csv
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ampcheck import checkpoint, data, identity, state
from ampcheck.files import write_json
from ampcheck.launch import Failure, attempt, fresh_run
from ampcheck.meters import meter_for
from ampcheck.processes import Progress
from ampcheck.rehearsal import step_seconds
from ampcheck.run import Run
from ampcheck.schema import Params
from ampcheck.training import scaler_numbers, skipped_steps, train
from ampcheck.workloads import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one trial; what was not measured is None. `losses` and `step_seconds` go into the CSV."""

    mode: str
    repeat: int
    trained: bool
    why: str = ""
    steps: int | None = None
    total_seconds: float | None = None
    compile_seconds: float | None = None  # of a step before the window, which torch.compile spends on compiling
    compiled_graphs: int | None = None
    first_step_seconds: float | None = None
    peak_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    memory: str | None = None
    data_bytes: int | None = None
    clock: str | None = None
    final_loss: float | None = None
    optimizer_steps: int | None = None
    skipped_steps: int | None = None
    scaler: dict[str, float] = field(default_factory=dict)
    digest: str | None = None
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)


def run_trial(
    params: Params, machine: Mapping[str, Any], mode: str, repeat: int, available: Mapping[str, Any]
) -> Trial:
    """Train `mode` in a child and return its result; `available` is the mode's entry in modes.json."""
    if not params.train.takes(available):
        return Trial(mode=mode, repeat=repeat, trained=False, why=available["why"])
    label = f"train {mode}, repeat {repeat}"
    if available["emulated"]:
        _print_estimate(params, machine, mode)
    result = attempt(lambda progress: _measured(params, machine, mode, repeat, progress), label, params.steps)
    if isinstance(result, Failure):
        return Trial(mode=mode, repeat=repeat, trained=False, why=result.why)
    return result


def line(trial: Trial) -> str:
    """Tell the result in one line of a log."""
    if trial.total_seconds is None:
        return f"{trial.mode}: not trained: {trial.why}"
    return f"{trial.mode}: {trial.steps} steps in {trial.total_seconds:.1f} s, loss {trial.final_loss:.6g}"


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


def _measured(params: Params, machine: Mapping[str, Any], mode: str, repeat: int, progress: Progress) -> Trial:
    run = fresh_run(params, machine, mode, seed=params.seed)
    batches = data.load(data.PATH, run.device, num_batches=params.data.num_batches)
    compiled = _compiled(run, batches) if run.options.compile else {}
    meter = meter_for(run.device)

    def lap() -> None:
        meter.lap()
        progress.value = run.step

    meter.start()
    history = train(run, batches, params.steps, lap)
    measured = meter.stop()

    losses, skipped = history.losses.tolist(), skipped_steps(history.scales.tolist())
    if why := _lost(losses, skipped):
        return Trial(mode=mode, repeat=repeat, trained=False, why=why)
    return Trial(
        **asdict(measured),
        mode=mode,
        repeat=repeat,
        trained=True,
        steps=run.step,
        **compiled,
        first_step_seconds=measured.step_seconds[0],
        data_bytes=data.nbytes(batches),
        final_loss=losses[-1] if math.isfinite(losses[-1]) else None,
        optimizer_steps=run.step - len(skipped),
        skipped_steps=len(skipped),
        scaler=scaler_numbers(run),
        digest=identity.digest([state.get(run), losses]),
        losses=losses,
    )


def _lost(losses: list[float], skipped: list[int]) -> str:
    """Say why nothing was trained; empty if something was. Where the scaler skipped, a loss may overflow."""
    lost = identity.first_not_finite(losses, skipped)
    if lost is not None:
        return f"the loss is {losses[lost]} at step {lost} of {len(losses)}"
    return f"the scaler skipped every one of {len(losses)} steps" if len(skipped) == len(losses) else ""


def _compiled(run: Run, batches: list[Batch]) -> dict[str, Any]:
    """Take one step, which compiles; return how long it took and how many graphs came of it, and put the run back."""
    from torch._dynamo.utils import counters  # noqa: PLC0415 - it loads the compiler, for a second

    with TemporaryDirectory() as folder:
        path = Path(folder) / "before.pt"
        checkpoint.save(run, path)
        started = time.perf_counter()
        train(run, batches, run.step + 1).losses.tolist()  # waits for the device
        seconds = time.perf_counter() - started
        checkpoint.load(run, path)
    return {"compile_seconds": seconds, "compiled_graphs": counters["stats"]["unique_graphs"]}


def _print_estimate(params: Params, machine: Mapping[str, Any], mode: str) -> None:
    def estimate(_: Progress) -> float:
        run = fresh_run(params, machine, mode, seed=params.seed)
        return step_seconds(run, data.load(data.PATH, run.device, num_batches=1)[0])

    seconds = attempt(estimate, f"estimate {mode}")
    if not isinstance(seconds, Failure):
        minutes = seconds * params.steps / 60
        print(f"{mode} is emulated here: about {minutes:.1f} minutes for {params.steps} steps", flush=True)
