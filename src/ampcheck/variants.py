"""The recipe's procedure when training breaks: the same steps with autocast off, with the scaler off, with both off.

https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.amp.grad_scaler import GradScaler

from ampcheck.paths import named_parameters
from ampcheck.precision import Mode
from ampcheck.run import Run
from ampcheck.training import scale_changes, skipped_steps, train
from ampcheck.workloads import Batch, told

AS_IT_IS = "as it is"


@dataclass(slots=True)
class Outcome:
    """What became of the steps that a run took: `broken` says what went wrong, in which step; empty if nothing did.

    `reached` names the parameters that got a gradient, `scale_changes` has (step, loss scale before it).
    """

    broken: str = ""
    broke_at: int | None = None
    reached: list[str] = field(default_factory=list)
    scale_changes: list[tuple[int, float]] = field(default_factory=list)


def variants(mode: Mode) -> dict[str, tuple[bool, bool]]:
    """Return what to try of a mode, by name, with whether autocast and scaler are on; in the last nothing is."""
    tried = {
        AS_IT_IS: (mode.autocast, mode.scaler),
        "autocast off": (False, mode.scaler),
        "scaler off": (mode.autocast, False),
        "both off": (False, False),
    }
    distinct = {on: name for name, on in reversed(tried.items())}  # of the same ones the first name
    return {name: on for on, name in reversed(distinct.items())}


def vary(run: Run, *, autocast: bool, scaler: bool) -> None:
    """Switch off what is not on."""
    if not autocast:
        run.autocast = torch.autocast(run.device.type, enabled=False)
    if not scaler:
        run.scaler = GradScaler(run.device.type, enabled=False)


def outcome(run: Run, batches: list[Batch], steps: int) -> Outcome:
    """Take up to `steps` steps, and stop at the first that breaks.

    Whatever the user's code raises is a result here; so is a scaler that skips every step.
    """
    found, reached, scales = Outcome(), set[str](), [run.scaler.get_scale()]
    for name, parameter in named_parameters(run.modules):
        parameter.register_hook(partial(_note, reached, name))  # type: ignore[no-untyped-call]
    while run.step < steps and not found.broken:
        found.broke_at = run.step
        try:
            history = train(run, batches, run.step + 1)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            found.broken = told(error)
            break
        scales.append(history.scales[-1].item())
        loss = history.losses.item()
        if not math.isfinite(loss):
            found.broken = f"the loss is {loss} at step {found.broke_at}"
    found.scale_changes = scale_changes(scales) if run.scaler.is_enabled() else []
    if not found.broken:
        found.broken, found.broke_at = _skips_only(scales), 0
    found.reached = [name for name, _ in named_parameters(run.modules) if name in reached]
    return found


def verdict(broken: Mapping[str, str], dtype: str) -> str:
    """Say in a sentence what is to blame, by what is broken in each variant."""
    [*_, plain] = broken.values()
    if not broken[AS_IT_IS]:
        return "Nothing broke."
    if plain:
        return "It is not mixed precision's fault: without autocast and without a scaler it breaks too."
    without_autocast, without_scaler = broken["autocast off"], broken.get("scaler off", broken[AS_IT_IS])
    if without_scaler and not without_autocast:
        return f"Autocast to {dtype} is to blame: with autocast off it does not break."
    if without_autocast and not without_scaler:
        return "The scaler is to blame: with the scaler off it does not break; what it scales overflows float32 too."
    if without_autocast:
        return "Autocast and the scaler are both to blame: only with both off it does not break."
    return f"Autocast to {dtype} and the scaler together are to blame: what the scaler scales overflows {dtype}."


def _note(reached: set[str], name: str, _: torch.Tensor) -> None:
    reached.add(name)


def _skips_only(scales: list[float]) -> str:
    """A run of steps that were all skipped is broken."""
    skipped = len(skipped_steps(scales))
    if skipped < len(scales) - 1:
        return ""
    return f"the scaler skipped every one of {skipped} steps, down to a scale of {scales[-1]:.3g}"
