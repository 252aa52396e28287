"""A CUDA device's clock, temperature and what holds its clock down, from the driver's library (NVML)."""

from typing import Any

import pynvml
import torch

# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html; a power cap is how many cards always run.
SLOWED = {
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "software thermal slowdown": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "hardware thermal slowdown": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}


def state(device: torch.device) -> dict[str, Any]:
    """Return megahertz and celsius now, and `slowed`, the reasons; {} on a CPU, and `why` where NVML can't tell."""
    if device.type != "cuda":
        return {}
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return {
            "megahertz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "celsius": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "slowed": [name for name, bit in SLOWED.items() if reasons & bit],
        }
    except pynvml.NVMLError as error:
        return {"why": str(error)}
