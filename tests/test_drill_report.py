"""What the drill found is said as it is: in findings, headline and tables, in good cases and in bad ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ampcheck import evidence
from ampcheck.drill import run_drill
from ampcheck.files import read_json, write_json
from ampcheck.findings import findings
from ampcheck.schema import Params
from tests.helpers import write_drill, write_results
from tests.test_report import BF16, FP16, FP32, cells, given, said, tables, written

EARLY = "save between step() and update()"
IN_NEW_PROCESSES = "stop 0: yes, stop 8: yes, stop 15: yes"
LEAF = "modules/net/0.weight"
LOSS = {"step": 3, "straight": 0.5, "resumed": 0.25}
BROKEN = {"bit_exact": False, "differing": [LEAF], "first_different_loss": LOSS}
BROKEN_WORDS = (
    f"2 of 16 stops are not bit-exact, first stop 3: 1 leaves differ, first {LEAF}; "
    "first different loss at step 3: 0.5 straight, 0.25 resumed"
)


@pytest.fixture
def good(raw: dict[str, Any], tmp_path: Path) -> Params:
    """Parameters whose results lie in tmp_path: fp32 and amp-fp16 are here, and all is well."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    return params


def change(tmp_path: Path, name: str, edit: Callable[[Any], object]) -> None:
    """Edit a result of the drill."""
    path = tmp_path / "results/drill" / f"{name}.json"
    value = read_json(path)
    edit(value)
    write_json(path, value)


def found(params: Params, tmp_path: Path) -> list[str]:
    """The findings of tmp_path."""
    return findings(evidence.read(params, tmp_path / "results"))


def drilled(text: str) -> str:
    """The report's section on the drill."""
    return text.partition("## Resume drill\n")[2].partition("\n## ")[0]


def break_stops(result: dict[str, Any]) -> None:
    """Let two stops differ."""
    for stop in (3, 7):
        result["stops"][stop] |= BROKEN


def miss(part: str) -> Callable[[dict[str, Any]], None]:
    """Let nothing give away the loss of `part`."""

    def edit(result: dict[str, Any]) -> None:
        [control] = [control for control in result["controls"] if control["part"] == part]
        control |= {"caught": False, "by": []}

    return edit


def test_a_good_drill_reads_well(good: Params, tmp_path: Path) -> None:
    """A sentence in the headline, no finding, and every table."""
    text = drilled(written(good, tmp_path))

    assert found(good, tmp_path) == []
    assert said(good, tmp_path).endswith(
        "In the drill resume was bit-exact at each of 16 stops in fp32, amp-fp16; every lost part of the state was "
        "noticed there; 2 of 2 killed runs ended with the same bits."
    )
    assert "| `fp32` | 16 | yes | stop 0: yes | n/a | stop 0: yes, stop 8: yes, stop 15: yes | yes |" in text
    assert (
        "| `amp-fp16` | 16 | yes | stop 0: yes | stop 4: yes | stop 0: yes, stop 8: yes, stop 15: yes | yes |" in text
    )
    assert "| rng | caught: step, the loss of step 12 | caught: step, the loss of step 12 |" in text
    assert f"| {EARLY} | can't matter: no scaler | caught: step, the loss of step 12 |" in text
    assert "| `fp32` | n/a | scaler fresh, all else the same |" in text
    assert "| `amp-fp16` | scaler ignored, all else the same | n/a |" in text
    assert "| 2 | 2 | 2 | 0 |" in text
    assert "- `amp-fp16`, resumed under another growth_interval: scaler/growth_interval: 3 as saved." in text
    assert "- `amp-fp16`, every loss infinite: stopped at step 50." in text
    assert "**" not in text
    for table in tables(text):
        assert {cells(line) for line in table} == {cells(table[0])}, table[0]


@pytest.mark.parametrize(
    ("name", "edit", "finding", "shown"),
    [
        (FP16, break_stops, f"amp-fp16: {BROKEN_WORDS}", "| **NO**, only 14 |"),
        (
            FP16,
            lambda result: result["stops"][4].update(bit_exact=False, told=["mode: saved in fp32"]),
            "amp-fp16: 1 of 16 stops are not bit-exact, first stop 4: mode: saved in fp32",
            "| stop 4: **NO** |",
        ),
        (
            FP32,
            lambda result: result["in_new_processes"][1].update(differing=[LEAF, "the loss of step 8"]),
            f"fp32: resumed in a new process from stop 8, other bits: {LEAF}, the loss of step 8",
            "stop 8: **NO**",
        ),
        (
            FP32,
            lambda result: result.update(same_save_points=False),
            "fp32: the state at the start of a step is not that at the end of the one before",
            "stop 15: yes | **NO** |",
        ),
        (FP16, miss("scaler"), "amp-fp16: a planted fault was not caught: scaler", "no scaler | **NOT caught** |"),
        (FP32, miss("rng"), "fp32: a planted fault was not caught: rng", "| rng | **NOT caught** | caught: step"),
        (
            FP16,
            lambda result: result["other_growth_interval"].update(differing=[LEAF]),
            f"amp-fp16: under another growth_interval a resume has other bits: {LEAF}",
            f"3 as saved; **other bits**: {LEAF}.",
        ),
        (
            FP16,
            lambda result: result["other_growth_interval"].update(told=[]),
            "amp-fp16: a resume under another growth_interval does not tell that the checkpoint's is kept",
            "another growth_interval: **nothing was told**.",
        ),
        (
            FP16,
            lambda result: result["runaway"].update(told=None, stopped_at=500),
            "amp-fp16: a run that only skips was not stopped in 500 steps",
            "**NOT stopped** in 500 steps.",
        ),
        (
            FP16,
            lambda result: result["runaway"].update(differing=[LEAF]),
            f"amp-fp16: a run that only skips changed its weights, first {LEAF}",
            f"**weights changed**: {LEAF}.",
        ),
        (
            "across",
            lambda pairs: pairs[0].update(differing=[LEAF, "step"]),
            f"fp32 to amp-fp16: 2 leaves did not come over by the rule, first {LEAF}",
            f"| scaler fresh, all else **NOT the same**: {LEAF} |",
        ),
        (
            "across",
            lambda pairs: pairs[1].update(next_loss_finite=False),
            "amp-fp16 to fp32: the next loss is not finite",
            "| scaler ignored, all else the same, **next loss not finite** |",
        ),
        (
            "kills",
            lambda result: result["kills"][1].update(differing=["step"]),
            "amp-fp16: a killed run that went on from step 5 ended with other bits, first step",
            "| 2 | **only 1** | 2 | 0 |",
        ),
    ],
)
def test_each_thing_that_is_wrong_is_a_finding_and_stands_in_its_table(
    good: Params, tmp_path: Path, name: str, edit: Callable[[Any], object], finding: str, shown: str
) -> None:
    """One line for verify, which names what differs, and a bold cell, in a table that is still one."""
    change(tmp_path, name, edit)
    text = drilled(written(good, tmp_path))

    assert found(good, tmp_path) == [f"drill, {finding}"]
    assert shown in text
    for table in tables(text):
        assert {cells(line) for line in table} == {cells(table[0])}, table[0]


def test_the_headline_is_true_where_a_stop_differs(good: Params, tmp_path: Path) -> None:
    """Only modes that resumed at every stop are praised, and only their controls prove something."""
    change(tmp_path, FP16, break_stops)
    exact = (
        "In the drill resume was bit-exact at each of 16 stops in fp32; every lost part of the state was noticed there"
    )

    assert f"{exact}; resume was NOT bit-exact in amp-fp16 ({BROKEN_WORDS}); 2 of 2 killed" in said(good, tmp_path)
    assert "| rng | caught: step, the loss of step 12 | proves nothing: resume is not bit-exact |" in written(
        good, tmp_path
    )

    change(tmp_path, FP32, break_stops)
    assert f"In the drill resume was NOT bit-exact in fp32 ({BROKEN_WORDS}); resume was NOT" in said(good, tmp_path)
    assert "noticed there" not in said(good, tmp_path)


def test_the_headline_is_true_where_a_new_process_differs(good: Params, tmp_path: Path) -> None:
    """One step from every stop is not all that counts."""
    change(tmp_path, FP32, lambda result: result["in_new_processes"][0].update(differing=["step"]))

    assert "at each of 16 stops in amp-fp16;" in said(good, tmp_path)
    assert "NOT bit-exact in fp32 (resumed in a new process from stop 0, other bits: step)" in said(good, tmp_path)


def test_the_headline_is_true_where_a_loss_goes_unnoticed_or_a_kill_is_not_survived(
    good: Params, tmp_path: Path
) -> None:
    """Each fault that nothing gave away is named with its mode, and the killed runs are counted."""
    for part in ("rng", EARLY):
        change(tmp_path, FP16, miss(part))
    change(tmp_path, "kills", lambda result: result["kills"][0].update(differing=["step"]))

    assert said(good, tmp_path).endswith(
        "In the drill resume was bit-exact at each of 16 stops in fp32, amp-fp16; NOT noticed in amp-fp16: a fault in "
        f"rng, {EARLY}; 1 of 2 killed runs ended with the same bits."
    )


def test_without_an_available_mode_one_line_says_so(raw: dict[str, Any], tmp_path: Path) -> None:
    """No empty tables, and no sentence in the headline; the drill itself ends well."""
    params = given(raw)
    nowhere = {mode: {"available": False} for mode in params.train.modes}
    results = run_drill(params, {"device": "cpu", "threads": 1}, nowhere, tmp_path)
    write_results(tmp_path / "results", params, {})
    for name, result in results.items():
        write_json(tmp_path / "results/drill" / f"{name}.json", result)
    text = drilled(written(params, tmp_path))

    assert results == {"across": [], "kills": {"seed": 0, "kills": []}}
    assert text == "\nNothing was drilled: no mode of `train.modes` is available here.\n"
    assert "drill" not in said(params, tmp_path)


def test_a_single_mode_without_kills_has_lines_instead_of_empty_tables(raw: dict[str, Any], tmp_path: Path) -> None:
    """What was not tried is said, not left out."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3})
    change(tmp_path, "kills", lambda result: result["kills"].clear())
    text = drilled(written(params, tmp_path))

    assert "Across precision there is nothing to try with a single mode." in text
    assert "No run was killed: `drill.kills` in `params.yaml` is 0." in text
    assert "are tried in modes with a scaler: there is none here." in text
    assert said(params, tmp_path).endswith("every lost part of the state was noticed there.")


def test_the_drill_is_read_by_the_modes_of_the_parameters(good: Params, tmp_path: Path) -> None:
    """What an earlier run left of another mode is not read; what is missing is named with the way out."""
    write_drill(tmp_path / "results/drill", [BF16, FP32])
    read = evidence.read(good, tmp_path / "results")

    assert (list(read.drill), read.across, [kill["mode"] for kill in read.kills]) == ([FP32, FP16], [], [FP32])
    (tmp_path / "results/drill/amp-fp16.json").unlink()
    with pytest.raises(ValueError, match=r"results/drill/amp-fp16\.json: missing; `dvc repro` makes it"):
        evidence.read(good, tmp_path / "results")


def test_a_first_scale_that_matters_is_told(raw: dict[str, Any], tmp_path: Path) -> None:
    """Which scales gave the same weights, which did not, and why: skips, or else gradients that underflow."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    assert "begun with a first loss scale of 1, 4, 16: it ends with the same weights, to the bit.\n" in written(
        params, tmp_path
    )

    path = tmp_path / "results/drill" / f"{FP16}.json"
    result = read_json(path)
    result["first_scales"][2] |= {"skipped_steps": 2, "differing": ["net/0.weight"]}
    result["first_scales"][0] |= {"differing": ["net/0.weight"]}
    write_json(path, result)

    text = written(params, tmp_path)
    assert "scale of 4: it ends with the same weights, to the bit. With 16 the scaler skips its first steps" in text
    assert "With 1 gradients underflow, and the weights are others" in text
