"""The sweep, and DVC's own views of it, with the installed DVC and its real queue."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ampcheck import experiments, sweep
from ampcheck.files import read_json
from tests.helpers import copy_pipeline, edit_params, environment, run_in

SWEEP = ["python", "-m", "ampcheck.sweep"]
FIRST, SECOND = "batch_size-8", "batch_size-9"


def dvc(project: Path, *arguments: str) -> str:
    """Run DVC, which must end well."""
    ended = run_in(project, "dvc", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project in git whose sweep of two sizes was killed (SIGKILL) in the second, and what it printed."""
    project = copy_pipeline(tmp_path_factory.mktemp("sweep") / "project")
    edit_params(project, lambda raw: raw["train"].update(modes=["fp32"]))
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        assert run_in(project, "git", *arguments).returncode == 0
    variables = environment() | {"PYTHONPATH": "src"}
    command = [sys.executable, *SWEEP[1:], "-S", "sizes.batch_size=8,9"]
    with psutil.Popen(command, cwd=project, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        printed = ""
        for line in running.stdout:
            printed += line.decode()
            if f"[2/2] {SECOND}" in printed:
                break
        running.kill()
    return project, printed


@pytest.fixture(scope="module")
def done(killed: tuple[Path, str]) -> tuple[Path, str]:
    """The same after the same command was given again, and what that printed."""
    project, printed = killed
    assert f"[1/2] {FIRST}" in printed, printed
    variables = environment() | {"PYTHONPATH": "src"}
    command = [sys.executable, *SWEEP[1:], "-S", "sizes.batch_size=8,9"]
    ended = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return project, ended.stdout


@pytest.fixture(scope="module")
def names(done: tuple[Path, str]) -> list[str]:
    """DVC's names of the two experiments."""
    found = json.loads(dvc(done[0], "exp", "list", "--json", "--name-only"))
    return sorted(each["name"] for of_commit in found.values() for each in of_commit)


def test_only_what_is_missing_runs_again(done: tuple[Path, str]) -> None:
    """What was measured before the kill is kept; its progress was shown."""
    first, second = (line for line in done[1].splitlines() if line.startswith(("batch_size-8", "batch_size-9")))

    assert first.endswith(": done")
    assert second.endswith((": running", ": done"))
    assert f"[1/2] {FIRST}" not in done[1]


def test_the_report_has_both_sizes_and_says_what_was_left_out(done: tuple[Path, str]) -> None:
    """Trials only: nothing of resume, neither measured nor claimed."""
    text = (done[0] / "reports/sweep.md").read_text()

    assert "times trials only: resume, drill, limits and inference were left out" in text
    assert "| `sizes.batch_size` | 8 | 9 |" in text
    assert "| `fp32` | `batch_size` | 8 | 9 |" in text
    assert (done[0] / "reports/sweep/batch_size-1.svg").exists()


def test_an_experiment_holds_what_it_measured_and_nulls_for_the_rest(done: tuple[Path, str], names: list[str]) -> None:
    """Results travel with it; no checkpoint is kept."""
    project, _ = done
    held = run_in(project, "git", "ls-tree", "-r", "--name-only", names[0]).stdout
    ref = run_in(project, "git", "for-each-ref", "--format=%(refname)", "refs/exps/*/*/" + names[0]).stdout.strip()
    tree = run_in(project, "git", "ls-tree", "-r", "--name-only", ref).stdout.split()
    metrics = json.loads(run_in(project, "git", "show", f"{ref}:reports/metrics.json").stdout)

    assert held == ""
    assert {"results/train/0/fp32.json", "results/machine.json", "reports/summary.json"} <= set(tree)
    assert not [path for path in tree if path.startswith(("checkpoints", "data", "results/resume"))]
    assert metrics["fp32"]["step_seconds"] > 0
    assert metrics["fp32"]["resume_bit_exact"] is None


def test_a_sweep_leaves_the_workspace_and_equal_data_once(done: tuple[Path, str]) -> None:
    """params.yaml is as it was, copies are gone, and DVC's cache holds a data set for each batch size."""
    project, _ = done
    copies = [path.name for path in (project / ".dvc/tmp/exps").iterdir() if path.name.startswith("tmp")]
    cached = [path for path in (project / ".dvc/cache/files").rglob("*") if path.is_file()]

    assert run_in(project, "git", "status", "--porcelain", "params.yaml").stdout == ""
    assert copies == []
    assert len(cached) == 2


def test_differences_of_two_sizes_are_the_numbers_that_differ(done: tuple[Path, str], names: list[str]) -> None:
    """Of parameters exactly one; of metrics those measured; both also in one view."""
    project, _ = done
    parameters = json.loads(dvc(project, "params", "diff", "--json", *names))
    metrics = json.loads(dvc(project, "metrics", "diff", "--json", *names))["diff"]
    both = json.loads(dvc(project, "exp", "diff", "--json", *names))

    assert parameters == {"params.yaml": {"sizes.batch_size": {"old": 8, "new": 9, "diff": 1}}}
    assert set(metrics["reports/metrics.json"]) == {"fp32.step_seconds", "fp32.peak_bytes"}
    assert both["params"] == parameters


def test_a_revision_without_metrics_is_an_empty_side(done: tuple[Path, str], names: list[str]) -> None:
    """The commit before anything was measured: no error, and nothing made up."""
    project, _ = done
    metrics = json.loads(dvc(project, "metrics", "diff", "--json", "HEAD", names[0]))["diff"]
    step = metrics["reports/metrics.json"]["fp32.step_seconds"]

    assert step.get("old") is None
    assert step["new"] > 0
    assert "fp32.step_seconds" in dvc(project, "metrics", "diff", "--md", "HEAD", names[0])


def test_plots_of_two_sizes_are_one_page(done: tuple[Path, str], names: list[str]) -> None:
    """Also beside a revision that has none."""
    project, _ = done
    dvc(project, "plots", "diff", "HEAD", *names, "--out", "page")
    page = (project / "page/index.html").read_text()

    assert all(name in page for name in names)


def test_a_size_that_fails_is_named_and_the_rest_kept(done: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stage's own words are in the report, and the exit code is not 0."""
    project, _ = done
    variables = environment() | {"PYTHONPATH": "src"}
    command = [sys.executable, *SWEEP[1:], "sizes.batch_size=8", "sizes.in_size=16,99999999999"]
    ended = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "in_size-99999999999" in ended.stderr
    assert "- `batch_size-8-in_size-99999999999" in (project / "reports/sweep.md").read_text()


def test_a_worker_that_can_not_start_is_told_within_its_time(
    killed: tuple[Path, str], done: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `dvc` on PATH is broken: the size stays queued, and the sweep says so instead of waiting."""
    broken = tmp_path / "dvc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for key, value in (environment() | {"PATH": f"{tmp_path}{os.pathsep}{environment()['PATH']}"}).items():
        monkeypatch.setenv(key, value)
    project = tmp_path / "project"
    shutil.copytree(done[0], project, ignore=shutil.ignore_patterns("tmp"))
    monkeypatch.chdir(project)
    monkeypatch.setattr(sweep, "START_SECONDS", 2)
    with pytest.raises(ValueError, match=r"^DVC's worker did not begin batch_size-10-\w+ within 2 s; "):
        sweep.sweep(["sizes.batch_size=10"])

    assert [each.state for each in experiments.experiments().values() if "batch_size-10" in each.name] == ["queued"]


def test_a_workload_that_git_does_not_track_is_refused(
    done: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would not be in the folder where the experiment runs; the way out is named."""
    monkeypatch.chdir(done[0])
    Path("mine.py").write_text("")
    try:
        with pytest.raises(ValueError, match=r"^mine.py: git doesn't track it, .*; git add mine.py$"):
            sweep.sweep(["workload=mine:build"])
    finally:
        Path("mine.py").unlink()


def test_keys_that_no_stage_tracks_are_no_difference(done: tuple[Path, str]) -> None:
    """A sizes.yaml entry is no parameter: params diff shows what stages read."""
    project, _ = done
    with (project / "sizes.yaml").open("a") as file:
        file.write("another:\n  workload: a:b\n  batch_size: 1\n")
    diff: dict[str, Any] = json.loads(dvc(project, "params", "diff", "--json"))

    assert diff == {}
    assert read_json(project / "results/machine.json")["device"] == "cpu"
