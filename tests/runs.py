"""Small runs with all kinds of state, as tests of checkpoints need them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, StepLR

from ampcheck import checkpoint, data, launch, state, workloads
from ampcheck.identity import Leaves, leaves
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.run import Run, start
from ampcheck.schema import Params
from ampcheck.training import train
from ampcheck.workloads import Batch, Workload

SIZES = {"batch_size": 4, "width": 6, "optimizer": "SGD", "keywords": {"momentum": 0.9}, "scheduled": True}
SCALER = {"init_scale": 1024.0, "growth_factor": 1.7, "growth_interval": 2}


def stateful(**sizes: Any) -> Workload:
    """The drill's network, smaller."""
    return workloads.load("ampcheck.workloads.stateful:build", SIZES | sizes)


def pair(names: tuple[str, str] = ("a", "b")) -> Workload:
    """Two networks, each with an optimizer and a scheduler of its own, of different kinds."""
    a, b = names
    return Workload(
        modules=lambda: {a: nn.Linear(6, 6), b: nn.Linear(6, 6, bias=False)},
        batch=lambda _: {},
        losses=lambda modules, batch: [modules[name](batch["input"]).square().mean().float() for name in names],
        optimizers=lambda modules, lr: {
            a: torch.optim.Adam(modules[a].parameters(), lr=lr),
            b: torch.optim.SGD(modules[b].parameters(), lr=lr, momentum=0.5),
        },
        schedulers=lambda optimizers: {
            a: ExponentialLR(optimizers[a], gamma=0.9),
            b: StepLR(optimizers[b], step_size=2),
        },
    )


def fresh(seed: int = 0, mode: str = "amp-fp16", workload: Workload | None = None, **changed: Any) -> Run:
    """A run at step 0; with a scaler, its second step overflows, and the scale grows after every two good ones."""
    launch.prepare(seed=seed, threads=1, deterministic=True)
    scaled = {"scaler": SCALER, "overflow_at": frozenset({1})} if MODES[mode].scaler else {}
    options: dict[str, Any] = {"lr": 0.05, "zero_grad": "set_to_none"} | changed
    kept = scaled | {key: options.pop(key) for key in ("scaler", "overflow_at") if key in options}
    return start(workload or stateful(), MODES[mode], torch.device("cpu"), Options(**options), **kept)


def batches(count: int = 8) -> list[Batch]:
    """Batches as `data.load` returns them."""
    made = [stateful().batch(np.random.default_rng(seed)) for seed in range(count)]
    return [{name: torch.as_tensor(array) for name, array in batch.items()} for batch in made]


def broken(raw: dict[str, Any], kind: str) -> Params:
    """The parameters of a workload that breaks, whose data is made where `data.PATH` is."""
    raw |= {"workload": "tests.broken_workloads:build", "sizes": {"batch_size": 8, "kind": kind}}
    given = Params.model_validate(raw)
    data.make(data.PATH, workloads.load(given.workload, given.sizes), seed=0, num_batches=4, batch_size=8)
    return given


def trained(steps: int, *args: Any, **changed: Any) -> Run:
    """A fresh run after some steps."""
    run = fresh(*args, **changed)
    train(run, batches(), steps)
    return run


def leaves_of(run: Run) -> Leaves:
    """The digest of every leaf of the run's state."""
    return leaves(state.get(run))


def refused(path: Path, run: Run) -> str:
    """Load what must be refused, in one line that begins with the file; run and file must be as before."""
    held, before = leaves_of(run), path.read_bytes() if path.is_file() else None
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        checkpoint.load(run, path)
    message = str(caught.value)

    assert caught.type is ValueError, "a subclass would be an error of another's"
    assert message.isprintable(), "one line, whatever the file holds"
    assert leaves_of(run) == held
    assert before is None or path.read_bytes() == before
    return message


def edited(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change what the checkpoint in `path` holds, and write it as torch does."""
    content = torch.load(path, weights_only=True)
    edit(content)
    torch.save(content, path)
