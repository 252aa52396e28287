"""Where a step's time goes: an untimed window under torch's profiler, between windows without it.

https://docs.pytorch.org/docs/stable/profiler.html
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import flop_registry

from ampcheck.rates import seconds
from ampcheck.run import Run
from ampcheck.training import train
from ampcheck.workloads import Batch

PARTS = ("matmul", "casts", "other", "optimizer", "scaler", "between")
ELIGIBLE = {str(each).replace(".", "::") for each in flop_registry}
WINDOWS = 3  # the median one counts
WINDOW_SECONDS = 0.3
MOST_STEPS = 5  # of a window: more than one, lest a GPU be seen waiting for the first kernel only


def step_parts(run: Run, batches: list[Batch]) -> dict[str, float]:
    """Return the seconds of a step by PARTS, of a run that is warm; they add up to a step without the profiler.

    "matmul" are the operations that torch counts the flops of; "casts" change a dtype; "other" are all the rest that is
    no optimizer's and no scaler's; "between" is what no operation takes: there the device waits for the host, or, on a
    CPU, Python runs and memory is given back.
    """
    steps = max(1, min(MOST_STEPS, int(WINDOW_SECONDS / _window(run, batches, 1))))
    plain, seen = [], []
    for _ in range(WINDOWS):
        plain.append(_window(run, batches, steps))
        seen.append(_profiled(run, batches, steps))
    taken, parts = sorted(seen, key=lambda window: window[0])[WINDOWS // 2]
    step = median(plain)
    if run.device.type == "cpu":  # here the profiler's own time lies in the operations' as well
        parts = {part: part_seconds * step / taken for part, part_seconds in parts.items()}
    return {part: parts[part] for part in PARTS[:-1]} | {"between": step - sum(parts.values())}


def _window(run: Run, batches: list[Batch], steps: int) -> float:
    """Return the seconds of a step."""
    return seconds(lambda: train(run, batches, run.step + steps), run.device) / steps


def _profiled(run: Run, batches: list[Batch], steps: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of a step under the profiler, and those of its operations."""
    on_cpu = run.device.type == "cpu"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (not on_cpu)
    with _without_the_profilers_remarks(), profile(activities=activities) as profiler:
        taken = _window(run, batches, steps)
    parts = dict.fromkeys(PARTS[:-1], 0.0)
    for event in profiler.events():
        if event.device_type.name == "CPU" and (part := _part(event)):
            microseconds = event.self_cpu_time_total if on_cpu else event.self_device_time_total
            parts[part] += microseconds / 1e6 / steps
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
