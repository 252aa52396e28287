"""A run that only skips will not recover by itself: it is stopped, and told why."""

import torch

# A scale of 65536 survives 143 skips; below 2^-127 even a finite step would write inf or nan into the weights.
SKIPS_IN_A_ROW = 50


class RunawayError(RuntimeError):
    """A run that only skips: it will not recover by itself."""


def stop_a_runaway(scales: torch.Tensor, step: int) -> None:
    """RunawayError if every step lowered the scale; `scales` holds it before SKIPS_IN_A_ROW steps and after each.

    To look waits for the device.
    """
    if bool((scales.diff() < 0).all()):
        raise RunawayError(
            f"stopped at step {step}: the scaler skipped {SKIPS_IN_A_ROW} steps in a row, down to a scale of "
            f"{scales[-1].item():.3g}; a loss or gradient is inf or nan whatever the scale, so look at the data, at "
            "divisions, logarithms and exponentials in the network, and whether fp32 trains; what its gradients reach "
            "is as it was before"
        )
