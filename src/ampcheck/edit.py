"""python -m ampcheck.edit [NAME] [KEY=VALUE ...]: change params.yaml, comments kept, if what results is valid.

NAME is an entry of sizes.yaml: its workload and its sizes; KEY=VALUE, say drill.kills=200, sets one parameter.
"""

import io
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ampcheck import params
from ampcheck.fields import closest
from ampcheck.files import write_text


def edit(path: Path, arguments: list[str]) -> None:
    """Apply the arguments in turn. ValueError, with params.yaml as it was, if one is wrong or the result is."""
    params.read(path)
    yaml = YAML()
    yaml.width = 4096
    yaml.representer.add_representer(
        type(None), lambda made, _: made.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    document = yaml.load(path.read_text(encoding="utf-8"))
    for argument in arguments:
        apply(document, argument, path)
    text = io.StringIO()
    yaml.dump(document, text)
    params.validated(YAML(typ="safe", pure=True).load(text.getvalue()), path)
    if arguments:
        write_text(path, text.getvalue())


def apply(document: Any, argument: str, path: Path) -> None:  # noqa: ANN401 - a tree of parameters
    """Change the parameters `document`, read from `path`, by one argument. ValueError if it is wrong in itself."""
    key, equals, value = argument.partition("=")
    if equals:
        _set(document, key, _value(argument, value))
    else:
        _set_sizes(document, argument, path.parent / "sizes.yaml")


def _value(argument: str, value: str) -> object:
    try:
        return YAML(typ="safe", pure=True).load(value)
    except YAMLError as error:
        raise ValueError(f"got {argument!r}; the value is not valid YAML: {' '.join(str(error).split())}") from error


def _set(document: Any, key: str, value: object) -> None:  # noqa: ANN401 - a tree of parameters
    *sections, name = key.split(".")
    node = document
    for section in sections:
        node = node.get(section, {}) if isinstance(node, dict) else {}
    if not isinstance(node, dict) or name not in node:
        raise ValueError(f"{key}: no such key in params.yaml; give KEY=VALUE with dots between sections")
    node[name] = value


def _set_sizes(document: Any, name: str, path: Path) -> None:  # noqa: ANN401
    named = params.read(path)
    if name not in named:
        known = f"it has {', '.join(named)}{closest(name, list(named))}"
        raise ValueError(f"{path}: got {name!r}; {known}; or give KEY=VALUE")
    document["workload"] = named[name].pop("workload")
    for key in set(document["sizes"]) - set(named[name]):
        del document["sizes"][key]
    document["sizes"].update(named[name])


if __name__ == "__main__":
    try:
        edit(Path("params.yaml"), sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(str(error))
