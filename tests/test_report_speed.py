"""What the report says of speed, memory and loss, of figures that others published, and how sure it is of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ampcheck import evidence
from ampcheck.files import read_json, write_json
from ampcheck.summary import summaries
from tests.helpers import write_results
from tests.test_report import BF16, FP16, FP32, given, said, written

TF32 = "tf32"


def rewrite(tmp_path: Path, mode: str, repeats: int, **columns: Any) -> None:
    """Replace columns of a mode's steps in every repeat."""
    for repeat in range(repeats):
        path = tmp_path / f"results/train/{repeat}/{mode}.csv"
        pd.DataFrame({"step": range(len(next(iter(columns.values())))), "seconds": 1.0, "loss": 0.5} | columns).to_csv(
            path, index=False
        )
        trial = path.with_suffix(".json")
        write_json(trial, read_json(trial) | {"steps": len(next(iter(columns.values())))})


def sure(text: str) -> str:
    """The paragraphs and the table on how sure the figures are."""
    return text.partition("How sure?")[2].partition("##")[0]


def test_slower_but_smaller_is_no_win(raw: dict[str, Any], tmp_path: Path) -> None:
    """A graph network: 5.44 to 5.67 against 9.06 to 9.93 s a step, 25.4 against 15.7 GB; both are said."""
    params = given(raw)
    peaks = {FP32: 25_400_000_000, FP16: 15_700_000_000}
    seconds = {FP32: [5.44, 5.67, 5.55], FP16: [9.06, 9.93, 9.5]}
    write_results(tmp_path / "results", params, seconds, peak_bytes=peaks, data_bytes=dict.fromkeys(peaks, 0))
    sentences = said(params, tmp_path)

    assert sentences.startswith("Stay with fp32 here: no mode was faster. amp-fp16 is slower than fp32: 0.585 times")
    assert "its peak memory is 38 % less than that of fp32" in sentences
    assert "Use amp" not in sentences


def test_as_fast_but_smaller_is_said_as_both(raw: dict[str, Any], tmp_path: Path) -> None:
    """180 against 114 MB at the same time a step: a ratio of 0.633, and no speed-up."""
    params = given(raw)
    peaks = {FP32: 180_000_000, FP16: 114_000_000}
    seconds = {FP32: [1.0, 1.001, 0.999], FP16: [1.001, 1.0, 0.999]}
    write_results(tmp_path / "results", params, seconds, peak_bytes=peaks, data_bytes=dict.fromkeys(peaks, 0))
    summed = summaries(evidence.read(params, tmp_path / "results"))

    assert (summed[FP16].verdict, round(summed[FP16].memory_ratio or 0, 3)) == ("same", 0.633)
    assert "amp-fp16 is as fast as fp32 within 1 %" in said(params, tmp_path)
    assert "its peak memory is 37 % less than that of fp32" in said(params, tmp_path)


def test_a_network_too_small_for_its_device_claims_no_speed_up(raw: dict[str, Any], tmp_path: Path) -> None:
    """15 minutes without AMP and 21 with it, of steps below a millisecond: slower, and the host is what is timed."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [0.15e-3] * 3, FP16: [0.21e-3] * 3})

    assert said(params, tmp_path).startswith("Stay with fp32 here: no mode was faster. amp-fp16 is slower")
    assert "A step takes less than 1 ms in fp32, amp-fp16: the work is too small" in written(params, tmp_path)


@pytest.mark.parametrize("modes", [[FP32, FP16], [FP16, FP32]])
def test_the_order_of_the_modes_does_not_move_a_figure(raw: dict[str, Any], tmp_path: Path, modes: list[str]) -> None:
    """Peak and time stay with their mode; only the direction of the comparison turns."""
    raw["train"]["modes"] = modes
    params = given(raw)
    peaks = {FP32: 369_454_080, FP16: 518_700_544}
    write_results(tmp_path / "results", params, {FP32: [53.8] * 3, FP16: [37.8] * 3}, peak_bytes=peaks)
    summed = summaries(evidence.read(params, tmp_path / "results"))
    speedup = summed[modes[1]].speedup or 0

    assert {mode: summary.peak_bytes for mode, summary in summed.items()} == peaks
    assert {mode: summary.step_seconds for mode, summary in summed.items()} == {FP32: 53.8, FP16: 37.8}
    assert speedup == pytest.approx(53.8 / 37.8 if modes[0] == FP32 else 37.8 / 53.8)


def test_float32_with_tf32_is_a_mode_of_its_own(raw: dict[str, Any], tmp_path: Path) -> None:
    """0.313 s of a float32 that was TF32 against 0.365 s of AMP: each row names its precision, so like meets like."""
    raw["train"]["modes"] = [FP32, TF32, FP16]
    params = given(raw)
    seconds = {FP32: [0.62, 0.61, 0.62], TF32: [0.313, 0.302, 0.308], FP16: [0.365, 0.356, 0.360]}
    write_results(tmp_path / "results", params, seconds)
    sentences = said(params, tmp_path)

    assert sentences.startswith("Use tf32 here. tf32 trains 2.00 times as fast as fp32")
    assert "amp-fp16 trains 1.71 times as fast as fp32" in sentences


def test_a_mode_that_does_not_train_alike_is_a_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """A linear network falls from 2.3179 to 3.7e-09 in float32, and cast to bfloat16 stays at 2.23."""
    params = given(raw)
    seconds = {FP32: [1.0] * 3, BF16: [1.0] * 3}
    write_results(tmp_path / "results", params, seconds, final_loss={FP32: 3.7e-9, BF16: 2.23})
    falls = np.geomspace(2.3179, 3.7e-9, params.steps)
    rewrite(tmp_path, FP32, 3, loss=falls)
    rewrite(tmp_path, BF16, 3, loss=np.linspace(2.3179, 2.23, params.steps))
    text = written(params, tmp_path)
    summary = read_json(tmp_path / "reports/summary.json")[BF16]

    assert "- amp-bf16: its final loss is 2.23, that of fp32 3.7e-09: unless both are as good as 0, it does" in text
    assert summary["final_loss_difference"] == pytest.approx(2.23 / 3.7e-9 - 1)
    assert "(figures/loss-parity.svg)" in text


def test_losses_that_agree_are_shown_and_no_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """A per cent is in the table; the baseline is not compared with itself."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [1.0] * 3, BF16: [1.0] * 3})
    rewrite(tmp_path, FP32, 3, loss=np.full(params.steps, 2.0))
    rewrite(tmp_path, BF16, 3, loss=np.append(np.full(params.steps - 1, 1.9), 2.01))
    text = written(params, tmp_path)

    assert "| -5 % | 0.5 % |" in sure(text)
    assert "| baseline | baseline |" in sure(text)
    assert "its final loss is" not in text


def test_an_inconclusive_verdict_says_what_would_settle_it(raw: dict[str, Any], tmp_path: Path) -> None:
    """So many repeats as would, with this mean and scatter; where no number would, this is said."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [1.0] * 3, BF16: [1.0, 0.9, 0.95]})
    assert "3 pairs of trials; with this scatter about 9 repeats would settle it" in said(params, tmp_path)

    write_results(tmp_path / "results", params, {FP32: [1.0] * 3, BF16: [1.0, 3.0, 0.3]})
    assert "with this scatter not even 1000 repeats would settle it" in said(params, tmp_path)


def test_a_single_run_is_told_in_two_figures(raw: dict[str, Any], tmp_path: Path) -> None:
    """More would be a precision that one pair can't have."""
    params = given(raw, repeats=1)
    write_results(tmp_path / "results", params, {FP32: [256.71], BF16: [1.0], FP16: [3000.0]})

    assert "amp-bf16 ran 260 times as fast as fp32 in a single run, which is no evidence" in said(params, tmp_path)
    assert "amp-fp16 ran 0.086 times as fast as fp32 in a single run, which is no evidence" in said(params, tmp_path)


def test_every_report_says_what_it_could_have_seen(raw: dict[str, Any], tmp_path: Path) -> None:
    """The baseline against itself, where another run's speed-up should fall, and warm-up; of one repeat n/a and why."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0, 2.02, 2.0], BF16: [1.0, 1.0, 1.01]})
    text = sure(written(params, tmp_path))
    assert "| `fp32` | 3.53 % | baseline | 1.00 (0.990 to 1.01) | 1 step, 6.06 s |" in text
    assert "| `amp-bf16` | 3.53 % | 1.93 to 2.07 | 0.995 (0.990 to 1.00) | 1 step, 3.03 s |" in text

    single = given(raw, repeats=1)
    text = sure(written(single, tmp_path))
    assert "It takes two repeats to know either." in text
    assert "| `amp-bf16` | n/a | n/a | n/a | 1 step, 3.00 s |" in text


def test_a_trial_that_never_settles_is_a_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """Slow for half of its time: what is left out is shown, and the reader is warned."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [1.0] * 3, BF16: [1.0] * 3})
    seconds = np.repeat([2.6, 1.0], [params.steps - 40, 40]) * np.tile([1.0, 1.01], params.steps // 2)
    rewrite(tmp_path, BF16, 3, seconds=seconds)
    text = written(params, tmp_path)

    assert "- amp-bf16: the time of a step did not settle (trials: 3)" in text
    assert "- fp32: the time of a step" not in text
