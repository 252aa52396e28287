"""What our checkpoints cost beside torch's own functions on the same tensors, which check nothing and sync nothing."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from ampcheck import checkpoint, launch, state
from ampcheck.options import Options
from ampcheck.precision import MODES
from ampcheck.run import Run, start
from ampcheck.training import train
from ampcheck.workloads import mlp
from benchmarks import pairs

OPTIMIZERS: dict[str, Callable[[torch.nn.Module, float], torch.optim.Optimizer]] = {
    "SGD momentum": lambda net, lr: torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9),
    "AdamW": lambda net, lr: torch.optim.AdamW(net.parameters(), lr=lr),
}
WIDTHS = (16, 1024)


def trained(width: int, optimizer: str) -> Run:
    """Return a run of three square layers whose optimizer has its buffers."""
    launch.prepare(seed=0, threads=1, deterministic=True)  # more would wait for each other while tensors are copied
    workload = replace(
        mlp.build(8, width, width, num_layers=3),
        optimizers=lambda modules, lr: {"all": OPTIMIZERS[optimizer](modules["net"], lr)},
    )
    batch = {name: torch.from_numpy(array) for name, array in workload.batch(np.random.default_rng(0)).items()}
    run = start(workload, MODES["amp-bf16"], torch.device("cpu"), Options(lr=0.001, zero_grad="set_to_none"))
    train(run, [batch], 2)
    return run


def compared(run: Run, folder: Path) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return ours and torch's own way, by name; each has a file of its own."""
    ours, raw = folder / "ours.pt", folder / "raw.pt"

    def save_raw() -> None:
        torch.save(state.get(run), raw)

    def save_raw_to_the_disk() -> None:
        save_raw()
        with raw.open("rb") as file:
            os.fsync(file.fileno())

    def load_raw() -> state.State:
        loaded: state.State = torch.load(raw, map_location="cpu", weights_only=True)
        return loaded

    def load_raw_into_the_run() -> None:
        loaded = load_raw()
        run.modules["net"].load_state_dict(loaded["modules"]["net"])
        run.optimizers["all"].load_state_dict(loaded["optimizers"]["all"])

    def save() -> None:
        checkpoint.save(run, ours)

    def read() -> None:
        checkpoint.read(ours)

    def load() -> None:
        checkpoint.load(run, ours)

    save()
    save_raw()
    return {
        "save / torch.save": (save, save_raw),
        "save / torch.save, fsync": (save, save_raw_to_the_disk),
        "read / torch.load": (read, load_raw),
        "load / torch.load, put in": (load, load_raw_into_the_run),
    }


def lines(seconds: float) -> Iterator[str]:
    """Yield a line for every size, optimizer and comparison, each timed for `seconds`."""
    for width in WIDTHS:
        for optimizer in OPTIMIZERS:
            run = trained(width, optimizer)
            with TemporaryDirectory() as folder:
                for name, (ours, raw) in compared(run, Path(folder)).items():
                    found = pairs.ratios(ours, raw, seconds)
                    yield pairs.line(f"3 x {width} x {width}, {optimizer:<13} {name}", found)
