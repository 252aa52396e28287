"""PyTorch's own cases of GradScaler, and those of its users, through our loop: float16 on a CPU."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from ampcheck import checkpoint, data, identity, launch, state, workloads
from ampcheck.options import Options
from ampcheck.precision import MODES, Mode
from ampcheck.reference import SIZES, WORKLOAD
from ampcheck.run import Run, start
from ampcheck.schema import Params
from ampcheck.training import History, scaler_numbers, skipped_steps, train
from ampcheck.trial import run_trial
from ampcheck.workloads import Batch, Modules, Optimizers, Workload

SCALED = MODES["amp-fp16"]
FLOAT32 = MODES["fp32"]
BFLOAT16 = MODES["amp-bf16"]
SGD = partial(torch.optim.SGD, lr=1.0)
EVERY_STEP: dict[str, Any] = {"init_scale": 128.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 1}


def one_weight(optimizer: Any = SGD, **also: Any) -> Workload:
    """A weight whose gradient is exactly its input."""
    return Workload(
        modules=lambda: {"net": nn.Linear(1, 1, bias=False)},
        batch=lambda _: {"x": torch.ones(1, 1)},
        losses=lambda modules, batch: [modules["net"](batch["x"]).sum().float()],
        optimizers=lambda modules, _: {"all": optimizer(modules["net"].parameters())},
        **also,
    )


def edge(batch_size: int) -> Workload:
    """A network whose gradient is 1 a row: 65536, where a scaler begins, is too large a scale for it."""
    return replace(one_weight(), batch=lambda _: {"x": torch.ones(batch_size, 1)})


def halving(optimizer: Any) -> Workload:
    """A weight with a learning rate of 0.8 that halves with every real step."""
    return one_weight(partial(optimizer, lr=0.8), schedulers=lambda made: {"all": StepLR(made["all"], 1, gamma=0.5)})


def started(workload: Workload, mode: Mode = SCALED, **scaler: float) -> Run:
    """A run at step 0 from seed 0; `scaler` are keywords of its scaler."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    return start(workload, mode, torch.device("cpu"), Options(lr=0.01, zero_grad="set_to_none"), scaler=scaler)


def over(run: Run, *values: float) -> History:
    """Train over one batch a value, which is its gradient."""
    return train(run, [{"x": torch.tensor([[value]])} for value in values], len(values))


def weight(run: Run, name: str = "net") -> float:
    """The value of a module's one weight."""
    [parameter] = run.modules[name].parameters()
    return float(parameter.detach())


@pytest.mark.parametrize("at", range(4))
def test_pytorchs_own_fixture(at: int) -> None:
    """Init 128, growth 2, backoff 0.5, interval 1: four batches with one inf end at 512 with tracker 0."""
    run = started(one_weight(), **EVERY_STEP)
    over(run, *(math.inf if step == at else 1.0 for step in range(4)))

    assert scaler_numbers(run)["scale"] == 512.0
    assert scaler_numbers(run)["growth_tracker"] == 0


@pytest.mark.parametrize(("growth", "backoff", "interval"), [(2.0, 0.5, 1), (2.0, 0.5, 3), (4.0, 0.25, 2)])
@pytest.mark.parametrize("skips", [0, 1, 3])
def test_the_final_scale_is_the_formulas(growth: float, backoff: float, interval: int, skips: int) -> None:
    """The first scale, times growth for every interval of steps that were taken, times backoff for every skip."""
    run = started(
        one_weight(), init_scale=1024.0, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    over(run, *[math.inf] * skips, *[0.0] * 2 * interval)

    assert run.scaler.get_scale() == 1024.0 * growth**2 * backoff**skips


def test_growth_ends_at_the_last_power_of_two_that_float32_holds() -> None:
    """The scale never becomes inf, and one that stays is no skip."""
    run = started(one_weight(), replace(FLOAT32, scaler=True), **EVERY_STEP | {"init_scale": 2.0**126})
    scales = over(run, 0.0, 0.0, 0.0).scales.tolist()

    assert scales == [2.0**126, 2.0**127, 2.0**127, 2.0**127]
    assert len(skipped_steps(scales)) == 0


def test_growth_is_not_a_skip() -> None:
    """A skip is a scale that went down, not one that changed."""
    assert len(skipped_steps([1.0, 2.0, 1.0, 2.0, 4.0, 4.0, 2.0])) == 2


def test_one_iteration_steps_the_optimizer_once() -> None:
    """With SGD and lr 1 a weight moves by minus its gradient, and `step` is called once."""
    run, calls = started(one_weight(), init_scale=1024.0), []
    run.optimizers["all"].register_step_post_hook(lambda *_: calls.append(run.step))
    before = weight(run)
    over(run, 2.0)

    assert weight(run) == before - 2.0
    assert calls == [0]


def test_one_inf_costs_one_skip() -> None:
    """The gradients of a skipped step are cleared: the scale falls once and recovers."""
    run = started(one_weight(), init_scale=1024.0, growth_interval=3)
    before = weight(run)
    scales = over(run, math.inf, 1.0, 1.0, 1.0).scales.tolist()

    assert scales == [1024.0, 512.0, 512.0, 512.0, 1024.0]
    assert len(skipped_steps(scales)) == 1
    assert weight(run) == before - 3.0


def test_a_skip_leaves_the_weights_alone_and_the_rest_goes_on() -> None:
    """Parameters, momentum and learning rate stay; data, generators, BatchNorm and the scaler advance."""
    workload = workloads.load(WORKLOAD, SIZES)
    run = started(workload, init_scale=1024.0)
    arrays = [workload.batch(np.random.default_rng(index)) for index in range(3)]
    batches: list[Batch] = [{name: torch.as_tensor(array) for name, array in batch.items()} for batch in arrays]
    train(run, batches, 1)
    before = identity.leaves(state.get(run))
    run.overflow_at = frozenset({1})
    used: list[Batch] = []

    def losses(modules: Modules, batch: Batch) -> Iterable[torch.Tensor]:
        used.append(batch)
        return workload.losses(modules, batch)

    run.workload = replace(workload, losses=losses)
    train(run, batches, 2)
    skipped = identity.differing(before, identity.leaves(state.get(run)))
    train(run, batches, 3)
    stepped = identity.differing(before, identity.leaves(state.get(run)))

    statistics = [f"modules/net/1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]
    counters = ["scaler/scale", "scaler/_growth_tracker", "step"]
    assert [path for path in skipped if not path.startswith("rng/")] == [*statistics, *counters]
    assert {path.split("/")[1] for path in skipped if path.startswith("rng/")} == {"torch", "numpy", "python"}
    assert [id(batch) for batch in used] == [id(batches[1]), id(batches[2])]
    assert {"modules/net/0.weight", "optimizers/net/state/0/momentum_buffer"} < set(stepped) - set(skipped)


def test_of_two_optimizers_only_the_one_with_an_inf_skips() -> None:
    """The other steps, and the scale falls once: there is one `update` an iteration, after both."""
    run = started(
        Workload(
            modules=lambda: {name: nn.Linear(1, 1, bias=False) for name in "ab"},
            batch=lambda _: {},
            losses=lambda modules, batch: [modules[name](batch[name]).sum().float() for name in "ab"],
            optimizers=lambda modules, _: {name: SGD(modules[name].parameters()) for name in "ab"},
        ),
        init_scale=1024.0,
        growth_interval=2,
    )
    before = {name: weight(run, name) for name in "ab"}
    values = [(1.0, math.inf), (1.0, 1.0), (1.0, 1.0)]
    batches: list[Batch] = [{"a": torch.tensor([[a]]), "b": torch.tensor([[b]])} for a, b in values]
    scales = train(run, batches, 3).scales.tolist()

    assert scales == [1024.0, 512.0, 512.0, 1024.0]
    assert weight(run, "a") == before["a"] - 3.0
    assert weight(run, "b") == before["b"] - 2.0


@pytest.mark.parametrize("fused", [False, True])
def test_a_scheduler_waits_for_a_real_step(fused: bool) -> None:
    """StepLR(1, gamma 0.5) from 0.8 over four steps ends at 0.1 if the first overflows, else at 0.05.

    A fused optimizer's `step` and its hooks run even on a skip.
    """
    ends = []
    for first in (math.inf, 1.0):
        run = started(halving(partial(torch.optim.SGD, fused=fused)), init_scale=1024.0)
        over(run, first, 1.0, 1.0, 1.0)
        ends.append(run.optimizers["all"].param_groups[0]["lr"])

    assert ends == [0.1, 0.05]


@pytest.mark.parametrize("mode", [FLOAT32, BFLOAT16], ids=lambda mode: mode.name)
def test_a_scheduler_advances_with_every_step_without_a_scaler(mode: Mode) -> None:
    """Where nothing is skipped four steps are four."""
    run = started(halving(torch.optim.SGD), mode)
    over(run, 1.0, 1.0, 1.0, 1.0)

    assert run.optimizers["all"].param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("fused", [False, True])
def test_all_steps_less_the_skipped_ones_are_the_optimizers(optimizer: Any, fused: bool) -> None:
    """The optimizer's own count agrees, though a fused one is called on a skip too."""
    run = started(one_weight(partial(optimizer, fused=fused)), init_scale=1024.0, growth_interval=2)
    scales = over(run, 1.0, math.inf, 1.0, 1.0, math.nan, 1.0, math.inf, 1.0).scales.tolist()
    [counted] = [each["step"] for each in run.optimizers["all"].state.values()]

    assert len(skipped_steps(scales)) == 3
    assert run.step - len(skipped_steps(scales)) == counted == 5


def test_a_skip_of_a_fused_sgd_moves_nothing() -> None:
    """It has no count of steps, but its weight tells."""
    run = started(one_weight(partial(SGD, fused=True)), init_scale=1024.0)
    before = weight(run)
    scales = over(run, 1.0, math.inf, math.inf, 1.0).scales.tolist()

    assert weight(run) == before - 2.0
    assert len(skipped_steps(scales)) == 2


@pytest.mark.parametrize("optimizer", [partial(torch.optim.SGD, lr=0.1), partial(torch.optim.Adam, lr=0.01)])
def test_a_fused_optimizer_unscales_once(mlp: Workload, batches: list[Batch], optimizer: Any) -> None:
    """Five steps with a scale of 65536 end where those of the plain optimizer do; twice or never is far off."""
    ends = []
    for fused in (False, True):

        def optimizers(modules: Modules, _: float, fused: bool = fused) -> Optimizers:
            return {"all": optimizer(modules["net"].parameters(), fused=fused)}

        run = started(replace(mlp, optimizers=optimizers), init_scale=65536.0)
        assert train(run, batches, 5).scales.tolist() == [65536.0] * 6
        ends.append(nn.utils.parameters_to_vector(run.modules["net"].parameters()).detach())

    torch.testing.assert_close(ends[1], ends[0], rtol=1e-5, atol=1e-6)


def test_a_checkpoint_holds_the_scalers_five_numbers(tmp_path: Path) -> None:
    """No more and no fewer, and the tracker among them is not that of a fresh scaler."""
    run = started(one_weight(), init_scale=1024.0, growth_interval=3)
    over(run, 1.0, 1.0)
    checkpoint.save(run, tmp_path / "a.pt")

    assert checkpoint.read(tmp_path / "a.pt").state["scaler"] == {
        "scale": 1024.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 2,
    }


def test_at_the_edge_one_step_an_interval_is_skipped() -> None:
    """A scale that grows until it overflows and backs off is in order: it costs one step in each interval."""
    run = started(one_weight(), init_scale=32768.0, growth_interval=4)
    scales = over(run, *[1.0] * 25).scales.tolist()  # a gradient of 1 times 65536 is more than float16 holds

    assert scales[:7] == [32768.0] * 4 + [65536.0, 32768.0, 32768.0]
    assert len(skipped_steps(scales)) == 5
    assert len(skipped_steps(scales)) / 25 <= 1 / 4


def test_a_trial_tells_its_steps_and_skips(
    tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skip while the scaler finds its scale is no failure, and is counted."""
    monkeypatch.chdir(tmp_path)
    given = tiny_params.model_copy(update={"workload": "tests.test_scaler:edge", "sizes": {"batch_size": 2}})
    data.make(data.PATH, edge(2), seed=0, num_batches=4, batch_size=2)
    trial = run_trial(given, {"device": "cpu", "threads": 1}, SCALED.name, 0, {"available": True, "emulated": False})

    assert trial.trained
    assert (trial.steps, trial.skipped_steps, trial.optimizer_steps) == (8, 2, 6)
    assert trial.scaler["scale"] == 16384.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_16_bits_are_refused_under_a_scaler(dtype: torch.dtype) -> None:
    """GradScaler can't unscale their gradients; without one they are the user's to choose, and frozen ones always."""
    workload = one_weight()
    frozen = nn.Linear(1, 1, dtype=dtype).requires_grad_(requires_grad=False)
    half = replace(workload, modules=lambda: {"net": nn.Linear(1, 1, bias=False, dtype=dtype)})
    told = f"workload: has 1 trained weights in 16 bits (net.weight is {str(dtype)[6:]}); under a scaler they stay"
    with pytest.raises(ValueError, match=f"^{re.escape(told)} float32.*out$"):
        started(half)

    assert started(replace(workload, modules=lambda: {**workload.modules(), "frozen": frozen})).step == 0
    for mode in (FLOAT32, BFLOAT16):
        assert started(half, mode).modules["net"].weight.dtype == dtype


@pytest.mark.parametrize("mode", [SCALED, BFLOAT16], ids=lambda mode: mode.name)
def test_weights_and_moments_stay_float32(mlp: Workload, batches: list[Batch], mode: Mode) -> None:
    """What is trained, and what the optimizer keeps of it, is float32 whatever autocast casts."""
    adam = replace(mlp, optimizers=lambda modules, lr: {"all": torch.optim.Adam(modules["net"].parameters(), lr=lr)})
    run = started(adam, mode)
    train(run, batches, 2)
    kept = [parameter.dtype for parameter in run.modules["net"].parameters()]
    kept += [each[key].dtype for each in run.optimizers["all"].state.values() for key in ("exp_avg", "exp_avg_sq")]

    assert len(kept) == 12
    assert set(kept) == {torch.float32}


class Positional(torch.optim.SGD):
    """An optimizer whose step needs a closure."""

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        """Step."""
        return super().step(closure)


class Keyword(torch.optim.SGD):
    """An optimizer whose step needs a closure by its name."""

    def step(self, *, closure: Any) -> Any:  # type: ignore[override]
        """Step."""
        return super().step(closure)


@pytest.mark.parametrize("mode", [FLOAT32, SCALED, BFLOAT16], ids=lambda mode: mode.name)
@pytest.mark.parametrize("optimizer", [torch.optim.LBFGS, Positional, Keyword])
def test_an_optimizer_that_needs_a_closure_is_refused(mode: Mode, optimizer: type) -> None:
    """The scaler can't call it again; it is named before any training, also where a scheduler wraps its step."""
    told = f"^workload: all is {optimizer.__name__}, .*'closure'.*; take SGD or Adam, say$"
    for also in ({}, {"schedulers": lambda made: {"all": StepLR(made["all"], 1)}}):
        with pytest.raises(ValueError, match=told):
            started(one_weight(optimizer, **also), mode)


@pytest.mark.parametrize("mode", [FLOAT32, SCALED], ids=lambda mode: mode.name)
def test_a_scheduler_that_needs_a_metric_is_refused(mode: Mode) -> None:
    """The loop has none to give."""
    workload = one_weight(schedulers=lambda made: {"all": ReduceLROnPlateau(made["all"])})
    with pytest.raises(ValueError, match=r"^workload: all is ReduceLROnPlateau, .*'metrics'.*; take StepLR"):
        started(workload, mode)


def test_every_reason_is_told_at_once() -> None:
    """One line for each thing that the loop can't train."""
    several = one_weight(
        torch.optim.LBFGS,
        schedulers=lambda made: {"all": ReduceLROnPlateau(made["all"]), "other": StepLR(made["all"], 1)},
    )
    half = replace(several, modules=lambda: {"net": nn.Linear(1, 1, bias=False).half()})
    with pytest.raises(ValueError, match=r"\n") as caught:
        started(half)

    lines = str(caught.value).splitlines()
    assert [line.split()[1] for line in lines] == ["schedulers", "all", "all", "has"]
