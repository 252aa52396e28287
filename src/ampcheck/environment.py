"""Stable facts of the machine: what training depends on, kept up to date. Loads no torch.

No host name, boot id or date: a fact that changes by itself would train again for nothing.
"""

import hashlib
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ampcheck import params
from ampcheck.files import read_json, write_json
from ampcheck.processes import in_child
from ampcheck.sources import source_digest

ISA_PREFIXES = ("avx", "amx", "fma", "f16c", "asimd", "sve", "bf16", "i8mm")  # what decides a dtype's speed
PROBE_SOURCES = ("precision.py", "probe.py")


def update(folder: Path, raw: dict[str, Any]) -> str:
    """Check the parameters and bring machine.json, modes.json and workload.json in `folder` up to date.

    What was measured for the same machine, device and probe is kept. Returns one line for the log. ValueError, one
    line for each wrong key.
    """
    found = params.errors(raw)
    lines = [f"params.yaml: {line}" for line in found.values()]
    if {key.partition(".")[0] for key in found} & {"device", "workload", "sizes"}:
        raise ValueError("\n".join(lines))
    machine = facts()
    workload = {"workload": raw["workload"], "sizes": raw["sizes"], "source": source_digest(raw["workload"])}
    probed = fingerprint(machine, raw["device"])
    kept = _probed(folder, machine, probed)
    if not lines and kept and _holds(folder / "workload.json", workload):
        return "nothing has changed"
    examined = in_child(lambda _: _examined(raw, probe=not kept), "environment")
    lines += [f"params.yaml: {line}" for line in examined["errors"]]
    if lines:
        raise ValueError("\n".join(lines))
    if not kept:
        write_json(folder / "machine.json", machine | examined["device"])
        modes = {name: entry | {"probed": probed} for name, entry in examined["modes"].items()}
        write_json(folder / "modes.json", modes)  # last: it says that both are current
    write_json(folder / "workload.json", workload)
    modes = read_json(folder / "modes.json")
    trainable = [name for name, entry in modes.items() if entry["available"] and not entry["emulated"]]
    on = chosen(raw["device"], examined["device"]["device"], machine["gpus"])
    return f"on {on}, {machine['threads']} threads: {', '.join(trainable)} can be trained"


def chosen(asked: str, device: str, gpus: list[str]) -> str:
    """Name the device, with the reason if it is a CPU that nobody asked for; `gpus` are those that the driver lists."""
    if asked != "auto" or device != "cpu":
        return device
    if not gpus:
        return "cpu (there is no NVIDIA GPU)"
    return f"cpu (torch can't use the {gpus[0]}: in a container give docker run --gpus all, else torch lacks CUDA)"


def facts() -> dict[str, Any]:
    """Return what the machine is, from /proc and the installed packages' metadata."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = set(_field(cpuinfo, "flags", "Features").split())
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    driver = Path("/proc/driver/nvidia/version")
    return {
        "cpu": _field(cpuinfo, "model name", "CPU implementer") or platform.machine(),
        "isa": sorted(flag for flag in flags if flag.startswith(ISA_PREFIXES)),
        "cores": cores(),
        "threads": threads(),
        "memory_gib": round(int(_field(Path("/proc/meminfo").read_text(), "MemTotal").split()[0]) / 2**20),
        "gpus": [_field(gpu.read_text(), "Model") for gpu in gpus],
        "driver": driver.read_text().splitlines()[0] if driver.exists() else None,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "safetensors")},
    }


def threads() -> int:
    """Return OMP_NUM_THREADS, else the cores we may use. ValueError if it is no number."""
    asked = os.environ.get("OMP_NUM_THREADS") or str(cores())
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"OMP_NUM_THREADS: got {asked!r}; an integer of at least 1, or unset for all cores")
    return int(asked)


def cores() -> int:
    """Return how many cores this process may use: its affinity, or a container's CPU quota if that is less."""
    allowed = len(os.sched_getaffinity(0))
    quota = Path("/sys/fs/cgroup/cpu.max")
    limit, _, period = quota.read_text().partition(" ") if quota.exists() else ("max", "", "")
    return allowed if limit == "max" else min(allowed, math.ceil(int(limit) / int(period)))


def fingerprint(machine: dict[str, Any], device: str) -> str:
    """Digest of all that the probe's figures depend on."""
    sources = [(Path(__file__).parent / name).read_text() for name in PROBE_SOURCES]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return hashlib.sha256(json.dumps([machine, device, visible, sources]).encode()).hexdigest()


def _examined(raw: dict[str, Any], *, probe: bool) -> dict[str, Any]:
    from ampcheck.probe import examine  # noqa: PLC0415 - it loads torch, which the parent must not: that would take a second

    return examine(raw["device"], raw["workload"], raw["sizes"], probe=probe)


def _probed(folder: Path, machine: dict[str, Any], probed: str) -> bool:
    """Whether machine.json and modes.json are whole, and of this machine and probe."""
    try:
        known, modes = read_json(folder / "machine.json"), read_json(folder / "modes.json")
    except ValueError:
        return False
    return known == known | machine and all(entry["probed"] == probed for entry in modes.values())


def _holds(path: Path, value: object) -> bool:
    try:
        return bool(read_json(path) == value)
    except ValueError:
        return False


def _field(text: str, *names: str) -> str:
    """Return the value of the first line "name : value" in a /proc file; empty if there is none."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""
