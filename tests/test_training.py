"""The loop is the recipe's, for every mode."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import launch, run
from ampcheck.identity import digest
from ampcheck.options import Options
from ampcheck.precision import MODES, Mode
from ampcheck.rehearsal import observe
from ampcheck.run import Run, start
from ampcheck.training import scaler_numbers, train
from ampcheck.workloads import Batch, Modules, Workload

CPU = torch.device("cpu")
RUNNABLE = [name for name, mode in MODES.items() if mode.fp32_precision == "ieee"]


def fresh(workload: Workload, mode: Mode, **options: Any) -> Run:
    """A run at step 0 from seed 0."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    return start(workload, mode, CPU, Options(lr=0.1, zero_grad="set_to_none"), **options)


@pytest.mark.parametrize("mode", RUNNABLE)
def test_the_dtypes_are_the_recipes(mlp: Workload, batches: list[Batch], mode: str) -> None:
    """Linear layers give the mode's type, the loss is float32, parameters and their gradients stay float32."""
    run = fresh(mlp, MODES[mode])
    seen = observe(run, batches[0])

    assert seen.dtypes | {"loss": seen.losses[0]} == {
        "Linear": MODES[mode].dtype,
        "ReLU": MODES[mode].dtype,
        "loss": "float32",
    }
    assert {parameter.dtype for parameter in run.modules["net"].parameters()} == {torch.float32}


@pytest.mark.parametrize("mode", RUNNABLE)
def test_the_loop_is_the_recipe_written_by_hand(mlp: Workload, batches: list[Batch], mode: str) -> None:
    """Weights and losses have the bits of the loop that the recipe spells out."""
    run = fresh(mlp, MODES[mode])
    losses = train(run, batches, 6).losses.tolist()

    launch.prepare(seed=0, threads=1, deterministic=True)
    net = mlp.modules()["net"]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=MODES[mode].scaler)
    expected = []
    for step in range(6):
        batch = batches[step % 4]
        with torch.autocast("cpu", dtype=getattr(torch, MODES[mode].dtype), enabled=MODES[mode].autocast):
            loss = nn.functional.mse_loss(net(batch["input"]), batch["target"])
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        expected.append(loss.item())

    assert losses == expected
    assert digest(run.modules["net"].state_dict()) == digest(net.state_dict())


def test_stopping_between_calls_changes_nothing(mlp: Workload, batches: list[Batch]) -> None:
    """`until` is the only difference between a straight run and one that stops."""
    straight, halting = fresh(mlp, MODES["amp-fp16"]), fresh(mlp, MODES["amp-fp16"])
    expected = train(straight, batches, 6).losses.tolist()
    losses = [loss for until in (2, 3, 6) for loss in train(halting, batches, until).losses.tolist()]

    assert losses == expected
    assert halting.step == straight.step == 6


def test_a_power_of_two_scaler_leaves_float32_its_bits(mlp: Workload, batches: list[Batch]) -> None:
    """Scaling by powers of two is exact: the sharpest test of correct use of the scaler."""
    scaled = replace(MODES["fp32"], scaler=True)
    plain, with_scaler = fresh(mlp, MODES["fp32"]), fresh(mlp, scaled)

    assert train(plain, batches, 5).losses.tolist() == train(with_scaler, batches, 5).losses.tolist()
    assert digest(plain.modules["net"].state_dict()) == digest(with_scaler.modules["net"].state_dict())


@pytest.mark.parametrize(("zero_grad", "cleared"), [("set_to_none", True), ("zeros", False)])
def test_zero_grad_is_as_asked(mlp: Workload, batches: list[Batch], zero_grad: str, cleared: bool) -> None:
    """Gradients are dropped, or kept as zeros."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    run = start(mlp, MODES["fp32"], CPU, Options(lr=0.1, zero_grad=zero_grad))
    train(run, batches, 1)
    gradients = [parameter.grad for parameter in run.modules["net"].parameters()]

    assert [gradient is None for gradient in gradients] == [cleared] * 4
    assert all(gradient is None or not gradient.any() for gradient in gradients)


def test_several_modules_losses_and_optimizers_go_through_the_same_loop() -> None:
    """Two networks with two losses and one scaler: four iterations without overflow leave the tracker at 4."""
    run = fresh(two_networks(), MODES["amp-fp16"], scaler={"init_scale": 128.0})
    history = train(run, [{"x": torch.ones(2, 3)}], 4)

    assert scaler_numbers(run)["growth_tracker"] == 4
    assert history.losses.shape == (4,)


def test_one_optimizer_listed_twice_is_refused() -> None:
    """It would step twice between two updates of the scaler."""

    def optimizers(modules: Modules, lr: float) -> dict[str, torch.optim.Optimizer]:
        return dict.fromkeys("ab", torch.optim.SGD(modules["a"].parameters(), lr=lr))

    twice = replace(two_networks(), optimizers=optimizers)
    with pytest.raises(ValueError, match="listed twice"):
        fresh(twice, MODES["fp32"])


def test_the_float32_precision_of_matmul_and_convolution_is_the_modes(mlp: Workload) -> None:
    """CuDNN convolves in TF32 by default: one setting decides for both, and every mode sets it."""
    for mode in MODES.values():
        fresh(mlp, mode)

        assert torch.backends.cuda.matmul.fp32_precision == mode.fp32_precision
        assert torch.backends.cudnn.conv.fp32_precision == mode.fp32_precision  # type: ignore[attr-defined]


def test_a_scaler_that_disables_itself_is_refused(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode with a scaler never runs without one in silence."""
    monkeypatch.setattr(run, "GradScaler", lambda device, enabled: torch.amp.GradScaler(device, enabled=False))
    with pytest.raises(ValueError, match="GradScaler disables itself on cpu"):
        fresh(mlp, MODES["amp-fp16"])


def two_networks() -> Workload:
    """Two modules, each with a loss and an optimizer of its own."""
    return Workload(
        modules=lambda: {"a": nn.Linear(3, 3), "b": nn.Linear(3, 1)},
        batch=lambda _: {"x": torch.ones(2, 3)},
        losses=lambda modules, batch: [
            modules["a"](batch["x"]).square().mean().float(),
            modules["b"](batch["x"]).square().mean().float(),
        ],
        optimizers=lambda modules, lr: {
            name: torch.optim.Adam(module.parameters(), lr=lr) for name, module in modules.items()
        },
    )
