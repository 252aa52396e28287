"""The report says what the results say: no more, and in valid tables."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ampcheck import evidence, report
from ampcheck.files import read_json, write_json
from ampcheck.findings import findings
from ampcheck.headline import headline
from ampcheck.schema import Params
from ampcheck.summary import summaries
from tests.helpers import ROOT, inference_result, rehearsal_result, resume_result, write_results

FP32, FP16, BF16 = "fp32", "amp-fp16", "amp-bf16"
MODES_OF_A_CPU = [FP32, "tf32", FP16, BF16]


def given(raw: dict[str, Any], repeats: int = 3) -> Params:
    """The committed parameters with so many repeats."""
    raw["train"]["repeats"] = list(range(repeats))
    return Params.model_validate(raw)


def written(params: Params, tmp_path: Path) -> str:
    """Render the report of tmp_path/results and return its text."""
    reports = tmp_path / "reports"
    reports.mkdir(exist_ok=True)
    (reports / "template.md.j2").write_text((ROOT / "reports/template.md.j2").read_text())
    report.write(params, tmp_path / "results", reports)
    return (reports / "report.md").read_text()


def said(params: Params, tmp_path: Path) -> str:
    """The headline's sentences."""
    read = evidence.read(params, tmp_path / "results")
    return " ".join(headline(read, summaries(read)))


def tables(text: str) -> list[list[str]]:
    """Each table of a Markdown text, as its lines."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [[line for line in block if line.startswith("|")] for block in blocks if block[0].startswith("|")]


def cells(line: str) -> int:
    """Count the cells of a table's row; an escaped pipe separates none."""
    return line.replace("\\|", "").count("|") - 1


def test_a_good_run_reads_well(raw: dict[str, Any], tmp_path: Path) -> None:
    """Speed-up with interval, memory apart from it, resume, and what did not run."""
    params = given(raw)
    seconds = {FP32: [2.0, 2.1, 2.0], FP16: [1.0, 1.0, 1.0], BF16: [0.99, 1.0, 1.01]}
    write_results(tmp_path / "results", params, seconds, peak_bytes={FP16: 2000})
    text = written(params, tmp_path)

    assert "amp-fp16 trains 2.03 times as fast as fp32 (95 % interval 1.90 to 2.18, 3 pairs of trials)" in text
    assert "its peak memory is 50 % less than that of fp32" in text
    assert "A stopped run resumes to the same bits in fp32, amp-fp16, amp-bf16." in text
    assert "- `tf32`: not here" in text
    assert findings(evidence.read(params, tmp_path / "results")) == []


def test_the_same_results_give_the_same_bytes(raw: dict[str, Any], tmp_path: Path) -> None:
    """Rendering twice changes nothing."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0, 2.1, 2.0], BF16: [1.0, 1.0, 1.0]})
    first = written(params, tmp_path)
    files = {path.name: path.read_bytes() for path in (tmp_path / "reports").iterdir() if path.is_file()}

    assert written(params, tmp_path) == first
    assert {path.name: path.read_bytes() for path in (tmp_path / "reports").iterdir() if path.is_file()} == files


def test_metrics_are_small_and_null_where_nothing_was_measured(raw: dict[str, Any], tmp_path: Path) -> None:
    """metrics.json is JSON without NaN; a mode that did not run has nulls, never zeros."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    written(params, tmp_path)
    metrics = json.loads((tmp_path / "reports/metrics.json").read_text(), parse_constant=pytest.fail)

    assert list(metrics) == MODES_OF_A_CPU
    assert metrics[BF16] == {"step_seconds": 1.0, "speedup": 2.0, "peak_bytes": 3000, "resume_bit_exact": True}
    assert metrics["tf32"] == dict.fromkeys(["step_seconds", "speedup", "peak_bytes", "resume_bit_exact"])
    assert metrics[FP32]["speedup"] is None


def test_the_recipes_published_times_give_its_ratio(raw: dict[str, Any], tmp_path: Path) -> None:
    """1.760 s against 0.833 s is 2.113 times as fast; below 1 is a slowdown, not an error."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [1.760] * 3, FP16: [0.833] * 3, BF16: [2.0] * 3})
    summed = summaries(evidence.read(params, tmp_path / "results"))

    assert round(summed[FP16].speedup or 0, 3) == 2.113
    assert summed[BF16].verdict == "slower"
    assert "amp-bf16 is slower than fp32: 0.880 times its speed" in said(params, tmp_path)


def test_time_and_memory_are_judged_apart(raw: dict[str, Any], tmp_path: Path) -> None:
    """Slower but smaller is said as both, not as a win."""
    params = given(raw)
    seconds = {FP32: [5.44, 5.5, 5.67], FP16: [9.06, 9.5, 9.93]}
    peaks = {FP32: 25_401_000, FP16: 15_701_000}
    data = dict.fromkeys(peaks, 1000)
    write_results(tmp_path / "results", params, seconds, peak_bytes=peaks, data_bytes=data)

    assert "amp-fp16 is slower than fp32: 0.583 times its speed" in said(params, tmp_path)
    assert "its peak memory is 38 % less than that of fp32" in said(params, tmp_path)


def test_a_single_repeat_is_no_evidence(raw: dict[str, Any], tmp_path: Path) -> None:
    """One pair has no interval, and the report says what to do."""
    params = given(raw, repeats=1)
    write_results(tmp_path / "results", params, {FP32: [2.0], BF16: [1.0]})
    text = written(params, tmp_path)

    assert "in a single run, which is no evidence: add repeats" in text
    assert "| 2.00 | single run |" in text


def test_where_no_amp_mode_can_be_trained_the_headline_says_so(raw: dict[str, Any], tmp_path: Path) -> None:
    """A default-precision run alone says nothing about mixed precision."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3})

    assert said(params, tmp_path).startswith("No mixed-precision mode could be trained here (amp-fp16: not here; amp")


def test_nothing_trained_is_a_report_as_well(raw: dict[str, Any], tmp_path: Path) -> None:
    """Without a baseline there is nothing to compare with, and nothing is made up."""
    params = given(raw)
    write_results(tmp_path / "results", params, {})
    text = written(params, tmp_path)

    assert "The baseline fp32 was not trained (not here): there is nothing to compare with." in text
    assert "nan" not in text.lower()
    assert (tmp_path / "reports/steps.csv").read_text() == "repeat,mode,step,seconds,loss\n"


def test_out_of_memory_is_a_finding(raw: dict[str, Any], tmp_path: Path) -> None:
    """A mode that could have been trained and was not is told with its reason, and verify fails."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    for repeat in params.train.repeats:
        path = tmp_path / "results/train" / str(repeat) / f"{BF16}.json"
        write_json(path, read_json(path) | {"trained": False, "why": "out of memory: 5 GiB", "digest": None})
    found = findings(evidence.read(params, tmp_path / "results"))

    assert found == ["amp-bf16: not trained: out of memory: 5 GiB"]
    assert "amp-bf16: not trained: out of memory: 5 GiB" in written(params, tmp_path)


def test_repeats_that_end_differently_are_not_reproducible(raw: dict[str, Any], tmp_path: Path) -> None:
    """One digest that differs is a finding, in the headline too."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    path = tmp_path / "results/train/1" / f"{BF16}.json"
    write_json(path, read_json(path) | {"digest": "another"})

    assert "amp-bf16: not reproducible" in findings(evidence.read(params, tmp_path / "results"))[0]
    assert "Not reproducible here: repeats of amp-bf16 ended with different bits." in said(params, tmp_path)


def test_a_broken_resume_names_leaf_loss_and_values(raw: dict[str, Any], tmp_path: Path) -> None:
    """The first leaf, the first loss and both its values stand in headline, findings and table."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    loss = {"step": 13, "straight": 0.5, "resumed": "nan"}
    broken = resume_result(FP16) | {"bit_exact": False, "differing": ["scaler/scale"], "first_different_loss": loss}
    write_json(tmp_path / "results/resume" / f"{FP16}.json", broken | {"controls": []})
    words = "1 leaves differ, first scaler/scale; first different loss at step 13: 0.5 straight, nan resumed"

    assert f"Resume is NOT bit-exact in amp-fp16: {words}." in said(params, tmp_path)
    [finding] = findings(evidence.read(params, tmp_path / "results"))
    assert finding.startswith(f"amp-fp16: resume is not bit-exact: {words}; look for state outside parameters")

    write_json(tmp_path / "results/resume" / f"{FP16}.json", broken | {"first_different_loss": loss | {"step": 0}})
    [finding, *_] = findings(evidence.read(params, tmp_path / "results"))
    assert "this is before the stop, so that no run repeats another" in finding
    assert "**NO**" in written(params, tmp_path)


def test_a_control_that_is_not_caught_is_a_finding(raw: dict[str, Any], tmp_path: Path) -> None:
    """A check that can't fail proves nothing."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    missed = {"part": "scaler", "caught": False, "by": []}
    write_json(tmp_path / "results/resume" / f"{FP16}.json", resume_result(FP16) | {"controls": [missed]})

    assert findings(evidence.read(params, tmp_path / "results")) == [
        "amp-fp16: a resume without its scaler was not caught"
    ]


def test_autocast_without_effect_is_a_finding(raw: dict[str, Any], tmp_path: Path) -> None:
    """A mode whose modules all gave float32 did not run in its type."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    silent = rehearsal_result(BF16) | {"dtypes": {"Linear": "float32"}}
    write_json(tmp_path / "results/rehearse" / f"{BF16}.json", silent)

    assert findings(evidence.read(params, tmp_path / "results")) == [
        "amp-bf16: autocast had no effect: no module's output is bfloat16"
    ]


@pytest.mark.parametrize("nasty", ["a|b", "<script>x</script>", "two\nlines", "`tick`", "**bold** [link](x)", ""])
def test_no_name_can_break_a_table(raw: dict[str, Any], tmp_path: Path, nasty: str) -> None:
    """Pipes, markup, line ends and backticks in any text leave every row with its header's cells."""
    raw["sizes"]["note"] = nasty
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    machine = read_json(tmp_path / "results/machine.json")
    write_json(tmp_path / "results/machine.json", machine | {"device_name": nasty, "gpus": [nasty]})
    result = resume_result(BF16) | {"bit_exact": None, "why": nasty}
    write_json(tmp_path / "results/resume" / f"{BF16}.json", result)
    text = written(params, tmp_path)

    assert "<script" not in re.sub(r"`[^`]*`", "", text)  # in a code span it is only shown
    for table in tables(text):
        assert {cells(line) for line in table} == {cells(table[0])}, table[0]


def test_a_missing_value_reads_na(raw: dict[str, Any], tmp_path: Path) -> None:
    """Never nan, never None, never an empty cell."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3}, peak_bytes={FP32: None})
    text = written(params, tmp_path)

    assert "| n/a | n/a |" in text
    assert "None" not in text
    assert "nan" not in text.lower()
    assert not [line for table in tables(text) for line in table if "||" in line.replace("\\|", "")]


def test_a_result_that_was_dropped_from_params_is_not_reported(raw: dict[str, Any], tmp_path: Path) -> None:
    """The report walks params.yaml: what an earlier run left behind does not count."""
    write_results(tmp_path / "results", given(raw), {FP32: [2.0] * 3, BF16: [1.0] * 3})
    raw["train"]["modes"] = [FP32, FP16]
    text = written(given(raw, repeats=2), tmp_path)

    assert "`amp-bf16`" not in text  # it is named as one to try, but has no row
    assert "2 repeats" in text


def test_the_headline_decides(raw: dict[str, Any], tmp_path: Path) -> None:
    """The fastest mode whose interval is beyond the band is to be used; where none is, the baseline."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3, BF16: [1.5] * 3})
    assert said(params, tmp_path).startswith("Use amp-fp16 here. amp-fp16 trains 2.00 times as fast as fp32")
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [3.0] * 3, FP16: [2.0] * 3})
    assert said(params, tmp_path).startswith("Stay with fp32 here: no mode was faster.")


def test_where_the_run_cannot_say_the_headline_tells_what_to_do(raw: dict[str, Any], tmp_path: Path) -> None:
    """An interval on both sides of the band settles nothing, and more repeats may."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0, 3.0, 2.0]})

    assert said(params, tmp_path).startswith("This run can't say whether amp-bf16 is faster than fp32: add repeats")


def test_a_fast_mode_without_a_safe_resume_is_not_recommended(raw: dict[str, Any], tmp_path: Path) -> None:
    """Speed is not all that is asked."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    broken = resume_result(BF16) | {"bit_exact": False, "differing": ["step"]}
    write_json(tmp_path / "results/resume" / f"{BF16}.json", broken)

    assert said(params, tmp_path).startswith("amp-bf16 is faster here, but what it computes did not repeat")


def test_doubts_are_told_in_plain_words(raw: dict[str, Any], tmp_path: Path) -> None:
    """Spread between repeats, a costly first step, work too small, and skipped steps, each with its figure."""
    params = given(raw)
    seconds = {FP32: [2e-4, 3e-4, 2e-4], FP16: [1.0] * 3}
    write_results(tmp_path / "results", params, seconds, skipped_steps={FP16: 1}, optimizer_steps={FP16: 19})
    text = written(params, tmp_path)

    assert "- fp32: steady steps differ by 50 % between repeats; free the machine or add repeats." in text
    assert "- amp-fp16: the first step took 60 % of the total;" in text
    assert "- amp-fp16: the scaler skipped 1 of 20 steps, as it does to find its scale." in text
    assert "A step takes less than 1 ms in fp32: the work is too small for this device" in text


@pytest.mark.parametrize(
    ("skipped", "steps", "words"),
    [
        (2, 4000, "2 of 4000 steps, which is normal: it tries a larger scale every 2000 steps."),
        (2, 3999, "2 of 3999 steps, as it does to find its scale."),
        (401, 4000, "401 of 4000 steps; the loss overflows in 16 bits."),
    ],
)
def test_one_skip_in_a_growth_interval_is_normal(
    raw: dict[str, Any], tmp_path: Path, skipped: int, steps: int, words: str
) -> None:
    """At the edge of float16 each growth of the scale ends in a skip; only many skips are a fault of the loss."""
    params = given(raw)
    counts = {"skipped_steps": {FP16: skipped}, "optimizer_steps": {FP16: steps - skipped}}
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3}, **counts)

    assert f"- amp-fp16: the scaler skipped {words}" in written(params, tmp_path)
    assert findings(evidence.read(params, tmp_path / "results")) == []


def test_a_quiet_run_has_no_doubts(raw: dict[str, Any], tmp_path: Path) -> None:
    """The section is absent where there is nothing to say."""
    params = given(raw)
    first: dict[str, Any] = {"first_step_seconds": {FP32: 0.1}, "step_seconds": {FP32: [0.1, 2.0, 2.0]}}
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3}, total_seconds={FP32: 4.1}, **first)

    assert "Be careful" not in written(params, tmp_path)


def test_a_resume_whose_control_was_missed_is_not_called_safe(raw: dict[str, Any], tmp_path: Path) -> None:
    """The headline promises nothing that the check could not have refused."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    missed = {"part": "scaler", "caught": False, "by": []}
    write_json(tmp_path / "results/resume" / f"{FP16}.json", resume_result(FP16) | {"controls": [missed]})

    assert "A stopped run resumes to the same bits in fp32." in said(params, tmp_path)
    assert "Nothing is known of resume in amp-fp16: a lost part of its state did not show." in said(params, tmp_path)


def test_a_mode_that_could_be_tried_is_named(raw: dict[str, Any], tmp_path: Path) -> None:
    """Where another mixed-precision mode runs here, the way out is to add it, not to buy a device."""
    raw["train"]["modes"] = [FP32, FP16]
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3})
    modes = read_json(tmp_path / "results/modes.json")
    write_json(tmp_path / "results/modes.json", modes | {BF16: {"available": True, "emulated": False, "why": ""}})

    assert "for this network: add amp-bf16 to train.modes." in said(params, tmp_path)


def test_the_dtypes_are_a_readable_list(raw: dict[str, Any], tmp_path: Path) -> None:
    """Kinds of modules are separated, and nothing is added."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3})

    kinds = rehearsal_result(FP32) | {"dtypes": {"Linear": "float32", "ReLU": "float32"}, "losses": ["float32"] * 2}
    write_json(tmp_path / "results/rehearse" / f"{FP32}.json", kinds)

    assert "| `fp32` | Linear: float32; ReLU: float32 | float32, float32 |" in written(params, tmp_path)


def test_modules_that_stayed_in_float32_are_named(raw: dict[str, Any], tmp_path: Path) -> None:
    """The report says which, and what keeps them there; of modes without such modules it says nothing."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    island = rehearsal_result(BF16) | {"stayed_float32": ["net.head", "net.tail"]}
    write_json(tmp_path / "results/rehearse" / f"{BF16}.json", island)
    text = written(params, tmp_path)

    assert "`amp-bf16`: net.head, net.tail gave float32, although autocast can run them in 16 bits" in text
    assert "`fp32`: " not in text.partition("## What ran in which type")[2].partition("##")[0]


def test_inference_has_a_table_of_its_own(raw: dict[str, Any], tmp_path: Path) -> None:
    """With its figures, n/a for what was not measured, and the reason where nothing was."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    write_json(tmp_path / "results/infer" / f"{FP32}.json", inference_result(FP32) | {"equal_argmax": None})
    text = written(params, tmp_path).partition("## Inference")[2].partition("##")[0]

    assert "| `fp32` | 2.00 ms | 4000 | 1.00 MiB | 0 B | 0.0200 | 0.00300 | n/a |" in text
    assert "| `amp-bf16` | 2.00 ms | 4000 | 1.00 MiB | 0 B | 0.0200 | 0.00300 | 99 % |" in text
    assert "| `tf32` | not measured: not here | | | | | | |" in text


def test_a_scheduler_that_waits_for_the_device_is_a_doubt(raw: dict[str, Any], tmp_path: Path) -> None:
    """Where only the device knows of a skip, the report says that the timed steps hold a wait of our making."""
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0] * 3, FP16: [1.0] * 3})
    write_json(tmp_path / "results/rehearse" / f"{FP16}.json", rehearsal_result(FP16) | {"waits": ["adamw"]})

    assert "- amp-fp16: a scheduler waits for the device at every step (of adamw)" in written(params, tmp_path)


def test_what_is_asked_for_beyond_the_recipe_is_told(raw: dict[str, Any], tmp_path: Path) -> None:
    """The options of the step, and what compiling took; of the plain recipe nothing is said."""
    write_results(tmp_path / "results", given(raw), {FP32: [2.0] * 3})
    assert "Asked for" not in written(given(raw), tmp_path)

    raw["train"] |= {
        "accumulate": 3,
        "clip_norm": 0.5,
        "optimizer": {"name": "AdamW"},
        "compile": True,
        "zero_grad": "zeros",
    }
    raw["data"]["num_batches"] = 2
    write_results(tmp_path / "results", given(raw), {FP32: [2.0] * 3}, compile_seconds={FP32: 7.0})
    text = written(given(raw), tmp_path)

    assert (
        "recipe: 2 batches a step; optimizer {name: AdamW}; gradients clipped to a norm of 0.5; torch.compile; " in text
    )
    assert "`fp32`: torch.compile made **no graph**: nothing was compiled, in a step before the first" in text


def test_the_steps_of_a_trial_are_those_that_it_takes(raw: dict[str, Any], tmp_path: Path) -> None:
    """Of accumulated batches a step each, the last one of an epoch those that are left."""
    raw["data"]["num_batches"], raw["train"]["epochs"] = 5, 2
    write_results(tmp_path / "results", given(raw), {FP32: [2.0] * 3})
    assert "\n10 steps a trial, " in written(given(raw), tmp_path)

    raw["train"]["accumulate"] = 2
    assert "\n6 steps a trial, " in written(given(raw), tmp_path)


def test_with_trials_only_nothing_is_said_of_the_rest(raw: dict[str, Any], tmp_path: Path) -> None:
    """Also where older results of all the rest lie about; the metrics have nulls for them."""
    raw["trials_only"] = True
    params = given(raw)
    write_results(tmp_path / "results", params, {FP32: [2.0, 2.1, 2.0], BF16: [1.0, 1.0, 1.0]})
    text = written(params, tmp_path)

    assert "amp-bf16 is the fastest here." in text
    assert "Only the trials were made (trials_only): nothing is known of resume" in text
    left_out = (
        "Why it is as fast",
        "Memory of tensors",
        "Resume",
        "Inference",
        "The numbers' health",
        "Where it breaks",
    )
    assert not any(f"## {section}" in text for section in left_out)
    assert "our timers cost" not in text
    assert read_json(tmp_path / "reports/metrics.json")[BF16]["resume_bit_exact"] is None
    assert findings(evidence.read(params, tmp_path / "results")) == []
