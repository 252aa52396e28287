"""python -m benchmarks.image: build the image from the last commit, try what is said of it, print figures.

It needs git, a Docker engine or Debian's buildah and mmdebstrap, and no package of Python. Exit code 1: a trial failed.
"""

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.image import trials
from benchmarks.image.engines import engine, output
from benchmarks.image.setup import Setup

ROOT = Path(__file__).resolve().parent.parent.parent
TRIALS = (
    trials.built,
    trials.layers,
    trials.contents,
    trials.copied,
    trials.mounted,
    trials.refused_mounts,
    trials.smoke,
    trials.same_packages,
)


def prepared(folder: Path) -> Setup:
    """Clone twice, find the engine, and have a base."""
    for name in ("context", "mounted"):
        output("git", "clone", "--quiet", str(ROOT), str(folder / name))
    user = "1234:1234" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
    if os.getuid() == 0:
        output("chown", "-R", user, str(folder / "mounted"))
    folder.chmod(0o755)
    (folder / "engine").mkdir()
    found = engine(folder / "engine")
    print(f"with {found.name}, of commit {output('git', '-C', str(ROOT), 'log', '-1', '--format=%h %s')}", flush=True)
    return Setup(found, folder / "context", folder / "mounted", user, found.base())


def main() -> None:
    """Run the trials in turn, in a folder of their own that goes with them."""
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        setup = prepared(Path(folder))
        for trial in TRIALS:
            print(f"\n{trial.__doc__}", flush=True)
            try:
                for line in trial(setup):
                    print(f"  {line}", flush=True)
            except RuntimeError as error:
                failed = True
                print(f"  FAILED: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
