"""The report says what the raw files say, found by a second path; the pipeline's own results are tried in theirs."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampcheck import report
from ampcheck.files import read_json, write_json
from ampcheck.schema import Params
from tests.helpers import ROOT, write_results
from tests.second_path import agrees

MODES = {"fp32": 0.05, "amp-fp16": 0.02, "amp-bf16": 0.049}


def rewrite(folder: Path, mode: str, step_seconds: float, random: np.random.Generator) -> None:
    """Give a trial 60 steps with scatter, a warm-up of up to four, and a loss that falls."""
    seconds = step_seconds * np.exp(random.normal(0, 0.04, 60))
    seconds[: random.integers(1, 5)] *= 4
    losses = np.exp(-np.arange(60) / 20) * random.normal(1, 0.01, 60)
    with (folder / f"{mode}.csv").open("w") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("step", "seconds", "loss"), *zip(range(60), seconds, losses, strict=True)]
        )
    changed = {"steps": 60, "total_seconds": float(seconds.sum()), "first_step_seconds": float(seconds[0])}
    changed |= {"final_loss": float(losses[-1]), "peak_bytes": int(random.integers(10**6, 10**8))}
    write_json(folder / f"{mode}.json", read_json(folder / f"{mode}.json") | changed)


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_a_second_path_finds_the_same_figures(raw: dict[str, Any], tmp_path: Path, repeats: int) -> None:
    """Steady step, speed-up with its interval, total, peak, loss and samples a second, of trials with warm-up."""
    raw["train"] |= {"repeats": list(range(repeats)), "epochs": 6}
    raw["data"]["num_batches"] = 10
    params = Params.model_validate(raw)
    write_results(tmp_path / "results", params, {mode: [1.0] * repeats for mode in MODES})
    for repeat in range(repeats):
        for place, (mode, step_seconds) in enumerate(MODES.items()):
            random = np.random.default_rng([repeat, place])
            rewrite(tmp_path / f"results/train/{repeat}", mode, step_seconds, random)
    (tmp_path / "reports").mkdir()
    shutil.copy(ROOT / "reports/template.md.j2", tmp_path / "reports")
    report.write(params, tmp_path / "results", tmp_path / "reports")

    agrees(tmp_path, params.train.modes, params.train.repeats, batch_size=int(params.sizes["batch_size"]))
