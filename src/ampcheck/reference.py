"""The drill's small network, and its run that never stops, kept step by step: what every resume is compared with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from ampcheck import checkpoint, data, identity, state, workloads
from ampcheck.identity import Leaves
from ampcheck.launch import fresh_run
from ampcheck.run import Run
from ampcheck.schema import Params
from ampcheck.training import train
from ampcheck.workloads import Batch, Modules

WORKLOAD = "ampcheck.workloads.stateful:build"
SIZES = {"batch_size": 8, "width": 16, "optimizer": "SGD", "keywords": {"momentum": 0.9}, "scheduled": True}
STEPS = 16
STOP = 11  # where one stop must do: the growth tracker is then not that of a fresh scaler
OVERFLOW_AT = frozenset({3, 9})  # steps whose loss is multiplied by inf, where there is a scaler
# A growth that is no power of two shows in the weights; with this interval it grows after the steps 2, 6, 12 and 15.
SCALER: dict[str, float] = {"init_scale": 1024.0, "growth_factor": 1.7, "growth_interval": 3}


@dataclass(frozen=True, slots=True)
class Setup:
    """What the parts of the drill share. `folder` takes a data file and every mode's checkpoint of every step."""

    params: Params
    machine: Mapping[str, Any]
    folder: Path
    sizes: Mapping[str, Any] = field(default_factory=lambda: SIZES)

    def run(
        self,
        mode: str,
        *,
        other_seed: int = 0,
        overflow_at: Iterable[int] = OVERFLOW_AT,
        scaler: Mapping[str, float] | None = None,
    ) -> Run:
        """Build a fresh run, with SCALER changed by `scaler`; a resumed one begins from another seed.

        So nothing is right by accident.
        """
        small = self.params.model_copy(
            update={
                "workload": WORKLOAD,
                "sizes": self.sizes,
                "train": self.params.train.model_copy(update={"lr": 0.05, "compile": False}),
            }
        )
        return fresh_run(
            small,
            self.machine,
            mode,
            seed=(self.params.seed + other_seed) % 2**32,
            scaler=SCALER | dict(scaler or {}),
            overflow_at=frozenset(overflow_at),
        )

    def loaded(self, mode: str, path: Path, scaler: Mapping[str, float] | None = None) -> tuple[Run, list[str]]:
        """Return a fresh run with the state in `path`, and what was not taken over."""
        run = self.run(mode, other_seed=1, scaler=scaler)
        return run, checkpoint.load(run, path)

    def checkpoint(self, mode: str, step: int) -> Path:
        """Where the state before `step` lies."""
        return self.folder / f"{mode}.{step}.pt"

    def batches(self) -> list[Batch]:
        """Return the batches, on the device."""
        return data.load(self.folder / "data.safetensors", torch.device(self.machine["device"]), num_batches=STEPS)

    def make_data(self) -> None:
        """Write the data file."""
        workload = workloads.load(WORKLOAD, self.sizes)
        path = self.folder / "data.safetensors"
        data.make(path, workload, seed=self.params.seed, num_batches=STEPS, batch_size=self.sizes["batch_size"])


@dataclass(frozen=True, slots=True)
class Reference:
    """The run that never stops: `leaves[k]` and `scales[k]` before step k, `losses[k]` of step k.

    `begun[k]` are the leaves at the first line of iteration k, when its forward pass begins.
    """

    losses: list[float]
    scales: list[float]
    leaves: list[Leaves]
    begun: list[Leaves]

    def after_growth(self) -> int | None:
        """Return the first step before which the scale grew."""
        return next((step for step, (a, b) in enumerate(pairwise(self.scales), 1) if b > a), None)

    def after_skip(self) -> int | None:
        """Return the first step before which the scaler skipped."""
        return next((step for step, (a, b) in enumerate(pairwise(self.scales), 1) if b < a), None)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a resumed run did and ended with."""

    losses: list[float]
    leaves: Leaves

    def differs(self, reference: Reference) -> list[str]:
        """Name the first leaf and the first loss that are not the reference's, if any."""
        leaf = identity.differing(reference.leaves[-1], self.leaves)[:1]
        first_step = STEPS - len(self.losses)
        loss = identity.first_different_loss(reference.losses[first_step:], self.losses, first_step)
        return leaf + ([f"the loss of step {loss['step']}"] if loss else [])


def ending(run: Run, batches: list[Batch]) -> Ending:
    """Train `run` to the end."""
    losses = train(run, batches, STEPS).losses.tolist()
    return Ending(losses[-STEPS:], identity.leaves(state.get(run)))


def record(setup: Setup, mode: str) -> Reference:
    """Train without a stop, in one go; keep the state before every step and after the last, in files and as leaves."""
    run = setup.run(mode)
    begun: list[Leaves] = []
    leaves: list[Leaves] = []
    losses_of = run.workload.losses

    def losses(modules: Modules, batch: Batch) -> Iterable[torch.Tensor]:
        if run.step == len(begun):  # the first batch of a step that accumulates several
            begun.append(identity.leaves(state.get(run)))
        return losses_of(modules, batch)

    def keep() -> None:
        checkpoint.save(run, setup.checkpoint(mode, run.step))
        leaves.append(identity.leaves(state.get(run)))

    run.workload = replace(run.workload, losses=losses)
    keep()
    history = train(run, setup.batches(), STEPS, keep)
    return Reference(history.losses.tolist(), history.scales.tolist(), leaves, begun)
