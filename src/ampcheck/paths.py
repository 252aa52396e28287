"""Where a number, a module, a line is: names that a user finds again in their own file."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from ampcheck.workloads import Modules

OURS = str(Path(__file__).parent)


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
    """Return "file, line N" of the user's line that is being run; empty if it is none of theirs."""
    for frame in reversed(traceback.extract_stack()[:-1]):
        if frame.filename.startswith(OURS) and Path(frame.filename).stem not in ("watch", "births", "probabilities"):
            return ""
        if not frame.filename.startswith(OURS) and "site-packages" not in frame.filename:
            return f"{Path(frame.filename).name}, line {frame.lineno}"
    return ""
