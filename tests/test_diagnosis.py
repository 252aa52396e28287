"""Workloads that break are diagnosed: what is to blame, where it begins, and a cure that was tried."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ampcheck import data, island
from ampcheck.broken import broken_modes, named_modes
from ampcheck.diagnosis import Diagnosis, diagnose
from ampcheck.files import write_json
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.run import Run, start
from ampcheck.schema import Params
from ampcheck.sentences import sentences
from ampcheck.training import train
from ampcheck.variants import outcome, variants, verdict
from ampcheck.watch import Watch
from ampcheck.workloads import Batch, Modules
from tests import broken_workloads
from tests.helpers import copy_pipeline, edit_params, run_in
from tests.runs import broken

FP16, BF16 = "amp-fp16", "amp-bf16"
MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": True, "why": ""}  # so that the first rows of a batch must do
Diagnose = Callable[..., Diagnosis]


@pytest.fixture
def diagnosed(raw: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diagnose:
    """Return a function that diagnoses a kind of broken workload in a mode."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    return lambda kind, mode, available=HERE: diagnose(broken(raw, kind), MACHINE, mode, available)


def fresh(kind: str, mode: str) -> tuple[Run, list[Batch]]:
    """A run of a kind of broken workload, and a batch."""
    torch.manual_seed(0)
    made = broken_workloads.build(8, kind)
    batch = {name: torch.as_tensor(leaf) for name, leaf in made.batch(np.random.default_rng(0)).items()}
    return start(made, MODES[mode], torch.device("cpu"), Options(lr=0.01, zero_grad="set_to_none")), [batch]


def test_an_overflow_is_found_in_its_module_and_cured(diagnosed: Diagnose) -> None:
    """The operation, its type, the magnitude in float32, the user's line, and the smallest island around it."""
    found = diagnosed("overflow", FP16)
    culprit = found.place.culprit

    assert {name: bool(broken) for name, broken in found.tried.items()} == {
        "as it is": True,
        "autocast off": False,
        "scaler off": True,
        "both off": False,
    }
    assert found.verdict.startswith("Autocast to float16 is to blame")
    assert culprit is not None
    assert (culprit.module, culprit.kind, culprit.operation) == ("net.1", "Powers", "pow")
    assert (culprit.phase, culprit.dtype) == ("forward", "float16")
    assert culprit.in_float32 is not None
    assert culprit.in_float32 > 65504
    assert culprit.line.startswith("broken_workloads.py, line ")
    assert found.place.gradient == "net.1.norm.weight"
    assert found.islands == ["net.1"]


def test_the_code_of_a_cure_cures(diagnosed: Diagnose) -> None:
    """It runs as it is told, on the modules as the workload makes them."""
    run, batches = fresh("overflow", FP16)
    before = outcome(run, batches, 3).broken
    run, batches = fresh("overflow", FP16)
    exec(diagnosed("overflow", FP16).code, {"modules": run.modules})

    assert before == "the loss is nan at step 0"
    assert outcome(run, batches, 3).broken == ""


def test_bfloat16_has_the_room_that_float16_lacks(diagnosed: Diagnose) -> None:
    """The same workload breaks in one of them only."""
    found = diagnosed("overflow", BF16)

    assert found.tried == {"as it is": "", "autocast off": ""}
    assert found.verdict == "Nothing broke."
    assert sentences(asdict(found))[0] == "amp-bf16, 24 steps on 8 rows, as it is: nothing breaks."


def test_a_division_by_zero_is_not_blamed_on_mixed_precision(diagnosed: Diagnose) -> None:
    """It breaks with everything off too; the operation and the line are named, and no island is offered."""
    found = diagnosed("division", FP16)

    assert all(found.tried.values())
    assert found.verdict.startswith("It is not mixed precision's fault")
    assert found.place.culprit is not None
    assert (found.place.culprit.module, found.place.culprit.operation) == ("net.1", "div")
    assert found.place.culprit.in_float32 is None
    assert found.islands == []
    assert any("keep the divisor from zero" in each for each in sentences(asdict(found)))


def test_probabilities_in_sixteen_bits_are_found(diagnosed: Diagnose) -> None:
    """BCELoss: its gradient overflows whatever the scale, so every step is skipped; the line and the way out."""
    found = diagnosed("probabilities", FP16)
    said = sentences(asdict(found))

    assert found.tried["as it is"].startswith("the scaler skipped every one of 24 steps")
    assert found.verdict.startswith("Autocast to float16 is to blame")
    assert found.place.culprit is not None
    assert found.place.culprit.phase == "backward"
    assert found.place.gradient == "net.0.weight"
    assert any(
        "probabilities in 16 bits (broken_workloads.py, line" in each and "BCEWithLogits" in each for each in said
    )


@pytest.mark.parametrize(("mode", "dtype"), [(FP16, "float16"), (BF16, "bfloat16")])
def test_a_function_that_ignores_autocast_is_found_and_cured(diagnosed: Diagnose, mode: str, dtype: str) -> None:
    """The operation that torch refuses, both dtypes, the module, the user's line, and what to decorate."""
    found = diagnosed("mixed", mode)
    refused = found.place.refused

    assert refused is not None
    assert (refused.module, refused.operation, refused.phase) == ("net.1", "mm", "backward")
    assert refused.dtypes == [dtype, "float32"]
    assert "(broken_workloads.py, line " in found.place.error
    assert found.islands == ["net.1"]
    assert any("custom_bwd" in each for each in sentences(asdict(found)))


def test_a_parameter_that_autocast_cuts_off_is_found(diagnosed: Diagnose) -> None:
    """Nothing is nan, but a weight gets no gradient: a copy of it in 16 bits was made without."""
    found = diagnosed("copy", BF16)

    assert found.tried["as it is"].startswith("no gradient reaches net.1.weight; ")
    assert found.tried["autocast off"] == ""
    assert found.verdict.startswith("Autocast to bfloat16 is to blame")


@pytest.mark.parametrize("mode", [FP16, BF16])
def test_two_passes_in_one_region_are_told_as_torch_has_them(diagnosed: Diagnose, mode: str) -> None:
    """A pass without gradients before the one that is trained on: where a torch caches its casts, it is found."""
    run, batches = fresh("two passes", mode)
    with run.autocast:
        [loss] = run.workload.losses(run.modules, batches[0])
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    reached = all(each.grad is not None for each in run.modules["net"].parameters())

    assert (diagnosed("two passes", mode).tried["as it is"] == "") == reached


def test_a_mode_without_autocast_has_one_variant_and_is_diagnosed_too(diagnosed: Diagnose) -> None:
    """In float32 there is nothing to switch off, but the operation is named all the same."""
    found = diagnosed("division", "fp32")

    assert list(found.tried) == ["as it is"]
    assert found.verdict.startswith("It is not mixed precision's fault")
    assert found.place.culprit is not None


def test_a_learning_rate_that_is_too_large_is_suspected(diagnosed: Diagnose, raw: dict[str, Any]) -> None:
    """Where the first steps go well, and later ones break without mixed precision too."""
    raw["train"]["lr"] = 1e6
    found = diagnosed("well", BF16)

    assert found.tried["autocast off"].startswith("the loss is inf at step ")
    assert found.verdict.endswith("a smaller train.lr may be what it needs, or train.clip_norm.")
    assert "train.lr" not in diagnosed("division", BF16).verdict


def test_whole_batches_are_tried_where_a_mode_is_trained_and_its_first_rows_do_well(diagnosed: Diagnose) -> None:
    """With as many rows here; a mode that is not available is not tried."""
    assert diagnosed("well", BF16, HERE | {"emulated": False}).steps == 24
    assert diagnosed("well", BF16, {"available": False, "emulated": False, "why": "not here"}).why == "not here"


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ((0, 0, 0, 0), "Nothing broke"),
        ((1, 1, 1, 1), "It is not mixed precision's fault"),
        ((1, 0, 1, 0), "Autocast to float16 is to blame"),
        ((1, 1, 0, 0), "The scaler is to blame"),
        ((1, 1, 1, 0), "Autocast and the scaler are both to blame"),
        ((1, 0, 0, 0), "Autocast to float16 and the scaler together"),
    ],
)
def test_the_verdict_follows_from_what_broke(broken: tuple[int, ...], says: str) -> None:
    """For every pattern of variants that can be."""
    tried = dict(zip(variants(MODES[FP16]), ["broken" * each for each in broken], strict=True))

    assert verdict(tried, "float16").startswith(says)


def test_infinities_of_a_mask_are_no_culprit() -> None:
    """An attention mask is filled with -inf on purpose, and its logarithm's -inf ends in softmax."""

    class Masked(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = super().forward(x)
            mask = torch.tril(torch.ones_like(scores)).log()
            return (scores.masked_fill(mask < 0, -torch.inf) + mask).softmax(-1)

    run, batches = fresh("well", FP16)
    run.modules["net"].append(Masked(8, 8))  # type: ignore[operator]
    run.modules["net"].append(broken_workloads.ByItsSum())  # type: ignore[operator]
    with Watch(run) as watch:
        train(run, batches, 1)

    assert [each.operation for each in watch.births][:2] == ["log", "div"]
    assert watch.culprit() == watch.births[1]


def test_a_watch_leaves_nothing_behind() -> None:
    """No hook, and the workload that was there."""
    run, batches = fresh("well", BF16)
    losses = run.workload.losses
    with Watch(run):
        train(run, batches, 1)
    [parameter, *_] = run.modules["net"].parameters()

    assert run.workload.losses is losses
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in run.modules["net"].modules())
    assert not parameter._backward_hooks


def test_islands_grow_where_one_is_not_enough() -> None:
    """The module around takes the place of those inside; around the outermost there is none."""
    assert island.more_islands([], "net.1.bands") == ["net.1.bands"]
    assert island.more_islands(["net.1.bands"], "net.2") == ["net.1.bands", "net.2"]
    assert island.more_islands(["net.1.bands", "net.2"], "net.1.bands") == ["net.2", "net.1"]
    assert island.more_islands(["net"], "net.1") == []
    assert island.more_islands([], "") == []


def test_an_island_computes_in_float32() -> None:
    """What comes in with 16 bits, by place or by name, and the autocast around it is what it was."""

    class Sum(nn.Linear):
        def forward(self, input: torch.Tensor, more: torch.Tensor | float = 0.0) -> torch.Tensor:  # noqa: A002
            return super().forward(input) + more

    modules: Modules = {"net": Sum(3, 3)}
    island.put_islands(modules, ["net"], "cpu")
    half = torch.ones(2, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = modules["net"](half, more=half)

        assert torch.is_autocast_enabled("cpu")
    assert result.dtype == torch.float32


def test_only_modes_whose_trial_broke_are_diagnosed_unless_they_are_named(tiny_params: Params, tmp_path: Path) -> None:
    """The last step in which a trial broke counts; a name that is none is refused with the closest."""
    for repeat, broke_at in enumerate([3, 5]):
        for mode in tiny_params.train.modes:
            trial = {"broke_at": broke_at if mode == FP16 else None}
            write_json(tmp_path / str(repeat) / f"{mode}.json", trial)

    assert broken_modes(tiny_params, tmp_path) == {FP16: 5}
    assert named_modes(tiny_params, ["all"]) == tiny_params.train.modes
    assert named_modes(tiny_params, [BF16, "fp32"]) == ["fp32", BF16]
    with pytest.raises(ValueError, match=r"got 'amp-pf16'; all, or some of .* \(did you mean amp-fp16\?\)"):
        named_modes(tiny_params, ["amp-pf16"])


def test_by_hand_it_needs_the_data_only_and_leaves_the_stack_of_torch(tmp_path: Path) -> None:
    """As for a loss that is nan in the first step, with which the pipeline stops: in results/ there is no trial."""
    project = copy_pipeline(tmp_path / "project")
    (project / "my_network.py").write_text(Path(broken_workloads.__file__).read_text())
    write_json(project / "results/machine.json", MACHINE)
    write_json(project / "results/modes.json", {FP16: HERE})

    def mixed(raw: dict[str, Any]) -> None:
        raw |= {"workload": "my_network:build", "sizes": {"batch_size": 8, "kind": "mixed"}}
        raw["train"]["modes"] = [FP16]

    edit_params(project, mixed)
    assert run_in(project, "python", "-m", "stages.data").returncode == 0
    ended = run_in(project, "python", "-m", "stages.diagnose", "all")
    stack = (project / "results/diagnose/amp-fp16.stack.txt").read_text()

    assert ended.returncode == 0, ended.stderr
    assert (
        "torch refuses mm of float16 and float32, in net.1, backward: RuntimeError: expected m1 and m2" in ended.stdout
    )
    assert "(my_network.py, line " in ended.stdout
    assert "in_float32(modules['net'].get_submodule('1'), 'cpu')" in ended.stdout
    assert "C++ CapturedTraceback" in stack
