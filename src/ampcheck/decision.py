"""Which mode to use here, or why this run can't say. Loads no torch."""

from ampcheck.comparison import of_mode
from ampcheck.evidence import Evidence
from ampcheck.findings import inexact
from ampcheck.precision import MODES, Mode
from ampcheck.summary import Summary


def no_amp(evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    """Say that no mode with autocast was trained, if so, why, and the way out."""
    amp = [mode for mode in summed if MODES[mode].autocast]
    if not amp or any(summed[mode].trained for mode in amp):
        return []
    reasons = "; ".join(f"{mode}: {summed[mode].why}" for mode in amp)
    what_it_means = "So this run can't say whether mixed precision pays for this network"
    untried = [mode for mode, entry in evidence.modes.items() if entry["available"] and not entry["emulated"]]
    untried = [mode for mode in untried if MODES[mode].autocast and mode not in summed]
    way_out = f"add {', '.join(untried)} to train.modes" if untried else "run it on a device with 16-bit matmul"
    return [f"No mixed-precision mode could be trained here ({reasons}). {what_it_means}: {way_out}."]


def decision(compared: list[str], evidence: Evidence, summed: dict[str, Summary]) -> list[str]:
    """Name the mode to use: the fastest whose whole interval is beyond the band; the baseline if none can be."""
    baseline = evidence.params.train.modes[0]
    if best := winner(evidence, summed):
        shaky = [mode for mode in (baseline, best) if _shaky(mode, evidence, summed)]
        but = f" But mind the warnings: trials of {' and '.join(shaky)} were disturbed, unsteady or invalid."
        said = f"{best} is the fastest here." if evidence.params.trials_only else f"Use {best} here."
        return [f"{said}{but if shaky else ''}"]
    faster = [mode for mode in compared if summed[mode].verdict == "faster"]
    if faster:
        return [f"{faster[0]} is faster here, but what it computes did not repeat to the same bits: see below."]
    unsettled = [mode for mode in compared if summed[mode].verdict in ("inconclusive", "single run")]
    if unsettled:
        way_out = "add repeats (train.repeats), leave the machine to it, or take larger sizes"
        return [f"This run can't say whether {' or '.join(unsettled)} is faster than {baseline}: {way_out}."]
    if compared:
        return [f"Stay with {baseline} here: no mode was faster."]
    return [_nothing_compared(evidence.params.steps, [mode for mode in summed if summed[mode].trained])]


def winner(evidence: Evidence, summed: dict[str, Summary]) -> str | None:
    """Return the fastest mode that is faster than the baseline and repeats to the same bits; None if there is none.

    With params.trials_only it need not resume to the same bits: that was not tried.
    """
    faster = {mode: summary.speedup or 0 for mode, summary in summed.items() if summary.verdict == "faster"}
    safe = [mode for mode in faster if summed[mode].reproducible is not False]
    if not evidence.params.trials_only:
        safe = [mode for mode in safe if summed[mode].resume_bit_exact and not inexact(evidence.drill[mode])]
    return max(safe, key=lambda mode: faster[mode], default=None)


def _nothing_compared(steps: int, trained: list[str]) -> str:
    if len(trained) == 1:
        return f"Only {trained[0]} was trained: there is nothing to compare it with."
    if steps == 1:
        return "A trial of one step has no steady step to compare: take more epochs or batches."
    return "No timing of a pair of trials could be used: see below."


def _shaky(mode: str, evidence: Evidence, summed: dict[str, Summary]) -> bool:
    disturbed = any(each.get("disturbed") for each in of_mode(evidence.trials, mode)["conditions"])
    invalid = any(mode == of for of, _ in evidence.invalid)
    return disturbed or invalid or bool(summed[mode].unsettled_trials)


def switched_on(mode: Mode, device: str) -> list[str]:
    """Return the lines of code that switch a mode on, in a loop that has none."""
    kind = device.partition(":")[0]
    lines = (
        [] if mode.fp32_precision == "ieee" else [f'torch.backends.fp32_precision = "{mode.fp32_precision}"  # once']
    )
    if mode.scaler:
        lines.append(f'scaler = torch.amp.GradScaler("{kind}")  # once')
    if mode.autocast:
        lines.append(f'with torch.autocast("{kind}", dtype=torch.{mode.dtype}):')
        lines.append("    loss = ...  # the forward pass and the loss, nothing else")
    if mode.scaler:
        lines += ["scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"]
    return lines
