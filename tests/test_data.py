"""The same bytes for every trial."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from ampcheck import data
from ampcheck.workloads import Workload

CPU = torch.device("cpu")


class Point(NamedTuple):
    """A tuple with names."""

    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]


def of(batch: Any) -> Workload:
    """Return a workload of which only the batches matter."""
    return Workload(modules=dict, batch=batch, losses=lambda modules, batch: [], optimizers=lambda modules, lr: {})


def test_the_file_has_the_same_bytes_each_time(mlp: Workload, tmp_path: Path) -> None:
    """Seed and sizes decide every byte."""
    for name in ("a", "b"):
        data.make(tmp_path / name, mlp, seed=3, num_batches=4, batch_size=8)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_bytes_are_those_of_philox(mlp: Workload, tmp_path: Path) -> None:
    """Batch i comes from numpy's Philox with the key (seed, i): the values do not depend on the machine's torch."""
    data.make(tmp_path / "a", mlp, seed=3, num_batches=2, batch_size=8)
    loaded = data.load(tmp_path / "a", CPU, num_batches=2)
    generator = np.random.Generator(np.random.Philox(key=[3, 1]))

    assert loaded[1]["input"].numpy().tobytes() == generator.standard_normal((8, 16), dtype=np.float32).tobytes()
    assert hashlib.sha256(loaded[0]["input"].numpy().tobytes()).hexdigest()[:16] == "d580f83d4fa363af"


def test_any_tree_of_any_dtype_comes_back_as_it_was(tmp_path: Path) -> None:
    """Dicts, lists and tuples of ids, masks and images keep their nesting, dtype and bits."""
    batch: dict[str, Any] = {
        "tokens": torch.arange(6).reshape(2, 3),
        "pair": (np.array([True, False]), [torch.ones(2, dtype=torch.bfloat16)]),
        "nested": {"image": torch.rand(2, 3, 4, 4).transpose(2, 3)},
    }
    data.make(tmp_path / "a", of(lambda _: batch), seed=0, num_batches=1, batch_size=2)
    [loaded] = data.load(tmp_path / "a", CPU, num_batches=5)

    assert list(loaded) == ["tokens", "pair", "nested"] or set(loaded) == set(batch)
    assert type(loaded["pair"]) is tuple
    assert torch.equal(loaded["tokens"], torch.arange(6).reshape(2, 3))
    assert torch.equal(loaded["pair"][0], torch.tensor([True, False]))
    assert loaded["pair"][1][0].dtype == torch.bfloat16
    assert torch.equal(loaded["nested"]["image"], torch.as_tensor(batch["nested"]["image"]))


def test_leaves_may_share_memory(tmp_path: Path) -> None:
    """An autoencoder's target is its input, and slices of one of the user's arrays are batches too."""
    images = np.arange(24, dtype=np.uint8).reshape(4, 6)
    batch = {"input": images[:2], "target": images[:2], "next": images[2:]}
    data.make(tmp_path / "a", of(lambda _: batch), seed=0, num_batches=2, batch_size=2)
    loaded = data.load(tmp_path / "a", CPU, num_batches=2)[1]

    assert {name: leaf.tolist() for name, leaf in loaded.items()} == {
        key: value.tolist() for key, value in batch.items()
    }
    assert {leaf.dtype for leaf in loaded.values()} == {torch.uint8}


def test_rows_are_the_first_of_every_leaf(mlp: Workload, tmp_path: Path) -> None:
    """The small batches of the resume check are cut along dimension 0."""
    data.make(tmp_path / "a", mlp, seed=0, num_batches=3, batch_size=8)
    whole, cut = (data.load(tmp_path / "a", CPU, num_batches=2, rows=rows) for rows in (None, 3))

    assert len(cut) == 2
    assert torch.equal(cut[1]["target"], whole[1]["target"][:3])
    assert data.nbytes(cut) == 2 * 3 * (16 + 12) * 4


def test_a_leaf_without_batch_size_rows_is_refused(tmp_path: Path) -> None:
    """A wrong dimension 0 is named with the shape that came."""
    with pytest.raises(ValueError, match=r"0/x has shape \(2, 8\); dimension 0 must be batch_size, 8"):
        data.make(tmp_path / "a", of(lambda _: {"x": torch.ones(2, 8)}), seed=0, num_batches=1, batch_size=8)


def test_a_leaf_that_is_no_array_is_refused(tmp_path: Path) -> None:
    """What is no tensor can't be kept as bytes."""
    with pytest.raises(ValueError, match="0/x is a str"):
        data.make(tmp_path / "a", of(lambda _: {"x": "text"}), seed=0, num_batches=1, batch_size=8)


@pytest.mark.parametrize("keep", [0, 5, 100, 1000])
def test_a_truncated_file_is_named(mlp: Workload, tmp_path: Path, keep: int) -> None:
    """However little is left of the file, one line says which file it is and what to do."""
    path = tmp_path / "fixed.safetensors"
    data.make(path, mlp, seed=0, num_batches=4, batch_size=8)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"fixed\.safetensors: truncated or not ours") as caught:
        data.load(path, CPU, num_batches=4)

    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The way out is in the message."""
    with pytest.raises(ValueError, match="missing; `dvc repro` makes it"):
        data.load(tmp_path / "fixed.safetensors", CPU, num_batches=1)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"a/b": np.ones(2), "a": {"b": np.zeros(2)}}, "batch has the key 'a/b'; keys are strings without a slash"),
        ({"a": {0: np.ones(2)}}, "batch/a has the key 0; keys are strings"),
        ({"a": Point(np.ones(2), np.ones(2))}, "batch/a is a Point; allowed: dicts, lists and tuples"),
        ({"a": np.array(["x", "y"])}, "batch leaf 0/a: .*; allowed: numpy arrays and CPU tensors"),
        ({"a": torch.eye(2).to_sparse()}, "batch leaf 0/a: .*; allowed: numpy arrays and CPU tensors"),
    ],
)
def test_a_batch_that_would_come_back_as_another_is_refused(batch: Any, says: str, tmp_path: Path) -> None:
    """Two leaves of one name, keys that are no strings, tuples with names, and what is no plain tensor."""
    with pytest.raises(ValueError, match=says) as caught:
        data.make(tmp_path / "a", of(lambda _: batch), seed=0, num_batches=1, batch_size=2)

    assert "\n" not in str(caught.value)


def test_a_batch_that_fails_is_told_with_its_place(tmp_path: Path) -> None:
    """In one line: the error, the file and the line of the user's own code."""

    def batch(_: object) -> Any:
        nothing: dict[str, Any] = {}
        return {"x": nothing["missing"]}

    with pytest.raises(ValueError, match=r"workload: batch fails with KeyError: 'missing' \(test_data.py, line \d+\)"):
        data.make(tmp_path / "a", of(batch), seed=0, num_batches=1, batch_size=2)
