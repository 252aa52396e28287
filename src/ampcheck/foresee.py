"""What a mode of params.yaml would take on CUDA, found without a GPU: the loop and the ledger, on fake tensors.

Not foreseen: CUDA's context, the workspaces of cuBLAS and cuDNN (with what cuDNN makes of an LSTM or a GRU, whose
weights autocast casts there), fragmentation, and
what an operation allocates inside itself.
"""

from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_map_only

from ampcheck import data, workloads
from ampcheck.fake_cuda import choose_foreach, cuda_rules, fake_tensors
from ampcheck.launch import attempt, eager, fresh_run
from ampcheck.schema import Params
from ampcheck.tensors import GRANULES, peak_of
from ampcheck.workloads import Batch, told

HERE = {"device": "cpu", "threads": 1}
UNIT_SCALE = {"init_scale": 1.0}  # nothing overflows, so that the first step is not skipped and makes all state


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most bytes that a mode's tensors take at once, and how they split; None with the reason if not known."""

    peak_bytes: int | None = None
    split: dict[str, int] = field(default_factory=dict)
    why: str = ""


def foresee(given: Params, mode: str) -> Peak:
    """Return the peak of `mode` on CUDA, all batches on the device; found in a child."""
    result = attempt(lambda _: _foreseen(given, mode), f"foresee {mode}")
    return result if isinstance(result, Peak) else Peak(why=result.why)


def peak(split: dict[str, int]) -> Peak:
    """Return the peak that `split` adds up to."""
    return Peak(peak_bytes=sum(split.values()), split=split)


def _foreseen(given: Params, mode: str) -> Peak:
    try:
        batch = data.one(workloads.load(given.workload, given.sizes), given.seed, given.sizes["batch_size"])
        with cuda_rules(), fake_tensors():
            run = fresh_run(eager(given), HERE, mode, seed=given.seed, scaler=UNIT_SCALE)
            choose_foreach(run.optimizers)
            return peak(peak_of(run, [_like(batch) for _ in range(given.data.num_batches)], GRANULES["cuda"]))
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises where there are no numbers
        return Peak(why=f"it can't be foreseen: {told(error)}")


def _like(batch: Batch) -> Batch:
    like: Batch = tree_map_only(torch.Tensor, torch.empty_like, batch)
    return like
