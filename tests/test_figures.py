"""The figures of the report: what they show, on which pages, in how many bytes."""

import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from ampcheck import drawing, figures, params, report
from ampcheck.summary import Summary
from tests.helpers import ROOT, write_results

NOTHING = Summary(**dict.fromkeys([field.name for field in fields(Summary)]))  # type: ignore[arg-type]
TWICE = replace(NOTHING, speedup=2.0, speedup_low=1.5, speedup_high=2.7, memory_ratio=0.75)
SUMMED = {"first": NOTHING, "second": TWICE, "third": TWICE}


def steps(modes: list[str], repeats: int = 3, count: int = 20) -> pd.DataFrame:
    """Return steps with a slow first one; each mode is twice as fast as the one before, and trains alike."""
    step = np.arange(count)
    seconds = np.where(step == 0, 1.0, 0.02 + 0.001 * np.sin(step))
    trial = pd.DataFrame({"step": step, "seconds": seconds, "loss": 1 / (1 + step)})
    trials = [
        trial.assign(repeat=repeat, mode=mode, seconds=seconds / 2**place)
        for repeat in range(repeats)
        for place, mode in enumerate(modes)
    ]
    return pd.concat([trial.assign(repeat=0, mode="").iloc[:0], *trials], ignore_index=True)


def drawn(folder: Path, summed: dict[str, Summary], table: pd.DataFrame) -> dict[str, str]:
    """Write the figures and return their text by file name."""
    figures.write(summed, table, folder)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def dots(svg: str, colour: str) -> int:
    """Count the marks of one colour."""
    return len(re.findall(rf'<use [^>]*style="fill: {colour.lower()}"', svg))


def test_each_name_is_a_file(tmp_path: Path) -> None:
    """Where modes were trained and compared, all four figures are there, and no other file."""
    table = steps(list(SUMMED))
    assert figures.names(SUMMED, table) == ["step-times", "loss", "loss-parity", "ratios"]
    assert {"step-times.svg", "loss.svg", "loss-parity.svg", "ratios.svg"} == set(
        drawn(tmp_path / "figures", SUMMED, table)
    )


def test_same_input_gives_same_bytes(tmp_path: Path) -> None:
    """No date and no random name is in a figure, nor a setting of the user's own matplotlib."""
    table = steps(list(SUMMED))
    once = drawn(tmp_path / "once", SUMMED, table)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        assert once == drawn(tmp_path / "again", SUMMED, table)


def test_settings_of_matplotlib_stay(tmp_path: Path) -> None:
    """Drawing leaves no global state behind."""
    before = dict(mpl.rcParams)
    figures.write(SUMMED, steps(list(SUMMED)), tmp_path / "figures")
    assert before == dict(mpl.rcParams)


def test_every_steady_step_is_a_dot(tmp_path: Path) -> None:
    """Of 3 repeats of 20 steps each, the 57 steady ones are drawn in the colour of their mode's place."""
    svg = drawn(tmp_path / "figures", SUMMED, steps(list(SUMMED)))["step-times.svg"]
    assert [dots(svg, colour) for colour in drawing.COLOURS] == [57, 57, 57, 0]
    assert "time of a steady step (ms)" in svg


def test_slow_steps_are_in_seconds(tmp_path: Path) -> None:
    """Steps of a second or more are not shown in milliseconds."""
    table = steps(["first"])
    svg = drawn(tmp_path / "figures", SUMMED, table.assign(seconds=table["seconds"] * 100))["step-times.svg"]
    assert "time of a steady step (s)" in svg


def test_many_steps_are_thinned_without_losing_the_slowest(tmp_path: Path) -> None:
    """12 trials of 6000 steps stay below 300 kB a file, and a single slow step is still there."""
    table = steps(["first", "second", "third", "fourth"], count=6000)
    table.loc[4321, "seconds"] = 0.5
    assert figures.steps_per_group(table) == 78
    svgs = drawn(tmp_path / "figures", SUMMED | {"fourth": TWICE}, table)
    assert all(len(svg) < 300_000 for svg in svgs.values())
    assert ">500<" in svgs["step-times.svg"]


def test_few_steps_are_not_thinned() -> None:
    """As long as all steps fit, none is left out."""
    assert figures.steps_per_group(steps(["first"], repeats=1, count=figures.MARKS)) == 1


def test_nothing_trained_leaves_no_figure(tmp_path: Path) -> None:
    """Figures of an earlier run are gone; the folder stays, since DVC wants its output."""
    nothing = dict.fromkeys(SUMMED, NOTHING)
    drawn(tmp_path / "figures", SUMMED, steps(list(SUMMED)))
    assert figures.names(nothing, steps([])) == []
    assert drawn(tmp_path / "figures", nothing, steps([])) == {}


def test_untrained_mode_is_absent_and_leaves_the_other_colours_alone(tmp_path: Path) -> None:
    """A mode that was not trained appears nowhere; the third mode keeps the third colour."""
    svgs = drawn(tmp_path / "figures", SUMMED | {"second": NOTHING}, steps(["first", "third"]))
    assert [name for name, svg in svgs.items() if "second" in svg] == []
    assert [dots(svgs["step-times.svg"], colour) for colour in drawing.COLOURS] == [57, 0, 57, 0]


def test_one_repeat_has_no_interval(tmp_path: Path) -> None:
    """A speed-up without interval, and a memory that was not measured, are shown as what they are."""
    single = replace(TWICE, speedup_low=None, speedup_high=None, memory_ratio=None)
    svg = drawn(tmp_path / "figures", {"first": NOTHING, "second": single}, steps(["first"], repeats=1))["ratios.svg"]
    assert re.findall(r">(?:2\.00|n/a)<", svg) == [">2.00<", ">n/a<"]
    assert "nan" not in svg.lower()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_losses_that_are_not_finite_are_left_out(tmp_path: Path, broken: float) -> None:
    """A training that diverges is drawn up to there; one that never had a loss has no figure of it."""
    table = steps(["first"])
    table.loc[table["step"] > 10, "loss"] = broken
    assert "loss.svg" in drawn(tmp_path / "figures", SUMMED, table)
    assert figures.names(SUMMED, table.assign(loss=broken)) == ["step-times", "ratios"]


def test_trials_of_one_step_have_no_step_times() -> None:
    """The first step is not steady; its loss is there, and compared."""
    assert figures.names(dict.fromkeys(SUMMED, NOTHING), steps(list(SUMMED), count=1)) == ["loss", "loss-parity"]


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_colours_show_on_light_and_dark_pages(page: str) -> None:
    """Graphics have a contrast of 3 to the page, and text one of 4."""
    assert all(contrast(colour, page) >= 3 for colour in drawing.COLOURS)
    assert contrast(drawing.INK, page) >= 4


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio, from 1 to 21."""
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of #rrggbb, from 0 to 1."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_page_shines_through(tmp_path: Path) -> None:
    """No figure has a background of its own, and its text is text."""
    for svg in drawn(tmp_path / "figures", SUMMED, steps(list(SUMMED))).values():
        assert "#ffffff" not in svg
        assert "<text" in svg


def test_figures_load_no_torch() -> None:
    """The report stage does not wait for torch."""
    code = "import sys, ampcheck.figures; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", check=False).returncode == 0


@pytest.mark.parametrize("trained", [True, False])
def test_report_shows_the_figures_that_exist(tmp_path: Path, trained: bool) -> None:
    """Each file is shown once; of a run that trained nothing, the report has no word on figures."""
    shutil.copytree(ROOT / "reports", tmp_path / "reports", ignore=shutil.ignore_patterns("figures"))
    settings = params.load(ROOT / "params.yaml")
    seconds = {mode: [1.0, 1.1, 1.2] for mode in settings.train.modes} if trained else {}
    write_results(tmp_path / "results", settings, seconds)
    report.write(settings, tmp_path / "results", tmp_path / "reports")
    files = {path.name for path in (tmp_path / "reports" / "figures").iterdir()}
    text = (tmp_path / "reports" / "report.md").read_text(encoding="utf-8")
    assert ({"step-times.svg", "loss.svg", "loss-parity.svg", "ratios.svg"} if trained else set()) == files
    assert sorted(files) == sorted(re.findall(r"\(figures/(.*)\)", text))
    assert trained == ("## Figures" in text)
