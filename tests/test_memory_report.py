"""The report's section on the memory of tensors."""

from pathlib import Path
from typing import Any

import pytest

from ampcheck.files import read_json, write_json
from ampcheck.schema import Params
from tests.helpers import memory_result, write_results
from tests.test_report import cells, tables, written

FP32, BF16 = "fp32", "amp-bf16"
SPLIT = "1000 B | 400 B | 400 B | 0 B |"


@pytest.fixture
def params(raw: dict[str, Any], tmp_path: Path) -> Params:
    """Parameters for which results lie in tmp_path."""
    given = Params.model_validate(raw)
    write_results(tmp_path / "results", given, {FP32: [2.0] * 3, BF16: [1.0] * 3})
    return given


def section(params: Params, tmp_path: Path) -> str:
    """The report's part on tensors."""
    return written(params, tmp_path).partition("## Memory of tensors")[2].partition("\n## ")[0].strip()


def test_the_split_stands_beside_the_peak_of_the_trials(params: Params, tmp_path: Path) -> None:
    """Of each mode what was counted here, n/a where it was not trained; then what is foreseen for CUDA."""
    here, cuda = tables(section(params, tmp_path))

    assert here[2] == f"| `fp32` | 2.05 KiB | 0 B | {SPLIT} 0 B | 300 B | 2.93 KiB |"
    assert here[3] == "| `tf32` | " + "n/a | " * 8 + "n/a |"
    assert here[5] == f"| `amp-bf16` | 2.15 KiB | 100 B | {SPLIT} 200 B | 200 B | 2.93 KiB |"
    assert cuda[3] == f"| `tf32` | 2.05 KiB | 0 B | {SPLIT} 0 B | 300 B |"
    assert {cells(line) for line in here} == {10}
    assert {cells(line) for line in cuda} == {9}


def test_on_cuda_the_foreseen_stands_beside_the_measured(params: Params, tmp_path: Path) -> None:
    """Both tables then end with the peak of torch's allocator."""
    machine = read_json(tmp_path / "results/machine.json")
    write_json(tmp_path / "results/machine.json", machine | {"device": "cuda:0"})
    text = section(params, tmp_path)

    assert [line[2].endswith("| 300 B | 2.93 KiB |") for line in tables(text)] == [True, True]
    assert "there is more: the workspaces of libraries" in text


def test_what_cannot_be_foreseen_is_told(params: Params, tmp_path: Path) -> None:
    """With the reason, and without a difference for those that are measured against it."""
    unknown: dict[str, Any] = {"peak_bytes": None, "split": {}, "why": "it can't be foreseen: an error"}
    write_json(tmp_path / "results/memory" / f"{FP32}.json", memory_result(FP32) | {"cuda": unknown})
    text = section(params, tmp_path)

    assert "`fp32` on CUDA: it can't be foreseen: an error." in text
    assert f"| `amp-bf16` | 2.15 KiB | n/a | {SPLIT}" in text
