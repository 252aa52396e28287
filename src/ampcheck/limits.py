"""What limits a measurement here: the arithmetic rate that this device reaches, and what our timers cost a step.

A trial whose steps imply a higher rate than the device reaches was not measured but misread, as by a missing
synchronisation: https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import torch
from torch.utils.flop_counter import FlopCounterMode

from ampcheck import data
from ampcheck.launch import Failure, attempt, eager, fresh_run
from ampcheck.meters import meter_for
from ampcheck.precision import MODES
from ampcheck.processes import Progress
from ampcheck.reference import Setup
from ampcheck.schema import Params
from ampcheck.training import train

Make: TypeAlias = Callable[[int, torch.device, torch.dtype], tuple[Callable[[], torch.Tensor], int]]
TRIES = 5  # the best counts
LONG_ENOUGH_SECONDS = 0.02  # of one operation: below it, to start it takes a part of its time
BLOCK_STEPS = 5
PAIRS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was found for one mode; None is what was not measured.

    `step_flops` are those of a step's matmuls, convolutions and attentions, by torch's own counter, which counts what
    they mean: a convolution may take fewer. `flops_per_second` is the best rate of a matmul, and of a convolution where
    the step has one, counted alike. `timer_seconds` has, pair by pair, a step's time with our timers less that without,
    on the drill's network.
    """

    mode: str
    why: str = ""
    step_flops: int | None = None
    flops_per_second: float | None = None
    timer_seconds: list[float] = field(default_factory=list)


def find_limits(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Limits:
    """Measure `mode` in a child; `available` is the mode's entry in modes.json."""
    if not params.train.takes(available):
        return Limits(mode=mode, why=available["why"])

    def found(progress: Progress) -> Limits:
        flops, kinds = _step_flops(params, machine, mode)
        device, dtype = torch.device(machine["device"]), getattr(torch, MODES[mode].dtype)
        rate = max(best_rate(make, device, dtype) for make in kinds)
        with TemporaryDirectory() as folder:
            seconds = timer_seconds(Setup(params, machine, Path(folder)), mode, progress)
        return Limits(mode=mode, step_flops=flops, flops_per_second=rate, timer_seconds=seconds)

    result = attempt(found, f"limits {mode}")
    return Limits(mode=mode, why=result.why) if isinstance(result, Failure) else result


def line(found: Limits) -> str:
    """Tell the result in one line of a log."""
    if found.flops_per_second is None:
        return f"{found.mode}: not measured: {found.why}"
    return f"{found.mode}: at most {found.flops_per_second / 1e9:.0f} GFLOP/s"


def _step_flops(params: Params, machine: Mapping[str, Any], mode: str) -> tuple[int, list[Make]]:
    """Return the flops of a step, and what to compare its rate with: convolutions may beat matmul, as counted."""
    run = fresh_run(eager(params), machine, mode, seed=params.seed)
    batches = data.load(data.PATH, run.device, num_batches=min(params.data.num_batches, run.options.accumulate))
    with FlopCounterMode(display=False) as counter:
        train(run, batches, 1)
    convolves = any("convolution" in str(operation) for operation in counter.get_flop_counts()["Global"])
    return int(counter.get_total_flops()), [_matmul, _convolution] if convolves else [_matmul]


def best_rate(make: Make, device: torch.device, dtype: torch.dtype) -> float:
    """Return the best flops per second of an operation, doubled until it takes LONG_ENOUGH_SECONDS."""
    best = 0.0
    for doubled in count():
        operation, flops = make(2**doubled, device, dtype)
        seconds = min(_seconds(operation) for _ in range(TRIES))
        best = max(best, flops / seconds)
        if seconds >= LONG_ENOUGH_SECONDS:
            break
    return best


def _seconds(operation: Callable[[], torch.Tensor]) -> float:
    started = time.perf_counter()
    operation().flatten()[0].item()  # waits for the device
    return time.perf_counter() - started


def _matmul(factor: int, device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], torch.Tensor], int]:
    width = 256 * factor
    matrix = torch.randn(width, width, device=device).to(dtype)
    return lambda: matrix @ matrix, 2 * width**3


def _convolution(factor: int, device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], torch.Tensor], int]:
    channels, width = 64, 56
    images = torch.randn(factor, channels, width, width, device=device).to(dtype)
    kernels = torch.randn(channels, channels, 3, 3, device=device).to(dtype)
    flops = 2 * factor * width**2 * channels**2 * 9
    return lambda: torch.nn.functional.conv2d(images, kernels, padding=1), flops


def timer_seconds(setup: Setup, mode: str, progress: Progress) -> list[float]:
    """Return for each of PAIRS the difference of a step's time with a trial's timers and without, in turn."""
    setup.make_data()
    run, batches = setup.run(mode, overflow_at=()), setup.batches()
    meter = meter_for(run.device)

    def timers() -> None:  # as in a trial
        meter.lap()
        progress.value = run.step

    def seconds_of_a_step(lap: Callable[[], None]) -> float:
        return _seconds(lambda: train(run, batches, run.step + BLOCK_STEPS, lap).losses) / BLOCK_STEPS

    meter.start()
    differences = []
    for pair in range(PAIRS):
        order = (timers, _nothing) if pair % 2 else (_nothing, timers)
        seconds = {lap: seconds_of_a_step(lap) for lap in order}
        differences.append(seconds[timers] - seconds[_nothing])
    return differences


def _nothing() -> None:
    """Do what no timer does."""
