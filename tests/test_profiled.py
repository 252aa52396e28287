"""A step taken apart adds up, and each part is found where it must be."""

import pytest
import torch

from ampcheck.profiled import FEWEST_WINDOWS, PARTS, _part, _profiled, step_parts
from ampcheck.shapes import in_order
from ampcheck.training import train
from tests.test_operations import custom, recorded, small, started


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16", "amp-bf16"])
def test_a_step_has_its_parts(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Casts under autocast, a scaler where the mode has one; and torch's profiler writes nothing into the log."""
    run, batches = started(small("mlp"), mode)
    train(run, batches, 2)
    taken, parts = _profiled(lambda: train(run, batches, run.step + 1), 2, run.device)

    assert 0 < sum(parts.values()) < taken
    assert (parts["scaler"] > 0) == run.mode.scaler
    assert all(parts[part] > 0 for part in ("matmul", "other", "optimizer"))
    assert parts["casts"] > 0 or not run.mode.autocast
    assert capfd.readouterr().err == ""


def test_parts_add_up_and_training_goes_on() -> None:
    """None is left out, and the run has taken real steps."""
    run, batches = started(small("mlp"), "amp-bf16")
    train(run, batches, 2)
    alone, _ = in_order(recorded(small("mlp"), "amp-bf16").calls, run.device)
    parts, alone_seconds = step_parts(run, batches, alone)

    assert tuple(parts) == PARTS
    assert alone_seconds > 0
    assert all(seconds > 0 for part, seconds in parts.items() if part != "scaler")
    assert run.step - 3 >= 2 * FEWEST_WINDOWS


def test_an_operation_belongs_to_what_is_around_it() -> None:
    """A cast for a matmul is a cast, what an optimizer multiplies is the optimizer's, and Python is no operation."""
    run, batches = started(custom(lambda output: (output @ output.T).mean()), "amp-bf16")
    train(run, batches, 2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train(run, batches, 3)
    found: dict[str, set[str]] = {}
    for event in profiler.events():
        found.setdefault(_part(event), set()).add(event.name)

    assert {"aten::mm", "aten::addmm"} <= found["matmul"]
    assert {"aten::_to_copy", "aten::copy_"} <= found["casts"]
    assert {"Optimizer.step#SGD.step"} <= found["optimizer"]
    assert {"aten::mean", "aten::add"} & found["other"]
    assert not [name for name in found[""] if name.startswith("aten::")]
