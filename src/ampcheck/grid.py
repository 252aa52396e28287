"""The sizes that a sweep is asked for -> parameters, and what DVC is to set for them. Loads no torch."""

import copy
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ampcheck import params
from ampcheck.edit import apply
from ampcheck.fields import flat

USAGE = "give names of sizes.yaml, or values as in DVC's grid: -S sizes.batch_size=64,128"


def sizes(arguments: list[str], path: Path = Path("params.yaml")) -> dict[str, dict[str, Any]]:
    """Return the parameters of each size, by a label: every name of sizes.yaml with every value of the grid.

    ValueError, one line, for what can't be; all is checked before anything is measured.
    """
    given = [argument for argument in arguments if argument not in ("-S", "--set-param")]
    if not given:
        raise ValueError(f"got no sizes; {USAGE}")
    names = [[name] for name in given if "=" not in name]
    choices = [[edit for [edit] in names]] if names else []
    choices += [_values(argument) for argument in given if "=" in argument]
    raw, found = params.read(path), {}
    for edits in product(*choices):
        wanted = copy.deepcopy(raw) | {"trials_only": True}
        for edit in edits:
            apply(wanted, edit, path)
        found["-".join(_label(edit) for edit in edits)] = wanted
        params.validated(wanted, Path(", ".join(edits)))
    return found


def overrides(now: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return what `dvc exp run -S` is to be given to make `wanted` of `now`."""
    before, after = flat(now), flat(wanted)
    changed = [f"{'' if key in before else '+'}{key}={_hydra(value)}" for key, value in after.items()]
    kept = {f"{key}={_hydra(value)}" for key, value in before.items()}
    return [f"~{key}" for key in before if key not in after] + [each for each in changed if each not in kept]


def _values(argument: str) -> list[str]:
    key, _, values = argument.partition("=")
    try:
        parsed = YAML(typ="safe", pure=True).load(f"[{values}]")
    except YAMLError as error:
        raise ValueError(f"got {argument!r}; the values are not valid YAML; {USAGE}") from error
    return [f"{key}={json.dumps(value)}" for value in parsed]


def _label(edit: str) -> str:
    key, _, value = edit.partition("=")
    return re.sub(r"[^\w.]+", "-", "-".join([key.rpartition(".")[2], *([value] if value else [])])).strip("-.")


def _hydra(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)
