"""A checkpoint holds all of a run's state, and is written whole or not at all."""

import multiprocessing
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ampcheck import checkpoint
from ampcheck.files import partial as partial_file
from ampcheck.identity import differing
from ampcheck.processes import in_child
from ampcheck.run import Run
from ampcheck.training import train
from ampcheck.workloads import Batch
from tests.runs import batches, fresh, leaves_of, stateful, trained

PARTS = {"modules", "optimizers", "schedulers", "gradients", "scaler", "rng", "step"}
SCALER_NUMBERS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's checkpoint goes."""
    return tmp_path / "a.pt"


@pytest.mark.parametrize("mode", ["fp32", "amp-fp16", "amp-bf16"])
def test_a_loaded_run_goes_on_to_the_same_bits(mode: str, path: Path) -> None:
    """Every leaf and every later loss, after a stop right behind a skip, in a run from other seeds."""
    straight = fresh(0, mode)
    expected = train(straight, batches(), 8).losses.tolist()
    expected_leaves = leaves_of(straight)
    checkpoint.save(trained(2, 0, mode), path)
    resumed = fresh(99, mode)

    assert checkpoint.load(resumed, path) == []
    assert train(resumed, batches(), 8).losses.tolist() == expected[2:]
    assert differing(expected_leaves, leaves_of(resumed)) == []


@pytest.mark.parametrize("part", sorted(set(checkpoint.LOSABLE) - {"gradients"}))  # which are dropped here
def test_a_part_that_is_left_out_shows(part: str, path: Path) -> None:
    """The comparison can fail: without any one part the resumed run ends with other bits."""
    expected = leaves_of(trained(8))
    checkpoint.save(trained(3), path)
    resumed = fresh(99)
    checkpoint.load_without(part, resumed, path)
    train(resumed, batches(), resumed.step + 5)

    assert differing(expected, leaves_of(resumed)) != []


def test_the_checkpoint_is_loadable_without_running_code(path: Path) -> None:
    """weights_only=True reads it, and it holds the scaler's five numbers and every generator's state."""
    checkpoint.save(trained(2), path)
    found = torch.load(path, weights_only=True)

    assert (found["format"], found["mode"]) == (checkpoint.FORMAT, "amp-fp16")
    assert set(found["state"]) == PARTS
    assert set(found["state"]["scaler"]) == SCALER_NUMBERS
    assert set(found["state"]["rng"]) == {"torch", "cuda", "numpy", "python"}


def test_the_scale_is_back_before_any_batch(path: Path) -> None:
    """get_scale() is the saved one right after loading, and the first step does not raise."""
    run = trained(4)
    checkpoint.save(run, path)
    resumed = fresh(1)
    checkpoint.load(resumed, path)

    assert resumed.scaler.get_scale() == run.scaler.get_scale() != fresh().scaler.get_scale()
    train(resumed, batches(), 5)


def test_what_was_loaded_serves_two_resumes(path: Path) -> None:
    """No run shares a tensor with the file's content or with another run."""
    checkpoint.save(trained(2), path)
    ends = []
    for seed in (1, 2):
        resumed = fresh(seed)
        checkpoint.load(resumed, path)
        train(resumed, batches(), 6)
        ends.append(leaves_of(resumed))

    assert ends[0] == ends[1]


def test_a_resumed_run_replays_nothing(path: Path) -> None:
    """Resumed at step 5 it takes the batches 5, 6 and 7, each through one forward pass, and no other."""
    checkpoint.save(trained(5), path)
    run, made, passed = fresh(1), batches(), []
    losses_of = run.workload.losses

    def losses(modules: Any, batch: Batch) -> Any:
        passed.append(next(step for step, each in enumerate(made) if each is batch))
        return losses_of(modules, batch)

    run.workload = replace(run.workload, losses=losses)
    checkpoint.load(run, path)
    assert passed == []
    train(run, made, 8)

    assert passed == [5, 6, 7]


def test_a_resumed_run_counts_on_and_saves_under_the_same_name(path: Path) -> None:
    """Nothing but the name that is given decides where a run's checkpoint lies."""
    checkpoint.save(trained(3), path)
    for steps in (5, 8):
        resumed = fresh(steps)
        checkpoint.load(resumed, path)
        train(resumed, batches(), steps)
        checkpoint.save(resumed, path)

        assert checkpoint.read(path).state["step"] == steps
    assert list(path.parent.iterdir()) == [path]


def failed(run: Run, path: Path) -> str:
    """Save what can't be written: one line, and the checkpoint before must be as it was, alone in its folder."""
    before, beside = path.read_bytes(), sorted(path.parent.iterdir())
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        checkpoint.save(run, path)
    message = str(caught.value)

    assert message.isprintable()
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == beside
    return message


@pytest.mark.parametrize(("lr", "told"), [(np.float64(0.1), "convert it, as with float"), (object(), "can't be comp")])
def test_what_could_not_be_read_again_is_not_saved(lr: Any, told: str, path: Path) -> None:
    """A number of numpy's, as schedulers of users make them, is named now, not when the run is to go on."""
    checkpoint.save(fresh(), path)
    run = trained(2)
    run.optimizers["net"].param_groups[0]["lr"] = lr

    assert f"not written: state leaf optimizers/net/param_groups/0/lr: {type(lr).__name__}" in failed(run, path)
    assert told in failed(run, path)


def test_a_full_disk_keeps_the_checkpoint_before(path: Path) -> None:
    """The kernel refuses to let any file grow beyond a limit: wherever that is, the system's own words are told."""
    checkpoint.save(trained(1), path)
    size = path.stat().st_size

    def messages(_: object) -> list[str]:
        run, found, hard = trained(2), [], resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        for limit in [*range(0, size, 2000), size - 1]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            found.append(failed(run, path))
        return found

    told = in_child(messages, "a test")

    assert len(told) > 10
    assert all("could not be written ([Errno 27] File too large); the checkpoint before" in each for each in told)
    assert checkpoint.read(path).state["step"] == 1


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("to mount a small file system needs rights that this process lacks")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_small_file_system_that_is_full_keeps_the_checkpoint_before(full_disk: Path) -> None:
    """One fits, the second beside it does not; it can still be loaded, and room made lets the next one through."""
    path, run = full_disk / "a.pt", trained(2)
    checkpoint.save(trained(1), path)
    (full_disk / "else").write_bytes(b"x" * (65536 - path.stat().st_size - 8192))

    assert "could not be written ([Errno 28] No space left on device)" in failed(run, path)
    assert checkpoint.read(path).state["step"] == 1
    (full_disk / "else").unlink()
    checkpoint.save(run, path)
    assert checkpoint.read(path).state["step"] == 2


def test_a_place_that_takes_no_file_is_named(tmp_path: Path) -> None:
    """A folder of that name, or a file where a folder should be."""
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "file").touch()
    for path, told in {"folder.pt": "Is a directory", "file/a.pt": "File exists"}.items():
        with pytest.raises(ValueError, match=rf"{path}: could not be written \(.*{told}") as caught:
            checkpoint.save(fresh(), tmp_path / path)

        assert str(caught.value).isprintable()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder.pt"]


class Unfetched(torch.Tensor):
    """A tensor that can't be fetched from its device to be written."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Fail as CUDA does."""
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_no_other_error_is_taken_for_one_of_writing(path: Path) -> None:
    """A device that runs out of memory while its tensors are fetched is not a full disk."""
    run = fresh()
    run.optimizers["net"].param_groups[0]["lr"] = torch.tensor(0.1).as_subclass(Unfetched)
    with pytest.raises(torch.OutOfMemoryError):
        checkpoint.save(run, path)

    assert list(path.parent.iterdir()) == []


def test_the_bytes_are_on_the_disk_before_the_name_points_to_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment of fsync the new checkpoint is whole beside the old one, which still bears the name."""
    seen, fsync = [], os.fsync

    def observed(descriptor: int) -> None:
        fsync(descriptor)
        found = [checkpoint.read(each).state["step"] for each in (path, partial_file(path))]
        seen.append((*found, os.fstat(descriptor).st_ino))

    checkpoint.save(trained(1), path)
    monkeypatch.setattr(os, "fsync", observed)
    checkpoint.save(trained(2), path)

    assert seen == [(1, 2, path.stat().st_ino)]
    assert checkpoint.read(path).state["step"] == 2


def test_whoever_reads_while_it_is_written_finds_it_whole(path: Path) -> None:
    """Fifty checkpoints, one over the other: a process that reads all the while meets none that is not whole."""
    run, found = fresh(workload=stateful(width=64)), []
    checkpoint.save(run, path)

    def write() -> None:
        for run.step in range(1, 51):
            checkpoint.save(run, path)

    writer = multiprocessing.get_context("fork").Process(target=write)
    writer.start()
    while writer.is_alive():
        found.append(checkpoint.read(path).state["step"])
    writer.join()

    assert writer.exitcode == 0
    assert found == sorted(found)
    assert checkpoint.read(path).state["step"] == 50


def test_what_was_loaded_needs_the_file_no_longer(tmp_path: Path) -> None:
    """It was mapped to be checked; the run has copies of all, so that whatever becomes of the file, it goes on."""
    path, expected = tmp_path / "a.pt", leaves_of(trained(6))
    checkpoint.save(trained(3), path)
    resumed = fresh(1)
    checkpoint.load(resumed, path)
    os.truncate(path, 0)
    train(resumed, batches(), 6)

    assert differing(expected, leaves_of(resumed)) == []
