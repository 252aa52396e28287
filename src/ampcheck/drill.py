"""The drill: is resume bit-exact at every stop, across precision and after a kill, and would a loss be noticed?

On a small network with all kinds of state, in few processes: the cost does not depend on the timed run's size.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ampcheck import stops
from ampcheck.across import across
from ampcheck.controls import controls
from ampcheck.kills import survive
from ampcheck.launch import Failure, attempt
from ampcheck.processes import ChildError, Progress
from ampcheck.reference import STEPS, Ending, Reference, Setup, record
from ampcheck.scales import first_scales
from ampcheck.schema import Params
from ampcheck.tryout import try_out

T = TypeVar("T")


def run_drill(
    params: Params, machine: Mapping[str, Any], modes: Mapping[str, Mapping[str, Any]], folder: Path
) -> dict[str, Any]:
    """Return the drill's results by file name, JSON-ready; `modes` is modes.json, `folder` takes the checkpoints.

    Each available mode of train.modes has a result of its own; "across" and "kills" are of all of them.
    """
    setup = Setup(params, machine, folder)
    available = [mode for mode in params.train.modes if modes[mode]["available"]]
    examined = _in_child(lambda _: examine(setup, available), "drill, every stop")
    references = {mode: reference for mode, (reference, _) in examined.items()}
    results = {mode: result | {"in_new_processes": []} for mode, (_, result) in examined.items()}
    for chosen in _chosen_stops(references):
        endings = _in_child(partial(_resumed, setup, chosen), "drill, resumed")
        for mode, ending in endings.items():
            told = {"stop": chosen[mode], "differing": ending.differs(references[mode])}
            results[mode]["in_new_processes"].append(told)
    ends = {mode: reference.leaves[-1] for mode, reference in references.items()}
    return results | {
        "across": _in_child(lambda _: across(setup, available), "drill, across precision"),
        "kills": survive(setup, ends, params.drill.kills),
    }


def examine(setup: Setup, modes: list[str]) -> dict[str, tuple[Reference, dict[str, Any]]]:
    """Return each mode's reference, and what one process can find out about every stop, control and rule."""
    found = {}
    for mode in modes:
        try_out(setup, mode)
        reference = record(setup, mode)
        stopped = stops.every_stop(setup, mode, reference)
        bit_exact = all(stop["bit_exact"] for stop in stopped)
        result = {
            "mode": mode,
            "steps": STEPS,
            "stops": stopped,
            "named": stops.named_stops(reference),
            "same_save_points": stops.same_save_points(reference),
            "controls": controls(setup, mode, reference, bit_exact=bit_exact),
            "other_growth_interval": stops.other_growth_interval(setup, mode, reference),
            "runaway": stops.runaway(setup, mode),
            "first_scales": first_scales(setup, mode),
        }
        found[mode] = (reference, result)
    return found


def line(name: str, result: Any) -> str:  # noqa: ANN401 - of a mode, of all pairs, or of the kills
    """Tell one result of `run_drill` in one line of a log."""
    if name == "across":
        return f"across precision: {_count(not pair['differing'] for pair in result)} pairs went by the rules"
    if name == "kills":
        return f"kills: {_count(not kill['differing'] for kill in result['kills'])} runs ended with the same bits"
    exact = _count(stop["bit_exact"] for stop in result["stops"])
    caught = _count(control["caught"] for control in result["controls"] if control["matters"])
    return f"{name}: {exact} stops bit-exact, {caught} lost parts caught"


def _count(good: Iterable[bool]) -> str:
    all_of_them = list(good)
    return f"{sum(all_of_them)} of {len(all_of_them)}"


def _chosen_stops(references: dict[str, Reference]) -> list[dict[str, int]]:
    """Return for each new process the stop from which each mode is resumed there."""
    by_mode = {mode: stops.real_stops(reference) for mode, reference in references.items()}
    return [dict(zip(by_mode, each, strict=True)) for each in zip(*by_mode.values(), strict=True)]


def _resumed(setup: Setup, chosen: dict[str, int], _: Progress) -> dict[str, Ending]:
    return stops.to_the_end(setup, chosen)


def _in_child(function: Callable[[Progress], T], label: str) -> T:
    result = attempt(function, label)
    if isinstance(result, Failure):
        raise ChildError(f"{label}: {result.why}")
    return result
