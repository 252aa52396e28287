"""Inference: the forward pass under autocast, without a scaler: how fast, how much memory, how far from float32."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from ampcheck import data
from ampcheck.identity import walk
from ampcheck.launch import Failure, attempt, fresh_run
from ampcheck.meters import memory_in_use, meter_for
from ampcheck.outputs import outputs_of
from ampcheck.run import Run
from ampcheck.schema import Params
from ampcheck.workloads import Batch

NO_OUTPUTS = "the workload has no `outputs`: give one, a function of (modules, batch), to have inference measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """One mode's forward pass over all batches, in evaluation mode, from the seed's weights; None is not measured.

    Memory is what torch's allocator (on a CPU: the process) holds after a batch. Differences are those of the first
    batch's outputs from float32, relative to the root mean square of the float32 outputs; None if one is not finite.
    """

    mode: str
    why: str = ""
    batch_seconds: float | None = None  # the median of a pass in which each batch has been seen before
    samples_per_second: float | None = None
    first_batch_bytes: int | None = None
    growth_bytes: int | None = None  # the most that any later batch left beyond it
    largest_difference: float | None = None
    median_difference: float | None = None
    equal_argmax: float | None = None  # share over the last dimension; None where the batch has no classes


def infer(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Inference:
    """Measure `mode` in a child; `available` is the mode's entry in modes.json."""
    if not params.train.takes(available):
        return Inference(mode=mode, why=available["why"])
    result = attempt(lambda _: _measured(params, machine, mode), f"infer {mode}")
    return Inference(mode=mode, why=result.why) if isinstance(result, Failure) else result


def line(result: Inference) -> str:
    """Tell the result in one line of a log."""
    if result.batch_seconds is None:
        return f"{result.mode}: not measured: {result.why}"
    return f"{result.mode}: {result.batch_seconds * 1000:.3g} ms a batch"


def _measured(params: Params, machine: Mapping[str, Any], mode: str) -> Inference:
    run = fresh_run(params, machine, mode, seed=params.seed)
    if run.workload.outputs is None:
        return Inference(mode=mode, why=NO_OUTPUTS)
    for module in run.modules.values():
        module.eval()
    batches = data.load(data.PATH, run.device, num_batches=params.data.num_batches)
    held = []
    for batch in batches:  # also the warm-up of the timed pass
        outputs_of(run, batch)
        held.append(memory_in_use(run.device))
    meter = meter_for(run.device)
    meter.start()
    for batch in batches:
        outputs_of(run, batch)
        meter.lap()
    seconds = meter.stop().step_seconds
    largest, middle, equal_argmax = _differences(run, batches[0])
    return Inference(
        mode=mode,
        batch_seconds=median(seconds),
        samples_per_second=params.sizes["batch_size"] / median(seconds),
        first_batch_bytes=held[0],
        growth_bytes=max(held) - held[0],
        largest_difference=largest,
        median_difference=middle,
        equal_argmax=equal_argmax,
    )


def _differences(run: Run, batch: Batch) -> tuple[float | None, float | None, float | None]:
    actual = [leaf.double() for leaf in outputs_of(run, batch)]
    torch.backends.fp32_precision = "ieee"  # type: ignore[attr-defined] # its module hides it
    run.autocast = torch.autocast(run.device.type, enabled=False)
    expected = [leaf.double() for leaf in outputs_of(run, batch)]
    scale = torch.cat([leaf.flatten() for leaf in expected]).square().mean().sqrt()
    off = torch.cat([(a - e).abs().flatten() for a, e in zip(actual, expected, strict=True)]) / scale
    return _finite(off.max()), _finite(off.median()), _equal_argmax(actual, expected) if _has_classes(batch) else None


def _finite(value: torch.Tensor) -> float | None:
    return value.item() if value.isfinite() else None


def _has_classes(batch: Batch) -> bool:
    return any(not leaf.is_floating_point() for _, leaf in walk(batch))


def _equal_argmax(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    equal = [(a.argmax(-1) == e.argmax(-1)).flatten() for a, e in zip(actual, expected, strict=True)]
    return torch.cat(equal).double().mean().item()
