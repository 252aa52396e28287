"""When training breaks in a mode: what is to blame, where it begins, and whether a float32 island cures it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ampcheck import island
from ampcheck.identity import few
from ampcheck.launch import Failure, attempt
from ampcheck.places import Place, Setting, find_place, place_with_islands
from ampcheck.precision import MODES
from ampcheck.processes import Progress
from ampcheck.schema import Params
from ampcheck.variants import AS_IT_IS, Outcome, outcome, variants, verdict

STEPS = 24  # that many skips take torch's first scale, 65536, to 0.004: what overflows then is no gradient
MOST_ISLANDS = 8
DIVERGES = "Its first steps go well, so a smaller train.lr may be what it needs, or train.clip_norm."
LOOK_FOR = (
    "with autocast off one does, so look for a pass under no_grad in the same autocast region, which wants a region of "
    "its own, and for copies of weights in 16 bits that are kept"
)


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """What was found of one mode. `tried` has what broke in each variant, empty if nothing did.

    `islands` are the modules that as islands of float32 keep it from breaking, with the code; [] if none were found.
    """

    mode: str
    why: str = ""
    rows: int | None = None
    steps: int | None = None
    tried: dict[str, str] = field(default_factory=dict)
    verdict: str = ""
    place: Place = field(default_factory=Place)
    islands: list[str] = field(default_factory=list)
    code: str = ""


def diagnose(
    params: Params, machine: Mapping[str, Any], mode: str, available: Mapping[str, Any], broke_at: int = 0
) -> Diagnosis:
    """Diagnose `mode`, whose trial broke in step `broke_at`, if it did; `available` is its entry in modes.json.

    The rows of the resume check are tried first, since that is cheap; then whole batches where the mode is trained.
    """
    if not available["available"]:
        return Diagnosis(mode=mode, why=available["why"])
    found = _found(Setting(params, machine, mode, params.resume.batch_size, STEPS))
    if found.tried[AS_IT_IS] or not params.train.takes(available):
        return found
    return _found(Setting(params, machine, mode, params.sizes["batch_size"], max(STEPS, broke_at + 1)))


def _found(setting: Setting) -> Diagnosis:
    found = Diagnosis(mode=setting.mode, rows=setting.rows, steps=setting.steps)
    outcomes = {name: _outcome(setting, name, on) for name, on in variants(MODES[setting.mode]).items()}
    _compare_gradients(outcomes)
    found.tried = {name: each.broken for name, each in outcomes.items()}
    found.verdict = verdict(found.tried, MODES[setting.mode].dtype)
    broke_at = outcomes[AS_IT_IS].broke_at
    if found.tried[AS_IT_IS] and broke_at and found.tried[list(found.tried)[-1]]:
        found.verdict += f" {DIVERGES}"
    if found.tried[AS_IT_IS] and broke_at is not None:
        placed = attempt(partial(find_place, setting, broke_at, []), f"diagnose {setting.mode}, where")
        if isinstance(placed, Place):
            found.place = placed
            _cure(setting, found)
    return found


def _outcome(setting: Setting, name: str, on: tuple[bool, bool]) -> Outcome:
    label = f"diagnose {setting.mode}, {name}"
    autocast, scaler = on

    def take(_: Progress) -> Outcome:
        return outcome(setting.run(autocast=autocast, scaler=scaler), setting.batches(), setting.steps)

    taken = attempt(take, label)
    return Outcome(broken=taken.why) if isinstance(taken, Failure) else taken


def _compare_gradients(outcomes: dict[str, Outcome]) -> None:
    """Call a variant broken in which parameters get no gradient that get one with everything off."""
    [*_, plain] = outcomes.values()
    for each in outcomes.values():
        if not each.broken and (missing := [name for name in plain.reached if name not in each.reached]):
            each.broken = f"no gradient reaches {few(missing)}; {LOOK_FOR}"


def _cure(setting: Setting, found: Diagnosis) -> None:
    """Where autocast is to blame, make islands of the modules in which it breaks, in turn, until it does not."""
    if found.tried.get("autocast off", "there is none"):
        return
    place: Place | Failure | None = found.place
    islands: list[str] = []
    while isinstance(place, Place):
        islands = island.more_islands(islands, place.module)
        if not 0 < len(islands) <= MOST_ISLANDS:
            return
        label = f"diagnose {setting.mode}, {len(islands)} islands"
        place = attempt(partial(place_with_islands, setting, islands), label)
    if place is None:
        found.islands, found.code = islands, island.code(islands, setting.machine["device"].partition(":")[0])
