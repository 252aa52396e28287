"""Under which conditions a window was timed, and whether something else than the trial's own work disturbed it.

What the kernel counts: https://man7.org/linux/man-pages/man5/proc.5.html and Documentation/scheduler/sched-stats.
"""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ampcheck import gpu

WAITED = 0.05  # of the threads' time; by themselves two threads on two cores wait for 0.5 to 1 % of theirs
STOLEN = 0.01  # of the cores' time


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the kernel and the driver tell at one moment; None is what they don't. Seconds are sums over threads."""

    cpu_seconds: float  # used by this process
    waited_seconds: float | None  # that this process's threads were ready, but had no core
    stolen_seconds: float | None  # that a hypervisor kept this machine's cores for others
    involuntary_switches: int
    load: float  # average of the last minute
    megahertz: float | None  # mean of the cores
    gpu: Mapping[str, Any]


def snapshot(device: torch.device) -> Snapshot:
    """Look at the process, the machine and the device: under a millisecond, and outside of what is timed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Snapshot(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        waited_seconds=_waited_seconds(),
        stolen_seconds=_stolen_seconds(),
        involuntary_switches=usage.ru_nivcsw,
        load=os.getloadavg()[0],
        megahertz=_megahertz(),
        gpu=gpu.state(device),
    )


def between(before: Snapshot, after: Snapshot, seconds: float) -> dict[str, Any]:
    """Return what happened in a window of `seconds`, JSON-ready; `disturbed` names each cause of doubt."""
    waited, stolen = (
        _difference(getattr(before, name), getattr(after, name)) for name in ("waited_seconds", "stolen_seconds")
    )
    return {
        "cpu_seconds": after.cpu_seconds - before.cpu_seconds,
        "waited_seconds": waited,
        "stolen_seconds": stolen,
        "involuntary_switches": after.involuntary_switches - before.involuntary_switches,
        "load": [before.load, after.load],
        "megahertz": [before.megahertz, after.megahertz],
        "gpu": [before.gpu, after.gpu],
        "disturbed": [
            *_too_much(waited, WAITED * seconds * torch.get_num_threads(), seconds, "its threads waited for a core"),
            *_too_much(stolen, STOLEN * seconds * (os.cpu_count() or 1), seconds, "others had its cores"),
            *(f"the GPU was slowed: {reason}" for reason in after.gpu.get("slowed", [])),
        ],
    }


def _too_much(spent: float | None, allowed: float, seconds: float, what: str) -> list[str]:
    if spent is None or spent <= allowed:
        return []
    return [f"{what} for {spent:.2f} s of core time in a window of {seconds:.2f} s (allowed: {allowed:.2f} s)"]


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _waited_seconds() -> float | None:
    """Sum up what each thread spent on a run queue; None where the kernel does not count it."""
    nanoseconds = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                nanoseconds += int((task / "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return nanoseconds / 1e9


def _stolen_seconds() -> float | None:
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else None


def _megahertz() -> float | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return sum(found) / len(found) if found else None
