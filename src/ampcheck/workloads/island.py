"""An island of float32: autocast is switched off for a few lines whose numbers exceed 65504, float16's largest.

Sound of 16 bits, its powers in learned bands, and a class for each sound.
https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
"""

import numpy as np
import torch
from torch import nn

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts

LOUDNESS = 1000.0  # the root mean square of the samples, of which 32767 is the largest


class Powers(nn.Module):
    """Normalized powers of bands, float32 in every mode: amplitudes (N, num_bins) to (N, num_bands)."""

    def __init__(self, num_bins: int, num_bands: int) -> None:
        super().__init__()
        self.bands = nn.Linear(num_bins, num_bands)
        self.norm = nn.LayerNorm(num_bands)

    def forward(self, amplitudes: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        with torch.autocast(device_type=amplitudes.device.type, enabled=False):
            # What comes in has 16 bits under autocast, and here nothing but this cast changes that.
            return self.norm(self.bands(amplitudes.float().square()))  # type: ignore[no-any-return]


def build(batch_size: int, num_samples: int, num_bins: int, num_bands: int, num_classes: int) -> Workload:
    """Return the workload: sound (batch_size, num_samples) float32, labels (batch_size,) int64.

    ValueError names every size that is no integer of at least 1.
    """
    require_counts(
        batch_size=batch_size,
        num_samples=num_samples,
        num_bins=num_bins,
        num_bands=num_bands,
        num_classes=num_classes,
    )

    def modules() -> Modules:
        layers = [nn.Linear(num_samples, num_bins), Powers(num_bins, num_bands), nn.Linear(num_bands, num_classes)]
        return {"net": nn.Sequential(*layers)}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "sound": LOUDNESS * generator.standard_normal((batch_size, num_samples), dtype=np.float32),
            "labels": generator.integers(num_classes, size=batch_size),
        }

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["net"](batch["sound"])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        return [nn.functional.cross_entropy(outputs(modules, batch), batch["labels"])]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"adamw": torch.optim.AdamW(modules["net"].parameters(), lr=lr)}

    return Workload(modules=modules, batch=batch, outputs=outputs, losses=losses, optimizers=optimizers)
