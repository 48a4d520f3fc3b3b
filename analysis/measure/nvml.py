"""Time and joules of launches that follow each other, for kernels of Python; harness/energy.c does it in C.

counter = EnergyCounter.of("GPU-8f6c...")
found = between_moves(counter, bursts)      # which queues launches, and tells when they have ended
"""

import contextlib
import ctypes
import time
from dataclasses import dataclass
from typing import Any, Protocol

REST_SECONDS, HEAT_SECONDS, LEAST_SECONDS = 1.0, 2.0, 1.0
PATIENCE_SECONDS = HEAT_SECONDS + 3
BURST_NS, MOST_LAUNCHES = 5e7, 400  # of a burst: reading the counter takes a tenth of that
QUEUED = 2  # bursts at a time


@dataclass(frozen=True)
class Burst:
    """Launches that were queued together and have ended."""

    launches: int
    ns: float  # from the first to the end of the last
    idle_ns: float  # before them, since the end of the burst before; 0 for the first


class Bursts(Protocol):
    """The program that runs the launches."""

    def queue(self) -> None:
        """Queue a burst after those that are queued, and do not wait for it."""

    def take(self) -> Burst | None:
        """The oldest burst, if it has ended."""


class EnergyCounter:
    """The counter of one GPU. It moves in steps of up to a tenth of a second."""

    def __init__(self, library: Any, device: ctypes.c_void_p) -> None:
        self.library, self.device = library, device

    @classmethod
    def of(cls, uuid: str) -> "EnergyCounter | None":
        """None where NVML is absent or does not know the GPU."""
        return cls._opened("nvmlDeviceGetHandleByUUID", uuid)

    @classmethod
    def at(cls, bus_id: str) -> "EnergyCounter | None":
        """The device by its PCI address, as the driver writes it: 0000:18:00.0."""
        return cls._opened("nvmlDeviceGetHandleByPciBusId_v2", bus_id)

    @classmethod
    def _opened(cls, entry: str, name: str) -> "EnergyCounter | None":
        device = ctypes.c_void_p()
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                if getattr(library, entry)(name.encode(), ctypes.byref(device)) == 0:
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
    """As many as take fifty milliseconds, but not more than can be queued."""
    return min(MOST_LAUNCHES, max(1, int(BURST_NS / launch_ns)))


def between_moves(counter: EnergyCounter, bursts: Bursts) -> dict[str, Any] | None:
    """The object `energy` of a record: a burst after a second of rest, and two seconds later the launches between two
    moves of the counter, a second or more apart.

    The counter is read while bursts are queued: the GPU does not wait for the host. None where the counter cannot be
    read or does not move.
    """
    time.sleep(REST_SECONDS)
    celsius = counter.celsius()
    bursts.queue()
    while (burst := bursts.take()) is None:
        pass
    first = {"first_ns": burst.ns / burst.launches, "first_celsius": celsius}
    for _ in range(QUEUED):
        bursts.queue()
    found = _watch(counter, bursts)
    for _ in range(QUEUED):
        while bursts.take() is None:
            pass
    return found and first | found


def _watch(counter: EnergyCounter, bursts: Bursts) -> dict[str, Any] | None:
    begin = now = time.monotonic()
    last = counter.millijoules()
    first, start = 0, 0.0
    ended: list[Burst] = []
    while last is not None and now - begin < PATIENCE_SECONDS:
        ended += _keep_busy(bursts)
        value = counter.millijoules()
        now = time.monotonic()
        if value == last:
            continue
        last = value
        if now - begin < HEAT_SECONDS:
            continue
        if value is None or not first:
            first, start, ended = value or 0, now, []
        elif now - start >= LEAST_SECONDS and ended:
            return _figures(ended, (value - first) / 1e3, now - start) | {"celsius": counter.celsius()}
    return None


def _keep_busy(bursts: Bursts) -> list[Burst]:
    """The bursts that have ended; as many are queued."""
    ended: list[Burst] = []
    while len(ended) < QUEUED and (burst := bursts.take()):
        ended.append(burst)
        bursts.queue()
    return ended


def _figures(ended: list[Burst], joules: float, seconds: float) -> dict[str, Any]:
    """Power by the counter and the host's clock, times a launch's share of the GPU's time."""
    launches, idle_ns = sum(burst.launches for burst in ended), sum(burst.idle_ns for burst in ended)
    all_ns = sum(burst.ns for burst in ended) + idle_ns
    watts = joules / seconds
    figures = {
        "launch_ns": (all_ns - idle_ns) / launches,
        "joules": watts * all_ns / launches / 1e9,
        "watts": watts,
        "launches": launches,
        "seconds": seconds,
    }
    return figures | {"idle": idle_ns / all_ns}
