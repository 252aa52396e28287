"""How fast this device is, on random data, warmed up, the best of several: arithmetic and memory."""

import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any, TypeAlias

import torch

from ampcheck.calls import Call

Make: TypeAlias = Callable[[int, torch.device, torch.dtype], tuple[Callable[[], object], int]]
TRIES = 5
LONG_ENOUGH_SECONDS = 0.02  # of one operation: below it, to start it takes a part of its time
BLOCK_SECONDS = 0.005  # of calls that are timed together
COPY_BYTES = 2**27  # beyond the caches of most


def best_rate(make: Make, device: torch.device, dtype: torch.dtype) -> float:
    """Return the best work per second of an operation, doubled until it takes LONG_ENOUGH_SECONDS."""
    best = 0.0
    for doubled in count():
        operation, work = make(2**doubled, device, dtype)
        taken = min(seconds(operation, device) for _ in range(TRIES))
        best = max(best, work / taken)
        if taken >= LONG_ENOUGH_SECONDS:
            break
    return best


def seconds(operation: Callable[[], Any], device: torch.device) -> float:
    """Return how long `operation` takes until the device is done."""
    started = time.perf_counter()
    operation()
    wait_for(device)
    return time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    """Wait until the device is done; a CPU always is."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def alone_seconds(call: Call, device: torch.device) -> float:
    """Return the seconds of one call by itself, as in a row of many: the median of several rows."""
    operation = call.made(device)
    calls = times_in_a_block(operation, device)
    return median(seconds(lambda: [operation() for _ in range(calls)], device) for _ in range(TRIES)) / calls


def times_in_a_block(operation: Callable[[], Any], device: torch.device) -> int:
    """Return how often `operation` must run to take BLOCK_SECONDS, doubled until it does; warms it up."""

    def row(times: int) -> float:
        return seconds(lambda: [operation() for _ in range(times)], device)

    return next(1 << doubled for doubled in count() if row(1 << doubled) >= BLOCK_SECONDS)


def matmul(factor: int, device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], torch.Tensor], int]:
    """Return a product of two square matrices, and its flops."""
    width = 256 * factor
    matrix = torch.randn(width, width, device=device).to(dtype)
    return lambda: matrix @ matrix, 2 * width**3


def convolution(factor: int, device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], torch.Tensor], int]:
    """Return a convolution of `factor` images, and its flops."""
    channels, width = 64, 56
    images = torch.randn(factor, channels, width, width, device=device).to(dtype)
    kernels = torch.randn(channels, channels, 3, 3, device=device).to(dtype)
    flops = 2 * factor * width**2 * channels**2 * 9
    return lambda: torch.nn.functional.conv2d(images, kernels, padding=1), flops


def copies(factor: int, device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], object], int]:
    """Return `factor` copies of a large tensor, and the bytes that they read and write."""
    source = torch.ones(COPY_BYTES // dtype.itemsize, dtype=dtype, device=device)
    target = torch.ones_like(source)
    return lambda: [target.copy_(source) for _ in range(factor)], 2 * COPY_BYTES * factor
