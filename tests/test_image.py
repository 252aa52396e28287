"""The rules of the container image, as facts. No test builds it: that needs a container engine."""

import re
from fnmatch import fnmatch

from ampcheck import params
from tests.helpers import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
LINES = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
INSTRUCTIONS = [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in LINES if line)]
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
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
    before = INSTRUCTIONS[: next(i for i, (_, rest) in enumerate(INSTRUCTIONS) if "pip install" in rest)]

    assert [rest for name, rest in before if name in ("COPY", "ADD")] == [
        "constraints.txt pyproject.toml requirements.txt ./"
    ]
    assert not any("install" in rest for _, rest in INSTRUCTIONS[SOURCE:])


def test_it_runs_the_pipeline_as_a_user_other_than_root() -> None:
    """The last user has a number above 0, owns the source, and runs `dvc repro`."""
    users = [rest for name, rest in INSTRUCTIONS if name == "USER"]

    assert int(users[-1].split(":")[0]) > 0
    assert f"--chown={users[-1]} " in INSTRUCTIONS[SOURCE][1]
    assert INSTRUCTIONS[-1] == ("CMD", '["dvc", "repro"]')


def test_git_is_switched_off_for_the_copied_source_only() -> None:
    """A checkout that is mounted over the copy hides the setting, and keeps its git."""
    settings = [rest for name, rest in INSTRUCTIONS if name == "RUN" and "no_scm" in rest]

    assert settings == ["dvc config --local core.no_scm true"]
    assert ("RUN", settings[0]) in INSTRUCTIONS[SOURCE:]


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
