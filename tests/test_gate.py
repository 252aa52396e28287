"""The gate: what it lets pass, what it stops, and what it can't compare."""

import random
from pathlib import Path
from typing import Any

import pytest

from ampcheck import evidence, gate, params
from ampcheck.files import read_json, write_json
from ampcheck.independent import compare, independent_ratio
from ampcheck.schema import Params
from tests.helpers import edit_params, resume_result, run_in, write_results

FP32, FP16 = "fp32", "amp-fp16"
THEN = {FP32: [1.0, 1.02, 0.98], FP16: [0.5, 0.51, 0.49]}


@pytest.fixture
def given(raw: dict[str, Any]) -> Params:
    """Two modes and three repeats."""
    raw["train"]["modes"] = [FP32, FP16]
    return Params.model_validate(raw)


def measured(folder: Path, given: Params, factor: float = 1.0, **changed: Any) -> evidence.Evidence:
    """Evidence whose steps take `factor` times those of THEN."""
    write_results(folder, given, {mode: [factor * each for each in steps] for mode, steps in THEN.items()}, **changed)
    return evidence.read(given, folder)


def verdict(then: evidence.Evidence, now: evidence.Evidence) -> list[str]:
    """What the gate finds worse."""
    compared = [each for mode in gate.trained(then) for each in compare(mode, then, now)]
    return list(gate.worse(compared, then, now, tolerance=0.1))


def test_the_same_passes_and_a_fifth_more_time_does_not(given: Params, tmp_path: Path) -> None:
    """What is slower in every mode leaves the speed-up as it was: the step's time tells."""
    then = measured(tmp_path / "then", given)

    assert verdict(then, measured(tmp_path / "same", given)) == []
    assert verdict(then, measured(tmp_path / "faster", given, 0.5)) == []
    found = verdict(then, measured(tmp_path / "slower", given, 1.2))
    assert [line.partition(" is ")[0] for line in found] == ["fp32: steady step time", "amp-fp16: steady step time"]
    assert "1.2 times what it was (95 % interval 1.15 to 1.26): the whole interval is beyond the tolerance" in found[0]


def test_an_interval_that_reaches_into_the_tolerance_passes(given: Params, tmp_path: Path) -> None:
    """Only a whole interval beyond it is a failure."""
    then = measured(tmp_path / "then", given)

    assert verdict(then, measured(tmp_path / "now", given, 1.12)) == []


def test_of_many_runs_few_raise_a_false_alarm_and_most_slower_ones_are_caught() -> None:
    """Three repeats that scatter by 3 per cent: of 400 gates, with the same code and with steps a fifth longer."""
    dice = random.Random(0)

    def run(factor: float) -> list[float]:
        return [factor * dice.lognormvariate(0, 0.03) for _ in range(3)]

    alarms = {
        factor: sum((independent_ratio(run(factor), run(1.0)).low or 0) > 1.1 for _ in range(400))
        for factor in (1.0, 1.2)
    }

    assert alarms[1.0] <= 4
    assert alarms[1.2] >= 240


def test_more_memory_fails_and_time_is_judged_apart(given: Params, tmp_path: Path) -> None:
    """Peaks of a CUDA device do not scatter: an interval without width is one."""
    then, now = measured(tmp_path / "then", given), measured(tmp_path / "now", given, peak_bytes={FP16: 4000})
    [found] = verdict(then, now)

    assert found.startswith("amp-fp16: peak memory less the data is 1.5 times what it was")


def test_a_mode_that_loses_its_speed_up_fails(given: Params, tmp_path: Path) -> None:
    """Also where the whole machine got faster."""
    then = measured(tmp_path / "then", given)
    write_results(tmp_path / "now", given, {FP32: [0.5, 0.51, 0.49], FP16: [0.5, 0.51, 0.49]})
    [found] = verdict(then, evidence.read(given, tmp_path / "now"))

    assert found.startswith("amp-fp16: slowness beside the baseline is 2")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"bit_exact": False, "differing": ["rng"]},
            "resume is no longer bit-exact; first rng differs",
        ),
        ({"scaler_at_stop": {}, "controls": []}, "it had a scaler, and has none"),
        ({"controls": [{"part": "scaler", "caught": False}]}, "a resume without its scaler is not caught"),
    ],
)
def test_a_lost_scaler_fails(given: Params, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    """Dropped from the checkpoint, from the mode, or from what the check sees."""
    then, now = measured(tmp_path / "then", given), tmp_path / "now"
    measured(now, given)
    write_json(now / "resume" / f"{FP16}.json", resume_result(FP16) | changed)

    assert verdict(then, evidence.read(given, now)) == [f"amp-fp16: {said}"]


def test_other_machines_sizes_and_single_runs_are_not_compared(
    given: Params, raw: dict[str, Any], tmp_path: Path
) -> None:
    """Each reason is named; another number of repeats is none."""
    then = measured(tmp_path / "then", given)
    raw["train"]["repeats"] = [0, 1]
    more = Params.model_validate(raw)
    raw["train"]["repeats"], raw["sizes"]["batch_size"] = [0], 64
    other = Params.model_validate(raw)
    measured(tmp_path / "other", other)
    write_json(tmp_path / "other/machine.json", then.machine | {"cpu": "another"})

    assert list(gate.incomparable(then, measured(tmp_path / "more", more))) == []
    assert list(gate.incomparable(then, evidence.read(other, tmp_path / "other"))) == [
        "the machine's cpu was 'test' and is 'another'",
        "the parameter sizes.batch_size was 512 and is 64",
        "fp32: 1 trained trial now; an interval needs 2",
        "amp-fp16: 1 trained trial now; an interval needs 2",
    ]


def test_the_exit_codes(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """0, 1 and 2, against what git holds."""
    edit_params(project, lambda raw: raw["train"].update(modes=[FP32, FP16], repeats=[0, 1, 2]))
    monkeypatch.chdir(project)
    given = params.load()
    run_in(project, "git", "init", "-q")
    run_in(project, "git", "add", "params.yaml")
    run_in(project, "git", "commit", "-qm", "no results")
    measured(Path("results"), given)
    run_in(project, "git", "add", "results")
    run_in(project, "git", "commit", "-qm", "results")

    assert gate.gate("HEAD", 0.1) == 0
    assert "no worse than HEAD beyond the tolerance of 10 %" in capsys.readouterr().out
    measured(Path("results"), given, 1.2)
    assert gate.gate("HEAD", 0.1) == 1
    assert gate.gate("HEAD", 0.3) == 0
    write_json(Path("results/machine.json"), read_json(Path("results/machine.json")) | {"cpu": "another"})
    assert gate.gate("HEAD", 0.1) == 2
    capsys.readouterr()
    assert gate.gate("HEAD~", 0.1) == 2
    assert capsys.readouterr().out == (
        "not comparable: HEAD~ holds no results; commit results/ and reports/ after a `dvc repro` there\n"
    )
    assert gate.gate("nowhere", 0.1) == 2
