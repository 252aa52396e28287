"""All that needs a CUDA device, tried on one card in at most eight minutes. A short table comes last.

python benchmarks/gpu.py: it finds src/ by itself, needs torch, numpy, pydantic, ruamel.yaml, safetensors and tqdm, runs
the tests marked `cuda` if pytest is there, and uses no DVC. Exit code 1: no CUDA device, or a line tells of a failure.
"""

import contextlib
import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from ampcheck.processes import in_child
from benchmarks.sections import Line, Setup, marked_tests, peaks, prepared, recipe, resumes, trials

PREPARING_SECONDS = 50
SECTIONS: dict[str, tuple[int, Callable[[Setup], Iterator[Line]]]] = {  # with the seconds that each may take
    "Tests marked cuda": (100, marked_tests),
    "The recipe's sizes": (110, trials),
    "Peak of default precision": (60, peaks),
    "Bit-exact resume": (140, resumes),
}
FAILURES = (RuntimeError, ValueError, OSError)  # TimeoutError is an OSError


@contextlib.contextmanager
def budget(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after `seconds`; whatever ends it, no process that it started goes on."""

    def expired(*_: object) -> None:
        raise TimeoutError(f"not finished in {seconds} s")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        for child in multiprocessing.active_children():
            child.kill()
            child.join()


def lines_of(section: Callable[[Setup], Iterator[Line]], setup: Setup, seconds: int) -> list[Line]:
    """Return what `section` says within its budget; a failure becomes its last line."""
    lines: list[Line] = []
    try:
        with budget(seconds):
            for line in section(setup):
                print(line.text, flush=True)
                lines.append(line)
    except FAILURES as error:
        lines.append(Line(f"stopped: {error}", good=False))
    return lines


def main() -> None:
    """Prepare in a folder of its own, run the sections, print the table."""
    if not in_child(lambda _: torch.cuda.is_available(), "CUDA"):
        sys.exit("benchmarks/gpu.py: torch sees no CUDA device here; nothing was tried")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with budget(PREPARING_SECONDS):
            setup = prepared(recipe("cuda"))
        table = {title: lines_of(section, setup, seconds) for title, (seconds, section) in SECTIONS.items()}
    print(f"\n{setup.machine['device_name']}, torch {setup.machine['torch']}, CUDA {setup.machine['cuda']}")
    for title, lines in table.items():
        print(f"\n{title}", *(line.text for line in lines), sep="\n  ")
    sys.exit(not all(line.good for lines in table.values() for line in lines))


if __name__ == "__main__":
    main()
