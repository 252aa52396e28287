"""What every trial and every leg of the resume check begins with, and which of its failures are results."""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from ampcheck import workloads
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.processes import KilledError, Progress, in_child
from ampcheck.run import Run, start
from ampcheck.runaway import RunawayError
from ampcheck.schema import Params

T = TypeVar("T")
WAYS_OUT = {  # words of torch's, and what to do
    "C++ compiler": "train.compile: got true; there is no C++ compiler here: install one, or set it to false",
    "unsafe to autocast": (
        "workload: binary cross entropy of probabilities is refused under autocast on CUDA; take the form of logits: "
        "BCEWithLogitsLoss or binary_cross_entropy_with_logits, and leave the sigmoid out"
    ),
    "derivative for": (
        "train.gradient_penalty: an operation of the workload has no second derivative; set it to null, or take "
        "another operation, for attention torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    ),
    "deterministic": "deterministic: got true; an operation of the workload has no such form; set it to false",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A child that could not do its work, and why: a result, not a crash."""

    why: str


def attempt(function: Callable[[Progress], T], label: str, steps: int = 0) -> T | Failure:
    """Run `function` in a child; running out of memory, or away, is a Failure. Raises as `in_child` does otherwise."""
    # This loads the compiler, as every optimizer does: a second here instead of one in each child.
    torch.use_deterministic_algorithms(mode=True)
    try:
        return in_child(partial(_guarded, function), label, steps)
    except KilledError as error:
        return Failure(f"{error}{', often for lack of memory' if 'SIGKILL' in str(error) else ''}")


def fresh_run(
    params: Params,
    machine: Mapping[str, Any],
    mode: str,
    *,
    seed: int,
    scaler: Mapping[str, float] | None = None,
    overflow_at: frozenset[int] = frozenset(),
) -> Run:
    """Set this process's threads, determinism and seeds, and build the workload's run at step 0.

    `scaler` and `overflow_at` are for modes with a scaler; others leave them out.
    """
    prepare(seed=seed, threads=machine["threads"], deterministic=params.deterministic)
    device = torch.device(machine["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)  # for events, and for what a user's code makes on "cuda"
    return start(
        workloads.load(params.workload, params.sizes),
        MODES[mode],
        device,
        Options(**{each.name: getattr(params.train, each.name) for each in fields(Options)}),
        scaler=scaler if MODES[mode].scaler else None,
        overflow_at=overflow_at if MODES[mode].scaler else frozenset(),
    )


def eager(params: Params) -> Params:
    """Return `params` without torch.compile: hooks on modules would not see what it has fused."""
    return params.model_copy(update={"train": params.train.model_copy(update={"compile": False})})


def prepare(*, seed: int, threads: int, deterministic: bool) -> None:
    """Set the process up; call it before anything touches CUDA, since cuBLAS reads its setting only once.

    https://docs.pytorch.org/docs/stable/notes/randomness.html
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    # Filling empty tensors would cost time (3 % in bfloat16 on a CPU), and guard against nothing that a run does.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] # its module hides it
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - users' code may draw from it
    torch.manual_seed(seed)


def _guarded(function: Callable[[Progress], T], progress: Progress) -> T | Failure:
    try:
        return function(progress)
    except (MemoryError, RuntimeError) as error:
        if why := failure_of(error):
            return Failure(why)
        for words, way_out in WAYS_OUT.items():
            if words in str(error):
                first_line = str(error).partition("\n")[0]
                raise ValueError(f"{way_out} ({first_line})") from error
        raise


def failure_of(error: BaseException) -> str:
    """Say why an error is a result, not a crash: memory, a runaway, what torch can't run; empty if it is neither."""
    first_line = str(error).partition("\n")[0]
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in first_line:
        return f"out of memory: {first_line}"
    if isinstance(error, RunawayError):
        return first_line
    if "could not create a primitive" in first_line or "not implemented for" in first_line:
        return f"torch can't run it here: {first_line}; leave this mode out of train.modes"
    return ""
