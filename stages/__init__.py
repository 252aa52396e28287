"""One thin script a stage: read, call, write. Run as modules from the project's root: python -m stages.train 0."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

# A queued experiment runs in a copy of this folder: it must use the copy's library, not an editable install's.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from ampcheck.processes import ChildError, die_with_parent

die_with_parent(os.getppid())
gc.disable()  # a stage loads much and soon ends; what it forks turns the collector on


def run(main: Callable[[], None]) -> None:
    """Run a stage. What the user can mend is told in one line each, without a traceback; the exit code is then 1."""
    try:
        main()
    except (ValueError, OSError, ChildError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what was finished before this stage is kept")
    sys.stdout.flush()
    os._exit(0)  # all is written, and taking torch's modules down would take half a second more
