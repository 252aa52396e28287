"""What the modules are used for once they are trained: the workload's outputs."""

import torch

from ampcheck.identity import walk
from ampcheck.run import Run
from ampcheck.workloads import Batch


def outputs_of(run: Run, batch: Batch) -> list[torch.Tensor]:
    """Return the floating tensors among the outputs, under autocast, without gradients; [] of a workload without any.

    ValueError if the workload has outputs, but no floating tensor is among them.
    """
    if run.workload.outputs is None:
        return []
    with torch.no_grad(), run.autocast:
        made = run.workload.outputs(run.modules, batch)
    tensors = [leaf for _, leaf in walk(made) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if not tensors:
        raise ValueError("workload: outputs returned no tensor of floating numbers; return one, or leave it out")
    return tensors
