"""Time and memory are measured, or the reason is given."""

from pathlib import Path

import pytest
import torch

from ampcheck import meters
from ampcheck.meters import CpuMeter, meter_for

MEBI = 2**20


def test_a_lap_a_step_and_their_sum_is_the_total() -> None:
    """Every step's seconds are kept; together they are what was timed, less reading the clock once."""
    meter = CpuMeter()
    meter.start()
    for _ in range(5):
        meter.lap()
    measured = meter.stop()

    assert len(measured.step_seconds) == 5
    assert all(seconds >= 0 for seconds in measured.step_seconds)
    assert sum(measured.step_seconds) <= measured.total_seconds


def test_the_peak_is_this_windows_own() -> None:
    """A large block before the window does not count, one that lives only inside it does."""
    peaks = []
    for size in (300, 100):
        meter = CpuMeter()
        meter.start()
        block = torch.ones(size * MEBI, dtype=torch.uint8)
        del block
        peaks.append(meter.stop().peak_bytes)
    large, small = peaks

    assert large is not None and small is not None  # noqa: PT018
    assert 150 * MEBI < large - small < 250 * MEBI


def test_a_peak_that_cannot_be_measured_is_none_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may refuse to reset the high-water mark: the peak is then null, not the process's lifetime."""

    def refuse(self: Path, text: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    meter = CpuMeter()
    meter.start()
    measured = meter.stop()

    assert measured.peak_bytes is None
    assert measured.memory == "not measured: the kernel refuses to reset the high-water mark (Permission denied)"


def test_the_meter_is_the_devices() -> None:
    """CPU and CUDA have siblings behind one interface."""
    assert isinstance(meter_for(torch.device("cpu")), CpuMeter)
    assert isinstance(meter_for(torch.device("cuda", 0)), meters.CudaMeter)
