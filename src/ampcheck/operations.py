"""What a step calls: its matmuls and convolutions with their shapes, the bytes of the rest, and what waits.

Flops are those of torch's own counter, which counts what an operation means: a convolution may take fewer.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ampcheck.calls import Call, Like
from ampcheck.paths import users_line

WAITING = {"aten._local_scalar_dense": "item()", "aten.nonzero": "nonzero()", "aten.equal": "equal()"}


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
        self.made_bytes = 0  # by operations without flops, since the last with some

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
        if str(packet) in WAITING and (where := users_line()):
            self.found.waits[f"{WAITING[str(packet)]} in {where}"] += 1
        tensors = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
        dense = _dense(args, kwargs, out)
        if packet in flop_registry and len(dense) == len(tensors):
            flops = flop_registry[packet](*args, **kwargs, out_val=out)
            call = Call(operation=func, args=_hashable(args), flops=int(flops), made_before_bytes=self.made_bytes)
            self.found.calls.append(call)
            self.made_bytes = 0
        elif not func.is_view:
            self.found.moved_bytes += sum(tensor.nbytes for tensor in dense)
            places = {tensor.data_ptr() for tensor in _dense(args, kwargs)}
            self.made_bytes += sum(tensor.nbytes for tensor in _dense(out) if tensor.data_ptr() not in places)
        return out


def _dense(*trees: object) -> list[torch.Tensor]:
    leaves = (leaf for leaf in tree_leaves(trees) if isinstance(leaf, torch.Tensor))
    return [tensor for tensor in leaves if tensor.layout == torch.strided]


def _hashable(args: Any) -> Any:  # noqa: ANN401 - of an operation
    if isinstance(args, list | tuple):
        return tuple(_hashable(each) for each in args)
    if isinstance(args, torch.Tensor):
        return Like(tuple(args.shape), args.stride(), args.dtype, args.data_ptr())
    return args
