"""A trial that goes wrong is a result; a mode that is only emulated is trained when asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ampcheck.launch import Failure, _guarded
from tests.helpers import edit_params, run_in

WORKLOAD = """
import os, signal
from pathlib import Path
import torch
from torch import nn
from ampcheck.workloads import Workload

def build(batch_size):
    def losses(modules, batch):
        loss = modules["net"](batch["x"]).square().mean().float()
        fate = Path("fate.txt").read_text()
        if fate == "memory":
            torch.empty(10**15)
        if fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return [loss * (float("nan") if fate == "nan" else 1.0)]

    return Workload(
        modules=lambda: {"net": nn.Linear(4, 4)},
        batch=lambda generator: {"x": generator.standard_normal((batch_size, 4), dtype="float32")},
        losses=losses,
        optimizers=lambda modules, lr: {"sgd": torch.optim.SGD(modules["net"].parameters(), lr=lr)},
    )
"""
FATES = {
    "memory": "out of memory: ",
    "killed": "train fp32, repeat 0: the process was killed by SIGKILL, often for lack of memory",
    "nan": "the loss is nan at step 0 of 8",
}


def trained(project: Path, mode: str) -> dict[str, Any]:
    """Run the train stage, which must end well whatever becomes of its trials, and return a mode's result."""
    ended = run_in(project, "python", "-m", "stages.train", "0")
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads((project / f"results/train/0/{mode}.json").read_text())
    return result


def test_what_goes_wrong_in_a_trial_is_its_result(project: Path) -> None:
    """Out of memory, killed and a loss that is not finite: not trained, with the reason, nulls and no CSV."""
    (project / "doomed.py").write_text(WORKLOAD)
    edit_params(project, lambda raw: raw.update(workload="doomed:build", sizes={"batch_size": 4}))
    edit_params(project, lambda raw: raw["train"].update(modes=["fp32"]))
    for stage in ("environment", "data"):
        assert run_in(project, "python", "-m", f"stages.{stage}").returncode == 0
    for fate, why in FATES.items():
        (project / "fate.txt").write_text(fate)
        result = trained(project, "fp32")

        assert result["trained"] is False
        assert result["why"].startswith(why)
        assert [result[key] for key in ("total_seconds", "peak_bytes", "final_loss", "digest")] == [None] * 4
        assert not (project / "results/train/0/fp32.csv").exists()


def test_an_emulated_mode_is_trained_when_asked_and_says_beforehand_how_long(project: Path) -> None:
    """Where float16 is emulated it is skipped with the figure, and with train.emulated told and trained."""
    edit_params(project, lambda raw: raw["train"].update(modes=["fp32", "amp-fp16"]))
    for stage in ("environment", "data"):
        assert run_in(project, "python", "-m", f"stages.{stage}").returncode == 0
    modes = json.loads((project / "results/modes.json").read_text())
    modes["amp-fp16"] |= {"emulated": True, "why": "float16 matmul is emulated on this CPU, 60 times slower"}
    (project / "results/modes.json").write_text(json.dumps(modes))
    skipped = trained(project, "amp-fp16")
    edit_params(project, lambda raw: raw["train"].update(emulated=True))
    told = run_in(project, "python", "-m", "stages.train", "0").stdout
    result = json.loads((project / "results/train/0/amp-fp16.json").read_text())

    assert (skipped["trained"], skipped["why"]) == (False, modes["amp-fp16"]["why"])
    assert "amp-fp16 is emulated here: about 0.0 minutes for 8 steps" in told
    assert result["trained"] is True
    assert result["optimizer_steps"] + result["skipped_steps"] == result["steps"] == 8
    assert set(result["scaler"]) == {"scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker"}


def test_only_memory_is_a_result() -> None:
    """Any other error of the user's code is not swallowed, and a lack of determinism has a way out."""

    def fail(error: Exception) -> Any:
        def function(_: object) -> None:
            raise error

        return _guarded(function, None)  # type: ignore[arg-type]

    assert fail(MemoryError("Unable to allocate 5 GiB")) == Failure("out of memory: Unable to allocate 5 GiB")
    assert fail(torch.OutOfMemoryError("CUDA out of memory")) == Failure("out of memory: CUDA out of memory")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fail(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(ValueError, match=r"deterministic: got true; .* no such form; set it to false"):
        fail(RuntimeError("histc_cuda does not have a deterministic implementation"))
