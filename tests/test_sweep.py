"""The sweep, and DVC's own views of it, with the installed DVC and its real queue."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ampcheck import sweep
from tests.helpers import copy_pipeline, edit_params, environment, run_in

VARIABLES = environment() | {"PYTHONPATH": "src"}
SWEEP = [sys.executable, "-m", "ampcheck.sweep", "small", "huge"]
TINY = "workload: ampcheck.workloads.mlp:build, num_layers: 2, out_size: 12"
SIZES = f"""
small: {{{TINY}, batch_size: 8, in_size: 16}}
huge: {{{TINY}, batch_size: 8, in_size: 99999999999}}
"""


def dvc(project: Path, *arguments: str) -> str:
    """Run DVC, which must end well."""
    ended = run_in(project, "dvc", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A project in git whose sweep was given while `dvc` on PATH was broken, and what it said."""
    folder = tmp_path_factory.mktemp("sweep")
    project = copy_pipeline(folder / "project")
    edit_params(project, lambda raw: raw["train"].update(modes=["fp32"], repeats=[0]))
    (project / "sizes.yaml").write_text(SIZES)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        assert run_in(project, "git", *arguments).returncode == 0
    (folder / "dvc").write_text("#!/bin/sh\nexit 1\n")
    (folder / "dvc").chmod(0o755)
    broken = {"PATH": f"{folder}{os.pathsep}{VARIABLES['PATH']}"}
    impatient = f"from ampcheck import sweep; sweep.START_SECONDS = 0.1; sweep.sweep({SWEEP[3:]})"
    command = [sys.executable, "-c", impatient]
    return project, subprocess.run(
        command, cwd=project, env=VARIABLES | broken, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def killed(begun: tuple[Path, subprocess.CompletedProcess[str]]) -> tuple[Path, str]:
    """The project after a sweep that was killed (SIGKILL) in its second size, and what it had printed."""
    project, printed = begun[0], ""
    with psutil.Popen(SWEEP, cwd=project, env=VARIABLES, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        for line in running.stdout:
            printed += line.decode()
            if "[2/2] huge" in printed:
                break
        running.kill()
    return project, printed


@pytest.fixture(scope="module")
def again(killed: tuple[Path, str]) -> subprocess.CompletedProcess[str]:
    """The same command, given again."""
    project, printed = killed
    assert "[1/2] small" in printed, printed
    return subprocess.run(SWEEP, cwd=project, env=VARIABLES, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(killed: tuple[Path, str], again: subprocess.CompletedProcess[str]) -> Path:
    """The project after both."""
    return killed[0]


@pytest.fixture(scope="module")
def name(done: Path) -> str:
    """DVC's name of the experiment that went well."""
    refs = run_in(done, "git", "for-each-ref", "--format=%(refname)", "refs/exps").stdout.split()
    return next(ref.rpartition("/")[2] for ref in refs if "/small-" in ref)


def test_a_worker_that_can_not_start_is_told_within_its_time(
    begun: tuple[Path, subprocess.CompletedProcess[str]], killed: tuple[Path, str]
) -> None:
    """The sweep says so instead of waiting; the sizes stay queued, and the same command runs them."""
    told = begun[1].stderr.splitlines()[-1]

    assert re.match(r"ValueError: DVC's worker did not begin small-\w+ within 0.1 s; ", told)
    assert [line.partition(": ")[2] for line in killed[1].splitlines()[:2]] == ["queued"] * 2


def test_only_what_is_missing_runs_again(again: subprocess.CompletedProcess[str]) -> None:
    """What was measured before the kill is kept, what was begun goes on; its progress is shown."""
    told = [line.partition(": ")[2] for line in again.stdout.splitlines() if line.startswith(("small", "huge"))]

    assert told[0] == "done"
    assert told[1] != "done"  # it fails, sooner or later, and then is tried again
    assert "[1/2]" not in again.stdout


def test_a_size_that_fails_is_named_and_the_rest_kept(done: Path, again: subprocess.CompletedProcess[str]) -> None:
    """With its stage's own words, also in the report; the exit code is not 0."""
    assert again.returncode == 1
    assert again.stderr.startswith("huge-")
    assert "Traceback" not in again.stderr
    assert "- `huge-" in (done / "reports/sweep.md").read_text()


def test_the_report_has_the_size_and_says_what_was_left_out(done: Path) -> None:
    """Trials only: nothing of resume, neither measured nor claimed."""
    text = (done / "reports/sweep.md").read_text()

    assert "times trials only: resume, drill, ceilings, numerics, memory of tensors and inference were left out" in text
    assert "| `small-" in text


def test_an_experiment_holds_what_it_measured_and_nulls_for_the_rest(done: Path, name: str) -> None:
    """Results travel with it; no checkpoint is kept."""
    ref = run_in(done, "git", "for-each-ref", "--format=%(refname)", f"refs/exps/*/*/{name}").stdout.strip()
    tree = run_in(done, "git", "ls-tree", "-r", "--name-only", ref).stdout.split()
    metrics = json.loads(run_in(done, "git", "show", f"{ref}:reports/metrics.json").stdout)

    assert {"results/train/0/fp32.json", "results/machine.json", "reports/summary.json"} <= set(tree)
    assert not [path for path in tree if path.startswith(("checkpoints", "data", "results/resume"))]
    assert metrics["fp32"]["step_seconds"] > 0
    assert metrics["fp32"]["resume_bit_exact"] is None


def test_a_sweep_leaves_the_workspace_and_the_data_once(done: Path) -> None:
    """params.yaml is as it was, copies are gone, and DVC's cache holds the one data set."""
    copies = [path.name for path in (done / ".dvc/tmp/exps").iterdir() if path.name.startswith("tmp")]
    cached = [path for path in (done / ".dvc/cache/files").rglob("*") if path.is_file()]

    assert run_in(done, "git", "status", "--porcelain", "params.yaml").stdout == ""
    assert copies == []
    assert len(cached) == 1


def test_differences_of_two_sizes_are_the_numbers_that_differ(done: Path, name: str, tmp_path: Path) -> None:
    """Of the experiment and the workspace's parameters exactly one."""
    project = tmp_path / "project"
    shutil.copytree(done, project)
    edit_params(project, lambda raw: raw.update(trials_only=True))
    edit_params(project, lambda raw: raw["sizes"].update(batch_size=9))
    differing = json.loads(dvc(project, "params", "diff", "--json", name))

    assert differing == {"params.yaml": {"sizes.batch_size": {"old": 8, "new": 9, "diff": 1}}}


def test_a_revision_without_metrics_is_an_empty_side(done: Path, name: str) -> None:
    """The commit before anything was measured: no error, and nothing made up."""
    table = dvc(done, "metrics", "diff", "--md", "HEAD", name).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if "fp32.step_seconds" in line]
    [[_, _, before, after, change]] = rows

    assert (before, change) == ("-", "-")
    assert float(after) > 0


def test_plots_are_one_page_beside_a_revision_that_has_none(done: Path, name: str) -> None:
    """The experiment's steps are in it."""
    dvc(done, "plots", "diff", "HEAD", name, "--out", "page")

    assert name in (done / "page/index.html").read_text()


def test_a_shallow_clone_gets_an_answer(done: Path, tmp_path: Path) -> None:
    """Its earlier commits are not there: DVC names the revision that it lacks, in a line."""
    shallow = tmp_path / "shallow"
    assert run_in(tmp_path, "git", "clone", "-q", "--depth", "1", f"file://{done}", "shallow").returncode == 0
    ended = run_in(shallow, "dvc", "metrics", "diff", "HEAD~1")

    assert ended.returncode != 0
    assert "HEAD~1" in ended.stderr
    assert "Traceback" not in ended.stderr


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
