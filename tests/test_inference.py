"""The forward pass alone: measured, and compared with float32."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import data, inference, workloads
from ampcheck.schema import Params
from tests.helpers import TINY_SIZES

Measure = Callable[..., inference.Inference]
MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": False, "why": ""}


@pytest.fixture
def measured(
    tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., inference.Inference]:
    """Return a function that measures one mode of a workload, in this process's child."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")

    def measure(mode: str, name: str = "mlp", available: Any = HERE, **sizes: int) -> inference.Inference:
        given = tiny_params.model_copy(
            update={"workload": f"ampcheck.workloads.{name}:build", "sizes": sizes or TINY_SIZES}
        )
        workload = workloads.load(given.workload, given.sizes)
        data.make(data.PATH, workload, seed=0, num_batches=4, batch_size=given.sizes["batch_size"])
        return inference.infer(given, MACHINE, mode, available)

    return measure


def test_float32_is_no_distance_from_itself(measured: Measure) -> None:
    """The reference is computed anew, and has the same bits; there are no classes to compare."""
    result = measured("fp32")

    assert (result.largest_difference, result.median_difference, result.equal_argmax) == (0.0, 0.0, None)
    assert result.batch_seconds is not None
    assert result.first_batch_bytes is not None


def test_sixteen_bits_are_a_small_distance_away(measured: Measure) -> None:
    """Bfloat16 has 8 bits of precision: its rounding shows, and is no more than a few units in the last place."""
    result = measured("amp-bf16")

    assert result.largest_difference is not None
    assert result.median_difference is not None
    assert 2**-12 < result.median_difference < result.largest_difference < 2**-4


def test_classes_are_compared_where_the_batch_has_some(measured: Measure) -> None:
    """The share of positions whose greatest score is the same."""
    sizes = {"batch_size": 4, "image_size": 6, "channels": 4, "num_blocks": 1, "num_classes": 3}

    assert measured("fp32", "convnet", **sizes).equal_argmax == 1.0


def test_a_mode_that_is_not_trained_is_not_measured(measured: Measure) -> None:
    """All figures are missing, and the reason is there."""
    result = measured("tf32", available={"available": False, "emulated": False, "why": "not here"})

    assert {key for key, value in asdict(result).items() if value is not None} == {"mode", "why"}
    assert result.why == "not here"


def test_without_outputs_nothing_is_measured(measured: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out is in the reason."""
    load = workloads.load
    monkeypatch.setattr(workloads, "load", lambda *given: replace(load(*given), outputs=None))

    assert measured("fp32").why == inference.NO_OUTPUTS


def test_outputs_without_a_tensor_are_refused(measured: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the user's to mend."""
    load = workloads.load
    monkeypatch.setattr(
        workloads, "load", lambda *given: replace(load(*given), outputs=lambda modules, batch: {"n": 3})
    )
    with pytest.raises(ValueError, match="outputs returned no tensor"):
        measured("fp32")


def test_a_difference_that_is_not_finite_is_missing() -> None:
    """No NaN gets into a result."""
    assert inference._finite(torch.tensor(float("nan"))) is None
    assert inference._finite(torch.tensor(0.5)) == 0.5
