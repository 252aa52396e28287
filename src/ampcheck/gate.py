"""python -m ampcheck.gate REV [TOLERANCE]: is what was measured here worse than what a git revision holds?

Exit code 0: no; 1: yes, with a line for each thing; 2: the two can't be compared. TOLERANCE is relative,
and 0.1 if it is left out.
"""

import io
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from ampcheck import evidence, params
from ampcheck.comparison import of_mode
from ampcheck.evidence import Evidence
from ampcheck.experiments import git
from ampcheck.fields import flat
from ampcheck.independent import MEASURES, Comparison, compare

TOLERANCE = 0.1
SAME = {"seed", "deterministic", "workload", "sizes", "data", "train"}  # sections that the figures depend on
FREE = {"train.modes", "train.repeats"}  # one more does not change the others


def incomparable(then: Evidence, now: Evidence) -> Iterator[str]:
    """Say why figures of `then` and `now` can't be compared: other machines, parameters, or too few trials."""
    yield from _differing("the machine's", then.machine, now.machine)
    yield from _differing("the parameter", *(_parameters(each) for each in (then, now)))
    for mode in trained(then):
        for side, found in (("then", then), ("now", now)):
            if (count := _trials(found, mode)) < 2:
                yield f"{mode}: {count} trained {'trial' if count == 1 else 'trials'} {side}; an interval needs 2"


def worse(compared: list[Comparison], then: Evidence, now: Evidence, tolerance: float) -> Iterator[str]:
    """Say what got worse: a ratio whose whole interval is beyond 1 + tolerance, or resume that lost its bits."""
    for each in compared:
        if each.ratio.low is not None and each.ratio.low > 1 + tolerance:
            yield f"{each}: the whole interval is beyond the tolerance of {tolerance * 100:g} %"
    for mode, before in then.resume.items():
        yield from (f"{mode}: {line}" for line in _resume(before, now.resume.get(mode)))


def _resume(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> Iterator[str]:
    if after is None or not before["bit_exact"]:
        return
    if after["bit_exact"] is False:
        yield f"resume is no longer bit-exact; first {', '.join(after['differing'][:1]) or 'a loss'} differs"
    if before["scaler_at_stop"] and after["available"] and not after["scaler_at_stop"]:
        yield "it had a scaler, and has none"
    for control in after["controls"]:
        if after["bit_exact"] and not control["caught"]:
            yield f"a resume without its {control['part']} is not caught"


def trained(found: Evidence) -> list[str]:
    """Return the modes that have a trained trial."""
    return [mode for mode in found.params.train.modes if _trials(found, mode)]


def at_revision(rev: str) -> Evidence:
    """Read the results that a git revision holds. ValueError if it holds none, or such that can't be read."""
    sha = git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}").strip()
    if not git("ls-tree", sha, "results/train"):
        raise ValueError(f"{rev} holds no results; commit results/ and reports/ after a `dvc repro` there")
    archive = ["git", "archive", "--format=zip", sha, "params.yaml", "results"]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    with TemporaryDirectory() as folder, ZipFile(io.BytesIO(packed)) as files:
        files.extractall(folder)
        return evidence.read(params.load(Path(folder, "params.yaml")), Path(folder, "results"))


def gate(rev: str, tolerance: float) -> int:
    """Print every comparison with `rev`, then what is worse; return the exit code."""
    try:
        then, now = at_revision(rev), evidence.read(params.load(), Path("results"))
        reasons = list(incomparable(then, now))
    except (ValueError, KeyError, OSError) as error:
        reasons = [f"{error}"]
    if reasons:
        print("\n".join(f"not comparable: {reason}" for reason in reasons))
        return 2
    compared = [each for mode in trained(then) for each in compare(mode, then, now)]
    print("\n".join(map(str, compared)))
    found = list(worse(compared, then, now, tolerance))
    print("\n".join(f"worse than {rev}: {line}" for line in found) or _passed(rev, tolerance, then, now))
    return 1 if found else 0


def _passed(rev: str, tolerance: float, then: Evidence, now: Evidence) -> str:
    resume = "resume is as it was" if then.resume and now.resume else "resume was not measured on both sides"
    return f"no worse than {rev} beyond the tolerance of {tolerance * 100:g} % in {', '.join(MEASURES)}; {resume}"


def _differing(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield f"{what} {key} was {before.get(key)!r} and is {after.get(key)!r}"


def _parameters(found: Evidence) -> dict[str, Any]:
    kept = {key: value for key, value in flat(found.params.model_dump()).items() if key.partition(".")[0] in SAME}
    return {key: value for key, value in kept.items() if key not in FREE} | {"baseline": found.params.train.modes[0]}


def _trials(found: Evidence, mode: str) -> int:
    return int(of_mode(found.trials, mode)["trained"].sum())


if __name__ == "__main__":
    arguments = sys.argv[1:]
    try:
        asked = float(arguments[1]) if len(arguments) > 1 else TOLERANCE
    except ValueError:
        asked = -1.0
    if not 1 <= len(arguments) <= 2 or not 0 <= asked < 1:
        print(f"got {' '.join(arguments) or 'nothing'}; give a git revision, and perhaps a tolerance from 0 to 1")
        sys.exit(2)
    sys.exit(gate(arguments[0], asked))
