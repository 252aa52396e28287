"""A small network with all kinds of state: what the resume drill runs on, whatever the size of the timed one.

Dropout and noise from torch's, numpy's and python's generators, BatchNorm's running statistics, any optimizer of
torch.optim, and a learning rate that changes with every step.
"""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from ampcheck.workloads import Batch, Modules, Optimizers, Schedulers, Workload


def build(batch_size: int, width: int, optimizer: str, keywords: Mapping[str, Any], *, scheduled: bool) -> Workload:
    """Return the workload: input and target (batch_size, width), float32; `optimizer` by its name in torch.optim."""

    def modules() -> Modules:
        layers = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.25), nn.Linear(width, width)]
        return {"net": nn.Sequential(*layers)}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "input": generator.standard_normal((batch_size, width), dtype=np.float32),
            "target": generator.standard_normal((batch_size, width), dtype=np.float32),
        }

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        # The generators that users draw from; of two normal draws that they make at once, both keep one for later.
        noise = 1 + 0.1 * (random.gauss() + float(np.random.standard_normal()))  # noqa: NPY002
        return [nn.functional.mse_loss(modules["net"](batch["input"]), batch["target"]) * noise]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"all": getattr(torch.optim, optimizer)(modules["net"].parameters(), lr=lr, **keywords)}

    def schedulers(optimizers: Optimizers) -> Schedulers:
        return {"all": ExponentialLR(optimizers["all"], gamma=0.9)} if scheduled else {}

    return Workload(modules=modules, batch=batch, losses=losses, optimizers=optimizers, schedulers=schedulers)
