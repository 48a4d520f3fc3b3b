"""Joules of a launch on a made-up GPU (faulty_cuda.c) whose NVML (fake_nvml.c) counts 700 W.

flash_forward takes 0.8 ms where the L2 holds its tensors and 1 ms where it does not.
"""

from typing import Any

import pytest
from made_up_gpu import NEEDS_V01, on_fake, records

pytestmark = NEEDS_V01
FAST = "times=1"


def energy(driver: str, nvml: str, *arguments: str, how: str = FAST) -> tuple[dict[str, Any] | None, str]:
    """The object of one record, and what was said on stderr."""
    done = on_fake(driver, how, "--runs", "2", "--json", "-", *arguments, FAKE_NVML=f"open,{nvml}")
    assert done.returncode == 0
    (record,) = records(done)
    found: dict[str, Any] | None = record["energy"]
    return found, done.stderr


@pytest.mark.parametrize("step", [20, 100, 170])
def test_joules_are_watts_times_the_time_of_a_launch(driver: str, step: int) -> None:
    """Launches follow each other, the tensors in the L2. The counter's steps are no error: its moves are waited for."""
    found, said = energy(driver, f"step={step}", "--energy")
    assert found is not None and "NVML is open 0 times" in said
    assert found["watts"] == pytest.approx(700, rel=0.006)
    assert found["joules"] == pytest.approx(700 * 0.8e-3, rel=0.006)
    assert 1 <= found["seconds"] < 1 + 2 * step / 1e3
    assert found["seconds"] / found["launches"] == pytest.approx(0.8e-3, rel=0.06), "those of whole bursts"
    assert found["sm_clock_hz"] == pytest.approx(1.5e9) and found["celsius"] == 54
    assert found["launch_ns"] == pytest.approx(0.8e6, rel=1e-3)


@pytest.mark.parametrize("read", [5, 40])
def test_launches_go_on_while_the_counter_is_read(driver: str, read: int) -> None:
    """A burst takes 40 ms, and two are queued."""
    found, _ = energy(driver, f"read={read}", "--energy")
    assert found is not None and found["idle"] < 0.001
    assert found["joules"] == pytest.approx(700 * 0.8e-3, rel=0.006 + read / 1e3)


def test_the_first_burst_comes_behind_a_rest(driver: str) -> None:
    """This GPU is slower from 60 ms after work began on, as one at its power limit, until it rested for a second."""
    found, _ = energy(driver, "", "--energy", how=f"{FAST},tires")
    assert found is not None
    assert found["first_ns"] == pytest.approx(0.8e6, rel=1e-3)
    assert found["first_sm_clock_hz"] == pytest.approx(1.5e9) and found["first_celsius"] == 54
    assert found["launch_ns"] == pytest.approx(1.0e6, rel=1e-3)
    text = on_fake(driver, f"{FAST},tires", "--energy").stdout
    assert "at first" in text and "sustained" in text


def test_waits_between_bursts_are_told(driver: str) -> None:
    """The counter takes 200 ms to read, in which two bursts of 40 ms end."""
    found, _ = energy(driver, "read=200", "--energy")
    assert found is not None and found["idle"] == pytest.approx(0.6, abs=0.01)
    assert found["joules"] == pytest.approx(700 * 2e-3, rel=0.01)
    assert "60.0 % idle" in on_fake(driver, FAST, "--energy", FAKE_NVML="read=200").stdout


def test_energy_is_measured_where_it_is_asked_for(driver: str) -> None:
    found, said = energy(driver, "")
    assert found is None and "NVML" not in said.replace("NVML is open 0 times", "")
    text = on_fake(driver, FAST, "--energy").stdout
    assert "SM 1500 MHz\n  0.56 J per launch at 700 W, " in text and "over 1." in text


@pytest.mark.parametrize("nvml", ["broken", "elsewhere", "still", "uncounted"])
def test_without_a_counter_the_field_is_null_and_a_line_says_so(driver: str, nvml: str) -> None:
    found, said = energy(driver, nvml, "--energy")
    assert found is None
    assert "--energy: NVML is missing or its energy counter does not advance; install NVML or remove --energy" in said
    assert nvml == "broken" or "NVML is open 0 times" in said


def test_a_gpu_without_a_thermometer(driver: str) -> None:
    found, _ = energy(driver, "numb", "--energy")
    assert found is not None and found["celsius"] is None
