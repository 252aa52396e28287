"""The claims of the README, with real DVC and real processes."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ampcheck import params
from tests.helpers import TINY_SIZES, copy_pipeline, edit_params, environment, run_in
from tests.second_path import agrees

SKIPPED = "didn't change, skipping"
TRIAL_KEYS = {"trained", "why", "steps", "total_seconds", "first_step_seconds", "peak_bytes", "memory", "data_bytes"}
TRIAL_KEYS |= {"clock", "final_loss", "optimizer_steps", "skipped_steps", "scaler", "digest"}


def git(project: Path, *arguments: str) -> str:
    """Run git in `project`."""
    ended = run_in(project, "git", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def repro(project: Path, *arguments: str) -> list[str]:
    """Run `dvc repro`, which must end well, and return the stages that were run."""
    ended = run_in(project, "dvc", "repro", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return stages_run(ended.stdout)


def stages_run(output: str) -> list[str]:
    """Read from DVC's output which stages were run."""
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in git whose pipeline has run once."""
    project = copy_pipeline(tmp_path_factory.mktemp("pipeline") / "project")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "start")
    repro(project)
    return project


def copied(done: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that has run, to be changed."""
    shutil.copytree(done, tmp_path / "project")
    return tmp_path / "project"


def test_one_command_makes_the_report_and_all_that_others_read(done: Path) -> None:
    """Every file of the contract is there, with its keys, as JSON without NaN."""
    metrics = json.loads((done / "reports/metrics.json").read_text(), parse_constant=pytest.fail)
    trial = json.loads((done / "results/train/0/fp32.json").read_text(), parse_constant=pytest.fail)
    header, *rows = (done / "results/train/0/fp32.csv").read_text().splitlines()

    assert (done / "reports/report.md").read_text().startswith("# ")
    assert metrics["fp32"]["step_seconds"] > 0
    assert metrics["fp32"]["resume_bit_exact"] is True
    assert set(trial) >= TRIAL_KEYS
    assert (header, len(rows)) == ("step,seconds,loss", 8)
    assert (done / "reports/steps.csv").read_text().startswith("repeat,mode,step,seconds,loss\n")


def test_the_reports_figures_follow_from_the_raw_files_by_a_second_path(done: Path) -> None:
    """Of a real run, in every mode that was trained."""
    train = params.load(done / "params.yaml").train

    agrees(done, train.modes, train.repeats, batch_size=TINY_SIZES["batch_size"])


def test_a_mode_that_did_not_run_is_not_reported_as_if_it_had(done: Path) -> None:
    """On a CPU TF32 is not trained: no CSV, nulls in the metrics, the reason in the report."""
    trial = json.loads((done / "results/train/0/tf32.json").read_text())

    assert trial["trained"] is False
    assert not (done / "results/train/0/tf32.csv").exists()
    assert "- `tf32`: TF32 needs a CUDA device" in (done / "reports/report.md").read_text()


def test_resume_is_checked_in_every_available_mode_and_a_lost_scaler_is_caught(done: Path) -> None:
    """Also in float16, which a CPU may only emulate; the saved scale is no default."""
    results = {mode: json.loads((done / f"results/resume/{mode}.json").read_text()) for mode in ("fp32", "amp-fp16")}

    assert [result["bit_exact"] for result in results.values()] == [True, True]
    assert results["amp-fp16"]["controls"][0]["caught"] is True
    assert results["amp-fp16"]["scaler_at_stop"]["scale"] != 65536.0
    assert results["amp-fp16"]["overflow_at"] == [1, 5]
    assert results["fp32"]["controls"] == []


def test_repeats_of_one_mode_end_with_one_digest(done: Path) -> None:
    """The same data, seeds and threads give the same bits."""
    digests = [json.loads((done / f"results/train/{repeat}/fp32.json").read_text())["digest"] for repeat in (0, 1)]

    assert digests[0] == digests[1]


def test_git_ignores_data_and_checkpoints_only(done: Path) -> None:
    """Results, reports and dvc.lock are for users to commit."""
    status = git(done, "status", "--porcelain", "--untracked-files=all")

    assert "?? results/machine.json" in status
    assert "?? reports/report.md" in status
    assert "data/" not in status
    assert "checkpoints/" not in status


def test_each_change_runs_what_depends_on_it_and_no_more(done: Path, tmp_path: Path) -> None:
    """Nothing, a new repeat, a word of the template and a comment, a size, and back: then only the data returns."""
    project = copied(done, tmp_path)
    measured = (project / "results/train/0/fp32.csv").read_text()
    assert repro(project) == ["environment"]

    edit_params(project, lambda raw: raw["train"].update(repeats=[0, 1, 2]))
    assert repro(project) == ["environment", "train@2", "diagnose", "report", "verify"]
    assert (project / "results/train/0/fp32.csv").read_text() == measured

    for name in ("reports/template.md.j2", "src/ampcheck/report.py"):
        with (project / name).open("a") as file:
            file.write("{# a remark #}\n" if name.endswith("j2") else "# a remark\n")
    assert [stage for stage in repro(project) if stage != "verify"] == ["environment", "report"]

    edit_params(project, lambda raw: raw["sizes"].update(in_size=20))
    changed = ["environment", "data", "rehearse", "memory", "train@0", "train@1", "train@2", "ceilings", "numerics"]
    changed += ["diagnose", "infer", "resume", "report"]
    assert repro(project, "--dry") == changed  # verify follows once its inputs are others
    assert repro(project, "train@0") == ["environment", "data", "rehearse", "train@0"]

    edit_params(project, lambda raw: raw["sizes"].update(in_size=16))
    assert repro(project, "train@0") == ["environment", "rehearse", "train@0"]
    assert (project / "results/train/0/fp32.csv").read_text() != measured


def test_params_diff_shows_the_numbers_that_differ_and_nothing_else(done: Path, tmp_path: Path) -> None:
    """One row for each, with both values; a list is shown whole."""
    project = copied(done, tmp_path)
    edit_params(project, lambda raw: raw["sizes"].update(in_size=20, out_size=20))
    edit_params(project, lambda raw: raw["train"].update(repeats=[0, 1, 5]))
    diff = json.loads(run_in(project, "dvc", "params", "diff", "--json").stdout)

    assert diff == {
        "params.yaml": {
            "sizes.in_size": {"old": 16, "new": 20, "diff": 4},
            "sizes.out_size": {"old": 12, "new": 20, "diff": 8},
            "train.repeats": {"old": "[0, 1]", "new": "[0, 1, 5]"},
        }
    }


def test_another_command_makes_a_stage_run_again(done: Path, tmp_path: Path) -> None:
    """Nothing else of the stage has changed."""
    project = copied(done, tmp_path)
    pipeline = (project / "dvc.yaml").read_text()
    other = pipeline.replace("exec python -m stages.train ", "exec python -u -m stages.train ")
    (project / "dvc.yaml").write_text(other)

    assert other != pipeline
    assert json.loads(run_in(project, "dvc", "status", "--json", "train@0").stdout) == {"train@0": ["changed command"]}


def test_a_planted_difference_ends_in_a_complete_report_and_a_failure(done: Path, tmp_path: Path) -> None:
    """Checkpoint code that loses the growth tracker is found: leaf and loss are named, verify and `dvc repro` fail."""
    project = copied(done, tmp_path)
    path = project / "src/ampcheck/state.py"
    whole = path.read_text()
    lossy = 'run.scaler.load_state_dict(state | {"_growth_tracker": 0} if state else state)'
    path.write_text(whole.replace("run.scaler.load_state_dict(state)", lossy))
    assert path.read_text() != whole
    ended = run_in(project, "dvc", "repro", "--single-item", "resume", "drill", "report", "verify")
    report = (project / "reports/report.md").read_text()
    differing = json.loads((project / "results/resume/amp-fp16.json").read_text())["differing"]

    assert ended.returncode != 0
    assert "scaler/scale" in differing
    assert "verify: amp-fp16: resume is not bit-exact:" in ended.stderr
    assert "verify: drill, amp-fp16: 9 of 16 stops are not bit-exact, first stop 1: 1 leaves differ" in ended.stderr
    assert "Resume is NOT bit-exact in amp-fp16" in report
    assert f"first {differing[0]}; first different loss at step" in report
    assert "| **NO** |" in report
    assert "Make it again" in report
    assert "Traceback" not in ended.stderr


def test_sigkill_leaves_no_process_and_the_next_run_is_whole(project: Path) -> None:
    """`dvc repro` is killed while a trial runs: stage and child end with it, and nothing half-written counts."""
    edit_params(project, lambda raw: raw["train"].update(epochs=100_000, repeats=[0], modes=["fp32"]))
    run_in(project, "dvc", "config", "--local", "core.no_scm", "true")
    log = project / "dvc.log"
    with log.open("w") as output:
        dvc = psutil.Popen(["dvc", "repro"], cwd=project, env=environment(), stdout=output, stderr=output)
    family = trial_of(dvc, log)
    dvc.kill()
    dvc.wait()
    gone, alive = psutil.wait_procs(family, timeout=30)

    assert (set(gone), alive) == (set(family), [])
    assert not (project / "results/train/0").exists()
    edit_params(project, lambda raw: raw["train"].update(epochs=2))
    assert repro(project, "train@0")[-1] == "train@0"
    assert (project / "results/train/0/fp32.csv").exists()
    assert list(project.rglob("*.partial")) == []


def trial_of(dvc: psutil.Popen, log: Path) -> list[psutil.Process]:
    """Return the train stage and its child, as soon as both run."""
    while True:
        assert dvc.poll() is None, log.read_text()
        with suppress(psutil.NoSuchProcess):  # a stage before it that ended just now
            for stage in dvc.children():
                children = stage.children()
                if children and "stages.train" in stage.cmdline():
                    return [stage, *children]


def test_a_stage_that_is_run_by_hand_needs_the_stages_before_it(project: Path) -> None:
    """What is missing is named with the way out."""
    ended = run_in(project, "python", "-m", "stages.report")

    assert ended.returncode == 1
    assert ended.stderr == "results/train/0/fp32.json: missing; `dvc repro` makes it\n"
