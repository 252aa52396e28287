"""params.yaml is refused as a whole, with one line for each wrong key."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ampcheck import params
from ampcheck.edit import edit
from tests.helpers import ROOT

WRONG: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("train.epoch", lambda raw: raw["train"].update(epoch=3), "did you mean epochs?"),
    ("optimizer", lambda raw: raw.update(optimizer="sgd"), "no such key; allowed here: seed, device"),
    ("train.epochs", lambda raw: raw["train"].pop("epochs"), "missing"),
    ("train", lambda raw: raw.pop("train"), "missing"),
    ("train", lambda raw: raw.update(train=3), "got 3"),
    ("train.epochs", lambda raw: raw["train"].update(epochs=0), "got 0; should be greater than or equal to 1"),
    ("train.epochs", lambda raw: raw["train"].update(epochs=True), "got True; should be a valid integer"),
    ("train.epochs", lambda raw: raw["train"].update(epochs=1.5), "got 1.5; should be a valid integer"),
    ("train.epochs", lambda raw: raw["train"].update(epochs="3"), "got '3'; should be a valid integer"),
    ("train.lr", lambda raw: raw["train"].update(lr=-1.0), "got -1.0; should be greater than 0"),
    ("train.lr", lambda raw: raw["train"].update(lr=float("nan")), "got nan; should be a finite number"),
    ("train.lr", lambda raw: raw["train"].update(lr=float("inf")), "got inf; should be a finite number"),
    ("train", lambda raw: raw["train"].update(compile=True, gradient_penalty=0.1), "exclude each other: torch.compile"),
    (
        "train.optimizer",
        lambda raw: raw["train"].update(optimizer="AdamW"),
        "got 'AdamW'; should be null, or a name",
    ),
    ("train.optimizer", lambda raw: raw["train"].update(optimizer={"eps": 1}), "or a name with keywords beside it"),
    ("train.optimizer", lambda raw: raw["train"].update(optimizer={"name": "SGD", "lr": 1}), "give it as train.lr"),
    ("train.scheduler", lambda raw: raw["train"].update(scheduler={"name": "StepLR", "last_epoch": 1}), "leave it out"),
    ("train.zero_grad", lambda raw: raw["train"].update(zero_grad="none"), "should be 'set_to_none' or 'zeros'"),
    ("train.modes[0]", lambda raw: raw["train"].update(modes=["fp23"]), "allowed: fp32, tf32, amp-fp16, amp-bf16 (did"),
    ("train.modes", lambda raw: raw["train"].update(modes=[]), "at least 1 item"),
    ("train.modes", lambda raw: raw["train"].update(modes=["fp32", "fp32"]), "once only"),
    ("train.repeats", lambda raw: raw["train"].update(repeats=3), "got 3; should be a valid list"),
    ("train.repeats", lambda raw: raw["train"].update(repeats=[0, 0]), "once only"),
    ("train.repeats[0]", lambda raw: raw["train"].update(repeats=[-1]), "got -1"),
    ("train.emulated", lambda raw: raw["train"].update(emulated="yes"), "got 'yes'; should be true or false"),
    ("seed", lambda raw: raw.update(seed=-1), "got -1"),
    ("seed", lambda raw: raw.update(seed=2**32), "should be less than 4294967296"),
    ("device", lambda raw: raw.update(device="gpu"), "got 'gpu'"),
    ("workload", lambda raw: raw.update(workload="mlp"), "got 'mlp'"),
    ("sizes", lambda raw: raw["sizes"].pop("batch_size"), "batch_size must be among them"),
    ("sizes", lambda raw: raw["sizes"].update(batch_size=0), "got 0"),
    ("sizes", lambda raw: raw["sizes"].update(size=3), "'size' is not allowed: DVC's run cache ignores it"),
    ("data.num_batches", lambda raw: raw["data"].update(num_batches=None), "got None"),
    ("resume", lambda raw: raw["resume"].update(stop_after=24), "stop_after must be below steps (24); got 24"),
    ("resume", lambda raw: raw["resume"].update(overflow_at=[5]), "one after it; got [5]"),
    ("resume", lambda raw: raw["resume"].update(overflow_at=[15, 20]), "a step before the stop"),
    ("resume", lambda raw: raw["resume"].update(overflow_at=[5, 15, 24]), "must lie in 0 to 23"),
    ("resume", lambda raw: raw["resume"].update(growth_interval=3), "the growth tracker is 0 at the stop"),
    ("resume.growth_factor", lambda raw: raw["resume"].update(growth_factor=1.0), "should be greater than 1"),
    ("resume.batch_size", lambda raw: raw["resume"].update(batch_size=513), "got 513; at most sizes.batch_size, 512"),
    ("data", lambda raw: raw.update(data=None), "should be a section with keys"),
    ("report.band", lambda raw: raw["report"].update(band=1.0), "should be less than 1"),
]


@pytest.mark.parametrize(("key", "edit", "part"), WRONG, ids=[f"{key}-{i}" for i, (key, *_) in enumerate(WRONG)])
def test_a_wrong_value_is_named_with_what_came_and_what_is_allowed(
    raw: dict[str, Any], key: str, edit: Callable[[dict[str, Any]], Any], part: str
) -> None:
    """Each wrong value gives one line that starts with its key."""
    edit(raw)
    found = params.errors(raw)

    assert list(found) == [key]
    assert found[key].startswith(f"{key}: ")
    assert part in found[key]
    assert "\n" not in found[key]


def test_all_errors_come_at_once(raw: dict[str, Any], tmp_path: Path) -> None:
    """A file with three mistakes is refused once, not three times."""
    raw["train"] |= {"epochs": 0, "lr": "fast"}
    raw["seed"] = None
    path = tmp_path / "params.yaml"
    path.write_text(json.dumps(raw))  # which is YAML in flow style
    with pytest.raises(ValueError, match="seed") as caught:
        params.load(path)

    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("1e-06", 1e-06), ("1", 1.0)])
def test_a_number_is_a_number_however_yaml_writes_it(
    raw: dict[str, Any], tmp_path: Path, text: str, value: float
) -> None:
    """1e-3 without a point, which many YAML readers take for a string, is a float."""
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text().replace("lr: 0.001", f"lr: {text}"))

    assert params.load(path).train.lr == value


def test_whole_floats_are_integers(tmp_path: Path) -> None:
    """1e2 is 100, for our own counts and for a workload's sizes."""
    path = tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text()
    path.write_text(text.replace("num_batches: 50", "num_batches: 1e2").replace("in_size: 4096", "in_size: 1e3"))
    loaded = params.load(path)

    assert repr(loaded.data.num_batches) == "100"
    assert repr(loaded.sizes["in_size"]) == "1000"


@pytest.mark.parametrize("text", ["a: [", "- 1", "seed: 0\nseed: 1", ""])
def test_what_is_no_mapping_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    """Broken YAML, a list, a key given twice and an empty file are named with the file."""
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"params\.yaml") as caught:
        params.load(path)

    assert len(str(caught.value).splitlines()) == 1


def test_named_sizes_replace_the_section_and_keep_the_comments(tmp_path: Path) -> None:
    """Only the numbers that differ change, to the byte."""
    path = tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text()
    path.write_text(text)
    shutil.copy(ROOT / "sizes.yaml", tmp_path)
    edit(path, ["laptop", "drill.kills=200"])

    assert path.read_text() == text.replace("_size: 4096", "_size: 1024").replace("kills: 3  ", "kills: 200")


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("lapdog", "got 'lapdog'; it has laptop, recipe"),
        ("drill.kill=3", "drill.kill: no such key"),
        ("seed.kill=3", "seed.kill: no such key"),
        ("drill.kills=-1", "drill.kills: got -1"),
        ("drill.kills={", "the value is not valid YAML"),
    ],
)
def test_a_wrong_edit_is_refused_and_changes_nothing(argument: str, says: str, tmp_path: Path) -> None:
    """The message tells what is allowed, and params.yaml is as it was, an edit before it included."""
    for name in ("params.yaml", "sizes.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    with pytest.raises(ValueError, match=re.escape(says)):
        edit(tmp_path / "params.yaml", ["seed=7", argument])

    assert (tmp_path / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()
