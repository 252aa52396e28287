"""python -m ampcheck.sweep NAME ... or -S KEY=VALUE,VALUE ...: time sizes as DVC's experiments, and compare them.

An experiment that is done on this commit, with the same parameters, code and machine, is not run again.
"""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ampcheck import grid, params, sweep_report
from ampcheck.environment import facts
from ampcheck.experiments import Experiment, dvc, experiments, git, why_failed

START_SECONDS = 30  # within which DVC's worker must have begun the next size
POLL_SECONDS = 1
SETTLE_SECONDS = 5  # which DVC may take to note that an experiment has ended
NOT_SHOWN = ("Updating lock file", "Generating lock file", "> exec", "WARNING: ")  # of DVC's own lines
MADE = [":!params.yaml", ":!dvc.lock", ":!results", ":!reports"]  # by running, or part of the digest anyway


def sweep(arguments: list[str]) -> None:
    """Have DVC run what is missing, then write reports/sweep.md. ValueError at the end if a size failed."""
    wanted = grid.sizes(arguments)
    names = {_name(label, raw): raw for label, raw in wanted.items()}
    _check_git(list(wanted.values()))
    dvc("repro", "environment")  # what is wrong here is told at once, and the modes are probed once
    _enqueue(names)
    dvc("queue", "start")
    _follow(list(names))
    known = experiments()
    done = [known[name] for name in names if name in known and known[name].state == "done"]
    failed = {name: why_failed(known.get(name)) for name in names if known.get(name) not in done}
    print(sweep_report.write(done, failed, Path("reports")))
    if failed:
        raise ValueError("\n".join(f"{name} failed: {why}" for name, why in failed.items()))


def _name(label: str, raw: dict[str, Any]) -> str:
    code = git("rev-parse", "HEAD") + git("diff", "HEAD", "--", ".", *MADE)
    told_apart = json.dumps([code, raw, facts()], sort_keys=True)
    return f"{label}-{hashlib.sha256(told_apart.encode()).hexdigest()[:6]}"


def _check_git(wanted: list[dict[str, Any]]) -> None:
    """Refuse what DVC would only tell in the log of an experiment, or never."""
    if shutil.which("dvc") is None:
        raise ValueError("dvc: not on PATH, where DVC's worker looks for it; activate the environment that has it")
    tracked = set(git("ls-files").splitlines())
    for module in {raw["workload"].partition(":")[0].replace(".", "/") for raw in wanted}:
        for path in (f"{module}.py", f"{module}/__init__.py"):
            if Path(path).is_file() and path not in tracked:
                raise ValueError(f"{path}: git doesn't track it, so DVC's experiments lack it; git add {path}")


def _enqueue(names: dict[str, dict[str, Any]]) -> None:
    known, now = _settled(names), params.read()
    copied = [] if git("ls-files", "results") else ["--copy-paths", "results"]  # the modes are not probed again
    for name, raw in names.items():
        old = known.get(name)
        if old and (old.state in ("done", "queued") or old.alive):
            print(f"{name}: {old.state}")
            continue
        if old and old.state == "running":  # its process is gone, with the worker
            dvc("queue", "kill", name)
        if old:
            dvc("queue", "remove", name)
        settings = [part for each in grid.overrides(now, raw) for part in ("-S", each)]
        dvc("exp", "run", "--queue", "--name", name, *copied, *settings, "report")
        print(f"{name}: queued", flush=True)


def _settled(names: Collection[str]) -> dict[str, Experiment]:
    """Return the experiments by name, after a while if one has ended of which DVC still says that it runs."""
    known = experiments()
    if any(known[name].state == "running" and not known[name].alive for name in names if name in known):
        time.sleep(SETTLE_SECONDS)
        return experiments()
    return known


def _follow(names: list[str]) -> None:
    """Show what the experiments print until all have ended. ValueError if the worker does not begin the next one."""
    waited_since = time.monotonic()
    while True:
        known = experiments()
        left = [known[name] for name in names if name in known and known[name].state in ("queued", "running")]
        if not left:
            return
        if running := next((each for each in left if each.alive), None):
            _show(running, f"[{names.index(running.name) + 1}/{len(names)}] {running.name}")
            waited_since = time.monotonic()
        elif time.monotonic() - waited_since > START_SECONDS:
            raise ValueError(
                f"DVC's worker did not begin {left[0].name} within {START_SECONDS} s; "
                "see .dvc/tmp/exps/celery/*.out, and that a bare `dvc` can be run; then give the same command again"
            )
        else:
            time.sleep(POLL_SECONDS)


def _show(running: Experiment, prefix: str) -> None:
    """Print the log's lines until the process has ended; cheaper than asking DVC, which would disturb the trials."""
    assert running.log is not None
    with running.log.open(encoding="utf-8") as log:
        while True:
            alive = running.alive
            for line in log.read().splitlines():
                if line and not line.startswith(NOT_SHOWN):
                    print(f"{prefix}: {line}", flush=True)
            if not alive:
                return
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    try:
        sweep(sys.argv[1:])
    except KeyboardInterrupt:
        dvc("queue", "stop", "--kill")
        sys.exit("interrupted; what was measured is kept, and the same command measures the rest")
    except (ValueError, OSError) as error:
        sys.exit(str(error))
