"""What a step is trained on: the workload's losses, and a gradient penalty if it is asked for."""

import math

import torch

from ampcheck.run import Run
from ampcheck.workloads import Batch


def losses_of(run: Run, batch: Batch, num_batches: int) -> list[torch.Tensor]:
    """Return what a step is trained on for one of its `num_batches` batches: the losses, and the penalty if asked."""
    with run.autocast:
        losses = list(run.workload.losses(run.modules, batch))
    if run.options.gradient_penalty is not None:
        losses.append(_penalty(run, losses, run.options.gradient_penalty))
    if num_batches > 1:
        losses = [loss / num_batches for loss in losses]
    if run.step in run.overflow_at:
        losses = [loss * math.inf for loss in losses]
    return losses


def _penalty(run: Run, losses: list[torch.Tensor], weight: float) -> torch.Tensor:
    """Return `weight` times the L2 norm of the gradients of the sum of `losses`: a scalar that can be trained on.

    This takes a double backward. The gradients are those of scaled losses, lest they underflow; they are unscaled by
    hand, and the norm is taken under autocast: https://docs.pytorch.org/docs/stable/notes/amp_examples.html
    """
    scale = run.scaler.scale(torch.ones((), device=run.device))  # the scale itself, without a synchronisation
    inputs = [each for module in run.modules.values() for each in module.parameters() if each.requires_grad]
    scaled = torch.autograd.grad(
        [run.scaler.scale(loss) for loss in losses], inputs, create_graph=True, allow_unused=True
    )
    with run.autocast:
        # Norms of norms, which have a gradient of zero at zero; a square root has none there.
        norms = [torch.linalg.vector_norm(gradient / scale) for gradient in scaled if gradient is not None]
        norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return weight * norm
