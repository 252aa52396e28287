"""The one door: `nox -l` lists what can be done. Everything is installed by pip, with the pins of constraints.txt."""

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
    session.install("-c", "constraints.txt", *wanted)
    session.env["PYTHONPATH"] = "src"


@nox.session
def repro(session: nox.Session) -> None:
    """Run the pipeline; a name of sizes.yaml is first written into params.yaml: nox -s repro -- laptop."""
    install(session)
    session.run("python", "-m", "ampcheck.sizes", *session.posargs)
    if not Path(".git").exists():
        session.run("dvc", "config", "--local", "core.no_scm", "true")
    session.run("dvc", "repro")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    install(session, "tests")
    session.run("pytest", *session.posargs)


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
def lint(session: nox.Session) -> None:
    """Check style, format, types and the Dockerfile."""
    install(session, "lint", "tests")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("hadolint", "Dockerfile")
