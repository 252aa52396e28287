"""The recipe's network, slowed on purpose: a share of a step's matmul work is done once more, for nothing."""

from dataclasses import replace

import torch

from ampcheck.workloads import Batch, Modules, Workload, mlp


def build(batch_size: int, in_size: int, out_size: int, num_layers: int, percent: int) -> Workload:
    """Return the workload; `percent` more arithmetic a step, of three passes over each layer but the first's two."""
    workload = mlp.build(batch_size, in_size, out_size, num_layers)
    passes = 3 * num_layers - 1  # forward, gradients of weights and of inputs; the first layer's input needs none
    rows = round(percent / 100 * passes * batch_size)

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        weight = modules["net"][0].weight  # type: ignore[index]
        with torch.no_grad():
            inputs = batch["input"]
            for first in range(0, rows, batch_size):
                inputs[: min(batch_size, rows - first)] @ weight
        return list(workload.losses(modules, batch))

    return replace(workload, losses=losses)
