"""What the evidence says is wrong. Loads no torch."""

from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.precision import MODES
from ampcheck.summary import summaries


def findings(evidence: Evidence) -> list[str]:
    """One line for each thing that is wrong. A mode that this device lacks or emulates is no finding."""
    found = []
    for mode, summary in summaries(evidence).items():
        if summary.why and _could_be_trained(evidence, mode):
            found.append(f"{mode}: not trained: {summary.why}")
        if summary.reproducible is False:
            found.append(f"{mode}: not reproducible: its repeats ended with different bits")
        found += [f"{mode}: {line}" for line in _resume_findings(mode, evidence.resume[mode])]
    return found


def _could_be_trained(evidence: Evidence, mode: str) -> bool:
    entry = evidence.modes[mode]
    return bool(entry["available"] and (evidence.params.train.emulated or not entry["emulated"]))


def _resume_findings(mode: str, result: dict[str, Any]) -> list[str]:
    if not result["available"]:
        return []
    if result["bit_exact"] is None:
        return [f"resume was not checked: {result['why']}"]
    found = [] if result["bit_exact"] else [f"resume is not bit-exact: {differences(result)}"]
    missed = [control["part"] for control in result["controls"] if not control["caught"]]
    found += [f"a resume without its {part} was not caught" for part in missed]
    dtypes = [dtypes for kind, dtypes in result["dtypes"].items() if kind != "loss"]
    if MODES[mode].autocast and dtypes and not any(MODES[mode].dtype in kinds for kinds in dtypes):
        found.append(f"autocast had no effect: no module's output is {MODES[mode].dtype}")
    return found


def differences(result: dict[str, Any]) -> str:
    """Name what the resumed run ended with that the straight run did not: first leaf, first loss, both values."""
    said = []
    if leaves := result["differing"]:
        said.append(f"{len(leaves)} leaves differ, first {leaves[0]}")
    if loss := result["first_different_loss"]:
        values = f"{loss['straight']} straight, {loss['resumed']} resumed"
        said.append(f"first different loss at step {loss['step']}: {values}")
    return "; ".join(said)
