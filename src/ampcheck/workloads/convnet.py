"""Images: a small residual network with BatchNorm, cross entropy, SGD with momentum.

https://arxiv.org/abs/1512.03385
"""

import numpy as np
import torch
from torch import nn

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts


class Block(nn.Module):
    """Two 3 x 3 convolutions beside an identity: (N, channels, H, W) to the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return nn.functional.relu(images + self.inside(images))


def build(batch_size: int, image_size: int, channels: int, num_blocks: int, num_classes: int) -> Workload:
    """Return the workload: images (batch_size, 3, image_size, image_size) float32, labels (batch_size,) int64.

    ValueError names every size that is no integer of at least 1.
    """
    require_counts(
        batch_size=batch_size,
        image_size=image_size,
        channels=channels,
        num_blocks=num_blocks,
        num_classes=num_classes,
    )

    def modules() -> Modules:
        stem = [nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)]
        return {"net": nn.Sequential(*stem, *(Block(channels) for _ in range(num_blocks)), *head)}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "images": generator.standard_normal((batch_size, 3, image_size, image_size), dtype=np.float32),
            "labels": generator.integers(num_classes, size=batch_size),
        }

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["net"](batch["images"])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        return [nn.functional.cross_entropy(outputs(modules, batch), batch["labels"])]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr, momentum=0.9)}

    return Workload(modules=modules, batch=batch, outputs=outputs, losses=losses, optimizers=optimizers)
