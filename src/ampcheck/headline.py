"""What a person repeats to a colleague: the evidence in a few sentences. Loads no torch."""

from ampcheck.evidence import Evidence, Summary, differences
from ampcheck.precision import MODES


def headline(evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    """Return sentences on speed and memory, on what can't be said, and on resume."""
    return [*_speed(evidence, summed), *_reproducible(summed), *_resume(evidence)]


def _speed(evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    baseline, *others = evidence.params.train.modes
    if not summed[baseline].trained:
        return [f"The baseline {baseline} was not trained ({summed[baseline].why}): there is nothing to compare with."]
    amp = [mode for mode in others if MODES[mode].autocast]
    said = []
    if amp and not any(summed[mode].trained for mode in amp):
        reasons = "; ".join(f"{mode}: {summed[mode].why}" for mode in amp)
        said.append(
            f"No mixed-precision mode could be trained here ({reasons}). So this run can't say whether mixed precision "
            "pays for this network: run it on a device with 16-bit matmul of its own."
        )
    compared = sorted((mode for mode in others if summed[mode].speedup), key=lambda mode: -(summed[mode].speedup or 0))
    return said + [_compared(mode, baseline, summed[mode], evidence.params.report.band) for mode in compared]


def _compared(mode: str, baseline: str, summary: Summary, band: float) -> str:
    assert summary.speedup is not None
    interval = ""
    if summary.speedup_low is not None and summary.speedup_high is not None:
        low, high = _times(summary.speedup_low), _times(summary.speedup_high)
        interval = f"95 % interval {low} to {high}, {summary.pairs} pairs of trials"
    times = _times(summary.speedup)
    speed = {
        "faster": f"trains {times} times as fast as {baseline} ({interval})",
        "slower": f"is slower than {baseline}: {times} times its speed ({interval})",
        "same": f"is as fast as {baseline} within {band * 100:g} % ({interval})",
        "inconclusive": f"against {baseline} is inconclusive: {times} times its speed, but with a {interval}",
        "single run": f"ran {times} times as fast as {baseline} in a single run, which is no evidence: add repeats",
    }[str(summary.verdict)]
    return f"{mode} {speed}{_memory(summary, baseline)}."


def _memory(summary: Summary, baseline: str) -> str:
    if summary.memory_ratio is None:
        return ""
    change = summary.memory_ratio - 1
    direction = "more" if change > 0 else "less"
    return f"; its peak memory is {abs(change) * 100:.0f} % {direction} than that of {baseline}"


def _reproducible(summed: dict[str, Summary]) -> list[str]:
    different = [mode for mode, summary in summed.items() if summary.reproducible is False]
    return [f"Not reproducible here: repeats of {', '.join(different)} ended with different bits."] if different else []


def _resume(evidence: Evidence) -> list[str]:
    exact = [mode for mode, result in evidence.resume.items() if result["bit_exact"]]
    said = [f"A stopped run resumes to the same bits in {', '.join(exact)}."] if exact else []
    for mode, result in evidence.resume.items():
        if result["bit_exact"] is False:
            said.append(f"Resume is NOT bit-exact in {mode}: {differences(result)}.")
    return said


def _times(ratio: float) -> str:
    return f"{ratio:.2f}"
