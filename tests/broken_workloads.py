"""Small workloads that break, each in a way of its own; this file goes beside params.yaml too, as a user's does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from ampcheck.workloads import Batch, Modules, Workload

WIDTH = 8
Net = Callable[[], list[nn.Module]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Powers(nn.Module):
    """Its linear layer overflows float16, its norm brings the numbers back."""

    def __init__(self) -> None:
        super().__init__()
        self.bands = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return self.norm(self.bands(x.square()))  # type: ignore[no-any-return]


class ByItsSum(nn.Module):
    """Divides by a sum that is zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return x / (x - x).sum()


class Mixed(torch.autograd.Function):
    """Its author did not think of autocast: backward mixes a 16-bit gradient with a float32 weight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: D102 - see the class
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x


class MixedLinear(nn.Linear):
    """The layer of `Mixed`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return Mixed.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]


class KeepsACopy(nn.Linear):
    """Keeps a 16-bit copy of its weight, made without gradients: its weight gets none where autocast is on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        with torch.no_grad():
            copy = self.weight.to(torch.get_autocast_dtype(x.device.type))
        return nn.functional.linear(x, copy, self.bias)


def made(
    layers: Net, loss: Loss, *, loudness: float = 1.0, first: Callable[[nn.Module, Batch], Any] | None = None
) -> Any:
    """A linear layer and `layers`; `first`, if given, is called in the losses before the pass that is trained on."""

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "input": loudness * generator.standard_normal((8, WIDTH), dtype="float32"),
            "target": generator.integers(2, size=(8, WIDTH)).astype("float32"),
        }

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        if first:
            first(modules["net"], batch)
        return [loss(modules["net"](batch["input"]), batch["target"])]

    return Workload(
        modules=lambda: {"net": nn.Sequential(nn.Linear(WIDTH, WIDTH), *layers())},
        batch=batch,
        losses=losses,
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )


def without_gradients(net: nn.Module, batch: Batch) -> None:
    """A pass in the autocast region of the one that is trained on."""
    with torch.no_grad():
        net(batch["input"])


mse = nn.functional.mse_loss
KINDS: dict[str, Callable[[], Workload]] = {
    "overflow": lambda: made(lambda: [Powers()], mse, loudness=1000.0),
    "underflow": lambda: made(list, lambda output, target: mse(output.float(), target) * 1e-7),
    "division": lambda: made(lambda: [ByItsSum()], mse),
    "probabilities": lambda: made(lambda: [nn.Sigmoid()], nn.functional.binary_cross_entropy, loudness=1000.0),
    "mixed": lambda: made(lambda: [MixedLinear(WIDTH, WIDTH)], mse),
    "copy": lambda: made(lambda: [KeepsACopy(WIDTH, WIDTH)], mse),
    "two passes": lambda: made(list, mse, first=without_gradients),
    "well": lambda: made(list, mse),
}


def build(batch_size: int, kind: str) -> Workload:
    """Return the workload that breaks as `kind` says; its batches have 8 rows."""
    return KINDS[kind]()
