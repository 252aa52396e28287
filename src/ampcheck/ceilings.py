"""What this device reaches, what a step asks of it, and where a step's time goes: untimed, a child a mode.

A trial whose steps imply a higher rate than the device reaches was not measured but misread, as by a missing
synchronisation: https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ampcheck import data, rates
from ampcheck.calls import Call
from ampcheck.conditions import between, snapshot
from ampcheck.launch import Failure, attempt, eager, fresh_run
from ampcheck.operations import Recorder
from ampcheck.padding import Padding, paddings
from ampcheck.processes import Progress
from ampcheck.profiled import step_parts
from ampcheck.reference import Setup
from ampcheck.run import Run
from ampcheck.schema import Params
from ampcheck.shapes import Shape, by_dtype, by_kind, dominant_shapes, in_order
from ampcheck.timers import timer_seconds
from ampcheck.training import train
from ampcheck.workloads import Batch

WINDOWS_OF_DATA = 4  # that the profiled steps take in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What was found for one mode; None and empty is what was not measured.

    `flops_per_second` has the best rate that was seen of "matmul", and of "convolution" where the step has one, at any
    shape; `step_flops` those of a step by the same kinds. `shapes` are the workload's dominant ones. `parts` are the
    seconds of a step by `profiled.PARTS`; `alone_seconds` is what its matmuls and convolutions take in their order, but
    with nothing else. `paddings` are by the matmuls' rows and columns that are no multiple of 8.
    `timer_seconds` has, pair by pair, a step's time with our timers less that without, on the drill's network.
    """

    mode: str
    why: str = ""
    fp32_precision: str | None = None  # as torch has it: what float32 matmul and convolution do
    step_flops: dict[str, int] = field(default_factory=dict)
    flops_by_dtype: dict[str, int] = field(default_factory=dict)
    flops_per_second: dict[str, float] = field(default_factory=dict)
    bytes_per_second: float | None = None  # of a copy: read and written
    moved_bytes: int | None = None  # read and written in a step by operations without flops
    shapes: list[Shape] = field(default_factory=list)
    alone_seconds: float | None = None
    paddings: dict[str, Padding] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)  # calls of a step that wait for the device, by the user's line
    timer_seconds: list[float] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)  # the causes, where a second try was disturbed as well


def find_ceilings(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Ceilings:
    """Measure `mode` in a child; `available` is the mode's entry in modes.json."""
    if not params.train.takes(available):
        return Ceilings(mode=mode, why=available["why"])

    def found(progress: Progress) -> Ceilings:
        with TemporaryDirectory() as folder:
            timers = timer_seconds(Setup(params, machine, Path(folder)), mode, progress)
        run = fresh_run(eager(params), machine, mode, seed=params.seed)
        before, started = snapshot(run.device), time.perf_counter()
        measured = _measured(run, _batches(params, run.device), timers)
        window = between(before, snapshot(run.device), time.perf_counter() - started)
        return replace(measured, disturbed=window["disturbed"])

    result = attempt(found, f"ceilings {mode}")
    if isinstance(result, Ceilings) and result.disturbed:  # as a trial that was disturbed: once more
        print(f"{mode}: disturbed, so tried again: {'; '.join(result.disturbed)}", flush=True)
        result = attempt(found, f"ceilings {mode}")
    return Ceilings(mode=mode, why=result.why) if isinstance(result, Failure) else result


def line(found: Ceilings) -> str:
    """Tell the result in one line of a log."""
    if found.why:
        return f"{found.mode}: not measured: {found.why}"
    reached = ", ".join(f"{kind} {rate / 1e9:.0f} GFLOP/s" for kind, rate in found.flops_per_second.items())
    return f"{found.mode}: at most {reached}"


def _batches(params: Params, device: torch.device) -> list[Batch]:
    """Return the batches of a few whole steps."""
    accumulate, num_batches = params.train.accumulate, params.data.num_batches
    windows = min(WINDOWS_OF_DATA, num_batches // accumulate)
    return data.load(data.PATH, device, num_batches=windows * accumulate or num_batches)


def _measured(run: Run, batches: list[Batch], timers: list[float]) -> Ceilings:
    train(run, batches, 2)  # warm-up
    recorder = Recorder()
    with recorder:
        train(run, batches, run.step + 1)
    operations = recorder.found
    parts, alone_seconds = _step(run, batches, operations.calls)
    return Ceilings(
        mode=run.mode.name,
        fp32_precision=torch.backends.cuda.matmul.fp32_precision,
        step_flops=by_kind(operations.calls),
        flops_by_dtype=by_dtype(operations.calls),
        moved_bytes=operations.moved_bytes,
        alone_seconds=alone_seconds,
        parts=parts,
        waits=dict(operations.waits),
        timer_seconds=timers,
        **_rates(run.device, run.mode.dtype, operations.calls),
    )


def _step(run: Run, batches: list[Batch], calls: list[Call]) -> tuple[dict[str, float], float]:
    """Return a step's parts, and what all that has flops takes alone; what can't be called, as fast as what can."""
    alone, share = in_order(calls, run.device)
    parts, seconds = step_parts(run, batches, alone)
    return parts, seconds / share if share else 0.0


def _rates(device: torch.device, dtype: str, calls: list[Call]) -> dict[str, Any]:
    """Return the rates of the device and of the workload's shapes, and by kind the best of both."""
    shapes, best = dominant_shapes(calls, device), {}
    for kind in {"matmul": 0} | by_kind(calls):
        make = rates.convolution if kind == "convolution" else rates.matmul
        own = [each.flops / each.seconds for each in shapes if each.kind == kind]
        best[kind] = max([rates.best_rate(make, device, getattr(torch, dtype)), *own])
    return {
        "flops_per_second": best,
        "bytes_per_second": rates.best_rate(rates.copies, device, torch.float32),
        "shapes": shapes,
        "paddings": paddings(calls, device),
    }
