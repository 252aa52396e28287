"""What to change, a line each, only where a measurement calls for it and with its number. Loads no torch."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ampcheck.evidence import Evidence
from ampcheck.gap import Step, bytes_per_second, steps
from ampcheck.precision import MODES
from ampcheck.stats import paired_ratio
from ampcheck.summary import Summary

WAITING = 0.2  # of a step
FAR_BELOW = 0.5  # of the ceiling
MATTERS = 0.01  # of a step
BOUND_SHARE, BOUND_RATE = 0.3, 0.5  # of a step without flops, at so much of the memory bandwidth
STAYED_FLOAT32 = 0.05  # of the flops
MOSTLY_WEIGHTS = 0.5  # of the peak less the data
NO_GAIN = 0.95  # of the baseline's memory
CLOSE = 0.9  # of the fastest mode's speed


def advice(evidence: Evidence, summed: Mapping[str, Summary]) -> list[str]:
    """Return the lines, mode after mode."""
    baseline = evidence.params.train.modes[0]
    found = [*_no_hardware(evidence, summed), *_waits(evidence), *_tf32(summed)]
    for mode, step in steps(evidence, summed).items():
        ceilings = evidence.ceilings[mode]
        found += [f"{mode}: {line}" for line in (*_host(step), *_bandwidth(step, ceilings, bytes_per_second(evidence)))]
        if mode != baseline:
            lines = (*_padding(step, ceilings), *_shapes(step), *_dtypes(mode, ceilings))
            found += [f"{mode}: {line}" for line in lines]
    return found + [line for mode in evidence.memory for line in _weights(mode, baseline, evidence.memory)]


def _no_hardware(evidence: Evidence, summed: Mapping[str, Summary]) -> Iterator[str]:
    amp = [mode for mode in summed if MODES[mode].autocast]
    if amp and not any(evidence.params.train.takes(evidence.modes[mode]) for mode in amp):
        slowest = ", ".join(
            f"{mode} at {1 / evidence.modes[mode]['slowdown']:.2g} times float32's matmul rate"
            for mode in amp
            if evidence.modes[mode].get("slowdown")
        )
        yield (
            f"There is no hardware for 16-bit matmul here{f' ({slowest})' if slowest else ''}: a GPU of compute "
            "capability 7.0 or newer has it, and a CPU with avx512_bf16 or AMX."
        )


def _waits(evidence: Evidence) -> Iterator[str]:
    calls: dict[str, int] = {}
    for found in evidence.ceilings.values():
        calls |= found["waits"]
    for where, times in calls.items():
        yield (
            f"{where}, {times} in a step: the host waits for the device, and then the device for the host; leave it "
            "out of the step, or read the number after many steps."
        )


def _tf32(summed: Mapping[str, Summary]) -> Iterator[str]:
    seconds = {mode: summary.step_seconds for mode, summary in summed.items() if summary.step_seconds}
    amp = [seconds[mode] for mode in seconds if MODES[mode].autocast]
    for mode, taken in seconds.items():
        if MODES[mode].fp32_precision != "ieee" and amp and (share := min(amp) / taken) >= CLOSE:
            yield f"{mode} alone has {share * 100:.0f} % of the fastest AMP mode's speed, in one line, without casts."


def _host(step: Step) -> Iterator[str]:
    share = step.parts["between"] / step.seconds
    if share >= WAITING:
        yield (
            f"for {share * 100:.0f} % of a step no operation runs: the device waits for the host, and is not what "
            "limits the speed; take a larger batch or network, fewer and larger operations, or train.compile."
        )


def _bandwidth(step: Step, found: Mapping[str, Any], copied: float) -> Iterator[str]:
    seconds = sum(step.parts[part] for part in ("casts", "other", "optimizer", "scaler"))
    rate = found["moved_bytes"] / seconds if seconds else 0.0
    if seconds / step.seconds >= BOUND_SHARE and rate >= BOUND_RATE * copied:
        yield (
            f"{seconds / step.seconds * 100:.0f} % of a step moves {rate / 1e9:.3g} GB/s, where a copy reaches "
            f"{copied / 1e9:.3g}: memory limits it, not arithmetic; train.compile joins operations, "
            "and optimizers have fused=True."
        )


def _padding(step: Step, found: Mapping[str, Any]) -> Iterator[str]:
    for name, pairs in found["paddings"].items():
        if found["disturbed"]:
            return
        ratio = paired_ratio(pd.Series(pairs["as_is_seconds"]), pd.Series(pairs["padded_seconds"]))
        eligible = step.parts["matmul"] * pairs["flops_share"] / step.seconds
        saved, least, most = (eligible * (1 - 1 / (each or 1)) for each in (ratio.mean, ratio.low, ratio.high))
        if least >= MATTERS:
            what = "pad it"
        elif most <= -MATTERS:
            what = "leave it"
        else:
            what = "that is not worth it here" if most < MATTERS else "more than these pairs can tell"
        yield (
            f"a matmul has a dimension of {name}, no multiple of 8: with {-(-int(name) // 8) * 8} a step takes "
            f"{abs(saved) * 100:.2g} % {'less' if saved > 0 else 'more'} here (95 % interval {-most * 100:+.2g} to "
            f"{-least * 100:+.2g} %, {ratio.pairs} pairs): {what}."
        )


def _shapes(step: Step) -> Iterator[str]:
    share = step.ceiling_seconds / step.alone_seconds if step.alone_seconds else 1.0
    if share < FAR_BELOW:
        yield (
            f"alone, its matmuls and convolutions reach {share * 100:.0f} % of the rate that large ones have here: "
            "larger batches or layers come nearer."
        )


def _dtypes(mode: str, found: Mapping[str, Any]) -> Iterator[str]:
    total = sum(found["flops_by_dtype"].values())
    others = {dtype: flops for dtype, flops in found["flops_by_dtype"].items() if dtype != MODES[mode].dtype}
    for dtype, flops in others.items():
        if flops / total >= STAYED_FLOAT32:
            yield (
                f"{flops / total * 100:.0f} % of its FLOPs run in {dtype}, not in {MODES[mode].dtype}: look for "
                "autocast that is switched off, and for autograd functions without custom_fwd."
            )


def _weights(mode: str, baseline: str, memory: Mapping[str, Any]) -> Iterator[str]:
    splits = [memory[each]["here"]["split"] for each in (mode, baseline)]
    if not all(splits) or mode == baseline:
        return
    split = splits[0]
    peak, peak_before = (sum(each.values()) - each["data"] for each in splits)
    weights = sum(split[kind] for kind in ("parameters", "gradients", "optimizer_state", "copies_in_16_bits"))
    if peak >= NO_GAIN * peak_before and weights >= MOSTLY_WEIGHTS * peak:
        yield (
            f"{mode}: weights, their copies and gradients and the optimizer's state are {weights / peak * 100:.0f} % "
            "of the tensors' peak less the data: AMP halves activations only, which larger batches have more of."
        )
