"""Two networks against each other: two modules, two optimizers, two losses, one scaler.

https://arxiv.org/abs/1406.2661
"""

from functools import partial

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts


def build(batch_size: int, noise_size: int, sample_size: int, width: int) -> Workload:
    """Return the workload: noise (batch_size, noise_size) and real (batch_size, sample_size), both float32.

    ValueError names every size that is no integer of at least 1.
    """
    require_counts(batch_size=batch_size, noise_size=noise_size, sample_size=sample_size, width=width)

    def modules() -> Modules:
        return {"generator": _layers(noise_size, width, sample_size), "discriminator": _layers(sample_size, width, 1)}

    def batch(generator: np.random.Generator) -> Batch:
        return {
            "noise": generator.standard_normal((batch_size, noise_size), dtype=np.float32),
            "real": generator.standard_normal((batch_size, sample_size), dtype=np.float32),
        }

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["generator"](batch["noise"])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        discriminator, fake = modules["discriminator"], outputs(modules, batch)
        of_discriminator = _taken_for(discriminator(batch["real"]), 1.0) + _taken_for(discriminator(fake.detach()), 0.0)
        # In the generator's loss the discriminator's weights are constants: its backward must leave them no gradient.
        constants = {name: weight.detach() for name, weight in discriminator.named_parameters()}
        of_generator = _taken_for(functional_call(discriminator, constants, fake), 1.0)
        return [of_discriminator, of_generator]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        # A fifth of the rate that suits the other networks: these two chase each other, and would amplify any rounding.
        adam = partial(torch.optim.Adam, lr=lr / 5, betas=(0.5, 0.999))
        return {name: adam(module.parameters()) for name, module in modules.items()}

    return Workload(modules=modules, batch=batch, outputs=outputs, losses=losses, optimizers=optimizers)


def _layers(in_size: int, width: int, out_size: int) -> nn.Module:
    activation = nn.LeakyReLU(0.2)
    hidden = [nn.Linear(in_size, width), activation, nn.Linear(width, width), activation]
    return nn.Sequential(*hidden, nn.Linear(width, out_size))


def _taken_for(logits: torch.Tensor, label: float) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))
