"""params.yaml -> validated parameters; every error at once, each naming its key. Loads no torch."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ampcheck.fields import closest
from ampcheck.schema import Params

IN_OUR_WORDS = {  # by key or by pydantic's type of error
    "device": "should be auto, cpu, cuda or cuda:N",
    "workload": "should be package.module:callable",
    "bool_type": "should be true or false",
    "model_type": "should be a section with keys of its own",
    "too_short": "should have at least 1 item",
}


def read(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """Read the YAML file as it is. ValueError, one line, if that can't be done."""
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; run this in the folder that holds it") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise ValueError(
            f"{path}: got {type(raw).__name__}; it must hold the sections {', '.join(Params.model_fields)}"
        )
    return raw


def errors(raw: dict[str, Any]) -> dict[str, str]:
    """Return one line for each wrong key, by its dotted name; {} if there are none."""
    try:
        Params.model_validate(raw)
    except ValidationError as error:
        return dict(_explained(detail) for detail in error.errors())
    return {}


def load(path: Path = Path("params.yaml")) -> Params:
    """Read and validate. ValueError with one line for each error, all at once."""
    return validated(read(path), path)


def validated(raw: dict[str, Any], path: Path) -> Params:
    """Return what was read from `path` as parameters. ValueError with one line for each error, all at once."""
    if found := errors(raw):
        raise ValueError("\n".join(f"{path}: {line}" for line in found.values()))
    return Params.model_validate(raw)


def _explained(detail: ErrorDetails) -> tuple[str, str]:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    if detail["type"] == "extra_forbidden":
        allowed = _allowed_beside(detail["loc"])
        return (
            key,
            f"{key}: no such key; allowed here: {', '.join(allowed)}{closest(str(detail['loc'][-1]), allowed)}",
        )
    if detail["type"] == "missing":
        return key, f"{key}: missing; every key must be there"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = IN_OUR_WORDS.get(key, IN_OUR_WORDS.get(detail["type"], message))
    if not key:  # of several sections: the message begins with the key that is to blame
        return message.partition(":")[0], message
    of_section = detail["type"] == "value_error" and isinstance(detail["input"], dict)
    shown = "" if of_section else f"got {detail['input']!r}; "
    return key, f"{key}: {shown}{message}"


def _allowed_beside(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Params
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    return list(model.model_fields)
