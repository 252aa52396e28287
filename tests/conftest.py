"""What many tests start from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ampcheck import params, workloads
from ampcheck.schema import Params
from tests.helpers import ROOT, TINY_SIZES, copy_pipeline, tiny

torch.set_num_threads(1)  # a process that has OpenMP's threads can't fork a child that computes: it would wait for ever


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the pipeline without git, nothing run yet."""
    return copy_pipeline(tmp_path / "project")


@pytest.fixture
def raw() -> dict[str, Any]:
    """The committed params.yaml, as read."""
    return params.read(ROOT / "params.yaml")


@pytest.fixture
def tiny_params(raw: dict[str, Any]) -> Params:
    """Validated tiny parameters."""
    tiny(raw)
    return Params.model_validate(raw)


@pytest.fixture
def mlp() -> workloads.Workload:
    """The recipe's network, tiny."""
    return workloads.load("ampcheck.workloads.mlp:build", TINY_SIZES)


@pytest.fixture
def batches(mlp: workloads.Workload) -> list[workloads.Batch]:
    """Four batches as `data.load` returns them."""
    made = [mlp.batch(np.random.default_rng(seed)) for seed in range(4)]
    return [{name: torch.as_tensor(array) for name, array in batch.items()} for batch in made]


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """What a test changes of torch's global settings ends with it."""
    deterministic, precision = torch.are_deterministic_algorithms_enabled(), torch.backends.fp32_precision  # type: ignore[attr-defined]
    yield
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.backends.fp32_precision = precision  # type: ignore[attr-defined]
