"""Operations of one's own: an autograd.Function that keeps to its forward's type, an operator that wants float32.

https://docs.pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions
"""

import numpy as np
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import FunctionCtx

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts


def _linear_relu(device_type: str) -> type[torch.autograd.Function]:
    """Return relu(x @ weight.T + bias) as a Function for one type of device: torch's decorators ask for it."""

    class Function(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type=device_type)  # type: ignore[untyped-decorator]
        def forward(ctx: FunctionCtx, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            positive = nn.functional.linear(x, weight, bias).relu()
            ctx.save_for_backward(x, weight, positive)
            return positive

        @staticmethod  # backward runs outside autocast: without custom_bwd it would mix its types
        @custom_bwd(device_type=device_type)  # type: ignore[untyped-decorator]
        def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x, weight, positive = ctx.saved_tensors  # type: ignore[attr-defined] # its stub leaves it out
            grad = grad * (positive > 0)
            return grad @ weight, grad.T @ x, grad.sum(0)

    return Function


LINEAR_RELU = {device_type: _linear_relu(device_type) for device_type in ("cpu", "cuda")}


class LinearReLU(nn.Linear):
    """A linear layer with ReLU: (N, in_features) to (N, out_features)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return LINEAR_RELU[x.device.type].apply(x, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


@torch.library.custom_op("ampcheck::log_sum_exp", mutates_args=())
def log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    """Logarithm of the sum of exp(x) over the last dimension; it is inf from x = 11.1 in float16, 88.8 in float32."""
    return x.exp().sum(-1).log()


@log_sum_exp.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


def _keep(ctx: FunctionCtx, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _backward(ctx: FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
    x, output = ctx.saved_tensors  # type: ignore[attr-defined] # its stub leaves it out
    return grad[..., None] * torch.exp(x - output[..., None])


log_sum_exp.register_autograd(_backward, setup_context=_keep)
for _device_type in ("cpu", "cuda"):
    log_sum_exp.register_autocast(_device_type, torch.float32)


def build(batch_size: int, width: int, num_layers: int, num_classes: int) -> Workload:
    """Return the workload: input (batch_size, width) float32, labels (batch_size,) int64.

    ValueError names every size that is no integer of at least 1.
    """
    require_counts(batch_size=batch_size, width=width, num_layers=num_layers, num_classes=num_classes)

    def modules() -> Modules:
        layers = [LinearReLU(width, width) for _ in range(num_layers - 1)]
        return {"net": nn.Sequential(*layers, nn.Linear(width, num_classes))}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "input": generator.standard_normal((batch_size, width), dtype=np.float32),
            "labels": generator.integers(num_classes, size=batch_size),
        }

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["net"](batch["input"])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        logits = outputs(modules, batch)
        return [log_sum_exp(logits).mean() + nn.functional.nll_loss(logits, batch["labels"])]  # cross entropy

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"adamw": torch.optim.AdamW(modules["net"].parameters(), lr=lr)}

    return Workload(modules=modules, batch=batch, outputs=outputs, losses=losses, optimizers=optimizers)
