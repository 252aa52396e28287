"""What can't be trained is refused before anything is; what ran in which type is seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import launch
from ampcheck.admission import told_in_one_line
from ampcheck.launch import Failure, attempt
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.rehearsal import observe, step_seconds
from ampcheck.run import Run, start
from ampcheck.workloads import Batch, Modules, Workload


def fresh(workload: Workload, mode: str = "fp32") -> Run:
    """A run at step 0."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    return start(workload, MODES[mode], torch.device("cpu"), Options(lr=0.1, zero_grad="set_to_none"))


def with_losses(mlp: Workload, change: Callable[[torch.Tensor], Any]) -> Workload:
    """The recipe's network with its loss changed."""
    return replace(mlp, losses=lambda modules, batch: change(next(iter(mlp.losses(modules, batch)))))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda loss: loss, "losses returned one tensor; it must return a list"),
        (lambda loss: None, "losses returned a NoneType; it must return a list"),
        (lambda loss: {"a": loss}, "losses returned a dict; it must return a list"),
        (lambda loss: [], "losses returned an empty list"),
        (lambda loss: [loss.expand(3)], r"a tensor of shape \(3,\), float32; each must be a scalar"),
        (lambda loss: [loss, loss.item()], "losses returned a float; each"),
        (lambda loss: [loss.detach()], "float32 without a gradient"),
        (lambda loss: [loss.detach().long()], "int64 without a gradient"),
        (lambda loss: [loss * float("nan")], "in fp32 the loss of the first step is nan"),
        (lambda loss: [loss, loss * float("inf")], "in fp32 the loss of the first step is inf; look at the data"),
    ],
)
def test_losses_that_cannot_be_trained_on_are_refused(
    change: Callable[[torch.Tensor], Any], says: str, mlp: Workload, batches: list[Batch]
) -> None:
    """In one line, with what came and what is allowed."""
    with pytest.raises(ValueError, match=says) as caught:
        observe(fresh(with_losses(mlp, change)), batches[0])

    assert "\n" not in str(caught.value)


def test_a_generator_of_losses_is_as_good_as_a_list(mlp: Workload, batches: list[Batch]) -> None:
    """It is made whole under autocast."""
    twice = replace(mlp, losses=lambda modules, batch: (loss for loss in [*mlp.losses(modules, batch)] * 2))

    assert observe(fresh(twice, "amp-bf16"), batches[0]).losses == ["float32", "float32"]


def test_a_module_that_stayed_in_float32_is_named(batches: list[Batch]) -> None:
    """Its operation could have run in 16 bits: autocast was off around it; and only modes with autocast are told of."""

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        hidden = modules["body"](batch["input"])
        with torch.autocast("cpu", enabled=False):
            return [modules["head"](hidden.float()).square().mean()]

    island = Workload(
        modules=lambda: {"body": nn.Sequential(nn.Linear(16, 12), nn.ReLU()), "head": nn.Sequential(nn.Linear(12, 1))},
        batch=lambda _: {},
        losses=losses,
        optimizers=lambda modules, lr: {
            name: torch.optim.SGD(module.parameters(), lr=lr) for name, module in modules.items()
        },
    )
    seen = observe(fresh(island, "amp-bf16"), batches[0])

    assert seen.stayed_float32 == ["head.0"]
    assert seen.dtypes == {"Linear": "bfloat16, float32", "ReLU": "bfloat16"}
    assert observe(fresh(island), batches[0]).stayed_float32 == []


def test_no_hook_stays_behind(mlp: Workload, batches: list[Batch]) -> None:
    """The run and the workload's modules are as before."""
    run = fresh(mlp)
    observe(run, batches[0])

    assert run.workload is mlp
    assert all(not module._forward_hooks for module in run.modules["net"].modules())


def test_the_time_of_a_step_is_that_of_a_step(mlp: Workload, batches: list[Batch]) -> None:
    """It takes two steps: one that warms up, one that is timed."""
    run = fresh(mlp)

    assert step_seconds(run, batches[0]) > 0
    assert run.step == 2


@pytest.mark.parametrize(
    ("mode", "fused", "waits"), [("amp-fp16", True, ["all"]), ("amp-fp16", False, []), ("fp32", True, [])]
)
def test_a_scheduler_that_waits_for_the_device_is_named(
    mlp: Workload, batches: list[Batch], mode: str, fused: bool, waits: list[str]
) -> None:
    """Only a fused optimizer's, and only under a scaler: the others know of a skip by not being called."""
    scheduled = replace(
        mlp,
        optimizers=lambda modules, lr: {"all": torch.optim.AdamW(modules["net"].parameters(), lr=lr, fused=fused)},
        schedulers=lambda optimizers: {"all": torch.optim.lr_scheduler.StepLR(optimizers["all"], 1)},
    )

    assert observe(fresh(scheduled, mode), batches[0]).waits == waits


@pytest.mark.parametrize("change", [lambda batch: batch["input"].mul_(1.1), lambda batch: batch.pop("target")])
def test_losses_that_change_their_batch_are_refused(
    mlp: Workload, batches: list[Batch], change: Callable[[Any], Any]
) -> None:
    """Every later step would train on something else, and resume would get the blame."""

    def losses(modules: Modules, batch: Batch) -> Any:
        made = list(mlp.losses(modules, batch))
        change(batch)
        return [loss.clone() for loss in made]

    workload = replace(mlp, losses=losses)
    with torch.autograd.graph.allow_mutation_on_saved_tensors(), pytest.raises(ValueError, match="losses changed "):
        observe(fresh(workload), batches[0])


def test_outputs_and_state_that_nothing_can_be_done_with_are_refused(mlp: Workload, batches: list[Batch]) -> None:
    """Before anything is trained: outputs without a floating tensor, and state that can't be saved."""

    class Odd(nn.Linear):
        def get_extra_state(self) -> Any:
            return {1, 2}

        def set_extra_state(self, state: Any) -> None:
            """Nothing is kept."""

    with pytest.raises(ValueError, match="outputs returned no tensor of floating numbers"):
        observe(fresh(replace(mlp, outputs=lambda modules, batch: {"n": 3})), batches[0])
    with pytest.raises(ValueError, match="its state can't be saved: state leaf modules/net/_extra_state: set"):
        observe(fresh(replace(mlp, modules=lambda: {"net": Odd(16, 12)})), batches[0])


def test_what_the_users_code_raises_is_one_line_with_its_place(batches: list[Batch]) -> None:
    """The error, the rows that it was given, the file and line, and a hint where the data is float64."""
    double = {"input": batches[0]["input"].double()}
    with (
        pytest.raises(ValueError, match=r"in fp32, on 4 rows \(resume.batch_size\): RuntimeError: .*dtype") as caught,
        told_in_one_line("fp32", double, 4),
    ):
        nn.Linear(16, 1)(double["input"])

    assert "(test_rehearsal.py, line " in str(caught.value)
    assert "input is float64, as numpy's arrays are unless asked for float32" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("could not create a primitive descriptor for the LSTM", "torch can't run it here: could not create"),
        ("\"lu_cpu\" not implemented for 'Half'", "torch can't run it here: "),
    ],
)
def test_what_torch_cannot_run_in_a_mode_is_a_result(words: str, says: str) -> None:
    """The other modes go on."""

    def like_torch(_: object) -> None:
        raise RuntimeError(words)

    failure = attempt(like_torch, "test")

    assert isinstance(failure, Failure)
    assert failure.why.startswith(says)
    assert failure.why.endswith("leave this mode out of train.modes")
