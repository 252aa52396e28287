"""The one door: `nox -l` lists what can be done. Everything is installed by pip, with the pins of constraints.txt."""

import os
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"  # others don't see a torch that pip finds on the disk
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")


def install(session: nox.Session, *groups: str) -> None:
    """Install the dependencies, not the project: it is used from src/, so that an edit needs no install."""
    wanted = [*PYPROJECT["project"]["dependencies"], *nox.project.dependency_groups(PYPROJECT, *groups)]
    session.install("-c", "constraints.txt", *wanted, "-r", "requirements.txt")  # the last is the user's own
    session.env["PYTHONPATH"] = "src"


def reproduce(session: nox.Session, edits: list[str], *stages: str) -> None:
    """Write `edits` into params.yaml, then have DVC bring the stages up to date, or all of them."""
    install(session)
    session.run("python", "-m", "ampcheck.edit", *edits)
    if not Path(".git").exists():
        session.run("dvc", "config", "--local", "core.no_scm", "true")
    session.run("dvc", "repro", *stages)


@nox.session
def repro(session: nox.Session) -> None:
    """Run the pipeline; what is given is first written into params.yaml: nox -s repro -- laptop train.epochs=1."""
    reproduce(session, session.posargs)


@nox.session
def drill(session: nox.Session) -> None:
    """Run the resume drill alone; nox -s drill -- --kills 200 first writes drill.kills into params.yaml."""
    if session.posargs and not (len(session.posargs) == 2 and session.posargs[0] == "--kills"):
        session.error(f"got {' '.join(session.posargs)}; give --kills N, or nothing")
    reproduce(session, [f"drill.kills={kills}" for kills in session.posargs[1:]], "drill")


@nox.session
def sweep(session: nox.Session) -> None:
    """Time sizes as DVC's experiments and compare them: nox -s sweep -- laptop odd_batch, -S sizes.batch_size=8,9."""
    install(session)
    session.run("python", "-m", "ampcheck.sweep", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Exit with 1 if what was measured is worse than at a revision, 2 if that can't be said: nox -s gate -- main."""
    install(session)
    command = [f"{session.bin}/python", "-m", "ampcheck.gate", *session.posargs]
    if code := subprocess.run(command, env=os.environ | {"PYTHONPATH": "src"}, check=False).returncode:
        sys.exit(code)  # nox's own would be 1 in place of 2


@nox.session
def diagnose(session: nox.Session) -> None:
    """Find where training breaks, in all modes or in those that are named: nox -s diagnose -- amp-fp16."""
    reproduce(session, [], "data")
    session.run("python", "-m", "stages.diagnose", *(session.posargs or ["all"]))


@nox.session
def estimate(session: nox.Session) -> None:
    """Print what each mode of params.yaml would take on CUDA, found without a GPU: does it fit, what will AMP save?"""
    install(session)
    session.run("python", "-m", "ampcheck.estimate")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, as many at once as there are cores; arguments go to pytest."""
    install(session, "tests")
    session.run("pytest", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Print what our loop and our checkpoints cost beside plain ones, on the CPU: ratios of time, in a minute."""
    install(session)
    session.run("python", "-m", "benchmarks.bench")


@nox.session
def gpu(session: nox.Session) -> None:
    """Try all that needs a CUDA device, on one card, within eight minutes; fails where there is none."""
    install(session, "tests")
    session.run("python", "benchmarks/gpu.py")


@nox.session
def image(session: nox.Session) -> None:
    """Build the container image of the last commit, with docker or else buildah, and try it: no test does this."""
    session.run("python", "-m", "benchmarks.image")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, types, the Dockerfiles, compose.yaml and the workflows."""
    install(session, "lint", "tests")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("hadolint", "Dockerfile", "container/tests.Dockerfile")
    session.run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", *workflows)
