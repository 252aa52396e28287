"""A workload that the loop can't train is refused before any training, with the reason and the way out."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import launch
from ampcheck.launch import attempt
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.run import start
from ampcheck.training import train
from ampcheck.workloads import Batch, Modules, Workload


def refused(workload: Workload, mode: str = "fp32") -> str:
    """Return the message of the refusal."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    with pytest.raises(ValueError, match="workload: ") as caught:
        start(workload, MODES[mode], torch.device("cpu"), Options(lr=0.1, zero_grad="set_to_none"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("part", "made", "says"),
    [
        ("modules", [nn.Linear(1, 1)], "modules returned a list; it must return a dict, by name"),
        ("modules", {}, "modules returned an empty dict; it must return a dict of Module objects by name"),
        ("modules", {"net": nn.Linear}, "modules returned 'net': type; it must return a dict of Module"),
        ("optimizers", {0: torch.optim.SGD([torch.zeros(1)])}, "optimizers returned the key 0; it must return a dict"),
        ("optimizers", None, "optimizers returned a NoneType; it must return a dict"),
        ("optimizers", {"sgd": 3}, "optimizers returned 'sgd': int; it must return a dict of Optimizer objects"),
        ("schedulers", {"sgd": 3}, "schedulers returned 'sgd': int; it must return a dict of LRScheduler objects"),
    ],
)
def test_what_is_no_dict_by_name_is_refused(mlp: Workload, part: str, made: Any, says: str) -> None:
    """With what came and what is allowed, in one line."""
    assert refused(replace(mlp, **{part: lambda *_: made})).startswith(f"workload: {says}")


def test_a_weight_that_no_module_holds_is_refused(mlp: Workload) -> None:
    """It would be trained, but be in no checkpoint."""

    def optimizers(modules: Modules, lr: float) -> dict[str, torch.optim.Optimizer]:
        loose = nn.Parameter(torch.zeros(3))
        return {"sgd": torch.optim.SGD([*modules["net"].parameters(), loose], lr=lr)}

    assert "optimizer sgd trains 1 parameters that no module holds" in refused(replace(mlp, optimizers=optimizers))


def test_a_weight_on_another_device_is_refused(mlp: Workload) -> None:
    """The message names the weight and both devices, before any talk of dtypes."""

    class Stubborn(nn.Linear):
        def to(self, *_: Any, **__: Any) -> Any:
            return self

    workload = replace(mlp, modules=lambda: {"net": Stubborn(16, 12, device="meta")})

    assert refused(workload).startswith("workload: net.weight lies on meta, not on cpu; leave devices to ampcheck")


def test_a_fused_sgd_with_momentum_is_refused_under_a_scaler(mlp: Workload) -> None:
    """If its first step is skipped, torch takes the momentum of the next from memory that nobody has written."""

    def optimizers(modules: Modules, lr: float) -> dict[str, torch.optim.Optimizer]:
        return {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr, momentum=0.9, fused=True)}

    assert "sgd is a fused SGD with momentum" in refused(replace(mlp, optimizers=optimizers), "amp-fp16")


def test_all_reasons_are_told_at_once(mlp: Workload) -> None:
    """One run tells all there is to mend."""
    both = replace(
        mlp,
        modules=lambda: {"net": nn.Linear(16, 12).half()},
        optimizers=lambda modules, lr: {"lbfgs": torch.optim.LBFGS(modules["net"].parameters(), lr=lr)},
    )
    lines = refused(both, "amp-fp16").splitlines()

    assert ["LBFGS" in lines[0], "16 bits" in lines[1]] == [True, True]


def test_a_loss_that_cuda_refuses_under_autocast_names_the_other_form() -> None:
    """PyTorch's own message about binary cross entropy becomes one line with the way out."""

    def like_torch(_: object) -> None:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany"
        )

    with pytest.raises(ValueError, match="take the form of logits: BCEWithLogitsLoss"):
        attempt(like_torch, "test")


def test_an_optimizer_that_a_step_does_not_use_is_left_alone() -> None:
    """No loss of that step reached its weights: it does not step, the others do, and the scaler counts one step."""

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        used = ["a"] if batch["only_a"] else ["a", "b"]
        return [modules[name](batch["x"]).square().mean().float() for name in used]

    workload = Workload(
        modules=lambda: {"a": nn.Linear(3, 3), "b": nn.Linear(3, 1)},
        batch=lambda _: {},
        losses=losses,
        optimizers=lambda modules, lr: {
            name: torch.optim.SGD(module.parameters(), lr=lr) for name, module in modules.items()
        },
    )
    launch.prepare(seed=0, threads=1, deterministic=True)
    scaler = {"init_scale": 128.0}
    run = start(
        workload, MODES["amp-fp16"], torch.device("cpu"), Options(lr=0.1, zero_grad="set_to_none"), scaler=scaler
    )
    before = {name: module.weight.clone() for name, module in run.modules.items()}  # type: ignore[operator]
    train(run, [{"x": torch.ones(2, 3), "only_a": True}], 1)

    assert not torch.equal(run.modules["a"].weight, before["a"])  # type: ignore[arg-type]
    assert torch.equal(run.modules["b"].weight, before["b"])  # type: ignore[arg-type]
    assert run.scaler.state_dict()["_growth_tracker"] == 1
    train(run, [{"x": torch.ones(2, 3), "only_a": False}], 2)

    assert not torch.equal(run.modules["b"].weight, before["b"])  # type: ignore[arg-type]


def test_a_lazy_module_is_refused(mlp: Workload) -> None:
    """It has no shape before its first step, so that no checkpoint fits a fresh one."""
    lazy = replace(mlp, modules=lambda: {"net": nn.LazyLinear(12)})

    assert "net.weight is lazy" in refused(lazy)
