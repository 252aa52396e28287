"""The state of every random generator that a step may draw from: torch's, each CUDA device's, numpy's, python's."""

import random
from typing import Any

import numpy as np
import torch


def get() -> dict[str, Any]:
    """Return it as tensors, numbers and strings; "cuda" is empty where CUDA is not in use."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - users' code may draw from it
    name, keys, *numbers = numpy_state
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *numbers],
        "python": [version, torch.tensor(words), gauss],
    }


def put(state: dict[str, Any]) -> None:
    """Set every generator to what `get` returned."""
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *numbers = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *numbers))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
