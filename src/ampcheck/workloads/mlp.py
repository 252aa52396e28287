"""The network of PyTorch's AMP recipe: linear layers with ReLU between them, MSE loss, SGD.

https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import numpy as np
import torch
from torch import nn

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts


def build(batch_size: int, in_size: int, out_size: int, num_layers: int) -> Workload:
    """Return the recipe's workload: input (batch_size, in_size), target (batch_size, out_size), both float32.

    ValueError names every size that is no integer of at least 1.
    """
    require_counts(batch_size=batch_size, in_size=in_size, out_size=out_size, num_layers=num_layers)

    def modules() -> Modules:
        layers: list[nn.Module] = []
        for _ in range(num_layers - 1):
            layers += [nn.Linear(in_size, in_size), nn.ReLU()]
        return {"net": nn.Sequential(*layers, nn.Linear(in_size, out_size))}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "input": generator.standard_normal((batch_size, in_size), dtype=np.float32),
            "target": generator.standard_normal((batch_size, out_size), dtype=np.float32),
        }

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["net"](batch["input"])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        return [nn.functional.mse_loss(outputs(modules, batch), batch["target"])]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)}

    return Workload(modules=modules, batch=batch, outputs=outputs, losses=losses, optimizers=optimizers)
