"""Tensors without memory, under CUDA's rules: what torch would allocate on a GPU, found without one.

The tensors are fake ones of the CPU, since a torch without CUDA can't differentiate fake tensors of "cuda"; so the
figure is the same on every machine. What CUDA does otherwise is put in the CPU's place: which operations autocast runs
in float32, dropout's mask of one byte an element, foreach optimizers. Both helpers change the process: call in a child.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any
from unittest.mock import patch
from warnings import catch_warnings, simplefilter

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import Library, fallthrough_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ampcheck.refusals import HALF
from ampcheck.workloads import Optimizers

# What autocast knows on CUDA only, but does not run in float32: what takes the widest type among its inputs, and what
# is made of operations that the CPU's autocast knows too.
# https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
NOT_FLOAT32 = {"addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "index_put", "scatter_add", "tensordot"}
NOT_FLOAT32 |= {"vdot", "addmv", "addr", "mv", "chain_matmul", "einsum", "linalg_multi_dot", "gru_cell", "lstm_cell"}
NOT_FLOAT32 |= {"rnn_relu_cell", "rnn_tanh_cell", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "convolution"}
NOT_FLOAT32 |= {"_convolution", "cudnn_convolution", "cudnn_convolution_transpose"}
NOT_FLOAT32 |= {"_scaled_dot_product_flash_attention"}
# What CUDA computes from float16 to float32 in one operation, without a copy of its input; not so from bfloat16.
WITHOUT_A_COPY = {"softmax": torch._softmax, "log_softmax": torch._log_softmax}  # noqa: SLF001
# The mean that these return keeps the storage of all the elements that it was made of: torch only changes its shape.
KEEP_THEIR_ELEMENTS = {"mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy"}


class _AsReal(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Mends where fake tensors are unlike real ones: in their numbers, and in the storage of some losses.

    Whoever reads a number gets an answer: GradScaler that it found no inf, all others 1, since Adam divides by what it
    makes of the step that it reads.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found_inf: torch.Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default:
            self.found_inf = args[1]
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001 - what item() calls
            return (float if args[0].is_floating_point() else int)(args[0] is not self.found_inf)
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in KEEP_THEIR_ELEMENTS:
            made.untyped_storage().resize_(args[0].nbytes)
        return made


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make every tensor within a fake one: with dtype, shape and storage, but without memory and numbers."""
    # Fake parameters can't be moved, and are where they belong.
    stay = patch.object(torch.nn.Module, "to", lambda module, *_, **__: module)
    with stay, FakeTensorMode(allow_non_fake_inputs=True), _AsReal():
        yield


@contextmanager
def cuda_rules() -> Iterator[None]:
    """Give the CPU's autocast the lists of CUDA's, and its dropout the mask of CUDA's, until the end."""
    on_cuda, on_cpu = _known_to_autocast("CUDA"), _known_to_autocast("CPU")
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # that kernels are replaced, which is the purpose
        for name in on_cuda.keys() - on_cpu.keys():
            if name.partition(".")[0] not in NOT_FLOAT32:
                library.impl(on_cuda[name], _in_float32(on_cuda[name]), "AutocastCPU")  # type: ignore[no-untyped-call]
        for name in on_cpu.keys() - on_cuda.keys():
            library.impl(on_cpu[name], fallthrough_kernel, "AutocastCPU")  # type: ignore[no-untyped-call]
        library.impl("dropout", _dropout, "AutogradCPU")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call] # noqa: SLF001


def choose_foreach(optimizers: Optimizers) -> None:
    """Have the optimizers update all weights at once, with temporaries for all, as by default on CUDA."""
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = not group.get("differentiable")


def _known_to_autocast(device: str) -> dict[str, Any]:
    """Return torch's own operations that autocast has a rule for, by name and overload, such as "softmax.int"."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{device}")  # noqa: SLF001
    own = [name.removeprefix("aten::") for name in names if name.startswith("aten::")]
    return {name: attrgetter(name if "." in name else f"{name}.default")(torch.ops.aten) for name in own}


def _in_float32(operation: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Return the operation with its inputs cast to float32, or told to compute in it if it takes a dtype."""
    names = [argument.name for argument in operation._schema.arguments]  # noqa: SLF001
    at_once = WITHOUT_A_COPY.get(operation.overloadpacket.__name__)

    def kernel(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        given = dict(zip(names, args, strict=False)) | kwargs
        if at_once and given["self"].dtype is torch.float16 and given.get("dtype") in (None, torch.float32):
            return at_once(given["self"], given["dim"], True)
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):  # noqa: SLF001
            return operation(**(_told(given) if "dtype" in names else tree_map(_cast, given)))

    return kernel


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    first = next(iter(given.values()))
    wanted = given.get("dtype") or (torch.float32 if _cast(first) is not first else None)
    return {**given, "dtype": wanted}


def _cast(value: Any) -> Any:  # noqa: ANN401
    sixteen_bits = isinstance(value, torch.Tensor) and value.dtype in HALF
    return value.float() if sixteen_bits else value


def _dropout(x: torch.Tensor, p: float, train: bool) -> Any:  # noqa: ANN401
    if train and 0 < p < 1:
        return torch.native_dropout(x, p, train)[0]
    return torch.ops.aten.dropout.default.decompose(x, p, train)
