"""The memory of tensors as the tables of the report: plain values, in the order of params.yaml. Loads no torch."""

from typing import Any

from ampcheck.evidence import Evidence
from ampcheck.summary import Summary


def memory_tables(evidence: Evidence, summed: dict[str, Summary]) -> dict[str, Any]:
    """Return a row a mode of what was counted `here` and of what is foreseen on `cuda`, and the `kinds` of both.

    `measured_bytes` is the peak that the trials measured: on a CPU of the process, on CUDA of torch's allocator;
    `difference_bytes` is that of two peaks, the mode's less the baseline's.
    """
    rows = {where: [_row(evidence, summed, where, mode) for mode in evidence.memory] for where in ("here", "cuda")}
    known = [row["split"] for row in rows["here"] + rows["cuda"] if row["split"]]
    return {**rows, "kinds": list(known[0]) if known else [], "on_cuda": evidence.machine["device"] != "cpu"}


def _row(evidence: Evidence, summed: dict[str, Summary], where: str, mode: str) -> dict[str, Any]:
    found, baseline = evidence.memory[mode][where], evidence.memory[evidence.params.train.modes[0]][where]
    peaks = (found["peak_bytes"], baseline["peak_bytes"])
    difference = None if None in peaks else peaks[0] - peaks[1]
    return {**found, "mode": mode, "difference_bytes": difference, "measured_bytes": summed[mode].peak_bytes}
