"""What disturbs a trial is seen by its cause, and the trial repeated."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import conditions, data, workloads
from ampcheck.conditions import Snapshot, between, snapshot
from ampcheck.schema import Params
from ampcheck.trial import run_trial

MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": False, "why": ""}
QUIET: dict[str, Any] = {"cpu_seconds": 0.0, "waited_seconds": 0.0, "stolen_seconds": 0.0, "involuntary_switches": 0}
QUIET |= {"load": 0.0, "megahertz": None, "gpu": {}}


@contextmanager
def busy_cores() -> Iterator[None]:
    """Four processes on each core that do nothing but compute."""
    code = "import os\nwhile os.getppid() == int(os.environ['PARENT']): sum(range(100000))"
    environment = os.environ | {"PARENT": str(os.getpid())}
    count = 4 * len(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.fixture
def given(tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A trial of some hundred milliseconds, with its data."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    sizes = {"batch_size": 64, "in_size": 256, "out_size": 256, "num_layers": 2}
    given = tiny_params.model_copy(
        update={"sizes": sizes, "train": tiny_params.train.model_copy(update={"epochs": 60})}
    )
    workload = workloads.load(given.workload, sizes)
    data.make(data.PATH, workload, seed=0, num_batches=given.data.num_batches, batch_size=64)
    return given


def test_a_trial_beside_busy_processes_is_tagged_and_repeated(
    given: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its threads waited for a core: both tries are kept, with the conditions of each."""
    with busy_cores():
        result = run_trial(given, MACHINE, "fp32", 0, HERE)

    assert result.trained
    assert result.first_try is not None
    for tried in (result.first_try["conditions"], result.conditions):
        assert tried["disturbed"][0].startswith("its threads waited for a core for ")
        assert tried["waited_seconds"] > 0
    assert result.first_try["total_seconds"] != result.total_seconds
    assert "fp32: disturbed, so tried again: its threads waited" in capsys.readouterr().out


def test_a_trial_that_nothing_disturbed_is_not_repeated(given: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the cause, not the figures: nothing here is allowed to be a cause."""
    monkeypatch.setattr(conditions, "WAITED", float("inf"))
    monkeypatch.setattr(conditions, "STOLEN", float("inf"))
    result = run_trial(given, MACHINE, "fp32", 0, HERE)

    assert (result.trained, result.first_try, result.conditions["disturbed"]) == (True, None, [])
    assert result.conditions["cpu_seconds"] > 0
    assert {len(result.conditions[key]) for key in ("load", "megahertz", "gpu")} == {2}


ONCE = """
from pathlib import Path
import torch
from ampcheck.workloads import mlp

def build(**sizes):
    workload = mlp.build(**sizes)

    def modules():
        tried = Path(__file__).with_name("tried")
        if tried.exists():
            torch.empty(10**15)
        tried.touch()
        return workload.modules()

    return mlp.Workload(
        modules=modules, batch=workload.batch, losses=workload.losses, optimizers=workload.optimizers
    )
"""


def test_a_repeat_that_fails_is_a_failure_that_keeps_the_first_try(
    given: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is dropped in silence; here the second try runs out of memory."""
    (tmp_path / "once.py").write_text(ONCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(conditions, "WAITED", -1.0)
    result = run_trial(given.model_copy(update={"workload": "once:build"}), MACHINE, "fp32", 0, HERE)

    assert not result.trained
    assert result.why.startswith("out of memory: ")
    assert result.first_try is not None
    assert result.first_try["total_seconds"] > 0


@pytest.mark.parametrize(
    ("happened", "cause"),
    [
        ({"waited_seconds": 0.06}, "its threads waited for a core for 0.06 s of core time in a window of 1.00 s"),
        ({"waited_seconds": 0.04}, None),
        ({"waited_seconds": None}, None),
        ({"stolen_seconds": 0.1 * (os.cpu_count() or 1)}, "others had its cores for "),
        ({"gpu": {"megahertz": 1000, "celsius": 90, "slowed": ["power brake"]}}, "the GPU was slowed: power brake"),
        ({"gpu": {"why": "Driver Not Loaded"}}, None),
    ],
    ids=str,
)
def test_a_disturbance_has_a_cause(happened: dict[str, Any], cause: str | None) -> None:
    """Threads that waited, a hypervisor that took cores, a GPU that was slowed; what isn't told is no cause."""
    before = Snapshot(**QUIET | {key: None for key, value in happened.items() if value is None})
    found = between(before, Snapshot(**QUIET | happened), seconds=1.0)

    assert torch.get_num_threads() == 1
    assert [each[: len(cause or "")] for each in found["disturbed"]] == ([] if cause is None else [cause])


def test_a_snapshot_counts_on() -> None:
    """Work that this process does shows in its CPU time; nothing that is counted falls."""
    before = snapshot(torch.device("cpu"))
    sum(range(3_000_000))
    found = between(before, snapshot(torch.device("cpu")), seconds=1.0)

    assert found["cpu_seconds"] > 0
    assert all((found[key] or 0) >= 0 for key in ("waited_seconds", "stolen_seconds", "involuntary_switches"))
