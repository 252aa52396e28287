"""Losses against the baseline's, step by step."""

from collections.abc import Iterator, Mapping

import pandas as pd
import pytest
import torch
from torch import nn

from ampcheck.parity import largest_and_last, loss_differences
from ampcheck.training import train
from ampcheck.workloads import Batch, Workload
from tests.runs import fresh


def table(**losses: list[float]) -> pd.DataFrame:
    """Steps of one repeat, by mode."""
    trials = [
        pd.DataFrame({"repeat": 0, "mode": mode, "step": range(len(values)), "loss": values})
        for mode, values in losses.items()
    ]
    return pd.concat(trials, ignore_index=True)


def test_differences_are_relative_and_signed() -> None:
    """The largest by size, and the last; the baseline has none."""
    differences = loss_differences(table(base=[4.0, -2.0, 1.0], other=[5.0, -3.0, 1.125]), "base")

    assert differences["difference"].to_list() == [0.25, -0.5, 0.125]
    assert largest_and_last(differences, "other", last_step=2) == (-0.5, 0.125)
    assert largest_and_last(differences, "base", last_step=2) == (None, None)


def test_a_loss_of_zero_can_not_be_compared_with() -> None:
    """It is left out, and as the last one it is null."""
    differences = loss_differences(table(base=[4.0, 0.0], other=[4.0, 1.0]), "base")

    assert differences["step"].to_list() == [0]
    assert largest_and_last(differences, "other", last_step=1) == (0.0, None)


def test_the_first_repeat_that_both_have_is_taken() -> None:
    """A repeat in which the baseline was not trained compares nothing."""
    again = table(base=[1.0], other=[2.0]).assign(repeat=3)
    later = table(base=[1.0], other=[9.0]).assign(repeat=4)
    alone = table(other=[7.0]).assign(repeat=1)

    assert loss_differences(pd.concat([alone, again, later]), "base")["difference"].to_list() == [1.0]


def line() -> Workload:
    """A linear function to be found under noise, which the loss can't fall below."""

    def losses(modules: Mapping[str, nn.Module], batch: Batch) -> Iterator[torch.Tensor]:
        yield nn.functional.mse_loss(modules["net"](batch["input"]).float(), batch["target"])

    return Workload(
        modules=lambda: {"net": nn.Linear(8, 1)},
        batch=lambda _: {},
        losses=losses,
        optimizers=lambda modules, lr: {"net": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def losses_of(mode: str) -> list[float]:
    """The losses of 60 steps, none of them skipped."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 32, 8, generator=generator)
    targets = inputs.sum(-1, keepdim=True) + 0.3 * torch.randn(60, 32, 1, generator=generator)
    batches: list[Batch] = [{"input": one, "target": other} for one, other in zip(inputs, targets, strict=True)]
    run = fresh(mode=mode, workload=line(), lr=0.05, scaler={"init_scale": 1024.0}, overflow_at=frozenset())
    return [float(loss) for loss in train(run, batches, 60).losses]


@pytest.mark.parametrize("mode", ["amp-fp16", "amp-bf16"])
def test_amp_trains_a_linear_function_like_float32(mode: str) -> None:
    """Weights stay in float32, so that 16 bits don't stop the loss from falling: it is within 5 % at every step."""
    base, other = losses_of("fp32"), losses_of(mode)
    largest, last = largest_and_last(loss_differences(table(base=base, other=other), "base"), "other", last_step=59)

    assert base[-1] < base[0] / 10
    assert other != base
    assert 0 < abs(largest or 0) < 0.05
    assert 0 < abs(last or 0) < 0.05
