"""Joules per launch from NVML's energy counter, for kernels that Python launches; harness/energy.c does it in C.

counter = EnergyCounter.of("GPU-8f6c...")
found = between_moves(counter, burst, launches)     # burst() runs that many launches to their end
"""

import contextlib
import ctypes
import time
from collections.abc import Callable
from typing import Any

LEAST_SECONDS, PATIENCE_SECONDS, BURST_NS = 1.0, 3.0, 5e6


class EnergyCounter:
    """The counter of one GPU. It moves in steps of up to a tenth of a second."""

    def __init__(self, library: Any, device: ctypes.c_void_p) -> None:
        self.library, self.device = library, device

    @classmethod
    def of(cls, uuid: str) -> "EnergyCounter | None":
        """None where NVML is absent or does not know the GPU."""
        device = ctypes.c_void_p()
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                if library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)) == 0:
                    return cls(library, device)
                library.nvmlShutdown()
        return None

    def millijoules(self) -> int | None:
        """Since the driver was loaded; None where the GPU has no such counter."""
        value = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value))
        return None if failed else value.value

    def celsius(self) -> int | None:
        """Temperature of the GPU."""
        value = ctypes.c_uint()
        return None if self.library.nvmlDeviceGetTemperature(self.device, 0, ctypes.byref(value)) else value.value

    def close(self) -> None:
        """Give NVML back."""
        self.library.nvmlShutdown()


def launches_of_a_burst(launch_ns: float) -> int:
    """As many as take five milliseconds: how well the moves of the counter are known."""
    return max(1, int(BURST_NS / launch_ns))


def between_moves(counter: EnergyCounter, burst: Callable[[], None], launches: int) -> dict[str, Any] | None:
    """The object `energy` of a record: what lies between two moves of the counter, a second or more apart.

    None where the counter cannot be read or does not move.
    """
    begin = time.monotonic()
    last = counter.millijoules()
    first, start, done, now = 0, 0.0, 0, begin
    while last is not None and now - begin < PATIENCE_SECONDS:
        burst()
        now = time.monotonic()
        done += launches
        value = counter.millijoules()
        if value == last:
            continue
        last = value
        if value is None or not first:
            first, start, done = value or 0, now, 0
        elif now - start >= LEAST_SECONDS:
            joules = (value - first) / 1e3
            figures = {"joules": joules / done, "watts": joules / (now - start)}
            return figures | {"launches": done, "seconds": now - start, "celsius": counter.celsius()}
    return None
