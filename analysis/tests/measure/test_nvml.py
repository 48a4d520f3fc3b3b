"""Joules per launch from NVML's counter, with a counter and a clock that are made up."""

from collections.abc import Iterator
from typing import Any

import pytest

from analysis.measure import nvml
from analysis.tests.support.fake_nvml import FakeNvml

UUID = "GPU-1"


class Clock:
    """Seconds of the host, which looking at the GPU and reading the counter pass."""

    now = 0.0


class Gpu:
    """Runs bursts one after another, in parallel with the host."""

    def __init__(self, launch_ns: float) -> None:
        self.launch_ns, self.launches = launch_ns, nvml.launches_of_a_burst(launch_ns)
        self.queued: list[tuple[float, float]] = []  # when each starts and ends
        self.ends = [Clock.now]

    def queue(self) -> None:
        assert len(self.queued) < nvml.QUEUED
        start = max(Clock.now, self.ends[-1])
        self.ends.append(start + self.launches * self.launch_ns / 1e9)
        self.queued.append((start, self.ends[-1]))

    def take(self) -> nvml.Burst | None:
        Clock.now += 1e-4
        start, end = self.queued[0]
        if Clock.now < end:
            return None
        del self.queued[0]
        before = self.ends[self.ends.index(end) - 1]
        return nvml.Burst(self.launches, (end - start) * 1e9, (start - before) * 1e9)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    Clock.now = 17.03
    made = FakeNvml(lambda: Clock.now, 600, UUID)
    monkeypatch.setattr("ctypes.CDLL", lambda name: made)
    monkeypatch.setattr("time.monotonic", lambda: Clock.now)
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(Clock, "now", Clock.now + seconds))
    yield made
    assert made.open == 0, "it is given back"


def measured(launch_ns: float) -> dict[str, Any] | None:
    counter = nvml.EnergyCounter.of(UUID)
    assert counter is not None
    gpu = Gpu(launch_ns)
    found = nvml.between_moves(counter, gpu)
    counter.close()
    assert not gpu.queued, "nothing is left running"
    return found


def reading_takes(library: FakeNvml, seconds: float) -> None:
    def wait() -> None:
        Clock.now += seconds

    library.reading = wait


@pytest.mark.parametrize("launch_ns", [1e4, 1e5, 1.3e6, 4e7, 3e8])
@pytest.mark.parametrize("step", [0.02, 0.1])
def test_joules_are_watts_times_the_time_of_a_launch(library: FakeNvml, launch_ns: float, step: float) -> None:
    """Launches continue while the counter is read, which takes 3 ms."""
    library.step = step
    reading_takes(library, 3e-3)
    found = measured(launch_ns)
    assert found is not None
    assert found["watts"] == pytest.approx(600, rel=0.01)
    assert found["joules"] == pytest.approx(600 * launch_ns / 1e9, rel=0.01)
    assert found["idle"] == pytest.approx(0, abs=1e-9) and found["celsius"] == 61
    assert 1 <= found["seconds"] < 1 + 2 * step + 0.01
    assert found["launches"] * launch_ns / 1e9 == pytest.approx(found["seconds"], abs=max(0.1, 2 * launch_ns / 1e9))


def test_no_nvml_or_another_gpu(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.EnergyCounter.of("GPU-2") is None and library.open == 0
    library.loaded = False
    assert nvml.EnergyCounter.of(UUID) is None

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert nvml.EnergyCounter.of(UUID) is None
