"""Where it breaks: the step that broke, taken once more under watch, in a run made as before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ampcheck import data, island
from ampcheck.births import Birth
from ampcheck.launch import eager, fresh_run
from ampcheck.probabilities import Probabilities
from ampcheck.run import Run
from ampcheck.schema import Params
from ampcheck.training import train
from ampcheck.variants import outcome, vary
from ampcheck.watch import Refused, Watch
from ampcheck.workloads import Batch, told


@dataclass(frozen=True, slots=True)
class Setting:
    """Which steps are taken: of `mode`, on the first `rows` of each batch, up to `steps` of them."""

    params: Params
    machine: Mapping[str, Any]
    mode: str
    rows: int
    steps: int

    def run(self, *, autocast: bool = True, scaler: bool = True, islands: Sequence[str] = ()) -> Run:
        """Return a fresh run, with islands of float32 and with what is not on switched off."""
        run = fresh_run(eager(self.params), self.machine, self.mode, seed=self.params.seed)
        vary(run, autocast=autocast, scaler=scaler)
        island.put_islands(run.modules, islands, run.device.type)
        return run

    def batches(self) -> list[Batch]:
        """Return the batches of the steps, on the device; make a run first, which sets the process up."""
        wanted = min(self.params.data.num_batches, self.steps * self.params.train.accumulate)
        return data.load(data.PATH, torch.device(self.machine["device"]), num_batches=wanted, rows=self.rows)


@dataclass(slots=True)
class Place:
    """Where it broke: see Watch and Probabilities.

    `error` is one line of what was raised, `stack` all of it, with torch's C++ stack.
    """

    culprit: Birth | None = None
    gradient: str = ""
    probabilities: list[str] = field(default_factory=list)
    refused: Refused | None = None
    error: str = ""
    stack: str = ""

    @property
    def module(self) -> str:
        """The path of the module in which it broke, empty if it is none."""
        begun = self.refused or self.culprit
        return begun.module if begun else ""


def find_place(setting: Setting, broke_at: int, islands: Sequence[str], _: object = None) -> Place:
    """Watch the step that broke; without a scaler the one before as well, whose gradients may have spoiled weights."""
    run = setting.run(islands=islands)
    batches, found = setting.batches(), Place()
    train(run, batches, broke_at if run.scaler.is_enabled() else max(0, broke_at - 1))
    with Watch(run) as watch, Probabilities() as probabilities:
        try:
            train(run, batches, broke_at + 1)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            found.error, found.stack = told(error), str(error)
    found.probabilities = probabilities.lines
    found.culprit, found.gradient, found.refused = watch.culprit(), watch.gradient, watch.refused
    return found


def place_with_islands(setting: Setting, islands: Sequence[str], _: object = None) -> Place | None:
    """Return where it breaks with `islands`; None if it does not."""
    run = setting.run(islands=islands)
    result = outcome(run, setting.batches(), setting.steps)
    return find_place(setting, result.broke_at or 0, islands) if result.broken else None
