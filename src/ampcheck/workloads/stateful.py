"""A small network with all kinds of state: what the resume drill runs on, whatever the size of the timed one.

Dropout and noise from torch's, numpy's and python's generators, BatchNorm's running statistics, any optimizer of
torch.optim, a learning rate that changes with every step, and a module that only some steps use, drawn by python's.
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
        return {"net": nn.Sequential(*layers), "extra": nn.Linear(width, width)}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "input": generator.standard_normal((batch_size, width), dtype=np.float32),
            "target": generator.standard_normal((batch_size, width), dtype=np.float32),
        }

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        # The generators that users draw from; of two normal draws that they make at once, both keep one for later.
        noise = 1 + 0.1 * (random.gauss() + float(np.random.standard_normal()))  # noqa: NPY002
        used = modules["extra"](batch["input"]) if random.random() < 0.5 else batch["input"]
        return [nn.functional.mse_loss(modules["net"](used), batch["target"]) * noise]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        kind = getattr(torch.optim, optimizer)
        return {name: kind(module.parameters(), lr=lr, **keywords) for name, module in modules.items()}

    def schedulers(optimizers: Optimizers) -> Schedulers:
        scheduled_ones = optimizers if scheduled else {}
        return {name: ExponentialLR(optimizer, gamma=0.9) for name, optimizer in scheduled_ones.items()}

    return Workload(modules=modules, batch=batch, losses=losses, optimizers=optimizers, schedulers=schedulers)
