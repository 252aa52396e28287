"""Where a step's time goes: an untimed window under torch's profiler, beside windows without it.

https://docs.pytorch.org/docs/stable/profiler.html
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import flop_registry

from ampcheck.rates import seconds
from ampcheck.run import Run
from ampcheck.training import train
from ampcheck.workloads import Batch

PARTS = ("matmul", "casts", "other", "optimizer", "scaler", "between")
ELIGIBLE = {str(each).replace(".", "::") for each in flop_registry}
MOST_WINDOWS, FEWEST_WINDOWS = 30, 5
WINDOWS_SECONDS = 4  # after which there are no more than the fewest
WINDOW_SECONDS = 0.3
MOST_TIMES = 3  # in a window: more than once, lest caches be seen cold, or a GPU waiting for the first kernel only


def step_parts(run: Run, batches: list[Batch], alone: Callable[[], object]) -> tuple[dict[str, float], float]:
    """Return the seconds of a step by PARTS, of a run that is warm, and those of `alone`, its matmuls by themselves.

    The parts add up to a step without the profiler. "matmul" are the operations that torch counts the flops of; "casts"
    change a dtype; "other" are all the rest that is no optimizer's and no scaler's; "between" is what no operation
    takes: there the device waits for the host, or, on a CPU, Python runs and memory is given back.
    """

    def step() -> object:
        return train(run, batches, run.step + 1)

    device, once = run.device, seconds(step, run.device)
    times = max(1, min(MOST_TIMES, int(WINDOW_SECONDS / once)))
    count = max(FEWEST_WINDOWS, min(MOST_WINDOWS, int(WINDOWS_SECONDS / (3 * times * once))))
    plains, profiled, alones = zip(
        *(
            (_plain(step, times, device), _profiled(step, times, device), _profiled(alone, times, device))
            for _ in range(count)
        ),
        strict=True,
    )
    plain, taken = median(plains), median(each for each, _ in profiled)
    # On a CPU the profiler's own time lies in the operations' as well.
    scale = plain / taken if device.type == "cpu" else 1.0
    parts = {part: scale * median(found[part] for _, found in profiled) for part in PARTS[:-1]}
    # Windows drift; what was measured right beside each other is compared.
    matmuls = [
        (found["matmul"], by_itself["matmul"]) for (_, found), (_, by_itself) in zip(profiled, alones, strict=True)
    ]
    longer = [by_itself / found for found, by_itself in matmuls if found]
    alone_seconds = parts["matmul"] * median(longer) if longer else 0.0
    return parts | {"between": plain - sum(parts.values())}, alone_seconds


def _plain(operation: Callable[[], object], times: int, device: torch.device) -> float:
    """Return the seconds of one of so many."""
    return seconds(lambda: [operation() for _ in range(times)], device) / times


def _profiled(operation: Callable[[], object], times: int, device: torch.device) -> tuple[float, dict[str, float]]:
    """Return the seconds of one of so many under the profiler, and those by part."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with _without_the_profilers_remarks(), profile(activities=activities) as profiler:
        taken = _plain(operation, times, device)
    parts = dict.fromkeys(PARTS[:-1], 0.0)
    for event in profiler.events():
        if event.device_type.name == "CPU" and (part := _part(event)):
            microseconds = event.self_cpu_time_total if device.type == "cpu" else event.self_device_time_total
            parts[part] += microseconds / 1e6 / times
    return taken, parts


def _part(event: Any) -> str:  # noqa: ANN401 - torch's FunctionEvent
    """Say which part an event belongs to, by its name and those around it; empty if it is no operation."""
    names, around = [event.name], event.cpu_parent
    while around is not None:
        names.append(around.name)
        around = around.cpu_parent
    if any(name.startswith("Optimizer.") for name in names):
        return "optimizer"
    if any(name.startswith("aten::_amp_") for name in names):
        return "scaler"
    if "aten::_to_copy" in names:
        return "casts"
    if ELIGIBLE & set(names):
        return "matmul"
    return "other" if "::" in event.name and not event.name.startswith("autograd::") else ""


@contextmanager
def _without_the_profilers_remarks() -> Iterator[None]:
    """Keep what torch's profiler writes to the error output, whenever it starts or stops, out of the log."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
