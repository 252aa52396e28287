"""What is not a whole checkpoint is refused in one line that names the file; the run and the file stay as they were."""

import os
import pickle
import random
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from ampcheck import checkpoint, state
from ampcheck.identity import leaves
from ampcheck.processes import in_child
from tests.runs import edited, fresh, refused, trained

DAMAGED = "not a whole checkpoint of ours"
Node = dict[Any, Any] | list[Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of a run with momentum and a scaler."""
    checkpoint.save(trained(3), tmp_path / "a.pt")
    return tmp_path / "a.pt"


def test_a_truncated_checkpoint_is_refused_whatever_is_left(path: Path) -> None:
    """From nothing at all to all but the last byte."""
    whole, run = path.read_bytes(), fresh()
    for keep in [*range(0, len(whole), 397), *range(len(whole) - 150, len(whole))]:
        path.write_bytes(whole[:keep])

        assert DAMAGED in refused(path, run)


def test_a_flipped_bit_is_refused_or_changes_nothing(path: Path) -> None:
    """A bit of every byte of the zip file's directory, and of many in the records and their headers.

    Some bits bear nothing, as those of a padding or a date: the state must then be the one that was saved.
    """
    whole, drawn = path.read_bytes(), random.Random(0)
    directory = whole.index(b"PK\x01\x02")
    positions = [*range(directory, len(whole)), *drawn.sample(range(directory), 1500)]
    refusals = refusals_of(path, (flipped(whole, at, 1 << drawn.randrange(8)) for at in positions))

    assert len(positions) / 2 < refusals < len(positions)


def test_a_record_that_is_marked_as_a_folder_is_not_taken_for_memory_as_it_happens_to_be(path: Path) -> None:
    """Torch reads such a record as nothing, and leaves the tensor as it was allocated; no CRC of the zip file tells."""
    whole = path.read_bytes()
    entries = [found.start() for found in re.finditer(rb"PK\x01\x02", whole)]

    assert refusals_of(path, (flipped(whole, entry + 38, 0x10) for entry in entries)) > 1


def flipped(content: bytes, position: int, bits: int) -> bytes:
    """The same with some bits of one byte turned."""
    return content[:position] + bytes([content[position] ^ bits]) + content[position + 1 :]


def refusals_of(path: Path, contents: Iterable[bytes]) -> int:
    """Read each from `path`, where a whole checkpoint lies: one line for the user, or the state that was saved."""
    saved, messages = checkpoint.read(path), []
    for content in contents:
        path.write_bytes(content)
        try:
            found = checkpoint.read(path)
        except ValueError as error:
            messages.append((type(error), str(error)))
        else:
            assert (found.mode, leaves(found.state)) == (saved.mode, leaves(saved.state))

    assert {kind for kind, _ in messages} == {ValueError}, "a subclass would be an error of another's"
    assert all(message.startswith(f"{path}: ") and message.isprintable() for _, message in messages)
    return len(messages)


def other_files() -> dict[str, Callable[[Path], Any]]:
    """Writers of files that are no checkpoint."""
    tensors = {"0.weight": torch.ones(3)}
    return {
        "text": lambda path: path.write_text("epoch,loss\n0,1.5\n"),
        "zip": lambda path: zipfile.ZipFile(path, "w").writestr("a.txt", "a"),
        "pickle": lambda path: path.write_bytes(pickle.dumps({"step": 3})),
        "safetensors": lambda path: safetensors.torch.save_file(tensors, path),
        "torch, a list": lambda path: torch.save([1, 2], path),
        "torch, weights": lambda path: torch.save(tensors, path),
        "torch, before it took zip files": lambda path: torch.save(tensors, path, _use_new_zipfile_serialization=False),
        "the former format": lambda path: torch.save(state.get(fresh()), path),
        "a later format": lambda path: torch.save({"format": checkpoint.FORMAT + 1}, path),
    }


@pytest.mark.parametrize("kind", other_files())
def test_other_files_are_refused(kind: str, path: Path) -> None:
    """Whatever else bears the name, and checkpoints of other versions, which are told the format."""
    path.unlink()
    other_files()[kind](path)
    message = refused(path, fresh())

    assert DAMAGED in message
    assert message.endswith("delete it and run `dvc repro`")
    assert kind not in {"the former format", "a later format"} or "not of format 2, the one that this" in message


class Touch:
    """What makes a file when it is unpickled in good faith."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        """Have it made."""
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("write", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_nothing_in_a_file_is_run(write: Callable[[Any, Path], Any], path: Path) -> None:
    """Code in a pickle is refused, and the user is not told how to run it all the same."""
    content = torch.load(path, weights_only=True) | {"mode": Touch(path.with_name("was run"))}
    write(content, path)
    message = refused(path, fresh())

    assert "weights_only" not in message
    assert not path.with_name("was run").exists()
    pickle.loads(pickle.dumps(content["mode"]))
    assert path.with_name("was run").exists()


def nodes(node: Node, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in a checkpoint, by its keys, but the checksums', with what is there."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*at, key), child
        if isinstance(child, dict | list) and key != "checksums":
            yield from nodes(child, (*at, key))


def removed(parent: Any, key: Any) -> None:
    """Take an entry out."""
    del parent[key]


def renamed(parent: Any, key: Any) -> None:
    """Give an entry another key; an entry of a list goes to its end."""
    child = parent.pop(key)
    if isinstance(parent, list):
        parent.append([child])
    else:
        parent[key + 100 if isinstance(key, int) else f"{key}x"] = child


def doubled(parent: Any, key: Any) -> None:
    """Have an entry twice."""
    if isinstance(parent, list):
        parent.append(parent[key])
    else:
        parent[f"{key}x"] = parent[key]


@pytest.mark.parametrize("edit", [removed, renamed, doubled])
def test_a_key_that_is_missing_renamed_or_unknown_is_refused_by_name(
    edit: Callable[[Any, Any], None], path: Path
) -> None:
    """At every level, down to a buffer of the optimizer's: nothing goes on in silence."""
    content, whole, run = torch.load(path, weights_only=True), path.read_bytes(), fresh()
    places = [at for at, _ in nodes(content)]
    for *parents, key in places:

        def inside(found: Any, parents: list[Any] = parents, key: Any = key) -> None:
            for parent in parents:
                found = found[parent]
            edit(found, key)

        path.write_bytes(whole)
        edited(path, inside)
        message = refused(path, run)
        name = "/".join(map(str, (*parents, key)[: -1 if isinstance(key, int) else None])).removeprefix("state/")

        assert name in message or (key == "format" and "not of format" in message)

    assert ("state", "optimizers", "net", "state", 0, "momentum_buffer") in places
    assert ("state", "rng", "cuda") in places
    assert len(places) >= 80


def test_a_leaf_that_was_changed_is_named(path: Path) -> None:
    """And with many, the first three and how many more there are."""
    whole, run = path.read_bytes(), fresh()
    content = torch.load(path, weights_only=True)
    for *parents, key in [at for at, leaf in nodes(content["state"]) if isinstance(leaf, torch.Tensor | int | float)]:

        def inside(found: Any, parents: list[Any] = parents, key: Any = key) -> None:
            found = found["state"]
            for parent in parents:
                found = found[parent]
            found[key] = found[key] + 1

        path.write_bytes(whole)
        edited(path, inside)

        assert f"changed: {'/'.join(map(str, [*parents, key]))}" in refused(path, run)

    edited(path, lambda found: found["state"]["modules"]["net"].clear())
    assert "missing: modules/net/0.weight, modules/net/0.bias, modules/net/1.weight, and" in refused(path, run)


@pytest.mark.parametrize("leaf", [torch.float32, ("a", {"b": {1, 2}}), "an\nother\x1b[31m\ud800"])
def test_what_no_checkpoint_holds_is_refused(leaf: Any, path: Path) -> None:
    """Leaves that can't be compared, and names that would spoil a terminal's line."""
    edited(path, lambda found: found["state"]["scaler"].update({str(leaf): leaf}))

    assert DAMAGED in refused(path, fresh())


def test_what_is_no_readable_file_is_told_with_the_systems_words(path: Path) -> None:
    """A folder, a file without the right to read it, and none at all."""

    def read_as_nobody(_: object) -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        checkpoint.read(path)

    path.chmod(0)
    with pytest.raises(
        ValueError, match=rf"^{path}: not a whole checkpoint of ours \(\[Errno 13\] Permission denied: "
    ):
        in_child(read_as_nobody, "a test")
    path.unlink()
    assert refused(path, fresh()) == f"{path}: missing; `dvc repro` makes it"
    path.mkdir()
    assert f"{path}: not a whole checkpoint of ours ([Errno 21] Is a directory: " in refused(path, fresh())
