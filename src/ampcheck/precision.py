"""The modes of precision, as rows of a table: the only module that names one.

It loads no torch, so that parameters can be checked without it; dtypes are torch's names for them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A name and what it sets, nothing else: the training loop has no branch on it.

    `fp32_precision` is torch's setting of that name for float32 matmul *and* convolution ("ieee" or "tf32"):
    https://docs.pytorch.org/docs/stable/notes/cuda.html
    """

    name: str
    dtype: str
    autocast: bool
    scaler: bool
    fp32_precision: str


def dtype_name(dtype: object) -> str:
    """Return torch's name of one of its dtypes, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


MODES = {
    mode.name: mode
    for mode in (
        Mode(name="fp32", dtype="float32", autocast=False, scaler=False, fp32_precision="ieee"),
        Mode(name="tf32", dtype="float32", autocast=False, scaler=False, fp32_precision="tf32"),
        Mode(name="amp-fp16", dtype="float16", autocast=True, scaler=True, fp32_precision="ieee"),
        Mode(name="amp-bf16", dtype="bfloat16", autocast=True, scaler=False, fp32_precision="ieee"),
    )
}
