"""What a person repeats to a colleague: which mode to use here, what it gains and costs, is resume safe. No torch."""

import math

from ampcheck.decision import decision, no_amp
from ampcheck.evidence import Evidence
from ampcheck.findings import differences, inexact, missed
from ampcheck.stats import MOST_PAIRS
from ampcheck.summary import Summary


def headline(evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    """Return sentences: the decision, how each mode compares, what could not be trained, resume, and the drill."""
    baseline = evidence.params.train.modes[0]
    if not summed[baseline].trained:
        nothing = f"The baseline {baseline} was not trained ({summed[baseline].why}): there is nothing to compare with."
        return [nothing, *_resume(evidence), *_drill(evidence)]
    compared = sorted((mode for mode in summed if summed[mode].speedup), key=lambda mode: -(summed[mode].speedup or 0))
    return [
        *no_amp(evidence, summed),
        *decision(compared, evidence, summed),
        *[_compared(mode, baseline, summed[mode], evidence.params.report.band) for mode in compared],
        *_reproducible(summed),
        *_resume(evidence),
        *_drill(evidence),
    ]


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
        "inconclusive": f"against {baseline} is inconclusive: {times} times its speed, but with a {interval}; "
        f"{_to_settle(summary.pairs_to_settle)}",
        "single run": f"ran {_times(summary.speedup, 2)} times as fast as {baseline} in a single run, "
        "which is no evidence: add repeats",
    }[str(summary.verdict)]
    return f"{mode} {speed}{_memory(summary, baseline)}."


def _to_settle(pairs: int | None) -> str:
    if pairs is None:
        return f"with this scatter not even {MOST_PAIRS} repeats would settle it"
    return f"with this scatter about {pairs} repeats would settle it"


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
    if evidence.params.trials_only:
        left_out = "resume, ceilings, numerics, memory of tensors and inference"
        return [f"Only the trials were made (trials_only): nothing is known of {left_out}."]
    exact = {mode: result["controls"] for mode, result in evidence.resume.items() if result["bit_exact"]}
    missed = [mode for mode, controls in exact.items() if not all(control["caught"] for control in controls)]
    shown = [mode for mode in exact if mode not in missed]
    said = [f"A stopped run resumes to the same bits in {', '.join(shown)}."] if shown else []
    said += [f"Nothing is known of resume in {mode}: a lost part of its state did not show." for mode in missed]
    for mode, result in evidence.resume.items():
        if result["bit_exact"] is False:
            said.append(f"Resume is NOT bit-exact in {mode}: {differences(result)}.")
    return said


def _drill(evidence: Evidence) -> list[str]:
    """Say in one sentence what the drill showed; nothing where no mode is available."""
    faults = {mode: "; ".join(inexact(result)) for mode, result in evidence.drill.items()}
    exact = [mode for mode in faults if not faults[mode]]
    unnoticed = {mode: missed(result) for mode, result in evidence.drill.items()}
    said = []
    if exact:
        stops = len(evidence.drill[exact[0]]["stops"])
        said.append(f"resume was bit-exact at each of {stops} stops in {', '.join(exact)}")
    if exact and not any(unnoticed[mode] for mode in exact):
        said.append("every lost part of the state was noticed there")
    said += [f"resume was NOT bit-exact in {mode} ({fault})" for mode, fault in faults.items() if fault]
    said += [f"NOT noticed in {mode}: a fault in {', '.join(parts)}" for mode, parts in unnoticed.items() if parts]
    if evidence.kills:
        same = sum(not kill["differing"] for kill in evidence.kills)
        said.append(f"{same} of {len(evidence.kills)} killed runs ended with the same bits")
    return [f"In the drill {'; '.join(said)}."] if said else []


def _times(ratio: float, figures: int = 3) -> str:
    """Write so many significant figures: 2.93, 0.583, 257; of a single run 260."""
    if not 1e-3 < ratio < 1e6:
        return f"{ratio:.{figures}g}"
    decimals = figures - 1 - math.floor(math.log10(ratio))
    return f"{round(ratio, decimals):.{max(0, decimals)}f}"
