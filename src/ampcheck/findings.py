"""What the evidence says is wrong. Loads no torch."""

from collections.abc import Mapping
from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.precision import MODES, Mode
from ampcheck.summary import summaries


def findings(evidence: Evidence) -> list[str]:
    """One line for each thing that is wrong. A mode that this device lacks or emulates is no finding."""
    found = []
    for mode, summary in summaries(evidence).items():
        if summary.why and evidence.params.train.takes(evidence.modes[mode]):
            found.append(f"{mode}: not trained: {summary.why}")
        found += [f"{mode}: repeat {repeat}: {why}" for (of, repeat), why in evidence.invalid.items() if of == mode]
        if summary.reproducible is False:
            found.append(f"{mode}: not reproducible: its repeats ended with different bits")
        if not _autocast_showed(MODES[mode], evidence.rehearse[mode]):
            found.append(f"{mode}: autocast had no effect: no module's output is {MODES[mode].dtype}")
        if mode in evidence.numerics:
            found += [f"{mode}: {line}" for line in _numerics_findings(evidence.numerics[mode])]
        if mode in evidence.resume:
            found += [f"{mode}: {line}" for line in _resume_findings(evidence.resume[mode])]
    return [*found, *(f"drill, {line}" for line in _drill_findings(evidence))]


def _numerics_findings(result: dict[str, Any]) -> list[str]:
    missing = result["without_gradient"]
    names = ", ".join([*missing[:3], *["..."] * (len(missing) > 3)])
    return [f"parameters without a gradient that have one in float32: {names}"] if missing else []


def _resume_findings(result: dict[str, Any]) -> list[str]:
    if not result["available"]:
        return []
    if result["bit_exact"] is None:
        return [f"resume was not checked: {result['why']}"]
    found = [] if result["bit_exact"] else [f"resume is not bit-exact: {differences(result)}; {_look_at(result)}"]
    missed = [control["part"] for control in result["controls"] if result["bit_exact"] and not control["caught"]]
    found += [f"a resume without its {part} was not caught" for part in missed]
    return found


def _autocast_showed(mode: Mode, rehearsal: dict[str, Any]) -> bool:
    dtypes = rehearsal["dtypes"].values()
    return not (mode.autocast and dtypes) or any(mode.dtype in kinds for kinds in dtypes)


def _look_at(result: dict[str, Any]) -> str:
    loss = result["first_different_loss"]
    if loss and loss["step"] < result["stop_after"]:
        return (
            "this is before the stop, so that no run repeats another: look for draws from generators other than the "
            "global ones of torch, numpy and python"
        )
    return (
        "look for state outside parameters, persistent buffers, optimizers, schedulers and the global generators of "
        "torch, numpy and python"
    )


def differences(result: dict[str, Any]) -> str:
    """Name what the resumed run ended with that the straight run did not: first leaf, first loss, both values."""
    said = []
    if leaves := result["differing"]:
        said.append(f"{len(leaves)} leaves differ, first {leaves[0]}")
    if loss := result["first_different_loss"]:
        values = f"{loss['straight']} straight, {loss['resumed']} resumed"
        said.append(f"first different loss at step {loss['step']}: {values}")
    return "; ".join(said)


def inexact(result: Mapping[str, Any]) -> list[str]:
    """Say which of a mode's stops in the drill did not resume to the same bits, in one process or in a new one."""
    said = []
    if broken := [stop for stop in result["stops"] if not stop["bit_exact"]]:
        first = differences(broken[0]) or "; ".join(broken[0]["told"])
        count = f"{len(broken)} of {len(result['stops'])} stops are not bit-exact"
        said.append(f"{count}, first stop {broken[0]['stop']}: {first}")
    return said + [
        f"resumed in a new process from stop {resumed['stop']}, other bits: {', '.join(resumed['differing'])}"
        for resumed in result["in_new_processes"]
        if resumed["differing"]
    ]


def missed(result: Mapping[str, Any]) -> list[str]:
    """Name the faults planted in a mode that nothing gave away; where whole states don't resume, nothing is proved."""
    if inexact(result):
        return []
    return [control["part"] for control in result["controls"] if control["matters"] and not control["caught"]]


def _drill_findings(evidence: Evidence) -> list[str]:
    found = [f"{mode}: {line}" for mode, result in evidence.drill.items() for line in _mode_findings(result)]
    for pair in evidence.across:
        name, leaves = f"{pair['from']} to {pair['to']}", pair["differing"]
        if leaves:
            found.append(f"{name}: {len(leaves)} leaves did not come over by the rule, first {leaves[0]}")
        if not pair["next_loss_finite"]:
            found.append(f"{name}: the next loss is not finite")
    for kill in evidence.kills:
        if leaves := kill["differing"]:
            step = kill["resumed_from"]
            what = "could not go on" if step is None else f"went on from step {step} ended with other bits"
            found.append(f"{kill['mode']}: a killed run that {what}, first {leaves[0]}")
    return found


def _mode_findings(result: Mapping[str, Any]) -> list[str]:
    found = inexact(result) + [f"a planted fault was not caught: {part}" for part in missed(result)]
    if not result["same_save_points"]:
        found.append("the state at the start of a step is not that at the end of the one before")
    if interval := result["other_growth_interval"]:
        if interval["differing"]:
            found.append(f"under another growth_interval a resume has other bits: {', '.join(interval['differing'])}")
        if not interval["told"]:
            found.append("a resume under another growth_interval does not tell that the checkpoint's is kept")
    if runaway := result["runaway"]:
        if runaway["told"] is None:
            found.append(f"a run that only skips was not stopped in {runaway['stopped_at']} steps")
        if runaway["differing"]:
            found.append(f"a run that only skips changed its weights, first {runaway['differing'][0]}")
    return found
