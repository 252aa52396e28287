"""Where a number, a module, a line is: names that a user finds again in their own file."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from ampcheck.workloads import Modules

OURS = Path(__file__).parent
OBSERVERS = ("watch", "births", "probabilities", "operations")  # which torch calls, inside a user's line


def named_modules(modules: Modules) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module with its path, such as "net.1.bands", outer ones first."""
    for outer, module in modules.items():
        for inner, each in module.named_modules():
            yield f"{outer}.{inner}".rstrip("."), each


def leaf_modules(modules: Modules) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module that has no others inside."""
    return ((name, module) for name, module in named_modules(modules) if not list(module.children()))


def named_parameters(modules: Modules) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every parameter that is trained with its path."""
    for outer, module in modules.items():
        for inner, each in module.named_parameters():
            if each.requires_grad:
                yield f"{outer}.{inner}", each


def parent(path: str) -> str:
    """Return the path of the module around the one at `path`; empty where there is none."""
    return path.rpartition(".")[0]


def users_line() -> str:
    """Return "file, line N" of the user's line that is being run, be it of a workload of ours; empty if it is none."""
    for frame in reversed(traceback.extract_stack()[:-1]):
        path = Path(frame.filename)
        if OURS in path.parents and path.parent.name != "workloads":
            if path.stem not in OBSERVERS:
                return ""
        elif not any(part.endswith("-packages") for part in path.parts):
            return f"{path.name}, line {frame.lineno}"
    return ""
