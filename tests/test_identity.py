"""Bit-exact means dtype, shape and raw bytes."""

from typing import Any

import pytest
import torch

from ampcheck.identity import differing, digest, leaves

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


def test_differing_names_leaves_in_the_states_own_order() -> None:
    """A changed leaf, one that is missing and one too many are all named by their paths."""
    expected = leaves({"net": {"0.weight": torch.ones(2), "0.bias": torch.ones(1)}, "step": 3, "gone": 1})
    actual = leaves({"step": 4, "net": {"0.weight": torch.ones(2), "0.bias": torch.zeros(1)}, "new": 1})

    assert differing(expected, actual) == ["net/0.bias", "step", "gone", "new"]


def test_what_cannot_be_compared_is_not_skipped() -> None:
    """An object without defined bytes is an error that names its leaf."""
    with pytest.raises(TypeError, match="a/1"):
        leaves({"a": [1, object()]})
