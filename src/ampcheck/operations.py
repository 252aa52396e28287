"""What a step calls: its matmuls and convolutions with their shapes, the bytes of the rest, and what waits.

Flops are those of torch's own counter, which counts what an operation means: a convolution may take fewer.
"""

import math
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from ampcheck.precision import dtype_name

MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")
WAITING = {"aten._local_scalar_dense": "item()", "aten.nonzero": "nonzero()", "aten.equal": "equal()"}
OURS, TORCH = Path(__file__).parent, Path(torch.__file__).parent


@dataclass(frozen=True, slots=True)
class Like:
    """A tensor's shape, order in memory and dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> torch.Tensor:
        """Return a tensor of random numbers that is laid out alike, without gaps."""
        order = sorted(range(len(self.shape)), key=lambda dimension: -self.strides[dimension])
        dense = torch.randn([self.shape[each] if self.strides[each] else 1 for each in order], device=device)
        return dense.to(self.dtype).permute([order.index(each) for each in range(len(order))]).expand(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operation with flops, and what it was called with: tensors as Like."""

    operation: Callable[..., Any]
    args: tuple[Any, ...]
    flops: int

    @property
    def name(self) -> str:
        """The operation's name, such as "aten.mm"."""
        return str(self.operation).removesuffix(".default")

    @property
    def tensors(self) -> list[Like]:
        """Those that have rows and columns: no bias."""
        return [leaf for leaf in tree_leaves(self.args) if isinstance(leaf, Like) and len(leaf.shape) > 1]

    @property
    def dtype(self) -> str:
        """Torch's name of the type that is computed in."""
        return dtype_name(self.tensors[0].dtype)

    @property
    def operands(self) -> str:
        """Describe the operands: "512 x 1024, 1024 x 1024"."""
        return ", ".join(" x ".join(map(str, each.shape)) for each in self.tensors)

    def made(self, device: torch.device) -> Callable[[], Any]:
        """Return the call with operands of its own."""
        args = tree_map(lambda leaf: leaf.made(device) if isinstance(leaf, Like) else leaf, self.args)
        return lambda: self.operation(*args)

    @property
    def nbytes(self) -> int:
        """Bytes of the operands."""
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in self.tensors)

    def padded(self, dimension: int, to: int) -> "Call":
        """Return the matmul with every row and column count of `dimension` raised to `to`."""

        def wider(leaf: object) -> object:
            if not isinstance(leaf, Like):
                return leaf
            matrix = tuple(to if each == dimension else each for each in leaf.shape[-2:])
            return replace(leaf, shape=leaf.shape[:-2] + matrix)

        return replace(self, args=tree_map(wider, self.args))


@dataclass(slots=True)
class Operations:
    """What was called: `calls` in their order, `moved_bytes` read and written by the rest, `waits` by line.

    Sparse tensors are left out.
    """

    calls: list[Call] = field(default_factory=list)
    moved_bytes: int = 0
    waits: Counter[str] = field(default_factory=Counter)


class Recorder(TorchDispatchMode):
    """Notes every operation below autograd and autocast, forward and backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = Operations()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's interface
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        if str(packet) in WAITING and (where := _line_of_the_workload()):
            self.found.waits[f"{WAITING[str(packet)]} in {where}"] += 1
        tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
        dense = [tensor for tensor in tensors if tensor.layout == torch.strided]
        if packet in flop_registry and len(dense) == len(tensors):
            flops = flop_registry[packet](*args, **kwargs, out_val=out)
            self.found.calls.append(Call(operation=func, args=_hashable(args), flops=int(flops)))
        elif not func.is_view:
            self.found.moved_bytes += sum(tensor.nbytes for tensor in dense)
        return out


def _hashable(args: Any) -> Any:  # noqa: ANN401 - of an operation
    if isinstance(args, list | tuple):
        return tuple(_hashable(each) for each in args)
    return Like(tuple(args.shape), args.stride(), args.dtype) if isinstance(args, torch.Tensor) else args


def _line_of_the_workload() -> str:
    """Name the innermost line that is not torch's; empty if it is a line of our loop: of the scaler's, that is."""
    lines = ((Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_stack(None))
    file, line = next((file, line) for file, line in lines if TORCH not in file.parents and file != Path(__file__))
    ours = OURS in file.parents and "workloads" not in file.parts
    return "" if ours else f"{file.name}, line {line}"
