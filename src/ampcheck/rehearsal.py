"""Untimed steps on runs that are thrown away: which dtypes ran, what can't be trained, how long a step takes."""

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from ampcheck import data
from ampcheck.admission import admit, checked, left_alone, told_in_one_line
from ampcheck.identity import walk
from ampcheck.launch import Failure, attempt, eager, fresh_run
from ampcheck.paths import leaf_modules
from ampcheck.precision import dtype_name
from ampcheck.reference import Setup
from ampcheck.run import Run
from ampcheck.schedulers import refuse_short, that_wait
from ampcheck.schema import Params
from ampcheck.training import train
from ampcheck.tryout import try_out
from ampcheck.workloads import Batch

# Kinds of modules whose operation autocast runs in 16 bits.
# https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
ELIGIBLE = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.RNNBase)  # noqa: SLF001 - no public name for "any"


@dataclass(slots=True)
class Rehearsal:
    """What one step showed of a mode: floating dtypes by torch's names, such as "bfloat16".

    `dtypes` maps each kind of module to those of its outputs; `losses` has that of each loss; `stayed_float32` names
    modules that autocast could have run in 16 bits, but that gave float32; `waits` names the optimizers whose scheduler
    waits for the device at every step.
    """

    mode: str
    why: str = ""
    dtypes: dict[str, str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    stayed_float32: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)


def rehearse(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Rehearsal:
    """Take one step of `mode` in a child, on the rows of the resume check; `available` is its entry in modes.json.

    ValueError for what can't be trained in this mode: losses that are no finite scalars, and all that
    `run.start` refuses.
    """
    if not available["available"]:
        return Rehearsal(mode, why=available["why"])

    def observed(_: object) -> Rehearsal:
        rows = params.resume.batch_size
        [on_cpu] = data.load(data.PATH, torch.device("cpu"), num_batches=1, rows=rows)
        with told_in_one_line(mode, on_cpu, rows):
            run = fresh_run(eager(params), machine, mode, seed=params.seed)
            refuse_short(run.schedulers, max(params.steps, params.resume.steps))
            result = observe(run, data.load(data.PATH, run.device, num_batches=1, rows=rows)[0])
        with TemporaryDirectory() as folder:
            try_out(Setup(params, machine, Path(folder)), mode)
        return result

    result = attempt(observed, f"rehearse {mode}")
    return Rehearsal(mode, why=result.why) if isinstance(result, Failure) else result


def line(rehearsal: Rehearsal) -> str:
    """Tell the result in one line of a log."""
    if rehearsal.why:
        return f"{rehearsal.mode}: not rehearsed: {rehearsal.why}"
    kinds = ", ".join(f"{kind} {dtype}" for kind, dtype in rehearsal.dtypes.items())
    return f"{rehearsal.mode}: {kinds}; losses {', '.join(rehearsal.losses)}"


def step_seconds(run: Run, batch: Batch) -> float:
    """Take two steps with `run` and time the second: how long a step takes, roughly."""
    train(run, [batch], run.step + 1)
    started = time.perf_counter()
    train(run, [batch], run.step + 1).losses[0].item()  # waits for the device
    return time.perf_counter() - started


def observe(run: Run, batch: Batch) -> Rehearsal:
    """Take one step with hooks on the modules and on the losses. ValueError for what `admission` refuses."""
    seen: dict[str, set[str]] = defaultdict(set)
    found = Rehearsal(run.mode.name)
    with ExitStack() as hooks, left_alone(batch):
        for name, module in leaf_modules(run.modules):
            hooks.enter_context(_hooked(module, name, seen, found.stayed_float32))
        workload = run.workload
        run.workload = replace(workload, losses=checked(workload.losses, found.losses))
        [loss] = train(run, [batch], run.step + 1).losses.tolist()
        run.workload = workload
    admit(run, batch, loss)
    found.dtypes = {kind: ", ".join(sorted(dtypes)) for kind, dtypes in seen.items()}
    found.waits = that_wait(run.schedulers, run.optimizers) if run.mode.scaler else []
    found.stayed_float32 = list(dict.fromkeys(found.stayed_float32)) if run.mode.autocast else []
    return found


def _hooked(module: nn.Module, name: str, seen: dict[str, set[str]], stayed_float32: list[str]) -> Any:  # noqa: ANN401
    def hook(_: nn.Module, __: Any, outputs: Any) -> None:  # noqa: ANN401
        dtypes = {
            dtype_name(leaf.dtype) for _, leaf in walk(outputs) if torch.is_tensor(leaf) and leaf.is_floating_point()
        }
        seen[type(module).__name__] |= dtypes
        if isinstance(module, ELIGIBLE) and "float32" in dtypes:
            stayed_float32.append(name)

    return module.register_forward_hook(hook)
