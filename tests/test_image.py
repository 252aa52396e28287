"""The rules of the container image, as facts. No test builds it: that needs a container engine, and `nox -s image`."""

import os
import re
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from ampcheck import params
from benchmarks.image.engines import Buildah, Docker, engine, pip_options
from benchmarks.image.setup import must, only_line
from benchmarks.image.trials import made
from tests.helpers import ROOT, environment

TEXT = (ROOT / "Dockerfile").read_text()
LINES = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
INSTRUCTIONS = [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in LINES if line)]
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
ENTRYPOINT = ROOT / "container/entrypoint.sh"
NOBODY = 65534
SOURCE = next(i for i, (name, rest) in enumerate(INSTRUCTIONS) if name == "COPY" and rest.endswith(". ."))


def test_the_base_is_an_argument_with_a_fixed_version() -> None:
    """Another base can be given, and what is built without one does not change by itself."""
    assert [name for name, _ in INSTRUCTIONS[:2]] == ["ARG", "FROM"]
    assert re.fullmatch(r"BASE=nvidia/cuda:\d+\.\d+\.\d+-base-ubuntu24\.04", INSTRUCTIONS[0][1])
    assert INSTRUCTIONS[1][1] == "${BASE}"
    assert "latest" not in TEXT


def test_the_base_has_the_cuda_version_of_the_pinned_torch() -> None:
    """The wheel of torch 2.13.0 requires cuda-toolkit 13.0.3 on Linux; a new pin asks for another look."""
    pinned = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)

    assert (pinned, INSTRUCTIONS[0][1].split("-")[0]) == (["2.13.0"], "BASE=nvidia/cuda:13.0.3")


def test_an_edit_of_the_source_installs_nothing_again() -> None:
    """Before the packages are installed, only the files that name them are copied: the last is the user's."""
    last = max(i for i, (name, rest) in enumerate(INSTRUCTIONS) if name == "RUN" and "install" in rest)

    assert [rest for name, rest in INSTRUCTIONS[:last] if name in ("COPY", "ADD")] == [
        "constraints.txt pyproject.toml requirements.txt ./"
    ]
    assert last < SOURCE


def test_what_a_step_needs_for_itself_goes_with_it() -> None:
    """No package lists, no cache of pip, no secret in a layer, and of what makes an environment only that."""
    runs = [rest for name, rest in INSTRUCTIONS if name == "RUN"]
    installs = [run for run in runs if "apt-get install" in run]

    assert len(installs) == 2
    assert all(run.index("apt-get install") < run.index("/var/lib/apt/lists/* /var/cache/apt/*") for run in installs)
    assert all("--no-cache-dir" in run and "--mount=type=secret" in run for run in runs if "pip install" in run)
    assert all("purge -y --auto-remove python3-venv" in run for run in runs if "install python3-venv" in run)
    assert not re.search(r"token|password|gcc|build-essential", TEXT, re.IGNORECASE)


def test_it_runs_the_pipeline_as_a_user_other_than_root() -> None:
    """The last user has a number above 0, owns the source, and runs `dvc repro`."""
    users = [rest for name, rest in INSTRUCTIONS if name == "USER"]

    assert int(users[-1].split(":")[0]) > 0
    assert f"--chown={users[-1]} " in INSTRUCTIONS[SOURCE][1]
    assert INSTRUCTIONS[-1] == ("CMD", '["dvc", "repro"]')


def entered(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in `project` through the image's entry point."""
    return subprocess.run(
        [ENTRYPOINT, *command], cwd=project, env=environment(), capture_output=True, text=True, check=False
    )


def test_the_entry_point_is_the_repositorys_and_lies_outside_the_mount() -> None:
    """A checkout that is mounted over /ampcheck hides nothing that the image needs to start."""
    copies = [rest for name, rest in INSTRUCTIONS if name == "COPY"]

    assert ("ENTRYPOINT", '["/opt/ampcheck/entrypoint.sh"]') in INSTRUCTIONS
    assert "--chmod=755 container/entrypoint.sh /opt/ampcheck/" in copies
    assert "--chmod=755 container/without_git /opt/ampcheck/without_git" in copies


def test_without_git_all_is_measured_and_one_line_says_what_is_not_to_be_had(project: Path) -> None:
    """DVC runs, through a setting of its own that leaves the folder as it was."""
    done = entered(project, "dvc", "status", "--quiet")

    assert done.stderr.splitlines() == [
        f"ampcheck: no git in {project}: all is measured; only dvc's params diff, metrics diff and experiments need git"
    ]
    assert not (project / ".dvc/config.local").exists()


def test_with_git_the_command_runs_as_it_is(project: Path) -> None:
    """Nothing is said, arguments stay whole, and the exit code is the command's."""
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    done = entered(project, sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(3)", "a b", "*")

    assert (done.returncode, done.stdout, done.stderr) == (3, "['a b', '*']\n", "")


@pytest.mark.parametrize("name", [".", "results"])
def test_where_nothing_can_be_written_one_line_gives_the_way_out(name: str) -> None:
    """A mount that is read-only, or a result of another user: the command is not run."""
    user = NOBODY if os.getuid() == 0 else os.getuid()  # root could write all the same
    with tempfile.TemporaryDirectory() as folder:  # tmp_path's parents are closed to others
        Path(folder).chmod(0o777)
        place = Path(folder, name)
        place.mkdir(exist_ok=True)
        place.chmod(0o555)
        owner = f"{place.stat().st_uid}:{place.stat().st_gid}"
        command = ["sh", "-c", ENTRYPOINT.read_text(), "sh", "echo", "run"]
        done = subprocess.run(command, cwd=folder, user=user, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"ampcheck: user {user} can't write to {place}: mount the checkout without :ro, and give docker run --user the "
        f"number of its owner, {owner}\n"
    )


def test_results_are_repeatable_and_threads_are_the_hosts() -> None:
    """A setting makes cuBLAS repeat its results; how many threads torch has is not the image's to know."""
    variables = " ".join(rest for name, rest in INSTRUCTIONS if name == "ENV")

    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in variables
    assert "OPENBLAS_NUM_THREADS=1" in variables
    assert "OMP_NUM_THREADS" not in variables


def test_nothing_made_before_gets_into_the_image() -> None:
    """Neither git's history nor an environment, nor anything that a stage makes."""
    made = {"dvc.lock", ".dvc/cache", ".dvc/tmp"}
    for stage in params.read(ROOT / "dvc.yaml")["stages"].values():
        outs = stage.get("outs", []) + stage.get("metrics", [])
        made |= {out if isinstance(out, str) else next(iter(out)) for out in outs}

    assert {".git", ".venv", ".nox"} <= set(IGNORED)
    assert not {out for out in made if not any(fnmatch(out, f"{line}*") for line in IGNORED)}
    assert "!reports/template.md.j2" in IGNORED


def test_compose_has_a_gpu_and_a_cpu_that_differ_in_the_reservation_only() -> None:
    """Each has a profile of its own, mounts the checkout, and writes as the caller; the schema is checked by lint."""
    services = params.read(ROOT / "compose.yaml")["services"]
    devices = services["gpu"].pop("deploy")["resources"]["reservations"]["devices"]

    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert [services[name].pop("profiles") for name in ("gpu", "cpu")] == [["gpu"], ["cpu"]]
    assert services["gpu"] == services["cpu"]
    assert services["cpu"]["volumes"] == [".:/ampcheck"]
    assert services["cpu"]["user"] == "${USER_ID:-1000:1000}"


def test_every_pin_is_exact() -> None:
    """Two builds of one commit have the same packages of Python, torch's own and those of CUDA included."""
    pins = (ROOT / "constraints.txt").read_text().splitlines()[1:]

    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    assert {"setuptools", "triton", "nvidia-nvjitlink", "cuda-bindings"} <= {pin.partition("==")[0] for pin in pins}


def test_a_build_gets_the_hosts_settings_of_pip_but_none_of_its_paths(tmp_path: Path) -> None:
    """Files and folders appear in one mounted folder, an index with the files beside it; the environment's count."""
    for folder in ("index/simple", "wheels"):
        (tmp_path / "host" / folder).mkdir(parents=True)
    (tmp_path / "host/ca.pem").write_text("certificate")
    listed = {
        ":env:.default-timeout": "180",
        "global.cert": f"{tmp_path}/host/ca.pem",
        "global.default-timeout": "9",
        "global.extra-index-url": f"https://example.com/simple file://{tmp_path}/host/index/simple",
        "global.find-links": f"{tmp_path}/host/wheels",
    }
    options = pip_options(tmp_path / "pip", "".join(f"{key}={value!r}\n" for key, value in listed.items()))
    conf = (tmp_path / "pip/pip.conf").read_text()

    assert conf.splitlines() == [
        "[global]",
        "cert = /srv/0",
        "default-timeout = 180",
        "extra-index-url = https://example.com/simple file:///srv/1/simple",
        "find-links = /srv/2",
    ]
    assert (tmp_path / "pip/0").read_text() == "certificate"
    assert [option for option in options if option.startswith(f"{tmp_path}/host")] == [
        f"{tmp_path}/host/index:/srv/1:ro",
        f"{tmp_path}/host/wheels:/srv/2:ro",
    ]
    assert options[-2:] == ["--secret", f"id=pip.conf,src={tmp_path}/pip/pip.conf"]


def test_without_any_engine_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that answers decides: docker's if its engine is there, else buildah's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no Docker engine answers, and buildah and mmdebstrap of Debian is missing"):
        engine(tmp_path)
    for name, code in (("docker", 1), ("buildah", 0), ("mmdebstrap", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)

    assert engine(tmp_path) == Buildah(tmp_path)
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 0\n")
    assert engine(tmp_path) == Docker()


def test_a_trial_that_fails_says_so(tmp_path: Path) -> None:
    """One line is wanted: none and two are failures; a result that is written again is seen."""
    assert only_line("a\nb c\n", "b") == "b c"
    for text in ("a\n", "b\nb\n"):
        with pytest.raises(RuntimeError, match="not one line begins with 'b'"):
            only_line(text, "b")
    with pytest.raises(RuntimeError, match="told"):
        must(0, "told")
    (tmp_path / "results/train").mkdir(parents=True)
    (tmp_path / "results/train/fp32.json").write_text("{}")
    before = made(tmp_path)
    os.utime(tmp_path / "results/train/fp32.json", ns=(0, 0))

    assert list(before) == ["results/train/fp32.json"]
    assert made(tmp_path) != before
