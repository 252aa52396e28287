"""What a sweep is asked for, as parameters and as DVC's settings."""

from pathlib import Path
from typing import Any

import pytest

from ampcheck import grid, params
from tests.helpers import ROOT

PARAMS = ROOT / "params.yaml"


def test_names_and_values_make_every_combination() -> None:
    """Each has a label of its own, and times trials only."""
    found = grid.sizes(["laptop", "convnet", "-S", "train.lr=0.1,0.2"], PARAMS)

    assert list(found) == ["laptop-lr-0.1", "laptop-lr-0.2", "convnet-lr-0.1", "convnet-lr-0.2"]
    assert found["convnet-lr-0.2"]["workload"] == "ampcheck.workloads.convnet:build"
    assert found["convnet-lr-0.2"]["sizes"]["channels"] == 16
    assert found["laptop-lr-0.1"]["train"]["lr"] == 0.1
    assert all(wanted["trials_only"] for wanted in found.values())


def test_a_list_among_the_values_is_one_value() -> None:
    """As in DVC's own grid."""
    found = grid.sizes(["train.repeats=[0,1],[0,1,2]"], PARAMS)

    assert [wanted["train"]["repeats"] for wanted in found.values()] == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "got no sizes; give names of sizes.yaml"),
        (["laptp"], "did you mean laptop"),
        (["sizes.batch=1"], "sizes.batch: no such key"),
        (["sizes.batch_size=64,0"], "sizes.batch_size=0: sizes: "),
        (["sizes.batch_size=[1"], "the values are not valid YAML"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_is(arguments: list[str], message: str) -> None:
    """In a line that says what came and what is allowed."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        grid.sizes(arguments, PARAMS)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_what_differs_is_set(raw: dict[str, Any]) -> None:
    """Another workload has other keys: DVC is told to delete the one's and to add the other's."""
    wanted = grid.sizes(["gan"], PARAMS)["gan"]

    assert grid.overrides(raw, raw) == []
    assert grid.overrides(raw, wanted) == [
        "~sizes.in_size",
        "~sizes.out_size",
        "~sizes.num_layers",
        "trials_only=true",
        "workload='ampcheck.workloads.gan:build'",
        "sizes.batch_size=256",
        "+sizes.noise_size=64",
        "+sizes.sample_size=512",
        "+sizes.width=512",
    ]


def test_params_yaml_is_left_alone(tmp_path: Path) -> None:
    """Asking for sizes changes nothing."""
    before = PARAMS.read_text()
    grid.sizes(["laptop"], PARAMS)

    assert PARAMS.read_text() == before
    assert params.read(PARAMS)["trials_only"] is False
