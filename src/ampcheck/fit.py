"""Does a saved state fit a fresh run, and which of its settings are others?"""

from collections.abc import Mapping
from typing import Any

import torch

from ampcheck.identity import walk
from ampcheck.precision import dtype_name

SCHEDULED = {"lr", "momentum", "betas"}  # what torch's schedulers change


def misfits(saved: Mapping[str, Any], fresh: Mapping[str, Any], *, crossing: bool) -> list[str]:
    """Name each leaf that two states of one workload must have alike, but that differs in dtype, shape or presence.

    `crossing`: from a mode with a scaler to one without, or back; the scaler is then no part of it.
    """
    found, expected = _outline(saved, crossing=crossing), _outline(fresh, crossing=crossing)
    return [
        f"{path}: it has {found.get(path, 'nothing')}, this run has {expected.get(path, 'nothing')}"
        for path in {**expected, **found}
        if found.get(path) != expected.get(path)
    ]


def other_settings(saved: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Tell, a line each, in which settings of scaler and optimizers the saved run differs from the fresh one."""
    kept, started = _settings(saved), _settings(fresh)
    return [
        f"{path}: {kept[path]} as saved, not {value} as this run was started with"
        for path, value in started.items()
        if path in kept and kept[path] != value
    ]


def _outline(state: Mapping[str, Any], *, crossing: bool) -> dict[str, str]:
    """Return path -> dtype and shape; of an optimizer its groups only, since its buffers come with its first step."""
    alike = {**state, "optimizers": _groups(state), "scaler": {} if crossing else state["scaler"]}
    return {path: _kind(leaf) for path, leaf in walk(alike) if not isinstance(leaf, Mapping | list | tuple)}


def _groups(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"param_groups": each["param_groups"]} for name, each in state["optimizers"].items()}


def _kind(leaf: object) -> str:
    return f"{dtype_name(leaf.dtype)} {tuple(leaf.shape)}" if isinstance(leaf, torch.Tensor) else "a value"


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the run was set up with, by path; where there is a scheduler, less what is its business."""
    scaler = {key: value for key, value in state["scaler"].items() if key not in ("scale", "_growth_tracker")}
    scheduled = tuple(f"optimizers/{name}/" for name in state["schedulers"])
    found = walk({"scaler": scaler, "optimizers": _groups(state)})
    return {
        path: value for path, value in found if not (path.startswith(scheduled) and SCHEDULED & set(path.split("/")))
    }
