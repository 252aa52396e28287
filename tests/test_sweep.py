"""The sweep, and DVC's own views of it, with the installed DVC and its real queue."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ampcheck import experiments, sweep
from tests.helpers import copy_pipeline, edit_params, environment, run_in

SWEEP = [sys.executable, "-m", "ampcheck.sweep", "small", "odd", "huge"]
TINY = "workload: ampcheck.workloads.mlp:build, num_layers: 2, out_size: 12"
SIZES = f"""
small: {{{TINY}, batch_size: 8, in_size: 16}}
odd: {{{TINY}, batch_size: 9, in_size: 16}}
huge: {{{TINY}, batch_size: 8, in_size: 99999999999}}
"""


def dvc(project: Path, *arguments: str) -> str:
    """Run DVC, which must end well."""
    ended = run_in(project, "dvc", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project in git whose sweep was killed (SIGKILL) in its second size, and what it had printed."""
    project = copy_pipeline(tmp_path_factory.mktemp("sweep") / "project")
    edit_params(project, lambda raw: raw["train"].update(modes=["fp32"], repeats=[0]))
    (project / "sizes.yaml").write_text(SIZES)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        assert run_in(project, "git", *arguments).returncode == 0
    variables = environment() | {"PYTHONPATH": "src"}
    printed = ""
    with psutil.Popen(SWEEP, cwd=project, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        for line in running.stdout:
            printed += line.decode()
            if "[2/3] odd" in printed:
                break
        running.kill()
    return project, printed


@pytest.fixture(scope="module")
def again(killed: tuple[Path, str]) -> subprocess.CompletedProcess[str]:
    """The same command, given again."""
    project, printed = killed
    assert "[1/3] small" in printed, printed
    variables = environment() | {"PYTHONPATH": "src"}
    return subprocess.run(SWEEP, cwd=project, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(killed: tuple[Path, str], again: subprocess.CompletedProcess[str]) -> Path:
    """The project after both."""
    return killed[0]


@pytest.fixture(scope="module")
def names(done: Path) -> list[str]:
    """DVC's names of the two experiments that went well, the small size first."""
    listed = dvc(done, "exp", "list", "--name-only").split()
    return [next(name for name in listed if name.startswith(size)) for size in ("small", "odd")]


def test_only_what_is_missing_runs_again(again: subprocess.CompletedProcess[str]) -> None:
    """What was measured before the kill is kept, what was begun goes on; its progress is shown."""
    told = [line.partition(": ")[2] for line in again.stdout.splitlines() if line.startswith(("small", "odd"))]

    assert told[0] == "done"
    assert told[1] in ("running", "done")
    assert "[1/3]" not in again.stdout


def test_a_size_that_fails_is_named_and_the_rest_kept(done: Path, again: subprocess.CompletedProcess[str]) -> None:
    """With its stage's own words, also in the report; the exit code is not 0."""
    assert again.returncode == 1
    assert again.stderr.startswith("huge-")
    assert "Traceback" not in again.stderr
    assert "- `huge-" in (done / "reports/sweep.md").read_text()


def test_the_report_has_both_sizes_and_says_what_was_left_out(done: Path) -> None:
    """Trials only: nothing of resume, neither measured nor claimed."""
    text = (done / "reports/sweep.md").read_text()

    assert "times trials only: resume, drill, ceilings, numerics, memory of tensors and inference were left out" in text
    assert "| `sizes.batch_size` | 8 | 9 |" in text
    assert "| `fp32` | `batch_size` | 8 | 9 |" in text
    assert (done / "reports/sweep/batch_size-1.svg").exists()


def test_an_experiment_holds_what_it_measured_and_nulls_for_the_rest(done: Path, names: list[str]) -> None:
    """Results travel with it; no checkpoint is kept."""
    ref = run_in(done, "git", "for-each-ref", "--format=%(refname)", f"refs/exps/*/*/{names[0]}").stdout.strip()
    tree = run_in(done, "git", "ls-tree", "-r", "--name-only", ref).stdout.split()
    metrics = json.loads(run_in(done, "git", "show", f"{ref}:reports/metrics.json").stdout)

    assert {"results/train/0/fp32.json", "results/machine.json", "reports/summary.json"} <= set(tree)
    assert not [path for path in tree if path.startswith(("checkpoints", "data", "results/resume"))]
    assert metrics["fp32"]["step_seconds"] > 0
    assert metrics["fp32"]["resume_bit_exact"] is None


def test_a_sweep_leaves_the_workspace_and_equal_data_once(done: Path) -> None:
    """params.yaml is as it was, copies are gone, and DVC's cache holds a data set for each batch size."""
    copies = [path.name for path in (done / ".dvc/tmp/exps").iterdir() if path.name.startswith("tmp")]
    cached = [path for path in (done / ".dvc/cache/files").rglob("*") if path.is_file()]

    assert run_in(done, "git", "status", "--porcelain", "params.yaml").stdout == ""
    assert copies == []
    assert len(cached) == 2


def test_differences_of_two_sizes_are_the_numbers_that_differ(done: Path, names: list[str]) -> None:
    """Of parameters exactly one; of metrics those measured; both also in one view."""
    parameters = json.loads(dvc(done, "params", "diff", "--json", *names))
    metrics = json.loads(dvc(done, "metrics", "diff", "--json", *names))
    both = json.loads(dvc(done, "exp", "diff", "--json", *names))

    assert parameters == {"params.yaml": {"sizes.batch_size": {"old": 8, "new": 9, "diff": 1}}}
    assert set(metrics["reports/metrics.json"]) == {"fp32.step_seconds", "fp32.peak_bytes"}
    assert both["params"] == parameters


def test_a_revision_without_metrics_is_an_empty_side(done: Path, names: list[str]) -> None:
    """The commit before anything was measured: no error, and nothing made up."""
    metrics = json.loads(dvc(done, "metrics", "diff", "--json", "HEAD", names[0]))
    step = metrics["reports/metrics.json"]["fp32.step_seconds"]

    assert step.get("old") is None
    assert step["new"] > 0
    assert "fp32.step_seconds" in dvc(done, "metrics", "diff", "--md", "HEAD", names[0])


def test_plots_of_two_sizes_are_one_page(done: Path, names: list[str]) -> None:
    """Also beside a revision that has none."""
    dvc(done, "plots", "diff", "HEAD", *names, "--out", "page")
    page = (done / "page/index.html").read_text()

    assert all(name in page for name in names)


def test_a_shallow_clone_gets_an_answer(done: Path, tmp_path: Path) -> None:
    """Its earlier commits are not there: DVC names the revision that it lacks, in a line."""
    shallow = tmp_path / "shallow"
    assert run_in(tmp_path, "git", "clone", "-q", "--depth", "1", f"file://{done}", "shallow").returncode == 0
    ended = run_in(shallow, "dvc", "metrics", "diff", "HEAD~1")

    assert ended.returncode != 0
    assert "HEAD~1" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(dvc(shallow, "metrics", "diff", "--json", "HEAD")) == {}


def test_another_command_makes_a_stage_run_again(done: Path, names: list[str], tmp_path: Path) -> None:
    """An experiment that is applied is up to date; a changed command, or parameter, is not."""
    project = tmp_path / "project"
    shutil.copytree(done, project)
    dvc(project, "exp", "apply", names[0])
    before = json.loads(dvc(project, "status", "--json", "train@0"))
    pipeline = (project / "dvc.yaml").read_text()
    (project / "dvc.yaml").write_text(
        pipeline.replace("exec python -m stages.train ", "exec python -u -m stages.train ")
    )
    after = json.loads(dvc(project, "status", "--json", "train@0"))

    assert before == {}
    assert after == {"train@0": ["changed command"]}


def test_a_worker_that_can_not_start_is_told_within_its_time(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `dvc` on PATH is broken: the size stays queued, and the sweep says so instead of waiting."""
    broken = tmp_path / "dvc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for key, value in (environment() | {"PATH": f"{tmp_path}{os.pathsep}{environment()['PATH']}"}).items():
        monkeypatch.setenv(key, value)
    project = tmp_path / "project"
    shutil.copytree(done, project, ignore=shutil.ignore_patterns("tmp"))
    monkeypatch.chdir(project)
    monkeypatch.setattr(sweep, "START_SECONDS", 2)
    with pytest.raises(ValueError, match=r"^DVC's worker did not begin batch_size-10-\w+ within 2 s; "):
        sweep.sweep(["sizes.batch_size=10"])

    assert [each.state for each in experiments.experiments().values() if "batch_size-10" in each.name] == ["queued"]


def test_a_workload_that_git_does_not_track_is_refused(
    done: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would not be in the folder where the experiment runs; the way out is named."""
    monkeypatch.chdir(done)
    Path("mine.py").write_text("")
    try:
        with pytest.raises(ValueError, match=r"^mine.py: git doesn't track it, .*; git add mine.py$"):
            sweep.sweep(["workload=mine:build"])
    finally:
        Path("mine.py").unlink()
