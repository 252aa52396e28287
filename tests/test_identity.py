"""Bit-exact means dtype, shape and raw bytes."""

from typing import Any

import numpy as np
import pytest
import torch

from ampcheck.identity import BLOCK_BYTES, checksums, differing, digest, few, leaves

NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.tensor(1.0), torch.tensor(1.0, dtype=torch.float64)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(1), torch.zeros(())),
        (torch.zeros(0), torch.zeros(0, 2)),
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (None, "None"),
        ({}, []),
        ([], ()),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_what_differs_in_type_shape_or_bits_differs(a: object, b: object) -> None:
    """Equality in value is not identity."""
    assert digest(a) != digest(b)
    assert checksums(a) != checksums(b)


@pytest.mark.parametrize(
    "state",
    [
        torch.tensor(NAN),
        NAN,
        torch.zeros(2, 3).T,
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True]),
        None,
        [{}],
    ],
)
def test_the_same_bits_are_the_same(state: Any) -> None:
    """Also nan, transposed views, 16-bit types, booleans and empty containers."""
    copy = state.clone().contiguous() if isinstance(state, torch.Tensor) else state

    assert digest(state) == digest(copy)
    assert checksums(state) == checksums(copy)


def test_differing_names_leaves_in_the_states_own_order() -> None:
    """A changed leaf, one that is missing and one too many are all named by their paths."""
    expected = leaves({"net": {"0.weight": torch.ones(2), "0.bias": torch.ones(1)}, "step": 3, "gone": 1})
    actual = leaves({"step": 4, "net": {"0.weight": torch.ones(2), "0.bias": torch.zeros(1)}, "new": 1})

    assert differing(expected, actual) == ["net/0.bias", "step", "gone", "new"]


def test_what_cannot_be_compared_is_not_skipped() -> None:
    """An object without defined bytes is an error that names its leaf."""
    with pytest.raises(TypeError, match="a/1"):
        leaves({"a": [1, object()]})
    with pytest.raises(TypeError, match="a/1"):
        checksums({"a": [1, object()]})


def test_a_checksum_tells_of_every_byte() -> None:
    """Of whole blocks, of what is left over at the end, and of blocks that have changed places."""
    plain = torch.arange(3 * BLOCK_BYTES + 5, dtype=torch.int64).to(torch.uint8).mul_(7)
    expected = checksums(plain)
    for position in range(len(plain)):
        plain[position] ^= 1
        assert checksums(plain) != expected, position
        plain[position] ^= 1
    plain[:BLOCK_BYTES] = 0
    swapped = torch.cat([plain[BLOCK_BYTES : 2 * BLOCK_BYTES], plain[:BLOCK_BYTES], plain[2 * BLOCK_BYTES :]])

    assert checksums(swapped) != checksums(plain)


def test_a_number_of_numpys_has_no_checksum() -> None:
    """It would not be read again; python's own has one."""
    with pytest.raises(TypeError, match=r"state leaf group/lr: float64 is numpy's; convert it, as with float\(\)"):
        checksums({"group": {"lr": np.float64(0.5)}})

    assert checksums({"group": {"lr": 0.5}}).keys() == {"group/lr"}


def test_few_names_stand_for_many() -> None:
    """Three, and how many more there are."""
    assert few(["a", "b", "c"]) == "a, b, c"
    assert few(list("abcde"), "; ") == "a; b; c; and 2 more"
