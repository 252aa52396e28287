"""Binary cross entropy of probabilities in 16 bits, which round them to 0 or 1; on CUDA autocast refuses it."""

from typing import Any

from torch.overrides import TorchFunctionMode

from ampcheck.paths import users_line
from ampcheck.refusals import HALF


class Probabilities(TorchFunctionMode):
    """Notes the lines that give binary_cross_entropy, or BCELoss, probabilities in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Call one function of torch's, as the workload does, before autocast casts what it is given."""
        kwargs = kwargs or {}
        given = [*args, *kwargs.values()]
        if getattr(func, "__name__", "") == "binary_cross_entropy" and any(each.dtype in HALF for each in given[:1]):
            self.lines.append(users_line() or "in the losses")
        return func(*args, **kwargs)
