"""python -m ampcheck.estimate: what the tensors of each mode of params.yaml would take on CUDA; it needs no GPU."""

import sys

from ampcheck import params
from ampcheck.foresee import Peak, foresee
from ampcheck.processes import ChildError
from ampcheck.rendering import FILTERS
from ampcheck.tensors import KINDS


def table(foreseen: dict[str, Peak]) -> list[str]:
    """Return a line for each mode: its peak, the difference from the first's, and the split at the peak."""
    rows = [["mode", "bytes", "peak", "difference", *(kind.replace("_", " ") for kind in KINDS)]]
    baseline = next(iter(foreseen.values())).peak_bytes
    for mode, each in foreseen.items():
        if each.peak_bytes is not None:
            difference = None if baseline is None else each.peak_bytes - baseline
            values = [each.peak_bytes, difference, *each.split.values()]
            rows.append([mode, str(each.peak_bytes), *map(FILTERS["bytes"], values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return lines + [f"{mode}: {each.why}" for mode, each in foreseen.items() if each.why]


def main() -> None:
    """Print the table of params.yaml's modes. ValueError if none of them can be foreseen."""
    read = params.load()
    found = {mode: foresee(read, mode) for mode in read.train.modes}
    if not any(each.peak_bytes for each in found.values()):
        raise ValueError("\n".join(sorted({each.why for each in found.values()})))
    print("\n".join(table(found)))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, ChildError) as error:
        sys.exit(str(error))
