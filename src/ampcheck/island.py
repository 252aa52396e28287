"""A float32 island around a module: what the diagnosis tries, and gives as the code to write."""

import inspect
from collections.abc import Sequence

import torch
from torch.utils._pytree import tree_map

from ampcheck.paths import parent
from ampcheck.workloads import Modules


def in_float32(module: torch.nn.Module, device_type: str) -> None:
    """Run `module` in float32, whatever comes in, with autocast switched off around it."""
    forward = module.forward

    def wide(leaf: object) -> object:
        return leaf.float() if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf

    def without_autocast(*inputs: object, **named: object) -> object:
        with torch.autocast(device_type, enabled=False):
            return forward(*tree_map(wide, inputs), **tree_map(wide, named))

    module.forward = without_autocast


def put_islands(modules: Modules, paths: Sequence[str], device_type: str) -> None:
    """Make an island of the module at each of `paths`."""
    for path in paths:
        in_float32(_at(modules, path), device_type)


def more_islands(paths: list[str], path: str) -> list[str]:
    """Return `paths` and the module at `path`, or the one around it if it is there already; [] if there is none."""
    wider = path
    while wider and any(f"{wider}.".startswith(f"{each}.") for each in paths):
        wider = parent(wider)
    return [*(each for each in paths if not each.startswith(f"{wider}.")), wider] if wider else []


def code(paths: list[str], device_type: str) -> str:
    """Return python code that makes the islands in a dict of modules, as `Workload.modules` returns it."""
    source = inspect.getsource(in_float32)
    lines = [f"in_float32({_written(path)}, {device_type!r})" for path in paths]
    imports = ["import torch", "from torch.utils._pytree import tree_map"]
    return "\n".join([*imports, "", "", source, "", *lines])


def _at(modules: Modules, path: str) -> torch.nn.Module:
    outer, _, inner = path.partition(".")
    return modules[outer].get_submodule(inner)


def _written(path: str) -> str:
    outer, _, inner = path.partition(".")
    return f"modules[{outer!r}].get_submodule({inner!r})" if inner else f"modules[{outer!r}]"
