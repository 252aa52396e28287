"""The modes of precision, as rows of a table: the only module that names one.

It loads no torch, so that parameters can be checked without it; dtypes are torch's names for them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What a mode sets, and nothing else: the training loop has no branch on it.

    `fp32_precision` is torch's setting of that name for float32 matmul *and* convolution ("ieee" or "tf32"):
    https://docs.pytorch.org/docs/stable/notes/cuda.html
    """

    dtype: str
    autocast: bool
    scaler: bool
    fp32_precision: str


MODES = {
    "fp32": Mode(dtype="float32", autocast=False, scaler=False, fp32_precision="ieee"),
    "tf32": Mode(dtype="float32", autocast=False, scaler=False, fp32_precision="tf32"),
    "amp-fp16": Mode(dtype="float16", autocast=True, scaler=True, fp32_precision="ieee"),
    "amp-bf16": Mode(dtype="bfloat16", autocast=True, scaler=False, fp32_precision="ieee"),
}
