"""Try each mode's matmul on a device: what it lacks, what it only emulates, and by how much that is slower."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from ampcheck import workloads
from ampcheck.precision import MODES, Mode

TRIES = 20  # the best counts: machines hiccup
SLOWDOWN_OF_EMULATION = 2.0  # a type with hardware of its own is never this much slower than float32
TF32_CAPABILITY = (8, 0)
FLOAT32 = Mode(name="float32", dtype="float32", autocast=False, scaler=False, fp32_precision="ieee")


def find_device(asked: str) -> torch.device:
    """Return the device that `asked` (auto, cpu, cuda, cuda:N) means here. ValueError if it isn't there."""
    count = torch.cuda.device_count()
    if asked == "cpu" or (asked == "auto" and count == 0):
        return torch.device("cpu")
    index = int(asked.partition(":")[2] or 0)
    if index >= count:
        shown = f"this machine shows {count} CUDA devices to torch"
        raise ValueError(f"device: got {asked!r}; {shown}; use cpu or auto, in a container docker run --gpus all")
    return torch.device("cuda", index)


def examine(device: str, workload: str, sizes: Mapping[str, Any], *, probe: bool = True) -> dict[str, Any]:
    """Return {"errors": lines for the user, "device": facts for machine.json, "modes": what modes.json holds}.

    Without `probe` the modes are left out: it takes a second where one is emulated.
    """
    # One thread: on a busy machine several wait for each other, float32's as long as an emulated type computes.
    torch.set_num_threads(1)
    errors = []
    found = torch.device("cpu")
    try:
        found = find_device(device)
    except ValueError as error:
        errors.append(str(error))
    try:
        workloads.load(workload, sizes)
    except ValueError as error:
        errors += str(error).splitlines()
    if errors:
        return {"errors": errors}
    return {"errors": [], "device": _device_facts(found), "modes": probe_modes(found) if probe else {}}


def probe_modes(device: torch.device) -> dict[str, dict[str, Any]]:
    """Return available, emulated, slowdown (against float32 without TF32) and why, for every mode."""
    why_not = {name: _lacking(mode, device) for name, mode in MODES.items()}
    best = dict.fromkeys([name for name, why in why_not.items() if not why], float("inf"))
    float32_seconds = float("inf")
    for _ in range(TRIES):  # in turn, so that what disturbs one try disturbs all modes
        float32_seconds = min(float32_seconds, _matmul_seconds(FLOAT32, device))
        for name in best:
            best[name] = min(best[name], _matmul_seconds(MODES[name], device))
    return {
        name: _entry(mode, device, why_not[name], best[name] / float32_seconds if name in best else None)
        for name, mode in MODES.items()
    }


def _entry(mode: Mode, device: torch.device, why_not: str, slowdown: float | None) -> dict[str, Any]:
    emulated = mode.dtype != FLOAT32.dtype and slowdown is not None and slowdown >= SLOWDOWN_OF_EMULATION
    if emulated:
        kind = "CPU" if device.type == "cpu" else "GPU"
        why_not = f"{mode.dtype} matmul is emulated on this {kind}, {slowdown:.0f} times slower than float32"
    return {"available": slowdown is not None, "emulated": emulated, "slowdown": slowdown, "why": why_not}


def _lacking(mode: Mode, device: torch.device) -> str:
    """Say why `mode` can't run at all on `device`; empty if it can."""
    if mode.fp32_precision == "tf32":
        capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
        if capability is None or capability < TF32_CAPABILITY:
            here = f"one of {capability[0]}.{capability[1]}" if capability else "a CPU"
            return f"TF32 needs a CUDA device of compute capability 8.0 or newer; this is {here}"
    try:
        _matmul_seconds(mode, device)
    except RuntimeError as error:
        return f"{mode.dtype} matmul fails on {device}: {str(error).partition(chr(10))[0]}"
    return ""


def _matmul_seconds(mode: Mode, device: torch.device) -> float:
    torch.backends.fp32_precision = mode.fp32_precision  # type: ignore[attr-defined] # its module hides it
    width = 256 if device.type == "cpu" else 4096  # large enough for its time to be arithmetic
    a = torch.randn(width, width, device=device).to(getattr(torch, mode.dtype))
    seconds = 0.0
    for _ in range(2):  # the first one sets the library up
        started = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for the device
        seconds = time.perf_counter() - started
    return seconds


def _device_facts(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"device": "cpu", "device_name": None, "cuda": None, "capability": None}
    return {
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
    }
