"""One timed window: a mode trained in this process, measured from first step to last."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ampcheck import checkpoint, data, identity, state
from ampcheck.conditions import between, snapshot
from ampcheck.launch import fresh_run
from ampcheck.meters import meter_for
from ampcheck.processes import Progress
from ampcheck.run import Run
from ampcheck.runaway import RunawayError
from ampcheck.schema import Params
from ampcheck.training import scale_changes, scaler_numbers, skipped_steps, train
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
    scale_changes: list[tuple[int, float]] = field(default_factory=list)  # step, scale before it; none without a scaler
    broke_at: int | None = None  # the step in which what was trained broke: a loss that is not finite, or skips only
    digest: str | None = None
    conditions: dict[str, Any] = field(default_factory=dict)
    first_try: dict[str, Any] | None = None  # the timings and conditions of a try that was disturbed, and repeated
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)


def timed(params: Params, machine: Mapping[str, Any], mode: str, repeat: int, progress: Progress) -> Trial:
    """Train `mode` in this process, which has run nothing else, and return what was measured."""
    run = fresh_run(params, machine, mode, seed=params.seed)
    batches = data.load(data.PATH, run.device, num_batches=params.data.num_batches)
    compiled = _compiled(run, batches) if run.options.compile else {}
    meter = meter_for(run.device)

    def lap() -> None:
        meter.lap()
        progress.value = run.step

    before = snapshot(run.device)
    meter.start()
    try:
        history = train(run, batches, params.steps, lap)
    except RunawayError as error:
        return Trial(mode=mode, repeat=repeat, trained=False, why=str(error), broke_at=0)
    measured = meter.stop()
    conditions = between(before, snapshot(run.device), measured.total_seconds)

    losses, scales = history.losses.tolist(), history.scales.tolist()
    skipped = skipped_steps(scales)
    if why := _lost(losses, skipped):
        broke_at = identity.first_not_finite(losses, skipped) or 0
        return Trial(mode=mode, repeat=repeat, trained=False, why=why, broke_at=broke_at)
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
        scale_changes=scale_changes(scales) if run.scaler.is_enabled() else [],
        conditions=conditions,
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
