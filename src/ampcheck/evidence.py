"""What the trials, the resume checks and the drill left, read back. Loads no torch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ampcheck.files import read_json
from ampcheck.plausibility import implausible
from ampcheck.schema import Params

STEP_COLUMNS = ["repeat", "mode", "step", "seconds", "loss"]
TIMES = ["total_seconds", "first_step_seconds"]
MEASURED = ["total_seconds", "compile_seconds", "compiled_graphs", "first_step_seconds", "peak_bytes"]
MEASURED += ["peak_reserved_bytes", "data_bytes", "final_loss", "optimizer_steps", "skipped_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the stages before the report wrote, by the modes and repeats of params.yaml.

    `trials` is indexed by (mode, repeat) and has the keys of MODE.json; `steps` has STEP_COLUMNS. `drill` has the
    available modes only; `across` has a result for each ordered pair of them, `kills` one for each killed run.
    `invalid` says of a trial, by (mode, repeat), why its timing can't be: its seconds are then missing everywhere.
    With params.trials_only all from `ceilings` on are empty but `rehearse`.
    """

    params: Params
    machine: dict[str, Any]
    modes: dict[str, dict[str, Any]]
    trials: pd.DataFrame
    steps: pd.DataFrame
    invalid: dict[tuple[str, int], str]
    ceilings: dict[str, dict[str, Any]]
    rehearse: dict[str, dict[str, Any]]
    memory: dict[str, dict[str, Any]]
    infer: dict[str, dict[str, Any]]
    numerics: dict[str, dict[str, Any]]
    diagnose: dict[str, dict[str, Any]]
    resume: dict[str, dict[str, Any]]
    drill: dict[str, dict[str, Any]]
    across: list[dict[str, Any]]
    kills: list[dict[str, Any]]


def read(params: Params, folder: Path) -> Evidence:
    """Read results/. Walks params.yaml, never a glob: a mode that was dropped may have left its file behind."""
    results, steps = [], []
    for repeat in params.train.repeats:
        for mode in params.train.modes:
            trial = read_json(folder / "train" / str(repeat) / f"{mode}.json")
            results.append(trial)
            if trial["trained"]:
                table = _steps(folder / "train" / str(repeat) / f"{mode}.csv", trial["steps"])
                steps.append(table.assign(repeat=repeat, mode=mode)[STEP_COLUMNS])
    trials = pd.DataFrame(results).set_index(["mode", "repeat"])
    trials[MEASURED] = trials[MEASURED].apply(pd.to_numeric)
    trials["net_peak_bytes"] = trials["peak_bytes"] - trials["data_bytes"]
    modes = read_json(folder / "modes.json")
    available = [mode for mode in params.examined if modes[mode]["available"]]
    ceilings = _by_mode(folder / "ceilings", params.examined)
    all_steps = pd.concat([_no_steps(), *steps], ignore_index=True)
    invalid = implausible(params, trials, all_steps, ceilings)
    for mode, repeat in invalid:
        trials.loc[(mode, repeat), TIMES] = math.nan
        all_steps.loc[(all_steps["mode"] == mode) & (all_steps["repeat"] == repeat), "seconds"] = math.nan
    return Evidence(
        params=params,
        machine=read_json(folder / "machine.json"),
        modes=modes,
        trials=trials,
        steps=all_steps,
        invalid=invalid,
        ceilings=ceilings,
        rehearse=_by_mode(folder / "rehearse", params.train.modes),
        memory=_by_mode(folder / "memory", params.examined),
        infer=_by_mode(folder / "infer", params.examined),
        numerics=_by_mode(folder / "numerics", params.examined),
        diagnose=_by_mode(folder / "diagnose", params.examined),
        resume=_by_mode(folder / "resume", params.examined),
        drill=_by_mode(folder / "drill", available),
        **_pairs_and_kills(folder / "drill", available),
    )


def _steps(path: Path, count: int) -> pd.DataFrame:
    """Return the table in `path`. ValueError unless it has `count` steps, each with its seconds."""
    try:
        table = pd.read_csv(path)
        whole = len(table) == count and bool((table["seconds"] >= 0).all())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: can't be read ({error}); delete its folder, and `dvc repro` makes it") from error
    if not whole:
        raise ValueError(
            f"{path}: not whole: {count} steps, none below 0 s; delete its folder, and `dvc repro` makes it"
        )
    return table


def _pairs_and_kills(folder: Path, modes: list[str]) -> dict[str, list[dict[str, Any]]]:
    if not modes:
        return {"across": [], "kills": []}
    across, kills = read_json(folder / "across.json"), read_json(folder / "kills.json")["kills"]
    return {
        "across": [pair for pair in across if pair["from"] in modes and pair["to"] in modes],
        "kills": [kill for kill in kills if kill["mode"] in modes],
    }


def _by_mode(folder: Path, modes: list[str]) -> dict[str, dict[str, Any]]:
    return {mode: read_json(folder / f"{mode}.json") for mode in modes}


def _no_steps() -> pd.DataFrame:
    return pd.DataFrame({"repeat": [0], "mode": [""], "step": [0], "seconds": [0.0], "loss": [0.0]}).iloc[:0]
