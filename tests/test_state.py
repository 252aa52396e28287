"""What a state may be put into, what is taken over bit for bit, and what is told."""

import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from ampcheck import checkpoint, state
from ampcheck.identity import differing, leaves, walk
from ampcheck.training import scaler_numbers, train
from ampcheck.workloads import Workload
from tests.runs import batches, fresh, leaves_of, pair, refused, stateful, trained

SGD = {"optimizer": "SGD", "keywords": {"momentum": 0.9}}
ADAMW: dict[str, Any] = {"optimizer": "AdamW", "keywords": {}}
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "foreach": True}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"foreach": True}),
    ("Adam", {"fused": True}),
    ("AdamW", {"foreach": False}),
    ("AdamW", {"fused": True}),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's checkpoint goes."""
    return tmp_path / "a.pt"


def shorter() -> Workload:
    """The network without its last layers, so with fewer parameters."""
    return replace(stateful(), modules=lambda: {"net": nn.Sequential(nn.Linear(6, 6))})


@pytest.mark.parametrize(
    ("saved", "resumed", "told"),
    [
        (stateful(), stateful(width=7), "modules/net/0.weight: it has float32 (6, 6), this run has float32 (7, 7); "),
        (stateful(**SGD), stateful(**ADAMW), "param_groups/0/betas/0: it has nothing, this run has a value; "),
        (stateful(**ADAMW), stateful(**SGD), "param_groups/0/momentum: it has nothing, this run has a value; "),
        (stateful(), shorter(), "modules/net/1.weight: it has float32 (6,), this run has nothing; "),
        (stateful(), stateful(scheduled=False), "schedulers/net/gamma: it has a value, this run has nothing; "),
        (pair(), pair(("a", "c")), "modules/c/weight: it has nothing, this run has float32 (6, 6); "),
    ],
    ids=["width", "SGD, AdamW", "AdamW, SGD", "parameters", "no scheduler", "names"],
)
def test_the_state_of_another_workload_is_refused(saved: Workload, resumed: Workload, told: str, path: Path) -> None:
    """The first leaves that differ are named, and how many more there are, with the way out."""
    checkpoint.save(trained(2, workload=saved), path)
    message = refused(path, fresh(workload=resumed))

    assert "does not fit this run: " in message
    assert told in message
    assert "; and " in message
    assert message.endswith("devices that it was saved with, or delete it and run `dvc repro`")


def test_generators_of_devices_that_are_not_here_are_refused() -> None:
    """A run that had a device more is not gone on with, nor merely warned of: its draws would be others."""
    run, found = fresh(), state.get(trained(2))
    held = leaves_of(run)
    found["rng"]["cuda"] = [torch.zeros(16, dtype=torch.uint8)]
    with pytest.raises(ValueError, match=r"^rng/cuda/0: it has uint8 \(16,\), this run has nothing$"):
        state.put(run, found, "amp-fp16")

    assert leaves_of(run) == held


@pytest.mark.parametrize(("saved", "resumed"), [*permutations(["fp32", "amp-fp16", "amp-bf16"], 2)])
def test_a_state_goes_on_in_another_mode_and_that_is_told(saved: str, resumed: str, path: Path) -> None:
    """All but the scaler comes over bit for bit; a scaler that was not saved starts fresh, with no step counted."""
    scaler = fresh(0, resumed).scaler.state_dict()
    before = trained(3, 0, saved)
    expected = leaves(state.get(before) | {"scaler": scaler})
    checkpoint.save(before, path)
    run = fresh(1, resumed)
    told = checkpoint.load(run, path)
    fate = {"amp-fp16": "; its scaler starts fresh"}.get(resumed, "")
    fate = {"amp-fp16": "; the saved scaler is ignored"}.get(saved, fate)

    assert told == [f"mode: saved in {saved}, goes on in {resumed}{fate}"]
    assert differing(expected, leaves_of(run)) == []
    assert scaler_numbers(run).get("growth_tracker", 0) == 0
    train(run, batches(), 6)


def test_a_run_without_a_scaler_has_no_scaler_state(path: Path) -> None:
    """It is empty, the scale is 1, and that goes through a checkpoint."""
    checkpoint.save(trained(2, 0, "amp-bf16"), path)
    run = fresh(1, "amp-bf16")

    assert checkpoint.load(run, path) == []
    assert run.scaler.state_dict() == scaler_numbers(run) == checkpoint.read(path).state["scaler"] == {}
    assert run.scaler.get_scale() == 1.0


def test_settings_that_differ_are_the_saved_ones_and_are_told(path: Path) -> None:
    """The scaler's and the optimizer's; never a guess, and never in silence."""
    checkpoint.save(trained(3, workload=stateful(scheduled=False)), path)
    other = stateful(scheduled=False, keywords={"momentum": 0.5})
    run = fresh(1, workload=other, lr=0.2, scaler={"growth_factor": 1.7, "growth_interval": 7})

    assert checkpoint.load(run, path) == [
        "scaler/growth_interval: 2 as saved, not 7 as this run was started with",
        "optimizers/net/param_groups/0/lr: 0.05 as saved, not 0.2 as this run was started with",
        "optimizers/net/param_groups/0/momentum: 0.9 as saved, not 0.5 as this run was started with",
        "optimizers/extra/param_groups/0/lr: 0.05 as saved, not 0.2 as this run was started with",
        "optimizers/extra/param_groups/0/momentum: 0.9 as saved, not 0.5 as this run was started with",
    ]
    assert scaler_numbers(run)["growth_interval"] == 2
    group = run.optimizers["net"].param_groups[0]
    assert (group["lr"], group["momentum"]) == (0.05, 0.9)


def test_a_learning_rate_that_a_scheduler_has_changed_is_nothing_to_tell(path: Path) -> None:
    """Of each optimizer that has one; the learning rate of another is told."""
    one = replace(pair(), schedulers=lambda optimizers: {"a": ExponentialLR(optimizers["a"], gamma=0.9)})
    checkpoint.save(trained(3, workload=one), path)
    run = fresh(1, workload=one)
    assert checkpoint.load(run, path) == []
    run = fresh(1, workload=one, lr=0.2)

    assert checkpoint.load(run, path) == [
        "optimizers/a/param_groups/0/initial_lr: 0.05 as saved, not 0.2 as this run was started with",
        "optimizers/b/param_groups/0/lr: 0.05 as saved, not 0.2 as this run was started with",
    ]


def test_every_scheduler_goes_on_where_it_was(path: Path) -> None:
    """Two, of different kinds: neither is built anew, and the learning rates are those of the run that went on."""
    straight = fresh(workload=pair())
    train(straight, batches(), 8)
    checkpoint.save(trained(5, workload=pair()), path)
    resumed = fresh(1, workload=pair())
    checkpoint.load(resumed, path)

    assert resumed.schedulers["b"].last_epoch == 4, "one of the five steps was skipped"
    train(resumed, batches(), 8)
    assert differing(leaves_of(straight), leaves_of(resumed)) == []
    assert [each.last_epoch for each in resumed.schedulers.values()] == [7, 7]


@pytest.mark.parametrize(("optimizer", "keywords"), OPTIMIZERS, ids=str)
def test_an_optimizers_state_keeps_its_bits_and_dtypes(optimizer: str, keywords: dict[str, Any], path: Path) -> None:
    """Momentum and moments float32 as their parameters, Adam's step float32 too; and it goes on to the same bits."""
    workload = stateful(optimizer=optimizer, keywords=keywords)
    expected = train(fresh(workload=workload), batches(), 8).losses.tolist()
    run = trained(3, workload=workload)
    saved = leaves_of(run)
    checkpoint.save(run, path)
    resumed = fresh(1, workload=workload)
    checkpoint.load(resumed, path)
    tensors = [leaf for _, leaf in walk(resumed.optimizers["net"].state_dict()["state"]) if torch.is_tensor(leaf)]

    assert differing(saved, leaves_of(resumed)) == []
    assert {(each.dtype, each.device.type) for each in tensors} == {(torch.float32, "cpu")}
    assert train(resumed, batches(), 8).losses.tolist() == expected[3:]


class Odd(torch.optim.SGD):
    """An optimizer with state in other dtypes than its parameters'."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Count in integers and keep sums in double precision."""
        for parameter in self.param_groups[0]["params"]:
            own = self.state[parameter]
            own["count"] = own.get("count", torch.zeros((), dtype=torch.int64)) + 2**24 + 1
            own["sum"] = own.get("sum", torch.zeros((), dtype=torch.float64)) + 0.1
            own["mask"] = torch.tensor([True, False])


def test_state_in_other_dtypes_than_the_parameters_keeps_them(path: Path) -> None:
    """`Optimizer.load_state_dict` alone casts it: an integer beyond 2**24 would be another number."""
    odd = replace(
        stateful(scheduled=False),
        optimizers=lambda modules, lr: {name: Odd(module.parameters(), lr=lr) for name, module in modules.items()},
    )
    run = trained(3, workload=odd)
    checkpoint.save(run, path)
    resumed = fresh(1, workload=odd)
    checkpoint.load(resumed, path)
    [own, *_] = resumed.optimizers["net"].state.values()

    assert differing(leaves_of(run), leaves_of(resumed)) == []
    assert {key: value.dtype for key, value in own.items() if key != "momentum_buffer"} == {
        "count": torch.int64,
        "sum": torch.float64,
        "mask": torch.bool,
    }


def test_the_generators_are_bytes_on_the_cpu_and_draw_on(path: Path) -> None:
    """Torch's, numpy's and python's next numbers are those that would have come, a saved normal deviate included."""

    def drawn() -> list[float]:
        return [torch.rand(()).item(), np.random.standard_normal(), random.gauss(0, 1)]  # noqa: NPY002

    run = trained(1)
    drawn()
    checkpoint.save(run, path)
    expected = drawn()
    held = checkpoint.read(path).state["rng"]["torch"]
    checkpoint.load(fresh(1), path)

    assert (held.dtype, held.device.type) == (torch.uint8, "cpu")
    assert drawn() == expected
