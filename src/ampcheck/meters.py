"""What a trial's time and memory are measured with: one small interface, a sibling for each kind of device."""

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

VIRTUAL_MEMORY = "high-water mark of resident memory (VmHWM), the whole process"
CUDA_MEMORY = "torch.cuda.max_memory_allocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds and bytes of one timed window. A peak that could not be measured is None; `memory` says why."""

    total_seconds: float  # first step to last, the device synchronised at both ends: the recipe's figure
    step_seconds: list[float]
    clock: str
    peak_bytes: int | None
    peak_reserved_bytes: int | None
    memory: str


class Meter(Protocol):
    """start(), lap() after every step, stop()."""

    def start(self) -> None:
        """Collect garbage, empty caches, reset the peak, synchronise, start the clock."""

    def lap(self) -> None:
        """Mark the end of a step without waiting for the device."""

    def stop(self) -> Measured:
        """Synchronise, stop the clock, read the peak."""


class CpuMeter:
    """A monotonic clock, and the kernel's high-water mark of the process's resident memory."""

    def start(self) -> None:  # noqa: D102 - see Meter
        gc.collect()
        self.memory = _reset_high_water_mark()
        self.marks = [time.perf_counter()]

    def lap(self) -> None:  # noqa: D102
        self.marks.append(time.perf_counter())

    def stop(self) -> Measured:  # noqa: D102
        return Measured(
            total_seconds=time.perf_counter() - self.marks[0],
            step_seconds=[after - before for before, after in zip(self.marks, self.marks[1:], strict=False)],
            clock="monotonic clock",
            peak_bytes=_high_water_mark() if self.memory == VIRTUAL_MEMORY else None,
            peak_reserved_bytes=None,
            memory=self.memory,
        )


class CudaMeter:
    """CUDA events for the steps, a synchronised monotonic clock for the total, torch's allocator for the peak."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def start(self) -> None:  # noqa: D102
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        torch.cuda.synchronize(self.device)
        self.events: list[torch.cuda.Event] = []
        self.started = time.perf_counter()
        self.lap()

    def lap(self) -> None:  # noqa: D102
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self.events.append(event)

    def stop(self) -> Measured:  # noqa: D102
        torch.cuda.synchronize(self.device)
        total_seconds = time.perf_counter() - self.started
        milliseconds = [before.elapsed_time(after) for before, after in zip(self.events, self.events[1:], strict=False)]
        return Measured(
            total_seconds=total_seconds,
            step_seconds=[step / 1000 for step in milliseconds],
            clock="CUDA events",
            peak_bytes=torch.cuda.max_memory_allocated(self.device),
            peak_reserved_bytes=torch.cuda.max_memory_reserved(self.device),
            memory=CUDA_MEMORY,
        )


def meter_for(device: torch.device) -> Meter:
    """Return the meter for `device`."""
    return CudaMeter(device) if device.type == "cuda" else CpuMeter()


def memory_in_use(device: torch.device) -> int:
    """Return the bytes that torch's allocator has given out on `device`; on a CPU the process's resident memory."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _reset_high_water_mark() -> str:
    """Reset VmHWM to the present resident size, and say what is measured or why it can't be (proc(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        return f"not measured: the kernel refuses to reset the high-water mark ({error.strerror})"
    return VIRTUAL_MEMORY


def _high_water_mark() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")
