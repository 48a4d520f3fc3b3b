"""Joules per launch from NVML's counter, with a counter and a clock that are made up."""

from collections.abc import Iterator
from typing import Any

import pytest

from analysis.measure import nvml
from analysis.tests.support.fake_nvml import FakeNvml

UUID = "GPU-1"


class Clock:
    """Seconds, which only bursts of launches pass."""

    now = 0.0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    Clock.now = 17.03
    made = FakeNvml(lambda: Clock.now, 600, UUID)
    monkeypatch.setattr("ctypes.CDLL", lambda name: made)
    monkeypatch.setattr("time.monotonic", lambda: Clock.now)
    yield made
    assert made.open == 0, "it is given back"


def measured(launch_ns: float) -> dict[str, Any] | None:
    counter = nvml.EnergyCounter.of(UUID)
    assert counter is not None
    launches = nvml.launches_of_a_burst(launch_ns)

    def burst() -> None:
        Clock.now += launches * launch_ns / 1e9

    found = nvml.between_moves(counter, burst, launches)
    counter.close()
    return found


@pytest.mark.parametrize("launch_ns", [1e5, 1.3e6, 4e7])
@pytest.mark.parametrize("step", [0.02, 0.1])
def test_joules_are_watts_times_the_time_of_a_launch(library: FakeNvml, launch_ns: float, step: float) -> None:
    """Known as well as the burst is short: a launch of 40 ms is known to 4 percent."""
    library.step = step
    found = measured(launch_ns)
    within = max(nvml.BURST_NS, launch_ns) / 1e9 * 1.1
    assert found is not None
    assert found["watts"] == pytest.approx(600, rel=within)
    assert found["joules"] == pytest.approx(600 * launch_ns / 1e9, rel=within)
    assert 1 <= found["seconds"] < 1 + 2 * step + within and found["celsius"] == 61
    assert found["launches"] * launch_ns / 1e9 == pytest.approx(found["seconds"])


def test_a_counter_that_does_not_move_or_is_not_there_gives_nothing(library: FakeNvml) -> None:
    library.moves = False
    begin = Clock.now
    assert measured(1e6) is None
    assert 3 <= Clock.now - begin < 3.01, "it is not waited for any longer"
    library.counts = False
    assert measured(1e6) is None


def test_no_thermometer(library: FakeNvml) -> None:
    library.feels = False
    found = measured(1e6)
    assert found is not None and found["celsius"] is None


def test_no_nvml_or_another_gpu(library: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.EnergyCounter.of("GPU-2") is None and library.open == 0
    library.loaded = False
    assert nvml.EnergyCounter.of(UUID) is None

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert nvml.EnergyCounter.of(UUID) is None
