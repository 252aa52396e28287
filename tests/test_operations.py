"""What a step calls is what torch counts, in the types that autocast chose; what waits is named by its line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ampcheck import launch, shapes, workloads
from ampcheck.calls import Call, Like
from ampcheck.operations import Operations, Recorder
from ampcheck.options import Options
from ampcheck.padding import paddings
from ampcheck.precision import MODES
from ampcheck.run import Run, start
from ampcheck.shapes import by_dtype, by_kind, dominant_shapes, in_order
from ampcheck.training import train
from ampcheck.workloads import Batch, Workload

CPU = torch.device("cpu")
SMALL = {
    "mlp": {"in_size": 16, "out_size": 12, "num_layers": 2},
    "convnet": {"image_size": 8, "channels": 8, "num_blocks": 1, "num_classes": 10},
    "custom_op": {"width": 16, "num_layers": 2, "num_classes": 5},
    "transformer": {"length": 4, "vocabulary": 30521, "width": 8, "num_heads": 1, "num_layers": 1},
}


def small(name: str) -> Workload:
    """A workload of ours with batches of four."""
    return workloads.load(f"ampcheck.workloads.{name}:build", {"batch_size": 4} | SMALL[name])


def custom(loss: Callable[[torch.Tensor], torch.Tensor]) -> Workload:
    """Two linear layers with a loss of one's own between them."""
    return Workload(
        modules=lambda: {"net": nn.Linear(16, 16)},
        batch=lambda generator: {"input": generator.standard_normal((4, 16), dtype="float32")},
        losses=lambda modules, batch: [loss(modules["net"](batch["input"]))],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def started(workload: Workload, mode: str) -> tuple[Run, list[Batch]]:
    """A fresh run and a batch."""
    launch.prepare(seed=0, threads=1, deterministic=True)
    batch = {name: torch.as_tensor(leaf) for name, leaf in workload.batch(np.random.default_rng(0)).items()}
    return start(workload, MODES[mode], CPU, Options(lr=0.01, zero_grad="set_to_none")), [batch]


def recorded(workload: Workload, mode: str) -> Operations:
    """What the second step of a run calls."""
    run, batches = started(workload, mode)
    train(run, batches, 1)
    recorder = Recorder()
    with recorder:
        train(run, batches, 2)
    return recorder.found


@pytest.mark.parametrize("name", ["mlp", "convnet", "custom_op"])
def test_flops_are_those_of_torchs_counter(name: str) -> None:
    """All of them, forward and backward; kinds and types add up to the same."""
    run, batches = started(small(name), "amp-bf16")
    with FlopCounterMode(display=False) as counter:
        train(run, batches, 1)
    calls = recorded(small(name), "amp-bf16").calls

    assert sum(by_kind(calls).values()) == sum(by_dtype(calls).values()) == counter.get_total_flops() > 0
    assert ("convolution" in by_kind(calls)) == (name == "convnet")


@pytest.mark.parametrize("mode", ["fp32", "amp-bf16", "amp-fp16"])
def test_forward_and_backward_run_in_the_modes_own_type(mode: str) -> None:
    """No float16 in a bfloat16 run, backward included."""
    assert set(by_dtype(recorded(small("convnet"), mode).calls)) == {MODES[mode].dtype}


class IgnoresAutocast(torch.autograd.Function):
    """x @ x.T in float32, without custom_fwd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Cast by hand."""
        with torch.autocast("cpu", enabled=False):
            ctx.save_for_backward(x)
            return x.float() @ x.float().T

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """Read a number, which waits."""
        x: torch.Tensor = ctx.saved_tensors[0]
        grad.sum().item()
        return torch.mm(grad + grad.T, x.float()).to(x.dtype)


def test_a_function_that_ignores_autocast_shows_in_the_types_and_its_wait_by_line() -> None:
    """Also what waits in the backward pass."""
    apply: Any = IgnoresAutocast.apply
    found = recorded(custom(lambda output: apply(output).mean()), "amp-bf16")
    line = IgnoresAutocast.backward.__code__.co_firstlineno + 4

    assert set(by_dtype(found.calls)) == {"bfloat16", "float32"}
    assert found.waits == {f"item() in test_operations.py, line {line}": 1}


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16"])
def test_an_item_in_the_loss_is_named_by_its_line(mode: str) -> None:
    """Once for each call of a step; the scaler's own wait is no user's line."""

    def loss(output: torch.Tensor) -> torch.Tensor:
        return output.mean() if output.mean().item() < 1e9 and output.nonzero().numel() else output.sum()

    line = loss.__code__.co_firstlineno + 1
    found = recorded(custom(loss), mode)

    assert set(found.waits) == {f"{call} in test_operations.py, line {line}" for call in ("item()", "nonzero()")}
    assert set(found.waits.values()) == {1}
    assert not recorded(small("mlp"), mode).waits


def test_a_copy_of_a_tensor_is_laid_out_alike() -> None:
    """Transposed, channels last, expanded: shapes and the order of dimensions are kept, and nothing else is known."""
    for tensor in (torch.zeros(3, 5).T, torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)):
        made = Like(tuple(tensor.shape), tensor.stride(), torch.bfloat16).made(CPU)

        assert (made.shape, made.stride(), made.dtype) == (tensor.shape, tensor.stride(), torch.bfloat16)
    assert Like((4, 3), (0, 1), torch.float32).made(CPU).stride() == (0, 1)


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer"])
def test_every_call_can_be_made_again(name: str) -> None:
    """With its own shapes, forward and backward, in the order of the step; the dominant ones have a rate."""
    calls = recorded(small(name), "amp-bf16").calls
    one_after_the_other, share = in_order(calls, CPU)
    again = Recorder()
    with again:
        one_after_the_other()
    dominant = dominant_shapes(calls, CPU)

    assert share == 1.0
    assert [(call.name, call.tensors) for call in again.found.calls] == [(call.name, call.tensors) for call in calls]
    assert sum(shape.flops * shape.calls for shape in dominant) >= 0.95 * sum(by_kind(calls).values())
    assert all(shape.seconds > 0 for shape in dominant)


def test_what_lay_in_one_place_does_so_again() -> None:
    """The weight of the forward pass is that of the backward pass, also where it is transposed."""
    calls = [call for call in recorded(small("mlp"), "fp32").calls if call.again]
    held: dict[Any, torch.Tensor] = {}
    for call in calls:
        call.made(CPU, held)

    assert {place[0] for place in held} == {like.address for call in calls for like in call.tensors} | biases(calls)
    assert len(held) < len(biases(calls)) + sum(len(call.tensors) for call in calls)


def biases(calls: list[Call]) -> set[int]:
    """Where they lie."""
    return {each.address for call in calls for each in call.args if isinstance(each, Like) and len(each.shape) == 1}


def test_operands_share_places_where_they_would_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call can still be made, with one place for all that is as large."""
    calls = recorded(small("mlp"), "fp32").calls
    monkeypatch.setattr(shapes, "MOST_BYTES", 0)
    one_after_the_other, share = in_order(calls, CPU)
    again = Recorder()
    with again:
        one_after_the_other()
    sizes = {(like.shape, like.dtype) for call in again.found.calls for like in call.tensors}

    assert share == 1.0
    assert len({like.address for call in again.found.calls for like in call.tensors}) <= len(sizes)


def test_the_cost_of_a_vocabulary_of_30521_is_measured() -> None:
    """The one dimension that is no multiple of 8, in the forward pass and in both matmuls of the backward pass."""
    calls = recorded(small("transformer"), "amp-bf16").calls
    wide = [call for call in set(calls) if any(30521 in tensor.shape for tensor in call.tensors)]

    assert set(paddings(calls, CPU)) == {"30521"}
    assert len(wide) == 3
    for call in wide:
        before, after = call.made(CPU)(), call.padded(30521, 30528).made(CPU)()
        assert tuple(after.shape) == tuple(30528 if each == 30521 else each for each in before.shape)


def test_sparse_tensors_are_left_out() -> None:
    """Gradients of an embedding, and a product with a sparse matrix, which has no strides; its like can't be made."""
    workload = Workload(
        modules=lambda: {"net": nn.Embedding(10, 4, sparse=True)},
        batch=lambda generator: {"ids": generator.integers(10, size=4)},
        losses=lambda modules, batch: [torch.sparse.mm(torch.eye(4).to_sparse(), modules["net"](batch["ids"])).mean()],
        optimizers=lambda modules, lr: {"sgd": torch.optim.SparseAdam(modules["net"].parameters(), lr=lr)},
    )
    found = recorded(workload, "fp32")

    assert found.moved_bytes > 0
    assert found.calls == []


def test_a_step_without_flops_has_nothing_to_call() -> None:
    """No share of nothing."""
    one_after_the_other, share = in_order([], CPU)
    one_after_the_other()

    assert (share, dominant_shapes([], CPU), paddings([], CPU)) == (1.0, [], {})


def test_a_batch_dimension_is_not_padded() -> None:
    """Of a batched matmul only rows and columns count."""
    operands = tuple(Like(shape, (1, 1, 1), torch.float32) for shape in ((13, 13, 8), (13, 8, 16)))
    padded = Call(operation=torch.ops.aten.bmm.default, args=operands, flops=1).padded(13, 16)

    assert [each.shape for each in padded.tensors] == [(13, 16, 8), (13, 8, 16)]
