"""The memory of a mode's tensors: counted here in untimed steps, and foreseen for CUDA."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ampcheck import data
from ampcheck.foresee import UNIT_SCALE, Peak, foresee, peak
from ampcheck.launch import Failure, attempt, eager, fresh_run
from ampcheck.schema import Params
from ampcheck.tensors import GRANULES, peak_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A mode's tensors at their peak, all batches on the device: `here`, as counted, and on `cuda`, as foreseen."""

    mode: str
    here: Peak
    cuda: Peak


def measure(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Memory:
    """Count the tensors of `mode` in a child, and foresee its peak; `available` is the mode's entry in modes.json."""
    return Memory(mode=mode, here=_here(params, machine, mode, available), cuda=foresee(params, mode))


def line(result: Memory) -> str:
    """Tell the result in one line of a log."""
    return f"{result.mode}: {_told(result.here)} here, {_told(result.cuda)} on CUDA, foreseen"


def _here(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Peak:
    if not params.train.takes(available):
        return Peak(why=available["why"])

    def counted(_: object) -> Peak:
        run = fresh_run(eager(params), machine, mode, seed=params.seed, scaler=UNIT_SCALE)
        batches = data.load(data.PATH, run.device, num_batches=params.data.num_batches)
        return peak(peak_of(run, batches, GRANULES[run.device.type]))

    result = attempt(counted, f"count the tensors of {mode}")
    return Peak(why=result.why) if isinstance(result, Failure) else result


def _told(found: Peak) -> str:
    return f"not known ({found.why})" if found.peak_bytes is None else f"{found.peak_bytes / 2**20:.1f} MiB"
