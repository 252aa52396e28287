"""Files written whole or not at all: beside their place first, then renamed."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any


def partial(path: Path) -> Path:
    """Where `path` grows until it is whole; git and DVC ignore such names."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the place of `path` if the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = partial(path)
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; it takes the place of `path` if the block ends well."""
    beside, old = partial(path), partial(path.with_name(f"{path.name}.old"))
    for leftover in (beside, old):
        shutil.rmtree(leftover, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
        if path.exists():
            path.rename(old)
        beside.rename(path)
    finally:
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, with its data on the disk before the name points to it."""
    with replaced_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, a dataclass as an object. ValueError for NaN and infinities, which are not JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, default=asdict) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 - what the file holds is its reader's to know
    """Read a JSON file. ValueError if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; `dvc repro` makes it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a whole JSON file ({error}); delete it and run `dvc repro`") from error
