"""What benchmarks/gpu.py tells of a card it decides right, tried on the CPU. No timing is judged here."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ampcheck.precision import MODES
from ampcheck.processes import in_child
from benchmarks import gpu, sections
from benchmarks.sections import Line, Setup


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """A tiny setup on the CPU; its folder is the current one as long as it is used."""
    raw = sections.recipe("cpu")
    raw["sizes"] = {"batch_size": 8, "in_size": 16, "out_size": 12, "num_layers": 2}
    raw["data"] |= {"num_batches": 4}
    raw["train"] |= {"emulated": True}  # so that a disturbed probe changes nothing
    with contextlib.chdir(tmp_path_factory.mktemp("setup")):
        yield sections.prepared(raw)


def test_without_cuda_the_gpu_session_fails_in_one_line() -> None:
    """It doesn't pretend: one line, and an exit code that isn't 0."""
    command = [sys.executable, "benchmarks/gpu.py"]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=sections.ROOT, env=hidden, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stdout + done.stderr == "benchmarks/gpu.py: torch sees no CUDA device here; nothing was tried\n"


def test_the_recipe_is_tried_whatever_params_yaml_holds() -> None:
    """Sizes, batches, epochs and modes are the recipe's own."""
    raw = sections.recipe("cuda")

    assert raw["sizes"] == {"batch_size": 512, "in_size": 4096, "out_size": 4096, "num_layers": 3}
    assert (raw["data"]["num_batches"], raw["train"]["epochs"]) == (50, 3)
    assert raw["train"]["modes"] == list(MODES)


def test_all_sections_fit_into_eight_minutes() -> None:
    """What all may take together leaves 20 seconds for the start."""
    assert gpu.PREPARING_SECONDS + sum(seconds for seconds, _ in gpu.SECTIONS.values()) <= 460


def test_a_section_over_its_budget_keeps_its_lines_and_ends_its_processes(setup: Setup) -> None:
    """The alarm stops a section that waits for a child; the child is killed."""

    def endless(_: object) -> None:
        os.kill(os.getppid(), signal.SIGALRM)
        signal.pause()

    def section(_: Setup) -> Iterator[Line]:
        yield Line("first")
        in_child(endless, "endless")

    lines = gpu.lines_of(section, setup, seconds=60)

    assert lines == [Line("first"), Line("stopped: not finished in 60 s", good=False)]
    assert multiprocessing.active_children() == []


def test_every_mode_is_trained_or_says_why_not(setup: Setup) -> None:
    """A row a mode; TF32, which a CPU lacks, is no failure, and what wasn't measured is a dash."""
    header, *rows = sections.trials(setup)

    assert header.good
    assert [row.text.split()[0] for row in rows] == list(MODES)
    assert all(row.good for row in rows)
    assert "not trained: TF32 needs a CUDA device" in rows[1].text
    assert " - " in rows[0].text


def test_the_peak_stands_beside_the_published_one(setup: Setup) -> None:
    """Both ways of zero_grad, and what the libraries keep: nothing on a CPU."""
    lines = [line.text for line in sections.peaks(setup)]

    assert [line.split()[0] for line in lines[:3]] == ["published", "set_to_none", "zeros"]
    assert "workspaces take 0 bytes (CUBLAS_WORKSPACE_CONFIG=:4096:8)" in lines[3]


def test_every_mode_resumes(setup: Setup) -> None:
    """The check of the pipeline, at tiny sizes."""
    lines = list(sections.resumes(setup))

    assert all(line.good for line in lines)
    assert "yes, stopped after" in lines[0].text
    assert "controls: 1" in lines[list(MODES).index("amp-fp16")].text


@pytest.mark.parametrize(
    ("changed", "good"),
    [
        ({}, True),
        ({"bit_exact": False, "differing": ["scaler/scale"]}, False),
        ({"controls": [{"part": "scaler", "caught": False}]}, False),
        ({"bit_exact": None, "why": "out of memory"}, False),
        ({"bit_exact": None, "why": "TF32 needs more", "available": False}, True),
    ],
)
def test_a_resume_is_judged(changed: dict[str, Any], good: bool) -> None:
    """Good is bit-exact with every control caught, or a mode that can't run here."""
    result = {
        "mode": "amp-fp16",
        "available": True,
        "why": "",
        "bit_exact": True,
        "stop_after": 12,
        "steps": 24,
        "differing": [],
        "first_different_loss": None,
        "controls": [{"part": "scaler", "caught": True}],
    }
    line = sections.judged(result | changed)

    assert line.good is good
    assert "NO" in line.text or changed.get("why", "") in line.text
