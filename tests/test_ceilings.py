"""The stage, in its child: all that the report reads is measured, and what is not trained is not."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import ceilings, data, rates, workloads
from ampcheck.ceilings import Ceilings
from ampcheck.profiled import PARTS
from ampcheck.schema import Params
from tests.test_operations import SMALL

MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": False, "why": ""}
Measure = Callable[..., Ceilings]


@pytest.fixture
def measured(tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Return a function that measures one mode of a workload."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    monkeypatch.setattr(rates, "COPY_BYTES", 2**20)
    monkeypatch.setattr(rates, "LONG_ENOUGH_SECONDS", 1e-3)

    def measure(mode: str, name: str, available: Any = HERE, **train: Any) -> Ceilings:
        changed = {"workload": f"ampcheck.workloads.{name}:build", "sizes": {"batch_size": 4} | SMALL[name]}
        given = tiny_params.model_copy(update=changed | {"train": tiny_params.train.model_copy(update=train)})
        workload = workloads.load(given.workload, given.sizes)
        data.make(data.PATH, workload, seed=0, num_batches=given.data.num_batches, batch_size=4)
        return ceilings.find_ceilings(given, MACHINE, mode, available)

    return measure


def test_all_that_the_report_reads_is_measured(measured: Measure) -> None:
    """Convolutions have a ceiling of their own; no rate of the workload's own shapes is beyond a ceiling."""
    found = measured("amp-bf16", "convnet")
    read = json.loads(json.dumps(asdict(found), allow_nan=False))

    assert set(found.flops_per_second) == set(found.step_flops) == {"matmul", "convolution"}
    assert tuple(found.parts) == PARTS
    assert all(each.flops / each.seconds <= found.flops_per_second[each.kind] for each in found.shapes)
    assert not [key for key, value in read.items() if value in (None, 0)]
    assert (found.fp32_precision, len(found.timer_seconds), found.waits) == ("ieee", 60, {})
    assert ceilings.line(found).startswith("amp-bf16: at most ")


def test_accumulated_batches_belong_to_the_step(measured: Measure) -> None:
    """Two batches a step have twice the flops of one."""
    one, two = (measured("fp32", "mlp", accumulate=count) for count in (1, 2))

    assert two.step_flops["matmul"] == 2 * one.step_flops["matmul"]


def test_a_mode_that_is_not_trained_is_not_measured(measured: Measure) -> None:
    """The reason is there, and nothing else."""
    found = measured("tf32", "mlp", available={"available": False, "emulated": False, "why": "not here"})

    assert found == Ceilings(mode="tf32", why="not here")
    assert ceilings.line(found) == "tf32: not measured: not here"


def test_a_rate_counts_the_work_that_was_done() -> None:
    """Torch's counter and our figure of an operation's flops are the same."""
    for make in (rates.matmul, rates.convolution):
        operation, flops = make(1, torch.device("cpu"), torch.float32)
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            operation()

        assert counter.get_total_flops() == flops
