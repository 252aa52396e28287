"""A Function of one's own, an operator of one's own, an island of float32: each in the type that it is meant for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ampcheck import launch, state, workloads
from ampcheck.identity import differing, leaves
from ampcheck.options import Options
from ampcheck.precision import MODES, Mode
from ampcheck.run import Run, start
from ampcheck.training import train
from ampcheck.workloads import Batch, custom_op
from ampcheck.workloads.custom_op import LINEAR_RELU, LinearReLU, log_sum_exp
from ampcheck.workloads.island import Powers

SIZES: dict[str, dict[str, Any]] = {
    "custom_op": {"batch_size": 4, "width": 8, "num_layers": 3, "num_classes": 3},
    "island": {"batch_size": 4, "num_samples": 8, "num_bins": 6, "num_bands": 5, "num_classes": 3},
}
ON_CPU = [mode for mode in MODES.values() if mode.fp32_precision == "ieee"]
AMP = [mode for mode in ON_CPU if mode.autocast]
PRODUCTS = [torch.ops.aten.mm, torch.ops.aten.addmm]
each_mode = pytest.mark.parametrize("mode", ON_CPU, ids=lambda mode: mode.name)
each_amp_mode = pytest.mark.parametrize("mode", AMP, ids=lambda mode: mode.name)


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the dtypes that `operators` really get, behind autocast; matrix products unless others are given."""

    def __init__(self, operators: Sequence[Any] = PRODUCTS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = operators
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in self.operators:
            self.dtypes.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def autocast(mode: Mode) -> torch.autocast:
    """The mode's autocast on a CPU."""
    return torch.autocast("cpu", dtype=getattr(torch, mode.dtype), enabled=mode.autocast)


def positive_layer() -> tuple[LinearReLU, torch.Tensor]:
    """A layer and an input that leave no output at zero."""
    torch.manual_seed(0)
    layer = LinearReLU(5, 4)
    nn.init.constant_(layer.bias, 3.0)
    return layer, torch.rand(3, 5, requires_grad=True)


@each_mode
def test_a_functions_backward_runs_in_its_forwards_dtype(mode: Mode) -> None:
    """One product forward and two backward, which runs outside autocast as in training; gradients stay float32."""
    layer, x = positive_layer()
    dtype = getattr(torch, mode.dtype)
    with Seen() as forward, autocast(mode):
        loss = layer(x).float().sum()
    with Seen() as backward:
        loss.backward()

    assert (forward.dtypes, backward.dtypes) == ([dtype], [dtype, dtype])
    assert {each.grad.dtype for each in (x, layer.weight, layer.bias)} == {torch.float32}  # type: ignore[union-attr]


@each_amp_mode
def test_without_custom_bwd_the_types_are_mixed(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decorator is needed: torch refuses the product of a 16-bit gradient and a float32 weight."""
    monkeypatch.setattr(custom_op, "custom_bwd", lambda *, device_type: lambda function: function)
    monkeypatch.setitem(LINEAR_RELU, "cpu", custom_op._linear_relu("cpu"))
    layer, x = positive_layer()
    with autocast(mode):
        loss = layer(x).float().sum()

    with pytest.raises(RuntimeError, match="same dtype"):
        loss.backward()


@each_mode
def test_a_function_is_a_linear_layer_with_relu(mode: Mode) -> None:
    """The same values as torch's own, and gradients within the rounding of the type."""
    torch.manual_seed(0)
    layer, x = LinearReLU(6, 7), torch.randn(5, 6)
    found = []
    for function in (layer, lambda x: nn.functional.linear(x, layer.weight, layer.bias).relu()):
        with autocast(mode):
            result = function(x)
        found.append([result, *torch.autograd.grad(result.float().sum(), [layer.weight, layer.bias])])

    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0], found[1], rtol=4 * torch.finfo(getattr(torch, mode.dtype)).eps, atol=1e-6)


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_gradients_are_right(check: Callable[..., bool]) -> None:
    """Of both operations, in float64 and away from ReLU's corner; of a gradient's gradient too, for penalties."""
    torch.manual_seed(0)
    doubles = [torch.rand(*shape, dtype=torch.float64, requires_grad=True) for shape in [(3, 5), (4, 5), (4,)]]

    assert check(LINEAR_RELU["cpu"].apply, doubles)
    assert check(log_sum_exp, doubles[:1])


def test_torch_finds_no_fault_in_the_operator() -> None:
    """Its schema, its fake, its autograd: torch's own check, in the types that it may see."""
    for dtype in (torch.float32, torch.float64, torch.float16):
        for shape in [(3,), (2, 3), (2, 3, 4)]:
            passed = torch.library.opcheck(log_sum_exp, (torch.rand(*shape, dtype=dtype, requires_grad=True),))

            assert set(passed.values()) == {"SUCCESS"}


@each_mode
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_operator_sees_float32_under_autocast(mode: Mode, dtype: torch.dtype) -> None:
    """And what comes in otherwise; its gradient has the type of its input."""
    x = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    expected = torch.float32 if mode.autocast else dtype
    with Seen([torch.ops.ampcheck.log_sum_exp]) as seen, autocast(mode):
        result = log_sum_exp(x)
    result.sum().backward()

    assert [*seen.dtypes, result.dtype] == [expected, expected]
    assert x.grad is not None
    assert x.grad.dtype == dtype


@each_amp_mode
def test_the_rule_for_autocast_prevents_an_overflow(mode: Mode) -> None:
    """exp(20) is inf in float16, and in bfloat16 its logarithm is coarse."""
    x = torch.full((1, 4), 20.0, dtype=getattr(torch, mode.dtype))
    expected = torch.logsumexp(x.float(), -1)
    with autocast(mode):
        cast = log_sum_exp(x)

    torch.testing.assert_close(cast, expected)
    assert not torch.equal(log_sum_exp(x).float(), expected)
    assert log_sum_exp(x).isinf().all() == (mode.dtype == "float16")


def test_rules_are_registered_for_both_types_of_device() -> None:
    """A network goes from a CPU to CUDA without a change."""
    operator = torch.ops.ampcheck.log_sum_exp.default
    keys = torch._C.DispatchKey

    assert all(operator.has_kernel_for_dispatch_key(key) for key in (keys.AutocastCPU, keys.AutocastCUDA))
    assert set(LINEAR_RELU) == {"cpu", "cuda"}


@each_mode
def test_the_island_computes_in_float32(mode: Mode) -> None:
    """Forward and backward, whatever comes in; around it autocast is what it was."""
    amplitudes = torch.randn(5, 6).to(getattr(torch, mode.dtype)).requires_grad_()
    with Seen() as seen:
        with autocast(mode):
            result = Powers(6, 4)(amplitudes)
            still_on = torch.is_autocast_enabled("cpu")
        result.square().sum().backward()

    assert still_on == mode.autocast
    assert result.dtype == torch.float32
    assert seen.dtypes == [torch.float32] * 3  # one product forward, two backward


def test_the_island_prevents_an_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights and batch: a finite loss, and none if autocast's float16 goes on where the island was."""
    run, batch = _fresh("island", "amp-fp16"), _batch("island")
    with run.autocast:
        [loss] = run.workload.losses(run.modules, batch)
        monkeypatch.setattr(Powers, "forward", lambda self, x: self.norm(self.bands(x.square())))
        [without] = run.workload.losses(run.modules, batch)

    assert loss.isfinite()
    assert not without.isfinite()


@pytest.mark.parametrize("name", ["custom_op", "island"])
def test_a_scaler_of_a_power_of_two_changes_no_bit_of_float32(name: str) -> None:
    """Gradients are scaled and unscaled exactly through operations of one's own too."""
    plain, scaled = _fresh(name, "fp32"), _fresh(name, "fp32", scaler=True)
    losses = [train(run, [_batch(name)], 5).losses.tolist() for run in (plain, scaled)]
    first, second = ({"modules": state.PARTS["modules"].get(run)} for run in (plain, scaled))

    assert scaled.scaler.is_enabled()
    assert losses[0] == losses[1]
    assert differing(leaves(first), leaves(second)) == []


def _fresh(name: str, mode: str, *, scaler: bool = False) -> Run:
    """A tiny run at step 0; with `scaler`, one that the mode itself has not."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    workload = workloads.load(f"ampcheck.workloads.{name}:build", SIZES[name])
    chosen = replace(MODES[mode], scaler=scaler or MODES[mode].scaler)
    return start(workload, chosen, torch.device("cpu"), Options(lr=0.01, zero_grad="set_to_none"))


def _batch(name: str) -> Batch:
    made = workloads.load(f"ampcheck.workloads.{name}:build", SIZES[name]).batch(np.random.default_rng(0))
    return {key: torch.as_tensor(array) for key, array in made.items()}
