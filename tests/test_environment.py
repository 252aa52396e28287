"""Facts of the machine are stable, and wrong parameters end here, before anything is run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck import environment
from ampcheck.precision import MODES
from ampcheck.probe import TRIES, find_device, probe_modes
from ampcheck.sources import source_digest
from tests.helpers import ROOT, Edit, edit_params, run_in

ONE_LINE_EACH: list[tuple[Edit, list[str]]] = [
    (lambda raw: raw["train"].update(epoch=1), ["params.yaml: train.epoch: no such key"]),
    (lambda raw: raw.update(device="cuda:7"), ["params.yaml: device: got 'cuda:7'; this machine shows"]),
    (
        lambda raw: raw.update(workload="nowhere:build"),
        ["params.yaml: workload: got 'nowhere:build'; importing it fails"],
    ),
    (lambda raw: raw.update(workload="ampcheck.workloads.mlp:make"), ["has no 'make'"]),
    (lambda raw: raw.update(workload="ampcheck.identity:differing"), ["params.yaml: sizes: got batch_size"]),
    (lambda raw: raw["sizes"].update(width=3), ["takes batch_size, in_size, out_size, num_layers"]),
    (
        lambda raw: raw["sizes"].update(in_size=-1, num_layers="3"),
        ["in_size: got -1", "num_layers: got '3'"],
    ),
    (
        lambda raw: (raw["train"].update(epochs=0), raw["sizes"].update(in_size=0), raw.update(device="cuda:7")),
        ["train.epochs: got 0", "device: got 'cuda:7'", "sizes.in_size: got 0"],
    ),
]


@pytest.mark.parametrize(("edit", "lines"), ONE_LINE_EACH)
def test_wrong_input_ends_in_one_line_each(project: Path, edit: Edit, lines: list[str]) -> None:
    """No traceback, an exit code of 1, all errors at once, and nothing written."""
    edit_params(project, edit)
    ended = run_in(project, "python", "-m", "stages.environment")

    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == len(lines)
    assert all(line in ended.stderr for line in lines)
    assert not (project / "results").exists()


def test_what_is_current_is_kept_and_a_wrong_file_after_it_changes_nothing(project: Path) -> None:
    """A second run rewrites nothing; a mistake made later leaves what stood before."""
    assert run_in(project, "python", "-m", "stages.environment").returncode == 0
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (project / "results").iterdir()}
    assert run_in(project, "python", "-m", "stages.environment").returncode == 0
    edit_params(project, lambda raw: raw.update(seed=-1))
    assert run_in(project, "python", "-m", "stages.environment").returncode == 1
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (project / "results").iterdir()}

    assert set(before) == {"machine.json", "modes.json", "workload.json"}
    assert after == before


def test_an_output_that_cannot_be_written_is_named(project: Path) -> None:
    """One line with the file and the system's reason."""
    (project / "results").write_text("in the way")
    ended = run_in(project, "python", "-m", "stages.environment")

    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "results" in ended.stderr


def test_the_facts_have_nothing_that_changes_by_itself() -> None:
    """Two readings are equal, and neither the host's name nor its boot is among them."""
    facts = environment.facts()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    assert facts == environment.facts()
    assert os.uname().nodename not in repr(facts)
    assert boot not in repr(facts)


def test_threads_are_ours_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """OMP_NUM_THREADS, else the cores we may use; anything else is refused with the way out."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert environment.facts()["threads"] == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert environment.facts()["threads"] == environment.cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="OMP_NUM_THREADS: got 'many'"):
        environment.facts()


def test_the_source_digest_covers_what_the_users_file_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit in the user's own module that the workload imports trains again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_layers.py").write_text("WIDTH = 1\n")
    (tmp_path / "my_network.py").write_text("import my_layers\n")
    before = source_digest("my_network:build")
    (tmp_path / "my_layers.py").write_text("WIDTH = 2\n")

    assert source_digest("my_network:build") != before
    assert source_digest("no_such_module:build") is None


def test_modes_that_cannot_run_have_a_reason_and_emulated_ones_a_figure() -> None:
    """Every mode has an entry; the baseline's type is never called emulated, TF32 never available on a CPU."""
    modes: dict[str, Any] = probe_modes(torch.device("cpu"))

    assert list(modes) == list(MODES)
    assert modes["fp32"]["available"]
    assert not modes["fp32"]["emulated"]
    assert modes["tf32"] == {
        "available": False,
        "emulated": False,
        "slowdown": None,
        "why": "TF32 needs a CUDA device of compute capability 8.0 or newer; this is a CPU",
    }
    for entry in modes.values():
        assert entry["emulated"] == (entry["slowdown"] is not None and entry["slowdown"] >= 2)
        assert not entry["emulated"] or "times slower than float32" in entry["why"]


def test_float32_is_never_called_emulated_however_disturbed_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that hiccups in every try of one mode does not lose its baseline."""
    seconds = iter([1.0, 1.0, 1.0, *[1.0, 9.0, 9.0, 1.0] * TRIES])  # three modes are tried once beforehand
    monkeypatch.setattr("ampcheck.probe._matmul_seconds", lambda mode, device: next(seconds))
    modes = probe_modes(torch.device("cpu"))

    assert (modes["fp32"]["slowdown"], modes["fp32"]["emulated"]) == (9.0, False)
    assert (modes["amp-fp16"]["slowdown"], modes["amp-fp16"]["emulated"]) == (9.0, True)


def test_a_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by number, the number is checked; auto takes what there is."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="device: got 'cuda'; this machine shows 0 CUDA devices"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda", 0)
    assert find_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("asked", "device", "gpus", "words"),
    [
        ("auto", "cuda:0", ["NVIDIA H200"], "cuda:0"),
        ("cpu", "cpu", ["NVIDIA H200"], "cpu"),
        ("auto", "cpu", [], "cpu (there is no NVIDIA GPU)"),
        ("auto", "cpu", ["NVIDIA H200"], "cpu (torch can't use the NVIDIA H200: in a container give docker run --gpus"),
    ],
)
def test_a_cpu_that_nobody_asked_for_has_a_reason(asked: str, device: str, gpus: list[str], words: str) -> None:
    """Without a GPU, and in a container that was not given the one of its host."""
    assert environment.chosen(asked, device, gpus).startswith(words)
    assert (environment.chosen(asked, device, gpus) == device) == ("(" not in words)


def test_relative_imports_and_folders_without_init_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever way a user's file imports another, an edit there is an edit of the workload."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_package").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "my_package/__init__.py").write_text("")
    (tmp_path / "my_package/net.py").write_text(
        "def build():\n    from .sizes import A\n    from plain.more import B\n"
    )
    digests = set()
    for text in ("A = 1\n", "A = 2\n"):
        (tmp_path / "my_package/sizes.py").write_text(text)
        for more in ("B = 1\n", "B = 2\n"):
            (tmp_path / "plain/more.py").write_text(more)
            digests.add(source_digest("my_package.net:build"))
    (tmp_path / "plain/stranger.py").write_text("C = 1\n")

    assert None not in digests
    assert len(digests) == 4
    assert source_digest("my_package.net:build") in digests


@pytest.mark.parametrize("name", ["machine.json", "modes.json", "workload.json"])
def test_a_damaged_or_edited_fact_is_made_again(project: Path, name: str) -> None:
    """What no longer is what was measured here is not called current."""
    assert run_in(project, "python", "-m", "stages.environment").returncode == 0
    path = project / "results" / name
    whole = path.read_text()
    for broken in (whole[:20], whole.replace('"cpu": "', '"cpu": "not ').replace('"source": "', '"source": "not ')):
        path.write_text(broken)
        ended = run_in(project, "python", "-m", "stages.environment")

        assert ended.returncode == 0
        assert broken == whole or "nothing has changed" not in ended.stdout


def test_the_digest_is_the_same_in_every_process_also_where_one_folder_holds_the_other(tmp_path: Path) -> None:
    """A package below src/ of the current folder has relative imports of its own, whatever the hash seed."""
    package = tmp_path / "src/my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("from .sizes import A\nimport stranger\n")
    (tmp_path / "src/stranger.py").write_text("B = 1\n")
    code = "import sys; sys.path[:0] = [sys.argv[1], 'src']; from ampcheck.sources import source_digest as digest; "
    code += "print(digest('my_package.net:build'))"
    digests = []
    for text, other in (("A = 1\n", "B = 1\n"), ("A = 1\n", "B = 2\n"), ("A = 2\n", "B = 2\n")):
        (package / "sizes.py").write_text(text)
        (tmp_path / "src/stranger.py").write_text(other)
        ended = [
            subprocess.run(
                [sys.executable, "-c", code, str(ROOT / "src")],
                cwd=tmp_path,
                env=os.environ | {"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in "12345"
        ]
        digests.append(set(ended))

    assert [len(found) for found in digests] == [1, 1, 1]
    assert digests[0] == digests[1]  # a stranger outside the package and not in the current folder itself
    assert digests[1] != digests[2]
