"""A checkpoint holds all of a run's state, or is refused."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ampcheck import checkpoint, launch
from ampcheck.identity import differing, leaves
from ampcheck.precision import MODES
from ampcheck.training import Run, start, train
from ampcheck.workloads import Batch, Workload

CPU = torch.device("cpu")
SCALER_NUMBERS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


def stateful() -> Workload:
    """A network with everything that has state: dropout, BatchNorm, momentum, and draws from numpy and python."""

    def losses(modules: Any, batch: Any) -> list[torch.Tensor]:
        noise = random.random() + float(np.random.random())  # noqa: NPY002 - as users do
        return [nn.functional.mse_loss(modules["net"](batch["input"]), batch["target"]) * noise]

    return Workload(
        modules=lambda: {"net": nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Dropout(0.5))},
        batch=lambda _: {},
        losses=losses,
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr, momentum=0.9)},
    )


def fresh(seed: int, mode: str = "amp-fp16") -> Run:
    """A run at step 0; with a scaler, its fourth step overflows."""
    launch.prepare(seed=seed, threads=1, deterministic=True)
    forced: dict[str, Any] = {}
    if MODES[mode].scaler:
        forced = {"scaler": {"growth_factor": 1.7, "growth_interval": 2}, "overflow_at": frozenset({3})}
    return start(stateful(), MODES[mode], CPU, lr=0.1, zero_grad="set_to_none", **forced)


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16", "amp-bf16"])
def test_a_loaded_run_goes_on_to_the_same_bits(mode: str, batches: list[Batch], tmp_path: Path) -> None:
    """Every leaf and every later loss, after a stop right behind a skip, in a run from other seeds."""
    straight = fresh(0, mode)
    expected = train(straight, batches, 8).losses.tolist()
    expected_leaves = leaves(checkpoint.state(straight))
    stopped = fresh(0, mode)
    train(stopped, batches, 4)
    checkpoint.save(stopped, tmp_path / "a.pt")
    resumed = fresh(99, mode)
    checkpoint.load(resumed, tmp_path / "a.pt")

    assert train(resumed, batches, 8).losses.tolist() == expected[4:]
    assert differing(expected_leaves, leaves(checkpoint.state(resumed))) == []


@pytest.mark.parametrize("part", checkpoint.PARTS)
def test_a_part_that_is_left_out_shows(part: str, batches: list[Batch], tmp_path: Path) -> None:
    """The comparison can fail: without any one part the resumed run ends with other bits."""
    straight, stopped = fresh(0), fresh(0)
    train(stopped, batches, 4)
    checkpoint.save(stopped, tmp_path / "a.pt")
    launch.prepare(seed=0, threads=1, deterministic=True)
    straight = fresh(0)
    train(straight, batches, 8)
    expected = leaves(checkpoint.state(straight))
    resumed = fresh(99)
    checkpoint.load(resumed, tmp_path / "a.pt", without=[part])
    train(resumed, batches, resumed.step + 4)

    assert differing(expected, leaves(checkpoint.state(resumed))) != []


def test_the_checkpoint_is_loadable_without_running_code(batches: list[Batch], tmp_path: Path) -> None:
    """weights_only=True reads it, and it holds the scaler's five numbers and every generator's state."""
    run = fresh(0)
    train(run, batches, 2)
    checkpoint.save(run, tmp_path / "a.pt")
    found = torch.load(tmp_path / "a.pt", weights_only=True)

    assert set(found) == {"modules", "optimizers", "scaler", "rng", "step"}
    assert set(found["scaler"]) == SCALER_NUMBERS
    assert set(found["rng"]) == {"torch", "cuda", "numpy", "python"}


def test_the_scale_is_back_before_any_batch(batches: list[Batch], tmp_path: Path) -> None:
    """get_scale() is the saved one right after loading, and the first step does not raise."""
    run = fresh(0)
    train(run, batches, 4)
    checkpoint.save(run, tmp_path / "a.pt")
    resumed = fresh(1)
    checkpoint.load(resumed, tmp_path / "a.pt")

    assert resumed.scaler.get_scale() == run.scaler.get_scale() != 65536.0
    train(resumed, batches, 5)


def test_what_was_loaded_serves_two_resumes(batches: list[Batch], tmp_path: Path) -> None:
    """No run shares a tensor with the file's content or with another run."""
    run = fresh(0)
    train(run, batches, 2)
    checkpoint.save(run, tmp_path / "a.pt")
    ends = []
    for seed in (1, 2):
        resumed = fresh(seed)
        checkpoint.load(resumed, tmp_path / "a.pt")
        train(resumed, batches, 6)
        ends.append(leaves(checkpoint.state(resumed)))

    assert ends[0] == ends[1]


def rename(part: str, key: str) -> Callable[[dict[str, Any]], None]:
    """Return an edit that misspells one key of a checkpoint."""

    def edit(found: dict[str, Any]) -> None:
        inside = found[part] if part else found
        inside[f"{key}x"] = inside.pop(key)

    return edit


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (rename("", "scaler"), "parts: got modules, optimizers, rng, scalerx, step; expected"),
        (rename("scaler", "_growth_tracker"), "scaler: got _growth_trackerx"),
        (rename("rng", "cuda"), "rng: got cudax"),
        (rename("modules", "net"), "modules: got netx; expected net"),
        (rename("optimizers", "sgd"), "optimizers: got sgdx; expected sgd"),
        (lambda found: found.pop("rng"), "parts: got modules"),
        (lambda found: found["scaler"].clear(), "scaler: got none"),
        (lambda found: found["modules"]["net"].pop("0.weight"), "0.weight"),
        (lambda found: found["modules"]["net"].update({"0.weight": torch.ones(3, 3)}), "0.weight"),
        (lambda found: found["rng"]["cuda"].append(found["rng"]["torch"]), "rng: it has the states of 1 CUDA devices"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_part(
    edit: Callable[[dict[str, Any]], Any], names: str, tmp_path: Path
) -> None:
    """A missing, renamed or foreign part is named with the file, in one line; nothing goes on in silence."""
    path = tmp_path / "a.pt"
    checkpoint.save(fresh(0), path)
    found = torch.load(path, weights_only=True)
    edit(found)
    torch.save(found, path)
    with pytest.raises(ValueError, match=r"a\.pt: does not fit this run") as caught:
        checkpoint.load(fresh(0), path)

    assert names in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 1000, -200])
def test_a_truncated_checkpoint_is_named(keep: int, tmp_path: Path) -> None:
    """However much of it is left, one line names the file and the way out."""
    path = tmp_path / "a.pt"
    checkpoint.save(fresh(0), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"a\.pt: truncated or not a checkpoint") as caught:
        checkpoint.load(fresh(0), path)

    assert "\n" not in str(caught.value)


def test_a_failed_save_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    """What can't be written leaves no half file, and the old one whole."""
    path = tmp_path / "a.pt"
    checkpoint.save(fresh(0), path)
    before = path.read_bytes()
    broken = replace(fresh(0), step=lambda: None)  # type: ignore[arg-type] # no pickle can hold it
    with pytest.raises(AttributeError, match="pickle"):
        checkpoint.save(broken, path)

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]
