"""The peak of a mode: counted here, foreseen for CUDA."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ampcheck import data, memory, workloads
from ampcheck.estimate import table
from ampcheck.fake_cuda import choose_foreach, cuda_rules, fake_tensors
from ampcheck.foresee import Peak, foresee, peak
from ampcheck.memory import Memory
from ampcheck.schema import Params
from ampcheck.tensors import KINDS, Ledger
from ampcheck.workloads import Workload
from tests.helpers import TINY_SIZES

CPU = torch.device("cpu")
MACHINE = {"device": "cpu", "threads": 1}
HERE = {"available": True, "emulated": False, "why": ""}
FP32, BF16, FP16 = "fp32", "amp-bf16", "amp-fp16"


@pytest.fixture
def recipe(raw: dict[str, Any]) -> Params:
    """The committed parameters: PyTorch's recipe."""
    return Params.model_validate(raw)


@pytest.fixture
def measured(tiny_params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Memory]:
    """Return a function that measures a mode of the tiny recipe."""
    monkeypatch.setattr(data, "PATH", tmp_path / "data")
    workload = workloads.load(tiny_params.workload, tiny_params.sizes)
    data.make(data.PATH, workload, seed=0, num_batches=4, batch_size=TINY_SIZES["batch_size"])
    return lambda mode, available=HERE: memory.measure(tiny_params, MACHINE, mode, available)


def with_train(given: Params, **changed: Any) -> Params:
    """The parameters with others under `train`."""
    return given.model_copy(update={"train": given.train.model_copy(update=changed)})


def test_the_recipes_published_figure_to_the_byte(recipe: Params) -> None:
    """PyTorch's recipe printed 1350681600 on a T4, where gradients were kept as zeros.

    It held the output while it went backward, our loop does not; in exchange the loss of today's torch holds as much.
    """
    found = foresee(with_train(recipe, zero_grad="zeros"), FP32)

    assert found.peak_bytes == 1350681600
    assert found.split["data"] == 50 * 2 * 512 * 4096 * 4
    assert found.split["parameters"] == found.split["gradients"] == 3 * 4 * (4096 * 4096 + 4096)


def test_without_zeros_a_step_needs_no_second_gradient_of_a_weight(recipe: Params) -> None:
    """At the peak the first layer's gradient has just been made: of zeros a second one, and three activations less."""
    assert foresee(recipe, FP32).peak_bytes == 1350681600 - 4 * (4096 * 4096 + 4096) - 3 * 4 * 512 * 4096


@pytest.mark.parametrize("mode", [FP32, BF16, FP16])
def test_what_is_counted_here_is_foreseen_but_for_rounding(measured: Callable[..., Memory], mode: str) -> None:
    """Both have every kind, and the split adds up; CUDA's allocator rounds each tensor up to 512 bytes."""
    found = measured(mode)

    for each in (found.here, found.cuda):
        assert each.peak_bytes == sum(each.split.values())
    assert found.here.split["data"] == 4 * 8 * (16 + 12) * 4 <= found.cuda.split["data"] == 8 * 512
    assert not any(value % 512 for value in found.cuda.split.values())


def test_a_mode_that_is_not_trained_here_is_foreseen_all_the_same(measured: Callable[..., Memory]) -> None:
    """The figure of this machine is missing, with the reason; that of CUDA needs no machine."""
    found = measured("tf32", {"available": False, "emulated": False, "why": "not here"})

    assert found.here == Peak(why="not here")
    assert found.cuda.peak_bytes == measured(FP32).cuda.peak_bytes
    assert memory.line(found).startswith("tf32: not known (not here) here, 0.0 MiB on CUDA")


def test_what_cannot_be_faked_is_told_with_its_reason(tiny_params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with the user's own line; a number that is only read is no obstacle."""

    def build(losses: Callable[..., Any]) -> Callable[..., Workload]:
        return lambda *_: Workload(
            modules=lambda: {"net": nn.Linear(16, 12)},
            batch=lambda generator: {"input": generator.standard_normal((8, 16), dtype="float32")},
            losses=losses,
            optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
        )

    def chosen(modules: Any, batch: Any) -> list[torch.Tensor]:
        output = modules["net"](batch["input"])
        return [output[output > 0].mean()]

    def read(modules: Any, batch: Any) -> list[torch.Tensor]:
        loss = modules["net"](batch["input"]).mean()
        return [loss / max(loss.item(), 1.0)]

    monkeypatch.setattr(workloads, "load", build(chosen))
    refused = foresee(tiny_params, FP32)
    monkeypatch.setattr(workloads, "load", build(read))

    assert refused.peak_bytes is None
    assert refused.why.startswith("it can't be foreseen: ")
    assert "(test_memory.py, line " in refused.why
    assert "\n" not in refused.why
    assert foresee(tiny_params, FP32).peak_bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_has_cudas_lists(dtype: torch.dtype) -> None:
    """What CUDA runs in float32, and the CPU in 16 bits, is float32 under CUDA's rules, and 16 bits after them."""

    def found(x: torch.Tensor) -> dict[str, torch.dtype]:
        made = {"softmax": x.softmax(-1), "log_softmax": nn.functional.log_softmax(x, -1), "exp": x.exp()}
        made |= {"pow": x**2, "sum": x.sum(), "layer_norm": nn.functional.layer_norm(x, (4,))}
        return {name: each.dtype for name, each in made.items()}

    with fake_tensors(), torch.autocast("cpu", dtype=dtype):
        x = torch.ones(4, 4, dtype=dtype)
        before = found(x)
        with cuda_rules():
            within = found(x)
            kept = [x @ x, x.relu(), x.softmax(-1, dtype=torch.float64)]
        after = found(x)

    assert set(before.values()) == set(after.values()) == {dtype}
    assert set(within.values()) == {torch.float32}
    assert [each.dtype for each in kept] == [dtype, dtype, torch.float64]


@pytest.mark.parametrize(("dtype", "held"), [(torch.float16, 4000), (torch.bfloat16, 8000)])
def test_a_softmax_takes_a_float32_copy_of_bfloat16_only(dtype: torch.dtype, held: int) -> None:
    """Of 1000 scores: the logarithms, and while they are made the copy; of float16 CUDA makes none."""
    ledger = Ledger(CPU, 1)
    with fake_tensors(), cuda_rules(), torch.autocast("cpu", dtype=dtype):
        scores = torch.ones(1000, dtype=dtype)
        with ledger:
            nn.functional.log_softmax(scores, -1)

    assert sum(ledger.split_at_peak().values()) == held


def test_dropout_has_cudas_mask() -> None:
    """One byte an element, kept for the backward; the CPU's own has four."""
    sizes = []
    for rules in (False, True):
        ledger = Ledger(CPU, 1)
        x = torch.ones(1000, requires_grad=True)
        if rules:
            with cuda_rules(), ledger:
                made = nn.functional.dropout(x)
        else:
            with ledger:
                made = nn.functional.dropout(x)
        sizes.append(sum(grown for _, grown in ledger.events))
        made.sum().backward()  # type: ignore[no-untyped-call]

    assert sizes == [8000, 5000]


def test_optimizers_update_all_weights_at_once() -> None:
    """As they choose by themselves on CUDA; what was asked for stays."""
    weights = [nn.Parameter(torch.zeros(2))]
    optimizers = {
        "own": torch.optim.Adam(weights),
        "asked": torch.optim.Adam(weights, foreach=False),
        "fused": torch.optim.Adam(weights, fused=True),
    }
    choose_foreach(optimizers)

    assert [each.param_groups[0]["foreach"] for each in optimizers.values()] == [True, False, None]


def test_a_number_that_is_read_is_one_but_for_the_found_inf() -> None:
    """No step is skipped, and Adam, which divides by it, gets a step."""
    with fake_tensors():
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        weight = nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.Adam([weight], foreach=False)
        scaler.scale(weight.sum()).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()

        assert len(optimizer.state) == 1
        assert torch.ones(3).sum().item() == 1.0


def test_the_table_has_a_line_for_each_mode() -> None:
    """The difference is to the first; what is not known has its reason below."""
    known = [peak(dict.fromkeys(KINDS, 0) | {"data": data_bytes}) for data_bytes in (2**20, 2**19)]
    lines = table({"x": known[0], "y": known[1], "z": Peak(why="it can't be foreseen")})

    assert lines[1].split()[:6] == ["x", "1048576", "1.00", "MiB", "0", "B"]
    assert lines[2].split()[:6] == ["y", "524288", "512", "KiB", "-512", "KiB"]
    assert lines[3] == "z: it can't be foreseen"
