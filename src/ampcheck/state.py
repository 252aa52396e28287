"""The parts of a run's state, listed once: how each is read, and how it is put back.

State crosses a border only as bytes: `state_dict()` is live and `Optimizer.load_state_dict` aliases what it is given.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import torch

from ampcheck import generators
from ampcheck.fit import misfits, other_settings
from ampcheck.identity import few
from ampcheck.precision import MODES
from ampcheck.run import Run
from ampcheck.workloads import weights_of

State: TypeAlias = dict[str, Any]  # part -> nested dicts and lists of tensors, numbers and strings


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of a run's state is read and put back."""

    get: Callable[[Run], Any]
    put: Callable[[Run, Any], None]


def _dicts_of(of: Callable[[Run], Mapping[str, Any]]) -> Part:
    """Return the part made of all objects of a kind, by name, each with a state_dict."""

    def put(run: Run, state: State) -> None:
        for name, each in of(run).items():
            each.load_state_dict(state[name])

    return Part(lambda run: {name: each.state_dict() for name, each in of(run).items()}, put)


def _put_scaler(run: Run, state: State) -> None:
    if state and run.scaler.is_enabled():
        run.scaler.load_state_dict(state)


def _put_optimizers(run: Run, state: State) -> None:
    for name, optimizer in run.optimizers.items():
        optimizer.load_state_dict(deepcopy(state[name]))  # it would keep the tensors: those of a file that is mapped
        numbers = chain.from_iterable(group["params"] for group in state[name]["param_groups"])
        for number, parameter in zip(numbers, weights_of(optimizer), strict=True):
            _keep_dtypes(state[name]["state"].get(number, {}), optimizer.state.get(parameter, {}), parameter.device)


def _keep_dtypes(saved: State, loaded: State, device: torch.device) -> None:
    """Undo that `Optimizer.load_state_dict` casts all tensors but "step" to their parameter's dtype."""
    for key, value in saved.items():
        if isinstance(value, torch.Tensor) and value.dtype != loaded[key].dtype:
            loaded[key] = value.to(device)


def _get_gradients(run: Run) -> State:
    """Return by module and parameter whether there is a gradient: between steps it is zero where they are kept."""
    return {
        name: {path: parameter.grad is not None for path, parameter in module.named_parameters()}
        for name, module in run.modules.items()
    }


def _put_gradients(run: Run, state: State) -> None:
    for name, module in run.modules.items():
        for path, parameter in module.named_parameters():
            parameter.grad = torch.zeros_like(parameter) if state[name][path] else None


def _put_step(run: Run, step: int) -> None:
    run.step = step


PARTS = {
    "modules": _dicts_of(lambda run: run.modules),
    "optimizers": replace(_dicts_of(lambda run: run.optimizers), put=_put_optimizers),
    "schedulers": _dicts_of(lambda run: run.schedulers),
    "gradients": Part(_get_gradients, _put_gradients),
    "scaler": Part(lambda run: run.scaler.state_dict(), _put_scaler),
    "rng": Part(lambda _: generators.get(), lambda _, state: generators.put(state)),
    "step": Part(lambda run: run.step, _put_step),
}


def get(run: Run) -> State:
    """Return every part of the run's state, live: compare it or write it, but don't keep it."""
    return {name: part.get(run) for name, part in PARTS.items()}


def put(run: Run, state: State, mode: str) -> list[str]:
    """Put `state`, saved by a run in `mode`, into a fresh run of the same workload. Return what became of it.

    Into another mode all parts but the scaler come over bit for bit. A scaler starts fresh if the saved run had none,
    and what it saved is ignored where the mode has none. Settings (of the scaler, of an optimizer's groups) that
    differ from the run's are the saved ones from then on. All of this is told, a line each.

    ValueError, naming every leaf, if the state is not one of this workload; the run is then as it was.
    """
    fresh = get(run)
    crossing = MODES[mode].scaler != run.mode.scaler
    if wrong := misfits(state, fresh, crossing=crossing):
        raise ValueError(few(wrong, "; "))
    told = [*_mode_told(state, mode, run), *other_settings(state, fresh)]
    for name, part in PARTS.items():
        part.put(run, state[name])
    return told


def _mode_told(state: State, mode: str, run: Run) -> list[str]:
    if mode == run.mode.name:
        return []
    fates = {(True, False): "; the saved scaler is ignored", (False, True): "; its scaler starts fresh"}
    fate = fates.get((bool(state["scaler"]), run.mode.scaler), "")
    return [f"mode: saved in {mode}, goes on in {run.mode.name}{fate}"]
