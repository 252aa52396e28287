"""Why a mode is as fast as it is, and no faster: its parts, and what lies below the largest speed-up. Loads no torch.

The largest speed-up takes the baseline's eligible work (matmul and convolution) at the ratio of the two ceilings, and
the rest as it is: https://en.wikipedia.org/wiki/Amdahl%27s_law
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.summary import Summary

UNEXPLAINED = 0.1  # of what lies between a step and its ceiling
MATTERS = 0.02  # of a step
APART = 0.25  # that a profiled step may differ from the timed ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A mode's steady step: seconds by part, and what its matmuls and convolutions take alone and at the ceiling.

    The parts are those of the profiled steps, all scaled alike, so that they add up to the steady step.
    """

    mode: str
    seconds: float
    profiled_seconds: float
    parts: dict[str, float]
    alone_seconds: float
    ceiling_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What lies between the largest speed-up that a mode could have here and the one it has, in seconds of a step.

    `shapes` is what the workload's own shapes, alone, take beyond the ratio of the ceilings; `unexplained` what its
    matmuls and convolutions take in the step beyond that. The others are what each part takes beyond the baseline's.
    """

    mode: str
    step_seconds: float
    eligible_share: float  # of the baseline's step
    ratio_of_ceilings: float
    largest_speedup: float
    speedup: float
    seconds: float
    parts: dict[str, float]
    unexplained_seconds: float
    below_seconds: float  # what a step takes beyond its flops at the ceiling

    @property
    def unexplained_share(self) -> float | None:
        """Of the gap; None where there is none."""
        return abs(self.unexplained_seconds) / self.seconds if self.seconds > 0 else None

    @property
    def unexplained_share_below(self) -> float | None:
        """Of all that lies between the step and its ceiling; None where nothing does."""
        return abs(self.unexplained_seconds) / self.below_seconds if self.below_seconds > 0 else None


def steps(evidence: Evidence, summed: Mapping[str, Summary]) -> dict[str, Step]:
    """Return the modes' steady steps, of those that were timed and profiled; none of torch.compile's.

    Its kernels bear no operation's name.
    """
    if evidence.params.train.compile:
        return {}
    return {
        mode: _step(mode, found, seconds)
        for mode, found in evidence.ceilings.items()
        if (seconds := summed[mode].step_seconds) and found["parts"]
    }


def gaps(evidence: Evidence, summed: Mapping[str, Summary]) -> list[Gap]:
    """Return the gap of every mode that can be compared with the baseline."""
    found = steps(evidence, summed)
    baseline = found.pop(evidence.params.train.modes[0], None)
    return [] if baseline is None else [_gap(step, baseline) for step in found.values()]


def ceiling_seconds(found: Mapping[str, Any]) -> float:
    """Return what a step's matmuls and convolutions take at the ceilings."""
    return sum(float(flops / found["flops_per_second"][kind]) for kind, flops in found["step_flops"].items())


def bytes_per_second(evidence: Evidence) -> float:
    """Return the best rate at which memory was copied, whichever mode's process saw it: it is the device's."""
    return max((float(found["bytes_per_second"] or 0) for found in evidence.ceilings.values()), default=0.0)


def unexplained(evidence: Evidence, summed: Mapping[str, Summary]) -> Iterator[str]:
    """Yield a doubt for each mode whose matmuls take longer, or shorter, in a step than anything measured says.

    And for each whose profiled steps are not like the timed ones.
    """
    way_out = "if the machine was busy, measure again: dvc repro --force ceilings."
    for step in steps(evidence, summed).values():
        ratio = step.profiled_seconds / step.seconds
        if not 1 / (1 + APART) <= ratio <= 1 + APART:
            yield f"{step.mode}: its profiled steps took {ratio:.2g} times as long as the timed ones; {way_out}"
    for gap in gaps(evidence, summed):
        share, negligible = gap.unexplained_share_below or 0, MATTERS * gap.step_seconds
        if gap.seconds < -negligible:
            whole = "the largest speed-up that its ceilings leave room for"
            yield f"{gap.mode}: it is faster than {whole}, {gap.largest_speedup:.2f}; {way_out}"
        elif share > UNEXPLAINED and abs(gap.unexplained_seconds) > negligible:
            whole = "what keeps it below its ceiling"
            yield f"{gap.mode}: {share * 100:.0f} % of {whole} has no measured cause; {way_out}"


def _step(mode: str, found: Mapping[str, Any], seconds: float) -> Step:
    profiled_seconds = sum(found["parts"].values())
    scale = seconds / profiled_seconds
    return Step(
        mode=mode,
        seconds=seconds,
        profiled_seconds=profiled_seconds,
        parts={part: scale * taken for part, taken in found["parts"].items()},
        alone_seconds=scale * found["alone_seconds"],
        ceiling_seconds=ceiling_seconds(found),
    )


def _gap(step: Step, baseline: Step) -> Gap:
    share = step.ceiling_seconds / baseline.ceiling_seconds if baseline.ceiling_seconds else 1.0
    rest = baseline.seconds - baseline.parts["matmul"]
    possible_seconds = baseline.parts["matmul"] * share + rest
    parts = {"shapes": step.alone_seconds - baseline.alone_seconds * share}
    parts |= {part: taken - baseline.parts[part] for part, taken in step.parts.items() if part != "matmul"}
    return Gap(
        mode=step.mode,
        step_seconds=step.seconds,
        eligible_share=baseline.parts["matmul"] / baseline.seconds,
        ratio_of_ceilings=1 / share,
        largest_speedup=baseline.seconds / possible_seconds,
        speedup=baseline.seconds / step.seconds,
        seconds=step.seconds - possible_seconds,
        parts=parts,
        unexplained_seconds=step.seconds - possible_seconds - sum(parts.values()),
        below_seconds=step.seconds - step.ceiling_seconds,
    )
