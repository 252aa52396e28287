"""A timing that can't be is none; the conditions of every try, and what the timers cost, are shown."""

from pathlib import Path
from typing import Any

import pytest

from ampcheck import evidence
from ampcheck.files import read_json, write_json
from ampcheck.findings import findings
from ampcheck.stats import median_interval
from ampcheck.summary import summaries
from tests.helpers import CONDITIONS, ceilings_result, write_results
from tests.test_report import BF16, FP32, given, tables, written

FLOPS = 10**6
SECONDS = {FP32: [2.0, 2.0, 2.0], BF16: [1.0, 1.0, 1.0]}


def limited(folder: Path, mode: str, flops_per_second: float) -> None:
    """Write which rate the device reaches in `mode`."""
    write_json(
        folder / "ceilings" / f"{mode}.json", ceilings_result(mode) | {"flops_per_second": {"matmul": flops_per_second}}
    )


def test_a_rate_beyond_the_devices_makes_a_timing_none(raw: dict[str, Any], tmp_path: Path) -> None:
    """As where a clock stopped before the device was done: no speed-up, null seconds, and verify fails."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 3, 1
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    limited(results, BF16, FLOPS / 1.0)
    assert findings(evidence.read(params, results)) == []

    path = results / "train/1/amp-bf16.json"
    write_json(path, read_json(path) | {"total_seconds": 0.5})
    read = evidence.read(params, results)
    [finding] = findings(read)
    summed = summaries(read)
    text = written(params, tmp_path)

    assert finding == (
        "amp-bf16: repeat 1: its total implies 6e-06 TFLOP/s, but this device reaches 1e-06: the clock did not wait "
        "for the work"
    )
    assert (summed[BF16].pairs, summed[FP32].step_seconds, summed[BF16].step_seconds) == (2, 2.0, 1.0)
    assert "| `amp-bf16` | 1 | invalid | " in text
    assert text.count("its total implies") == 2
    assert "\n1,amp-bf16,0,,0.7\n" in (tmp_path / "reports/steps.csv").read_text()


def test_where_no_timing_is_valid_there_is_no_verdict(raw: dict[str, Any], tmp_path: Path) -> None:
    """A device that can't be that fast: the mode keeps its losses and its memory, and has no speed."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 3, 1
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    limited(results, BF16, FLOPS / 2.0)
    row = summaries(evidence.read(params, results))[BF16]

    assert (row.step_seconds, row.total_seconds, row.speedup, row.verdict) == (None, None, None, None)
    assert (row.trained, row.final_loss, row.peak_bytes) == (True, 0.5, 3000)


def test_float32_at_the_rate_of_tf32_is_no_float32(raw: dict[str, Any], tmp_path: Path) -> None:
    """148 TFLOP/s, where float32 proper reaches 19.5: TF32 was on. What float32 means is printed with the rates."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 3, 1
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, {FP32: [0.302] * 3, BF16: [0.365] * 3})
    known = {"step_flops": {"matmul": round(148e12 * 0.302)}, "flops_per_second": {"matmul": 19.5e12}}
    write_json(results / "ceilings/fp32.json", ceilings_result(FP32) | known)
    text = written(params, tmp_path)

    assert text.count("its median step implies 148 TFLOP/s, but this device reaches 19.5") == 6
    assert "n/a | n/a | ieee |" in text


def test_the_flops_of_a_window_that_is_not_full_are_not_counted(raw: dict[str, Any], tmp_path: Path) -> None:
    """Three batches, two a step: the second step has one."""
    raw["data"]["num_batches"], raw["train"]["epochs"], raw["train"]["accumulate"] = 3, 1, 2
    params, results = given(raw), tmp_path / "results"
    times = {"step_seconds": {FP32: [1.0, 0.5]}, "total_seconds": {FP32: 1.5}, "losses": {FP32: [1.0, 1.0]}}
    write_results(results, params, SECONDS, **times)
    for mode in SECONDS:
        limited(results, mode, FLOPS / 0.7)

    assert evidence.read(params, results).invalid == {}


def test_every_try_has_its_conditions_in_a_row(raw: dict[str, Any], tmp_path: Path) -> None:
    """A try that was disturbed stands before its repeat; one that was disturbed again is a doubt."""
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    path = results / "train/0/fp32.json"
    disturbed = CONDITIONS | {"disturbed": ["its threads waited"], "waited_seconds": 3.0}
    gpu = [{"megahertz": 1980, "celsius": 50, "slowed": []}, {"megahertz": 1200, "celsius": 90, "slowed": []}]
    first_try = {"total_seconds": 77.0, "step_seconds": 7.0, "conditions": disturbed}
    write_json(path, read_json(path) | {"first_try": first_try, "conditions": disturbed | {"gpu": gpu}})
    text = written(params, tmp_path)
    [table] = [table for table in tables(text) if "involuntary" in table[0]]

    assert len(table) == 2 + 6 + 1
    assert table[2].startswith(
        "| `fp32` | 0 | 77.0 s | 9.50 s | 3.00 s | 0 µs | 7 | 0.500, 1.50 | 2600, n/a | n/a | its"
    )
    assert table[2].endswith("| its threads waited; repeated |")
    assert table[3].startswith("| `fp32` | 0 | 10.0 s |")
    assert table[3].endswith("| 1980 MHz, 50 °C, 1200 MHz, 90 °C | its threads waited |")
    assert "- fp32, repeat 0: disturbed in both tries: its threads waited." in text


def test_clocks_that_do_not_agree_are_a_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """The device's clock times the steps, the host's the total; 2 % are allowed."""
    params = given(raw)
    write_results(tmp_path / "results", params, SECONDS, total_seconds={FP32: 10.1, BF16: 5.2})
    text = written(params, tmp_path)

    assert "- amp-bf16, repeat 2: its steps add up to 96.2 % of its total: the clocks do not agree." in text
    assert "fp32, repeat 0: its steps" not in text


def test_memory_that_compiling_costs_is_a_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """On CUDA a compiled trial's peak is compared with that of eager steps; more than twice as much is told."""
    raw["train"]["compile"] = True
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS, peak_bytes={FP32: 4000, BF16: 9000})
    told = "- amp-bf16: compiled, its peak is 4.1 times that of eager steps; try train.compile: false."
    assert "compiled, its peak" not in written(params, tmp_path)

    machine = read_json(results / "machine.json")
    write_json(results / "machine.json", machine | {"device": "cuda:0"})
    assert told in written(params, tmp_path)
    assert written(params, tmp_path).count("compiled, its peak") == 1


def test_what_the_timers_cost_is_printed(raw: dict[str, Any], tmp_path: Path) -> None:
    """With an interval, and as a share of a step."""
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    seconds = [(number - 20) * 1e-6 for number in range(60)]
    write_json(results / "ceilings/fp32.json", ceilings_result(FP32) | {"timer_seconds": seconds})

    assert (
        "`fp32`: our timers cost a step 9.50 µs (median of 60 pairs, with and without, on the drill's network; "
        "95 % interval 1.00 µs to 18.0 µs): at most 0.0009 % of a steady step."
    ) in written(params, tmp_path)


@pytest.mark.parametrize("count", [10, 11, 60, 61])
def test_the_interval_of_a_median_covers_it(count: int) -> None:
    """Symmetrical ranks around it, within the values."""
    middle, low, high = median_interval([float(value) for value in range(count)])

    assert low + high == 2 * middle == count - 1
    assert 0 <= low < middle


@pytest.mark.parametrize("broken", ["step,seconds,loss\n0,1.0,0.5\n", "step,loss\n0,0.5\n", "", "step,seconds\n0,-1\n"])
def test_steps_that_are_not_whole_are_refused(raw: dict[str, Any], tmp_path: Path, broken: str) -> None:
    """Cut off, without a column, empty or below zero: one line with the file and the way out."""
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    (results / "train/1/fp32.csv").write_text(broken)
    with pytest.raises(ValueError, match=r"results/train/1/fp32\.csv: .*delete its folder, and `dvc repro` makes it"):
        evidence.read(params, results)


def test_a_recommendation_minds_what_disturbed_its_trials(raw: dict[str, Any], tmp_path: Path) -> None:
    """In the sentence that people quote; and where no timing is left, that is what is said."""
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    assert "Use amp-bf16 here.\n" in written(params, tmp_path)

    disturbed = {BF16: CONDITIONS | {"disturbed": ["its threads waited"]}}
    write_results(results, params, SECONDS, conditions=disturbed)
    assert "Use amp-bf16 here. But mind the warnings: trials of amp-bf16 were disturbed" in written(params, tmp_path)

    limited(results, FP32, 1.0)
    assert "No timing of a pair of trials could be used: see below." in written(params, tmp_path)

    write_results(results, params, {FP32: [2.0] * 3})
    assert "Only fp32 was trained: there is nothing to compare it with." in written(params, tmp_path)


def test_a_ceiling_that_was_disturbed_accuses_nobody(raw: dict[str, Any], tmp_path: Path) -> None:
    """A busy machine lowers it: no timing is judged by it, and that is told."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 3, 1
    params, results = given(raw), tmp_path / "results"
    write_results(results, params, SECONDS)
    limited(results, BF16, FLOPS / 2.0)
    assert findings(evidence.read(params, results)) != []

    path = results / "ceilings/amp-bf16.json"
    write_json(path, read_json(path) | {"disturbed": ["its threads waited"]})
    assert findings(evidence.read(params, results)) == []
    assert "- amp-bf16: its ceilings were measured while disturbed (its threads waited): no timing" in written(
        params, tmp_path
    )
