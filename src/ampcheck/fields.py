"""What a single value of params.yaml may be. Loads no torch."""

import difflib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ampcheck.precision import MODES

RESERVED_BY_DVC = ("size", "nfiles")  # DVC's run cache leaves keys of these names out of its hash


def closest(name: str, allowed: list[str]) -> str:
    """Return " (did you mean NAME?)" where an allowed name is close to `name`, else an empty string."""
    close = difflib.get_close_matches(name, allowed, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _whole(value: object) -> object:
    """Turn 1e2, which YAML reads as a float, into the integer it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _distinct(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("each entry may appear once only")
    return values


def _mode(name: str) -> str:
    if name not in MODES:
        raise ValueError(f"no such mode; allowed: {', '.join(MODES)}{closest(name, list(MODES))}")
    return name


def _sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    for key in RESERVED_BY_DVC:
        if key in sizes:
            raise ValueError(f"a key named {key!r} is not allowed: DVC's run cache ignores it; choose another name")
    batch_size = sizes.get("batch_size")
    if type(batch_size) is not int or batch_size < 1:
        raise ValueError(f"batch_size must be among them, an integer of at least 1; got {batch_size!r}")
    return sizes


def flow(mapping: Mapping[str, Any]) -> str:
    """Return a mapping as YAML's flow style has it: {name: Adam, lr: 0.1}."""
    return f"{{{', '.join(f'{key}: {value}' for key, value in mapping.items())}}}"


def _named(keywords: object) -> object:
    if not isinstance(keywords, dict) or not isinstance(keywords.get("name"), str):
        raise ValueError("should be null, or a name with keywords beside it, such as {name: Adam, eps: 1e-6}")
    return keywords


def _without(taken: dict[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a validator that refuses keywords for which there is another place, or none."""

    def check(keywords: dict[str, Any]) -> dict[str, Any]:
        for keyword in taken.keys() & keywords.keys():
            raise ValueError(f"got {keyword}: {keywords[keyword]}; {taken[keyword]}")
        return keywords

    return check


Named = Annotated[dict[str, Any], BeforeValidator(_named)]  # a class of torch's, and keywords
Optimizer = Annotated[Named, AfterValidator(_without({"lr": "give it as train.lr", "params": "the workload has them"}))]
Scheduler = Annotated[Named, AfterValidator(_without({"last_epoch": "leave it out: a run begins at its first step"}))]
Natural = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Modes = Annotated[list[Annotated[str, AfterValidator(_mode)]], Field(min_length=1), AfterValidator(_distinct)]
Repeats = Annotated[list[Natural], Field(min_length=1), AfterValidator(_distinct)]
Steps = Annotated[list[Natural], AfterValidator(_distinct)]
Sizes = Annotated[dict[str, Annotated[Any, BeforeValidator(_whole)]], AfterValidator(_sizes)]


def flat(node: Any, name: str = "") -> dict[str, Any]:  # noqa: ANN401 - a tree of parameters
    """Return the leaves of nested sections by their dotted names."""
    if not isinstance(node, dict):
        return {name: node}
    found: dict[str, Any] = {}
    for key, child in node.items():
        found |= flat(child, f"{name}.{key}" if name else key)
    return found
