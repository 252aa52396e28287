"""DVC's experiments on the current commit, through DVC's commands and their JSON, and git. Loads no torch."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment as `dvc exp show` sees it; `state` is queued, running, failed or done.

    `log` and `pid` are those of its process, as soon as it has one; `data` has DVC's hash and the bytes of its data.
    """

    name: str
    rev: str
    state: str
    params: dict[str, Any]
    data: dict[str, Any]
    log: Path | None
    pid: int | None

    @property
    def alive(self) -> bool:
        """Whether it runs, and its process has not ended."""
        return self.state == "running" and self.pid is not None and Path(f"/proc/{self.pid}").exists()


def dvc(*arguments: str) -> str:
    """Run DVC and return what it prints. ValueError, one line, if it fails."""
    return _run([sys.executable, "-m", "dvc", *arguments], f"dvc {' '.join(arguments[:2])}")


def git(*arguments: str) -> str:
    """Run git and return what it prints. ValueError, one line, if it fails."""
    return _run(["git", *arguments], f"git {arguments[0]}")


def _run(command: list[str], shown: str) -> str:
    with TemporaryFile("w+") as printed, TemporaryFile("w+") as told:  # DVC's worker would keep a pipe open
        ended = subprocess.run(command, stdout=printed, stderr=told, check=False)
        output, errors = (_from_start(file) for file in (printed, told))
    if ended.returncode:
        lines = (errors or output).strip().splitlines() or [f"exit code {ended.returncode}"]
        raise ValueError(f"{shown}: {lines[0].removeprefix('ERROR: ').removeprefix('fatal: ')}")
    return output


def _from_start(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def experiments() -> dict[str, Experiment]:
    """Return the experiments on the current commit, by name."""
    baselines = json.loads(_shown())[1:]  # the first is the workspace
    return {found.name: found for baseline in baselines for found in _of_baseline(baseline)}


def _shown() -> str:
    for _ in range(TRIES - 1):
        try:
            return dvc("exp", "show", "--json")
        except ValueError:  # DVC can't read the copy of an experiment that begins or ends at this moment
            time.sleep(1)
    return dvc("exp", "show", "--json")


def _of_baseline(baseline: Mapping[str, Any]) -> Iterator[Experiment]:
    for entry in baseline["experiments"] or []:
        last, executor = entry["revs"][0], entry["executor"] or {"state": "success", "local": None}
        process, data = executor["local"] or {}, last["data"] or {}
        yield Experiment(
            name=str(last["name"]),
            rev=last["rev"],
            state={"success": "done"}.get(executor["state"], executor["state"]),
            params=data.get("params", {}).get("params.yaml", {}).get("data", {}),
            data=data.get("outs", {}).get("data/fixed.safetensors", {}),
            log=Path(process["log"]) if process.get("log") else None,
            pid=process.get("pid"),
        )


def held(rev: str, path: str) -> Any:  # noqa: ANN401 - what the file holds is its reader's to know
    """Return a JSON file as a git revision holds it. ValueError if it holds none."""
    return json.loads(git("show", f"{rev}:{path}"))


def parameter_differences(first: str, second: str) -> dict[str, dict[str, Any]]:
    """Return by parameter the `old` and the `new` value, as `dvc params diff` has them."""
    return dict(json.loads(dvc("params", "diff", "--json", first, second)).get("params.yaml", {}))


def why_failed(experiment: Experiment | None) -> str:
    """Return what the stage that failed said, of the experiment's log; None is one that DVC does not know."""
    if experiment is None or experiment.log is None or not experiment.log.is_file():
        return "it failed before its first stage; `dvc queue logs` may say more"
    last_stage = experiment.log.read_text(encoding="utf-8").rpartition("> exec")[2]
    lines = [line for line in last_stage.splitlines()[1:] if line and not re.match(r"ERROR: failed to reproduce", line)]
    return " ".join(lines[-3:])[:500] or "its log says nothing"
