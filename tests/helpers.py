"""A copy of the pipeline to run things in, at sizes that take milliseconds."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ampcheck import params
from ampcheck.ceilings import Ceilings
from ampcheck.files import write_json
from ampcheck.precision import MODES
from ampcheck.schema import Params
from ampcheck.timed import Trial
from ampcheck.trial import write_trial

ROOT = Path(__file__).parent.parent
PIPELINE = ["src", "stages", "reports/template.md.j2", "reports/sweep.md.j2", "dvc.yaml", "params.yaml", "sizes.yaml"]
PIPELINE += [".dvc/config", ".dvc/plots/by_mode.json", ".dvcignore", ".gitignore"]
TINY_SIZES = {"batch_size": 8, "in_size": 16, "out_size": 12, "num_layers": 2}
TINY_RESUME = {"steps": 8, "stop_after": 4, "batch_size": 4, "overflow_at": [1, 5], "growth_interval": 3}

Edit = Callable[[dict[str, Any]], Any]

CONDITIONS: dict[str, Any] = {  # of a trial that nothing disturbed
    "cpu_seconds": 9.5,
    "waited_seconds": 0.02,
    "stolen_seconds": 0.0,
    "involuntary_switches": 7,
    "load": [0.5, 1.5],
    "megahertz": [2600.0, None],
    "gpu": [{}, {}],
    "disturbed": [],
}


def tiny(raw: dict[str, Any]) -> None:
    """Make parameters small."""
    raw["sizes"] = dict(TINY_SIZES)
    raw["data"]["num_batches"] = 4
    raw["train"] |= {"epochs": 2, "lr": 0.1, "repeats": [0, 1]}
    raw["resume"] |= TINY_RESUME


def edit_params(project: Path, edit: Edit) -> None:
    """Change params.yaml in `project`."""
    raw = params.read(project / "params.yaml")
    edit(raw)
    with (project / "params.yaml").open("w") as file:
        YAML().dump(raw, file)


def run_in(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in `project` with this environment's python and dvc first on PATH."""
    return subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    """Return the variables of a user's shell in which this environment is active."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DVC_ROOT", "DVC_STAGE")}
    return kept | {"PATH": path, "GIT_CONFIG_COUNT": "2"} | _git_identity()


def _git_identity() -> dict[str, str]:
    keys = {"user.name": "tests", "user.email": "tests@example.com"}
    pairs = [(f"GIT_CONFIG_KEY_{i}", key) for i, key in enumerate(keys)]
    return dict(pairs) | {f"GIT_CONFIG_VALUE_{i}": value for i, value in enumerate(keys.values())}


def copy_pipeline(to: Path) -> Path:
    """Copy what a clone holds, with tiny parameters."""
    for name in PIPELINE:
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    edit_params(to, tiny)
    return to


def write_results(folder: Path, given: Params, seconds: dict[str, list[float]], **changed: Any) -> None:
    """Write results/ as the stages would: `seconds` holds each mode's steady step seconds by repeat.

    A mode without seconds was not trained. `changed` replaces keys of trials: peak_bytes={"fp32": 5}.
    """
    write_json(folder / "machine.json", {"cpu": "test", "cores": 2, "device": "cpu", "gpus": []})
    modes = {mode: {"available": mode in seconds, "emulated": False, "why": "not here"} for mode in MODES}
    write_json(folder / "modes.json", modes)
    for mode in given.train.modes:
        for repeat, step_seconds in zip(given.train.repeats, seconds.get(mode, [0.0] * 9), strict=False):
            trial = _trial(mode, repeat, step_seconds, trained=mode in seconds)
            trial = replace(trial, **{key: values[mode] for key, values in changed.items() if mode in values})
            trial = replace(trial, steps=len(trial.step_seconds) or None)
            (folder / "train" / str(repeat)).mkdir(parents=True, exist_ok=True)
            write_trial(trial, folder / "train" / str(repeat))
        write_json(folder / "resume" / f"{mode}.json", resume_result(mode, available=mode in seconds))
        write_json(folder / "rehearse" / f"{mode}.json", rehearsal_result(mode, available=mode in seconds))
        write_json(folder / "numerics" / f"{mode}.json", numerics_result(mode, available=mode in seconds))
        write_json(folder / "diagnose" / f"{mode}.json", {"mode": mode, "why": "none of its trials broke"})
        found = ceilings_result(mode, available=mode in seconds)
        found["parts"] = {part: share * min(seconds[mode]) for part, share in found["parts"].items()}
        write_json(folder / "ceilings" / f"{mode}.json", found)
        write_json(folder / "memory" / f"{mode}.json", memory_result(mode, available=mode in seconds))
        write_json(folder / "infer" / f"{mode}.json", inference_result(mode, available=mode in seconds))
    write_drill(folder / "drill", [mode for mode in given.train.modes if mode in seconds])


def rehearsal_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return what an untimed step shows where all is well."""
    return {
        "mode": mode,
        "why": "" if available else "not here",
        "dtypes": {"Linear": MODES[mode].dtype} if available else {},
        "losses": ["float32"] if available else [],
        "stayed_float32": [],
        "waits": [],
    }


def ceilings_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return rates that no trial comes near, a step that is mostly matmul, and timers that cost a microsecond."""
    if not available:
        return asdict(Ceilings(mode=mode, why="not here"))
    found = Ceilings(
        mode=mode,
        fp32_precision="ieee",
        step_flops={"matmul": 10**6},
        flops_by_dtype={MODES[mode].dtype: 10**6},
        flops_per_second={"matmul": 1e15},
        bytes_per_second=1e10,
        moved_bytes=10**6,
        shapes=[],
        alone_seconds=0.6,
        parts={"matmul": 0.6, "casts": 0.0, "other": 0.2, "optimizer": 0.1, "scaler": 0.0, "between": 0.1},
        timer_seconds=[1e-6] * 60,
    )
    return asdict(found)


def numerics_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return what a few steps show of numbers that are sound."""
    scaler = MODES[mode].scaler
    gradient = {
        "largest": 0.01,
        "zero_unscaled": 0.125 if scaler else 0.0,
        "zero_scaled": 0.0 if scaler else None,
        "headroom": 100.0,
    }
    found = {
        "dtype": MODES[mode].dtype,
        "rows": 8,
        "broken": "",
        "scale_changes": [[0, 65536.0], [1, 32768.0]] if scaler else [],
        "overflows": [],
        "without_gradient": [],
        "probabilities": [],
        "float32_broken": "",
        "outputs": {"net.0": 3.5},
        "of_outputs": [gradient | {"name": "net.0"}],
        "of_parameters": [gradient | {"name": "net.0.weight"}],
        "first_scale": 65536.0 if scaler else None,
    }
    why = "" if available and MODES[mode].autocast else "not examined"
    return {"mode": mode, "why": why} | (found if not why else {"without_gradient": []})


def memory_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return what the tensors take: here if the mode is available, and foreseen for CUDA."""
    autocast = MODES[mode].autocast
    split = {"data": 1000, "parameters": 400, "gradients": 400, "optimizer_state": 0}
    split |= {"copies_in_16_bits": 200 * autocast, "activations": 300 - 100 * autocast}
    known = {"peak_bytes": sum(split.values()), "split": split, "why": ""}
    unknown: dict[str, Any] = {"peak_bytes": None, "split": {}, "why": "not here"}
    return {"mode": mode, "here": known if available else unknown, "cuda": known}


def inference_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return what the forward pass alone gave."""
    figures = {
        "batch_seconds": 0.002,
        "samples_per_second": 4000.0,
        "first_batch_bytes": 2**20,
        "growth_bytes": 0,
        "largest_difference": 0.02,
        "median_difference": 0.003,
        "equal_argmax": 0.99,
    }
    why = "" if available else "not here"
    return {"mode": mode, "why": why} | (figures if available else dict.fromkeys(figures))


def resume_result(mode: str, *, available: bool = True) -> dict[str, Any]:
    """Return a result of the resume check in which all is well."""
    scaler = {"scale": 32768.0, "growth_tracker": 2} if MODES[mode].scaler else {}
    caught = {"part": "scaler", "caught": True, "by": ["scaler/scale"]}
    return {
        "mode": mode,
        "available": available,
        "why": "" if available else "not here",
        "steps": 24 if available else None,
        "stop_after": 12 if available else None,
        "bit_exact": True if available else None,
        "differing": [],
        "first_different_loss": None,
        "scaler_at_stop": scaler,
        "scaler_at_end": {"straight": scaler, "resumed": scaler},
        "controls": [caught] if MODES[mode].scaler and available else [],
    }


def write_drill(folder: Path, modes: list[str]) -> None:
    """Write results of the drill in which all is well, of `modes`."""
    scaler = {(True, True): "restored", (True, False): "ignored", (False, True): "fresh", (False, False): "none"}
    across = [
        {"from": a, "to": b, "scaler": scaler[MODES[a].scaler, MODES[b].scaler], "differing": []}
        | {"told": [f"mode: saved in {a}, goes on in {b}"], "next_loss_finite": True}
        for a, b in permutations(modes, 2)
    ]
    kill = {"step": 5, "while_writing": True, "resumed_from": 5, "differing": []}
    write_json(folder / "across.json", across)
    write_json(folder / "kills.json", {"seed": 0, "kills": [{"mode": mode} | kill for mode in modes]})
    for mode in modes:
        write_json(folder / f"{mode}.json", drill_result(mode))


def drill_result(mode: str) -> dict[str, Any]:
    """Return a result of the drill in which all is well."""
    scaler = MODES[mode].scaler
    losable = {"modules": True, "rng": True, "scaler": scaler, "save between step() and update()": scaler}
    return {
        "mode": mode,
        "steps": 16,
        "stops": [
            {"stop": stop, "bit_exact": True, "told": [], "differing": [], "first_different_loss": None}
            for stop in range(16)
        ],
        "named": {"before the first step": 0, "right after a skip": 4 if scaler else None},
        "same_save_points": True,
        "first_scales": [{"first_scale": 4.0**n, "skipped_steps": 0, "differing": []} for n in range(3)] * scaler,
        "controls": [
            {
                "part": part,
                "matters": matters,
                "why_not": "" if matters else "no scaler",
                "caught": matters,
                "by": ["step", "the loss of step 12"] * matters,
            }
            for part, matters in losable.items()
        ],
        "other_growth_interval": {"told": ["scaler/growth_interval: 3 as saved"], "differing": []} if scaler else None,
        "runaway": {"stopped_at": 50, "told": "stopped at step 50", "differing": []} if scaler else None,
        "in_new_processes": [{"stop": stop, "differing": []} for stop in (0, 8, 15)],
    }


def _trial(mode: str, repeat: int, step_seconds: float, *, trained: bool) -> Trial:
    if not trained:
        return Trial(mode=mode, repeat=repeat, trained=False, why="not here")
    times = [step_seconds * 3, step_seconds, step_seconds]
    return Trial(
        mode=mode,
        repeat=repeat,
        trained=True,
        steps=3,
        total_seconds=sum(times),
        first_step_seconds=times[0],
        peak_bytes=3000,
        memory="peak of a test",
        data_bytes=1000,
        clock="a clock",
        final_loss=0.5,
        optimizer_steps=3,
        skipped_steps=0,
        scaler={"growth_interval": 2000} if MODES[mode].scaler else {},
        digest=f"digest of {mode}",
        conditions=dict(CONDITIONS),
        losses=[0.7, 0.6, 0.5],
        step_seconds=times,
    )
