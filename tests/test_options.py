"""The recipe's other topics, through the same loop: clipping, accumulation, a penalty, compiling."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import data, launch, schedulers, stops, workloads
from ampcheck.identity import leaves
from ampcheck.options import Options
from ampcheck.precision import MODES, Mode
from ampcheck.reference import Setup, record
from ampcheck.resume import check_resume
from ampcheck.run import Run, start
from ampcheck.schema import Params
from ampcheck.training import scaler_numbers, skipped_steps, train, windows_of
from ampcheck.trial import run_trial
from ampcheck.workloads import Batch, Workload

ON_CPU = [name for name, mode in MODES.items() if mode.fp32_precision == "ieee"]
GAN = {"batch_size": 4, "noise_size": 3, "sample_size": 6, "width": 8}
ASKED: dict[str, dict[str, Any]] = {
    "clipped": {"clip_norm": 0.01},
    "accumulated": {"accumulate": 3},
    "penalised": {"gradient_penalty": 0.5},
    "another optimizer": {"optimizer": {"name": "AdamW", "weight_decay": 0.1}},
    "scheduled": {"scheduler": {"name": "StepLR", "step_size": 2, "gamma": 0.5}},
}
ONE_CYCLE = {"name": "OneCycleLR", "max_lr": 0.1, "total_steps": 16}  # it changes betas and momentum as well
ASKED["cycled"] = {"optimizer": {"name": "Adam"}, "scheduler": ONE_CYCLE}
ASKED["all together"] = {key: value for asked in list(ASKED.values()) for key, value in asked.items()}


def fresh(workload: Workload, mode: Mode, scaler: dict[str, float] | None = None, **asked: Any) -> Run:
    """A run at step 0; of a mode with a scaler the first scale is 128 unless another is given."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    plain: dict[str, Any] = {"lr": 0.1, "zero_grad": "set_to_none"}
    options = Options(**plain | asked)
    given = {"init_scale": 128.0} | (scaler or {}) if mode.scaler else None
    return start(workload, mode, torch.device("cpu"), options, scaler=given)


def one_weight(batch_loss: Callable[[torch.Tensor, Batch], torch.Tensor]) -> Workload:
    """A network of one weight, which begins at 3."""

    def modules() -> dict[str, nn.Module]:
        net = nn.Linear(1, 1, bias=False)
        nn.init.constant_(net.weight, 3.0)
        return {"net": net}

    return Workload(
        modules=modules,
        batch=lambda _: {},
        losses=lambda modules, batch: [batch_loss(modules["net"](batch["x"]).float(), batch)],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def weight(run: Run) -> float:
    """The one weight."""
    [only] = run.modules["net"].parameters()
    return only.item()


@pytest.mark.parametrize("asked", [{}, *ASKED.values()], ids=["plain", *ASKED])
@pytest.mark.parametrize("name", ["mlp", "gan"])
def test_a_power_of_two_scaler_leaves_float32_its_bits(
    name: str, asked: dict[str, Any], mlp: Workload, batches: list[Batch], tmp_path: Path
) -> None:
    """Whatever is asked for, and with one optimizer or two: the sharpest test that every gradient is unscaled once."""
    workload = mlp
    if name == "gan":
        workload = workloads.load("ampcheck.workloads.gan:build", GAN)
        data.make(tmp_path / "data", workload, seed=0, num_batches=4, batch_size=4)
        batches = data.load(tmp_path / "data", torch.device("cpu"), num_batches=4)
    plain = fresh(workload, MODES["fp32"], **asked)
    scaled = fresh(workload, replace(MODES["fp32"], scaler=True), **asked)

    assert train(plain, batches, 5).losses.tolist() == train(scaled, batches, 5).losses.tolist()
    for module in plain.modules:
        assert leaves(plain.modules[module].state_dict()) == leaves(scaled.modules[module].state_dict())


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16"])
def test_the_threshold_meets_the_true_norm(mode: str) -> None:
    """A scale of 65536, a norm of 2 and a limit of 1: the update has a norm of 1, with a scaler and without."""
    sixteen = Workload(
        modules=lambda: {"net": nn.Linear(16, 1, bias=False)},
        batch=lambda _: {},
        losses=lambda modules, batch: [modules["net"](batch["x"]).float().sum() / 2],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )
    run = fresh(sixteen, MODES[mode], {"init_scale": 65536.0}, lr=1.0, clip_norm=1.0)
    [weights] = run.modules["net"].parameters()
    before = weights.detach().clone()
    history = train(run, [{"x": torch.ones(1, 16)}], 1)  # sixteen gradients of 1/2

    assert len(skipped_steps(history.scales.tolist())) == 0
    assert (weights - before).norm().item() == pytest.approx(1.0, abs=1e-5)  # torch divides by the norm plus 1e-6


def test_a_norm_that_is_not_finite_costs_one_skip(mlp: Workload, batches: list[Batch]) -> None:
    """Clipping makes nan of it, after the scaler has seen it: the step is skipped, the next one is as ever."""
    run = fresh(mlp, MODES["amp-fp16"], clip_norm=1.0)
    run.overflow_at = frozenset({1})
    history = train(run, batches, 4)

    assert len(skipped_steps(history.scales.tolist())) == 1
    assert history.scales.tolist() == [128.0, 128.0, 64.0, 64.0, 64.0]
    assert all(parameter.isfinite().all() for parameter in run.modules["net"].parameters())


def test_four_batches_are_one_step(mlp: Workload, batches: list[Batch]) -> None:
    """Eight batches in windows of four: two steps, and the scaler has counted two."""
    run = fresh(mlp, MODES["amp-fp16"], accumulate=4)
    windows = windows_of(batches * 2, 4)
    train(run, batches * 2, len(windows))

    assert [len(window) for window in windows] == [4, 4]
    assert scaler_numbers(run)["growth_tracker"] == run.step == 2


def test_no_window_spans_two_epochs(mlp: Workload, batches: list[Batch]) -> None:
    """Five batches in windows of two, twice: six steps, the third and sixth on the one batch that is left."""
    seen: list[int] = []
    five = [*batches, batches[0]]

    def losses(modules: Any, batch: Batch) -> Any:
        seen.append(next(number for number, each in enumerate(five) if each is batch))
        return mlp.losses(modules, batch)

    five[4] = dict(batches[0])
    run = fresh(replace(mlp, losses=losses), MODES["fp32"], accumulate=2)
    train(run, five, 2 * len(windows_of(five, 2)))

    assert run.step == 6
    assert seen == [0, 1, 2, 3, 4] * 2


def test_a_window_is_trained_on_as_one_large_batch(mlp: Workload, batches: list[Batch]) -> None:
    """The mean over its batches, whatever their number: the last window of an epoch weighs no more or less."""
    large = {name: torch.cat([batch[name] for batch in batches[:3]]) for name in batches[0]}
    together, apart = fresh(mlp, MODES["fp32"]), fresh(mlp, MODES["fp32"], accumulate=4)
    one, three = train(together, [large], 1).losses.tolist(), train(apart, batches[:3], 1).losses.tolist()
    ends = [nn.utils.parameters_to_vector(run.modules["net"].parameters()) for run in (together, apart)]

    assert one == pytest.approx(three)
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16"])
def test_the_penalty_is_the_norm_of_the_unscaled_gradients(mode: str) -> None:
    """Of (w x)^2 / 2 with w = 3, x = 2 the gradient is 12; half its norm adds 6 to the loss, and 2 to the gradient."""
    workload = one_weight(lambda output, _: 0.5 * output.square().sum())
    run = fresh(workload, MODES[mode], lr=0.125, gradient_penalty=0.5)
    [loss] = train(run, [{"x": torch.full((1, 1), 2.0)}], 1).losses.tolist()

    assert loss == 18.0 + 6.0
    assert weight(run) == 3.0 - 0.125 * (12.0 + 2.0)


@pytest.mark.parametrize("asked", [{}, *ASKED.values()], ids=["plain", *ASKED])
def test_float16_does_not_depend_on_the_first_scale(asked: dict[str, Any]) -> None:
    """Any power of two from 1 to 65536 ends with the same bits, where nothing underflows or overflows."""
    ends = []
    for exponent in range(0, 17, 4):
        workload = one_weight(lambda output, batch: (output - batch["y"]).square().mean())
        run = fresh(workload, MODES["amp-fp16"], {"init_scale": 2.0**exponent}, lr=0.01, **asked)
        batches: list[Batch] = [
            {"x": torch.full((2, 1), 0.5), "y": torch.full((2, 1), 1.25 + step / 8)} for step in range(6)
        ]
        history = train(run, batches, 2)
        assert len(skipped_steps(history.scales.tolist())) == 0
        ends.append([leaves(run.modules["net"].state_dict()), history.losses.tolist()])

    assert all(end == ends[0] for end in ends)


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
@pytest.mark.parametrize("mode", ON_CPU)
def test_every_stop_is_bit_exact(mode: str, asked: dict[str, Any], tiny_params: Params, tmp_path: Path) -> None:
    """The drill, with each option and with all of them together."""
    given = tiny_params.model_copy(update={"train": tiny_params.train.model_copy(update=asked)})
    setup = Setup(given, {"device": "cpu", "threads": 1}, tmp_path)
    setup.make_data()
    reference = record(setup, mode)

    assert [stop for stop in stops.every_stop(setup, mode, reference) if not stop["bit_exact"]] == []
    assert stops.same_save_points(reference)


def test_optimizers_and_schedulers_by_name_take_the_places_of_the_workloads(tmp_path: Path) -> None:
    """One for each of its own, for the same parameters, with the keywords and the learning rate of the parameters."""
    workload = workloads.load("ampcheck.workloads.gan:build", GAN)
    asked: dict[str, Any] = {
        "optimizer": {"name": "RMSprop", "alpha": 0.5},
        "scheduler": {"name": "StepLR", "step_size": 7},
    }
    run = fresh(workload, MODES["fp32"], lr=0.25, **asked)

    assert {name: type(each) for name, each in run.optimizers.items()} == dict.fromkeys(
        run.modules, torch.optim.RMSprop
    )
    for name, optimizer in run.optimizers.items():
        [group] = optimizer.param_groups
        assert (group["lr"], group["alpha"], run.schedulers[name].state_dict()["step_size"]) == (0.25, 0.5, 7)
        assert [id(each) for each in group["params"]] == [id(each) for each in run.modules[name].parameters()]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"optimizer": {"name": "Adamm"}}, r"train.optimizer.name: got 'Adamm'; allowed: ASGD, .*did you mean Adam\?"),
        ({"optimizer": {"name": "Optimizer"}}, "train.optimizer.name: got 'Optimizer'; allowed: ASGD, "),
        ({"optimizer": {"name": "SGD", "mass": 1}}, r"train.optimizer: SGD refuses {mass: 1}: .*unexpected keyword"),
        ({"optimizer": {"name": "SGD", "momentum": -1}}, "train.optimizer: SGD refuses .*Invalid momentum"),
        (
            {"optimizer": {"name": "Adam", "betas": [0.9]}},
            r"Adam refuses {betas: \[0.9\]}: IndexError",
        ),
        (
            {"optimizer": {"name": "LBFGS"}},
            "train.optimizer.name: got 'LBFGS'; its .* needs .*'closure'.*allowed:",
        ),
        ({"scheduler": {"name": "StepLR"}}, "train.scheduler: StepLR refuses {}: .*step_size"),
        ({"scheduler": {"name": "LambdaLR"}}, "it takes Python objects: .* the workload's schedulers; allowed: Cons"),
        ({"scheduler": {"name": "Counter"}}, "train.scheduler.name: got 'Counter'; allowed: Constant"),
        ({"scheduler": {"name": "LRScheduler"}}, "train.scheduler.name: got 'LRScheduler'; allowed: Constant"),
        (
            {"scheduler": {"name": "ReduceLROnPlateau"}},
            "train.scheduler.name: got 'ReduceLROnPlateau'; its .*metrics",
        ),
    ],
)
def test_what_torch_does_not_have_or_refuses_is_told(asked: dict[str, Any], says: str, mlp: Workload) -> None:
    """In one line, which names the key."""
    with pytest.raises(ValueError, match=says) as caught:
        fresh(mlp, MODES["fp32"], **asked)

    assert "\n" not in str(caught.value)


def test_a_schedule_that_fails_is_told(mlp: Workload, batches: list[Batch]) -> None:
    """With the key and its class, whatever it raises: a step size of zero, say; and an end before that of a run."""
    run = fresh(mlp, MODES["fp32"], scheduler={"name": "StepLR", "step_size": 0})
    with pytest.raises(ValueError, match=r"train\.scheduler, or .*: StepLR fails with ZeroDivisionError: .*by zero"):
        train(run, batches, 1)

    run = fresh(mlp, MODES["fp32"], scheduler=ONE_CYCLE)
    schedulers.refuse_short(run.schedulers, 16)
    with pytest.raises(
        ValueError, match=r"OneCycleLR ends after 16 steps, but the longer of a .* takes 17; give it as"
    ):
        schedulers.refuse_short(run.schedulers, 17)


@pytest.mark.parametrize("asked", [{}, *ASKED.values()], ids=["plain", *ASKED])
def test_a_loss_that_overflows_where_the_scaler_skips_is_no_end(
    asked: dict[str, Any], tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A penalty on scaled gradients overflows with them: the step is skipped, and both trial and resume go on."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    sizes = {"batch_size": 4, "noise_size": 3, "sample_size": 6, "width": 8}
    path, here = "ampcheck.workloads.gan:build", {"available": True, "emulated": False, "why": ""}
    train_asked = tiny_params.train.model_copy(update=asked | {"epochs": 4})
    given = tiny_params.model_copy(update={"workload": path, "sizes": sizes, "train": train_asked})
    data.make(data.PATH, workloads.load(path, sizes), seed=0, num_batches=24 * train_asked.accumulate, batch_size=4)
    machine = {"device": "cpu", "threads": 1}
    trial = run_trial(given, machine, "amp-fp16", 0, here)
    result = check_resume(given, machine, "amp-fp16", here, tmp_path)

    assert (trial.trained, trial.why) == (True, "")
    assert (result["bit_exact"], result.get("why")) == (True, "")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # in torch itself
def test_compiling_has_a_time_of_its_own(tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured before the window, and changes nothing of what is trained: the losses are those without it."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    workload = workloads.load(tiny_params.workload, tiny_params.sizes)
    data.make(data.PATH, workload, seed=0, num_batches=4, batch_size=8)
    here = {"available": True, "emulated": False, "why": ""}
    found = {}
    for asked in (True, False):
        given = tiny_params.model_copy(update={"train": tiny_params.train.model_copy(update={"compile": asked})})
        found[asked] = run_trial(given, {"device": "cpu", "threads": 1}, "fp32", 0, here)

    assert found[False].compile_seconds is None
    assert found[True].compile_seconds is not None
    assert (found[True].compiled_graphs, found[False].compiled_graphs) == (1, None)
    assert (found[True].trained, found[True].steps) == (True, found[False].steps)
    assert found[True].losses == pytest.approx(found[False].losses, rel=1e-5)
