"""Sizes side by side: what is said of them, and what is not."""

from pathlib import Path
from typing import Any

import pytest

from ampcheck import sweep_figures, sweep_report
from ampcheck.curves import begins_to_win, curves, multiples
from ampcheck.rendering import render
from tests.helpers import ROOT

FIGURES = {"trained": True, "step_seconds": 0.5, "samples_per_second": 100.0, "peak_bytes": 3000, "why": None}
FIGURES |= {"net_peak_bytes": 2000, "memory_ratio": 1.5, "speedup": None, "speedup_low": None, "speedup_high": None}
BASELINE = FIGURES | {"verdict": None, "memory_ratio": None}


def size(verdict: str = "faster", machine: str = "a", **sizes: int) -> dict[str, Any]:
    """A measured size with a baseline and one mode; unless it is given, the other sizes are alike."""
    figures = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "verdict": verdict}
    given = {"batch_size": 8, "in_size": 64, "out_size": 64} | sizes
    return {
        "size": "-".join(map(str, given.values())),
        "params": {"sizes": given, "train": {"lr": 0.1, "repeats": [0, 1]}},
        "machine": {"cpu": machine, "threads": 2},
        "modes": {"fp32": dict(BASELINE), "amp-bf16": FIGURES | figures},
    }


def shown(sizes: list[dict[str, Any]], failed: dict[str, str] | None = None) -> str:
    """The report of `sizes`."""
    return render(sweep_report.context(sizes, failed or {}, {}, 2**20), ROOT / "reports/sweep.md.j2")


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["slower", "inconclusive", "faster", "faster"], "faster from batch_size 4 on, to 8; at 2 inconclusive"),
        (["faster", "faster", "faster", "faster"], "faster at every size measured, from batch_size 1 to 8"),
        (["slower", "same", "same", "slower"], "faster nowhere from batch_size 1 to 8"),
        (["faster", "slower", "faster", "same"], "faster at batch_size 1, 4; at 8 same"),
    ],
)
def test_where_a_mode_begins_to_win_is_said_of_measured_sizes_only(verdicts: list[str], said: str) -> None:
    """In whatever order they were measured."""
    sizes = [size(verdict, batch_size=2**place) for place, verdict in enumerate(verdicts)]
    [curve] = curves(sizes[::-1])

    assert dict(begins_to_win(curve)) == {"amp-bf16": said}


def test_timings_of_two_machines_never_share_a_curve() -> None:
    """Nor do sizes that differ in another parameter too."""
    two_machines = [size(machine=machine, batch_size=batch) for machine in "ab" for batch in (8, 16)]

    assert len(curves(two_machines)) == 2
    assert curves([size(machine="a", batch_size=8), size(machine="b", batch_size=16)]) == []
    assert curves([size(batch_size=8, in_size=8), size(batch_size=16, in_size=16, out_size=16)]) == []
    assert "no curve to draw" in shown([size(machine="a", batch_size=8), size(machine="b", batch_size=16)])


def test_numbers_that_are_always_equal_are_one_axis() -> None:
    """Width as one."""
    [curve] = curves([size(in_size=width, out_size=width) for width in (64, 128)])

    assert curve.axis == "in_size = out_size"
    assert curve.fixed == {"batch_size": 8}


def test_what_multiples_of_8_gain_is_measured_on_neighbours() -> None:
    """512 against 513; sizes further apart say nothing of it."""
    sizes = [size(batch_size=batch) for batch in (256, 512, 513)]
    sizes[1]["modes"]["amp-bf16"] |= {"samples_per_second": 150.0}
    [curve] = curves(sizes)
    gains = {row["mode"]: (row["good"]["x"], row["odd"]["x"], row["gain"]) for row in multiples(curve)}

    assert gains == {"fp32": (512, 513, 1.0), "amp-bf16": (512, 513, 1.5)}
    assert "No neighbours such as 512 and 513" in shown(sizes[:2])


def test_what_was_not_measured_is_named_or_na(tmp_path: Path) -> None:
    """A size that failed, a mode that was not trained, and no nan."""
    sizes = [size(batch_size=8), size(batch_size=16)]
    untrained = dict.fromkeys([*FIGURES, "verdict"]) | {"trained": False, "why": "out of memory"}
    sizes[1]["modes"]["amp-bf16"] = untrained
    text = shown(sizes, {"batch_size-1000": "killed by SIGKILL"})

    assert "- `batch_size-1000`: killed by SIGKILL" in text
    assert "| `amp-bf16` | not trained: out of memory |" in text
    assert "faster at every size measured, from batch_size 8 to 8" in text
    assert "nan" not in text
    assert "None" not in text


def test_nothing_measured_is_no_crash() -> None:
    """Where every size failed, the report says so."""
    assert "- `laptop`: no" in shown([], {"laptop": "no"})


def test_figures_show_dots_and_are_the_same_bytes_again(tmp_path: Path) -> None:
    """One for each curve, without a line between sizes."""
    found = curves([size(batch_size=8), size("slower", batch_size=16)])
    for folder in ("one", "two"):
        sweep_figures.write(found, tmp_path / folder)
    [first], [second] = (list((tmp_path / folder).iterdir()) for folder in ("one", "two"))

    assert first.name == "batch_size-1.svg"
    assert first.read_bytes() == second.read_bytes()
