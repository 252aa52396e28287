"""The fixed data: made once on the CPU, the same bytes for every trial on every machine.

One safetensors file holds every batch; the leaf of batch 7 at input[0] is named "7/input/0". How the leaves nest is
the file's one metadata key, `structure` (several keys would be written in changing order).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ampcheck.files import replaced_file
from ampcheck.identity import walk
from ampcheck.workloads import Batch, Workload, told

PATH = Path("data/fixed.safetensors")


def make(path: Path, workload: Workload, *, seed: int, num_batches: int, batch_size: int) -> None:
    """Write `num_batches` batches to `path`, batch i from numpy's Philox generator with the key (seed, i).

    ValueError if a leaf is no array or tensor, or has not batch_size rows in dimension 0, if the batch is no tree of
    dicts with plain names, lists and tuples, or if making it fails.
    """
    tensors: dict[str, torch.Tensor] = {}
    structures = set()
    for index in range(num_batches):
        batch = _made(workload, np.random.Generator(np.random.Philox(key=[seed, index])))
        structures.add(json.dumps(_structure(batch, "batch")))
        tensors |= {name: _checked(leaf, name, batch_size) for name, leaf in walk(batch, str(index))}
    if len(structures) > 1:
        raise ValueError("workload: its batches are not all nested alike; every batch must have the same structure")
    with replaced_file(path) as beside:
        save_file(tensors, beside, metadata={"structure": structures.pop()})


def load(path: Path, device: torch.device, *, num_batches: int, rows: int | None = None) -> list[Batch]:
    """Return the first `num_batches` batches (fewer if the file has no more) as copies on `device`.

    `rows` keeps the first rows of every leaf. The copy is made on the CPU too: what safetensors returns is a lazy
    map of the file, and its page faults would fall into the timed window. ValueError if the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            structure = json.loads(file.metadata()["structure"])
            held = len({name.partition("/")[0] for name in file.keys()})  # noqa: SIM118 - it is no mapping
            return [_read(path, structure, str(i), rows, device) for i in range(min(held, num_batches))]
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; `dvc repro` makes it") from None
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: truncated or not ours ({error}); delete it and run `dvc repro`") from error


def one(workload: Workload, seed: int, batch_size: int) -> Batch:
    """Return batch 0 as `make` would write it, in memory; ValueError as there."""
    batch = _made(workload, np.random.Generator(np.random.Philox(key=[seed, 0])))
    tensors = {name: _checked(leaf, name, batch_size) for name, leaf in walk(batch, "0")}
    return _nested(_structure(batch, "batch"), "0", tensors.__getitem__)  # type: ignore[no-any-return]


def nbytes(batches: list[Batch]) -> int:
    """Bytes of all tensors in `batches`."""
    return sum(leaf.nbytes for batch in batches for _, leaf in walk(batch))


def _read(path: Path, structure: Any, name: str, rows: int | None, device: torch.device) -> Any:  # noqa: ANN401
    # The file is opened for each batch, so that only one batch of the map is resident beside the copies.
    with safe_open(path, framework="pt") as file:
        return _nested(structure, name, lambda leaf: file.get_slice(leaf)[:rows].to(device, copy=True))


def _made(workload: Workload, generator: np.random.Generator) -> Batch:
    try:
        return workload.batch(generator)
    except Exception as error:  # whatever the user's code raises
        raise ValueError(f"workload: batch fails with {told(error)}") from error


def _checked(leaf: object, name: str, batch_size: int) -> torch.Tensor:
    if not isinstance(leaf, torch.Tensor | np.ndarray):
        raise ValueError(f"workload: batch leaf {name} is a {type(leaf).__name__}; allowed: numpy arrays, CPU tensors")
    try:
        tensor = torch.as_tensor(leaf).clone(memory_format=torch.contiguous_format)  # no two leaves may share memory
    except (TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"workload: batch leaf {name}: {reason}; allowed: numpy arrays and CPU tensors") from error
    if tensor.shape[:1] != (batch_size,):
        shape = tuple(tensor.shape)
        raise ValueError(f"workload: batch leaf {name} has shape {shape}; dimension 0 must be batch_size, {batch_size}")
    return tensor


def _structure(node: object, name: str) -> object:
    """Describe the nesting: {"dict": {key: ...}}, {"list": [...]}, {"tuple": [...]}, None for a leaf."""
    if isinstance(node, Mapping):
        if wrong := [key for key in node if not isinstance(key, str) or "/" in key or not key]:
            raise ValueError(f"workload: {name} has the key {wrong[0]!r}; keys are strings without a slash")
        return {"dict": {key: _structure(child, f"{name}/{key}") for key, child in node.items()}}
    if isinstance(node, list | tuple):
        if type(node) not in (list, tuple):
            raise ValueError(f"workload: {name} is a {type(node).__name__}; allowed: dicts, lists and tuples")
        return {type(node).__name__: [_structure(child, f"{name}/{index}") for index, child in enumerate(node)]}
    return None


def _nested(structure: Any, name: str, leaf: Any) -> Any:  # noqa: ANN401 - a tree of tensors
    if structure is None:
        return leaf(name)
    [(kind, inside)] = structure.items()
    if kind == "dict":
        return {key: _nested(child, f"{name}/{key}", leaf) for key, child in inside.items()}
    children = [_nested(child, f"{name}/{index}", leaf) for index, child in enumerate(inside)]
    return tuple(children) if kind == "tuple" else children
