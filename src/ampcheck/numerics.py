"""The health of a mode's numbers: the loss scale, what 16 bits lose of the gradients, the room before they overflow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ampcheck.births import Birth
from ampcheck.launch import Failure, attempt
from ampcheck.magnitudes import Magnitudes, Tally, measured, output_dtypes
from ampcheck.places import Setting
from ampcheck.precision import MODES
from ampcheck.probabilities import Probabilities
from ampcheck.schema import Params
from ampcheck.variants import Outcome, outcome
from ampcheck.watch import Watch

STEPS = 6  # in the mode itself
FLOAT32_STEPS = 2  # for the magnitudes
ROOM = 4.0  # that a first scale leaves between the largest gradient and an overflow
LARGEST_SCALE = 2.0**24
LOSSES = "the losses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A parameter's gradient, or a module's output's, in float32.

    `zero_unscaled` is the share of its numbers other than zero that the mode's type would make zero, `zero_scaled` that
    with the loss scale; None if it has none. `headroom` is how many times larger it could be before it overflows.
    """

    name: str
    largest: float
    zero_unscaled: float | None
    zero_scaled: float | None
    headroom: float | None


@dataclass(slots=True, kw_only=True)
class Numerics:
    """What was found of one mode: of a few steps of its own on `rows` rows, and of whole batches in float32.

    `broken` says what went wrong in its own steps. `overflows` are operations that made a number in 16 bits that is not
    finite, but is in float32. `outputs` has the largest magnitude of each module whose output has 16 bits, in float32.
    `first_scale` is what the loss scale may begin with.
    """

    mode: str
    why: str = ""
    dtype: str = ""
    rows: int | None = None
    broken: str = ""
    scale_changes: list[tuple[int, float]] = field(default_factory=list)
    overflows: list[Birth] = field(default_factory=list)
    without_gradient: list[str] = field(default_factory=list)
    probabilities: list[str] = field(default_factory=list)
    float32_broken: str = ""
    outputs: dict[str, float] = field(default_factory=dict)
    of_outputs: list[Gradient] = field(default_factory=list)
    of_parameters: list[Gradient] = field(default_factory=list)
    first_scale: float | None = None


def examine(params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any]) -> Numerics:
    """Examine `mode` in a child; `available` is its entry in modes.json.

    Its own steps are taken on the rows of the resume check where it is not trained, as where it is emulated.
    """
    if not available["available"]:
        return Numerics(mode=mode, why=available["why"])
    if not MODES[mode].autocast:
        return Numerics(mode=mode, why="it computes in float32")
    rows = params.sizes["batch_size"] if params.train.takes(available) else params.resume.batch_size
    setting = Setting(params, machine, mode, rows, STEPS)
    result = attempt(lambda _: _examined(setting), f"numerics {mode}")
    return Numerics(mode=mode, why=result.why) if isinstance(result, Failure) else result


def line(found: Numerics) -> str:
    """Tell the result in one line of a log."""
    if found.why:
        return f"{found.mode}: not examined: {found.why}"
    return f"{found.mode}: {found.broken or 'sound'} on {found.rows} rows"


def _examined(setting: Setting) -> Numerics:
    mode = MODES[setting.mode]
    found = Numerics(mode=setting.mode, dtype=mode.dtype, rows=setting.rows)
    result, dtypes = _own_steps(setting, found)
    scale = found.scale_changes[-1][1] if mode.scaler else None
    plain, magnitudes = _float32_steps(setting, scale)
    found.float32_broken = plain.broken
    if not result.broken:
        found.without_gradient = [name for name in plain.reached if name not in result.reached]
    sixteen = [name for name, dtype in dtypes.items() if dtype == mode.dtype]
    of_outputs = {name: tally for name, tally in magnitudes.of_outputs.items() if name in sixteen}
    found.outputs = {
        name: largest for name, largest in magnitudes.outputs.items() if name in sixteen and math.isfinite(largest)
    }
    found.of_outputs = [_gradient(name, tally, mode.dtype, scale) for name, tally in of_outputs.items()]
    parameters = magnitudes.of_parameters
    found.of_parameters = [_gradient(name, tally, mode.dtype, scale) for name, tally in parameters.items()]
    if mode.scaler:
        largest = max((each.largest for each in [*found.of_outputs, *found.of_parameters]), default=0.0)
        found.first_scale = first_scale(max(largest, float(LOSSES in sixteen)), mode.dtype)
    return found


def _own_steps(setting: Setting, found: Numerics) -> tuple[Outcome, dict[str, str]]:
    """Take the mode's own steps; return also the dtypes of its modules' outputs, and of its LOSSES."""
    run, batches = setting.run(), setting.batches()
    with Watch(run) as watch, Probabilities() as probabilities, output_dtypes(run.modules) as dtypes:
        result = outcome(run, batches, setting.steps)
    found.broken, found.scale_changes = result.broken, result.scale_changes
    overflows = [each for each in watch.births if each.phase == "forward" and each.in_float32 is not None]
    found.overflows = list({(each.module, each.operation, each.line): each for each in overflows}.values())
    found.probabilities = list(dict.fromkeys(probabilities.lines))
    return result, dtypes | dict.fromkeys([LOSSES] * bool(watch.loss_dtypes - {"float32", "float64"}), found.dtype)


def _float32_steps(setting: Setting, scale: float | None) -> tuple[Outcome, Magnitudes]:
    """Take steps on whole batches with autocast and scaler off, and measure."""
    whole = replace(setting, rows=setting.params.sizes["batch_size"], steps=FLOAT32_STEPS)
    run, batches = whole.run(autocast=False, scaler=False), whole.batches()
    with measured(run.modules, getattr(torch, MODES[setting.mode].dtype), scale or 1.0) as magnitudes:
        return outcome(run, batches, whole.steps), magnitudes


def _gradient(name: str, tally: Tally, dtype: str, scale: float | None) -> Gradient:
    end = torch.finfo(getattr(torch, dtype)).max
    return Gradient(
        name=name,
        largest=tally.largest,
        zero_unscaled=tally.zero_unscaled / tally.nonzero if tally.nonzero else None,
        zero_scaled=tally.zero_scaled / tally.nonzero if tally.nonzero and scale else None,
        headroom=end / (tally.largest * (scale or 1.0)) if tally.largest else None,
    )


def first_scale(largest: float, dtype: str) -> float | None:
    """Return the power of two, of at most LARGEST_SCALE, that leaves ROOM above the `largest` gradient; None of 0."""
    if not largest:
        return None
    return min(LARGEST_SCALE, 2.0 ** math.floor(math.log2(torch.finfo(getattr(torch, dtype)).max / (ROOM * largest))))
