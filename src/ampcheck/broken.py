"""Which modes are to be diagnosed. Loads no torch."""

from pathlib import Path

from ampcheck.fields import closest
from ampcheck.files import read_json
from ampcheck.schema import Params


def broken_modes(params: Params, trials: Path) -> dict[str, int]:
    """Return the modes of which a trial in the folder `trials` broke, with the last step that one broke in."""
    found: dict[str, int] = {}
    for repeat in params.train.repeats:
        for mode in params.train.modes:
            broke_at = read_json(trials / str(repeat) / f"{mode}.json")["broke_at"]
            if broke_at is not None:
                found[mode] = max(broke_at, found.get(mode, 0))
    return found


def named_modes(params: Params, names: list[str]) -> list[str]:
    """Return `names`, or all modes for the name "all". ValueError for a mode that is not one of train.modes."""
    allowed = params.train.modes
    for name in names:
        if name not in (*allowed, "all"):
            raise ValueError(f"diagnose: got {name!r}; all, or some of {', '.join(allowed)}{closest(name, allowed)}")
    return [mode for mode in allowed if mode in names or "all" in names]
