"""The bytes of all tensors that live at once: on a CPU as on CUDA, of real tensors as of fake ones.

Every operation that torch dispatches is seen, forward, backward and optimizer alike, and with it every storage that is
made; it counts until it dies. Not seen: what an operation allocates and frees inside itself (the squared differences
of mse_loss, a reduction's scratch), and the workspaces of libraries such as cuBLAS and cuDNN.
"""

import weakref
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ampcheck.refusals import HALF
from ampcheck.run import Run
from ampcheck.training import train
from ampcheck.workloads import Batch

DATA, PARAMETERS, GRADIENTS, OPTIMIZER_STATE = "data", "parameters", "gradients", "optimizer_state"
HOST = "host"  # counts of steps, which torch keeps off the device unless told otherwise
COPIES, ACTIVATIONS = "copies_in_16_bits", "activations"
KINDS = (DATA, PARAMETERS, GRADIENTS, OPTIMIZER_STATE, COPIES, ACTIVATIONS)
GRANULES = {"cpu": 1, "cuda": 512}  # bytes; the CUDA caching allocator gives out multiples of it
STEPS = 2  # the first makes the optimizer's state, and gradients that stay as zeros; later ones are like the second


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered it books the storages on `device`, in multiples of `granule` bytes, as they come and go.

    `events` has one entry a change: the number of a storage, and by how many bytes it grew. What a storage is for may
    be known only later, as with gradients: `take` says so at any time.
    """

    def __init__(self, device: torch.device, granule: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.granule = device, granule
        self.events: list[tuple[int, int]] = []
        self._sizes: list[int] = []  # by number, as booked
        self._kinds: dict[int, str] = {}
        self._alive: dict[int, int] = {}  # a storage's address -> its number

    def take(self, tensor: torch.Tensor, kind: str = "") -> None:
        """Book the storage of `tensor`, unless it is booked already, at the size that it has now; set its kind."""
        if tensor.device.type != self.device.type:
            return
        for part in _strided(tensor):
            storage = part.untyped_storage()
            number = self._alive.get(storage._cdata)  # noqa: SLF001 - a tensor's storage has no public identity
            if number is None:
                number = self._alive[storage._cdata] = len(self._sizes)  # noqa: SLF001
                self._sizes.append(0)
                weakref.finalize(storage, self._freed, storage._cdata).atexit = False  # noqa: SLF001
            self._resized(number, -(-storage.nbytes() // self.granule) * self.granule)
            if kind:
                self._kinds[number] = kind

    def split_at_peak(self) -> dict[str, int]:
        """Return the bytes of each of KINDS at the moment when all together were most: their sum is the peak."""
        events = [(number, grown) for number, grown in self.events if self._kinds.get(number) != HOST]
        levels = list(accumulate(grown for _, grown in events))
        split = dict.fromkeys(KINDS, 0)
        for number, grown in events[: levels.index(max(levels)) + 1]:
            split[self._kinds.get(number, ACTIVATIONS)] += grown
        return split

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.take(tensor)
        if func is torch.ops.aten._to_copy.default and made.dtype in HALF and self._is_parameter(args[0]):  # noqa: SLF001
            self.take(made, COPIES)
        return made

    def _is_parameter(self, tensor: torch.Tensor) -> bool:
        numbers = [self._alive.get(part.untyped_storage()._cdata, -1) for part in _strided(tensor)]  # noqa: SLF001
        return any(self._kinds.get(number) == PARAMETERS for number in numbers)

    def _resized(self, number: int, nbytes: int) -> None:
        if nbytes != self._sizes[number]:
            self.events.append((number, nbytes - self._sizes[number]))
            self._sizes[number] = nbytes

    def _freed(self, address: int) -> None:
        self._resized(self._alive.pop(address), 0)


def peak_of(run: Run, batches: list[Batch], granule: int) -> dict[str, int]:
    """Train `run`, which is thrown away, for STEPS steps, and return the bytes of its tensors at their peak, by kind.

    Its tensors, and `batches`, count from the beginning.
    """
    ledger = Ledger(run.device, granule)

    def book_gradient(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        ledger.take(parameter.grad, GRADIENTS)

    for leaf in tree_leaves(batches):
        ledger.take(leaf, DATA)
    for module in run.modules.values():
        for tensor in (*module.parameters(), *module.buffers()):
            ledger.take(tensor, PARAMETERS)
            if tensor.requires_grad:
                tensor.register_post_accumulate_grad_hook(book_gradient)  # type: ignore[no-untyped-call]
    with ledger:
        train(run, batches, run.step + STEPS)
    for optimizer in run.optimizers.values():
        on_device = any(group.get("capturable") or group.get("fused") for group in optimizer.param_groups)
        for name, tensor in ((name, each) for state in optimizer.state.values() for name, each in state.items()):
            if isinstance(tensor, torch.Tensor):
                ledger.take(tensor, OPTIMIZER_STATE if name != "step" or on_device else HOST)
    return ledger.split_at_peak()


def _strided(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield what holds the numbers: of a sparse gradient its indices and its values."""
    if tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())  # noqa: SLF001 - the public ones want it coalesced
    elif tensor.layout is torch.strided:
        yield tensor
