"""What a step on the real network shows that can't be trained, or would not resume: refused before any training."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from traceback import extract_tb

import torch

from ampcheck import identity, state
from ampcheck.identity import few, walk
from ampcheck.launch import WAYS_OUT, failure_of
from ampcheck.outputs import outputs_of
from ampcheck.precision import dtype_name
from ampcheck.run import Run
from ampcheck.workloads import Batch, Modules, told

Losses = Callable[[Modules, Batch], Iterable[torch.Tensor]]


@contextmanager
def told_in_one_line(mode: str, batch: Batch, rows: int) -> Iterator[None]:
    """Make one line of what the user's code raises; what is a result, or has words of its own, passes."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # whatever the user's code raises
        if failure_of(error) or any(words in str(error) for words in WAYS_OUT):
            raise
        doubles = [path for path, leaf in walk(batch) if leaf.dtype == torch.float64]
        hint = f"; {few(doubles)} is float64, as numpy's arrays are unless asked for float32" if doubles else ""
        if "dtype" in str(error):
            hint += f"; `nox -s diagnose -- {mode}` names the operation and both dtypes"
        optimizing = any("/torch/optim/" in frame.filename for frame in extract_tb(error.__traceback__))
        key = "train.optimizer, or the workload's own" if optimizing else "workload"
        raise ValueError(f"{key}: in {mode}, on {rows} rows (resume.batch_size): {told(error)}{hint}") from error


@contextmanager
def left_alone(batch: Batch) -> Iterator[None]:
    """Refuse losses that change their batch: every later step would train on something else."""
    before = identity.leaves(batch)
    yield
    if changed := identity.differing(before, identity.leaves(batch)):
        raise ValueError(f"workload: losses changed {few(changed)} of the batch; copy what is changed, as with clone()")


def checked(losses: Losses, dtypes: list[str]) -> Losses:
    """Return `losses` with what it returns checked, and its dtypes put into `dtypes`."""

    def with_checks(modules: Modules, batch: Batch) -> Iterable[torch.Tensor]:
        made = losses(modules, batch)
        if not isinstance(made, Iterable) or isinstance(made, torch.Tensor | Mapping | str):
            kind = "one tensor" if isinstance(made, torch.Tensor) else f"a {type(made).__name__}"
            raise ValueError(f"workload: losses returned {kind}; it must return a list of scalar tensors")
        made = list(made)
        wrong = [_described(loss) for loss in made if not _can_be_trained_on(loss)]
        if wrong or not made:
            raise ValueError(
                f"workload: losses returned {', '.join(wrong) or 'an empty list'}; each must be a scalar tensor of a "
                "floating dtype that depends on the modules' parameters: take a mean, and leave out detach()"
            )
        dtypes.extend(dtype_name(loss.dtype) for loss in made)
        return made

    return with_checks


def admit(run: Run, batch: Batch, loss: float) -> None:
    """Raise ValueError if the first `loss` is not finite, if the state can't be saved, or for outputs of no tensor."""
    if not math.isfinite(loss):
        raise ValueError(
            f"workload: in {run.mode.name} the loss of the first step is {loss}; look at the data and the losses, or "
            f"leave {run.mode.name} out of train.modes; `nox -s diagnose -- {run.mode.name}` finds where it begins"
        )
    try:
        identity.checksums(state.get(run))
    except TypeError as error:
        raise ValueError(f"workload: its state can't be saved: {error}") from error
    outputs_of(run, batch)


def _can_be_trained_on(loss: object) -> bool:
    return isinstance(loss, torch.Tensor) and loss.ndim == 0 and loss.is_floating_point() and loss.requires_grad


def _described(loss: object) -> str:
    if not isinstance(loss, torch.Tensor):
        return f"a {type(loss).__name__}"
    gradient = "" if loss.requires_grad else " without a gradient"
    return f"a tensor of shape {tuple(loss.shape)}, {dtype_name(loss.dtype)}{gradient}"
