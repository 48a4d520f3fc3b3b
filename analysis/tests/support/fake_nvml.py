"""Replaces libnvidia-ml.so.1: one GPU that draws constant power by a clock that the test gives.

monkeypatch.setattr("ctypes.CDLL", lambda name: FakeNvml(clock, watts=500, uuid="GPU-1"))
"""

import math
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED, NOT_FOUND, NOT_LOADED = 3, 6, 9


class FakeNvml:
    """The functions that nvml.py calls; the counter moves every `step` seconds."""

    def __init__(self, clock: Callable[[], float], watts: float, uuid: str, step: float = 0.1) -> None:
        self.clock, self.watts, self.uuid, self.step = clock, watts, uuid, step
        self.loaded = self.counts = self.moves = self.feels = True
        self.open = 0
        self.reading: Callable[[], None] = lambda: None  # what happens while the counter is read

    def nvmlInit_v2(self) -> int:
        self.open += self.loaded
        return 0 if self.loaded else NOT_LOADED

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        return 0 if uuid.decode() == self.uuid else NOT_FOUND

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, millijoules: Any) -> int:
        self.reading()
        steps = math.floor(self.clock() / self.step) if self.moves else 0
        millijoules._obj.value = 7_000_000 + round(steps * self.step * self.watts * 1e3)
        return 0 if self.counts else NOT_SUPPORTED

    def nvmlDeviceGetTemperature(self, device: Any, sensor: int, celsius: Any) -> int:
        celsius._obj.value = 61
        return 0 if self.feels else NOT_SUPPORTED
