"""Known ways to seem faster, tried on the made-up GPU: none passes for a measurement.

What a kernel or a library can do to a harness is public: docs/measuring.md names the cases. Each word here makes the
made-up GPU do the same (fake_cuda.c), for bin/v01, which computes everything right without it.
"""

from __future__ import annotations

import json

import pytest
from made_up_gpu import NEEDS_V01, on_fake, records

pytestmark = NEEDS_V01
HONEST, WRONG, IMPOSSIBLE = 0, 1, 3
SHORT = ("--runs", "3", "--check", "all")


def test_an_honest_kernel_passes(driver: str) -> None:
    done = on_fake(driver, "", *SHORT, "--json", "-")
    (record,) = records(done)
    assert done.returncode == HONEST and record["check"]["pass"] and record["check"]["pass_after"]


@pytest.mark.parametrize(
    ("cheat", "when"),
    [
        ("idle", "pass"),  # no work at all
        ("part", "pass"),  # half of the CTAs is left out
        ("coarse", "pass"),  # P in fewer bits than the type has
        ("aliased", "pass"),  # the output lies over an input
        ("escapes", "pass"),  # work goes on where the events do not see it
        ("late", "pass_after"),  # only the first launch works
        ("replay", "pass_after"),  # the first result is written again
        ("clobbers", "pass_after"),  # inputs are changed, so that later launches have others
        ("escapes_later", "pass_after"),  # only the launches behind the checked one escape
    ],
)
def test_a_wrong_output_is_no_measurement(driver: str, cheat: str, when: str) -> None:
    """Before timing nothing is timed; what timed launches leave is compared with the reference too."""
    done = on_fake(driver, f"{cheat},times=1", *SHORT, "--json", "-")
    (record,) = records(done)
    assert done.returncode == WRONG and record["check"][when] is False
    if when == "pass":
        assert record.get("timing") is None
    else:
        assert record["check"]["pass"] is True


def test_events_that_lie_are_no_measurement(driver: str) -> None:
    """The GPU's own timer, which every SM writes before and after, tells a hundred times as much."""
    done = on_fake(driver, "timer", *SHORT, "--json", "-")
    assert done.returncode == IMPOSSIBLE and not done.stdout
    assert "the events say that a launch takes 0.200 ms, the GPU's own timer says 20.00" in done.stderr


def test_events_and_stamps_may_differ_by_what_lies_between(driver: str) -> None:
    """Launches of 1 µs, a tenth of what lies between the stamps beside them."""
    assert on_fake(driver, "times=0.001", *SHORT).returncode == HONEST


def test_work_that_waits_for_the_reader_is_no_measurement(driver: str) -> None:
    """The output is right whenever it is read, and a launch takes no time: faster than the tensor cores."""
    done = on_fake(driver, "lazy", *SHORT, "--json", "-")
    assert done.returncode == IMPOSSIBLE and not done.stdout and "measured peak of the GPU is 99.94" in done.stderr


@pytest.mark.parametrize(("ms", "status"), [("0.0001", HONEST), ("0.00007", IMPOSSIBLE)])
def test_twice_the_measured_peak_is_the_limit(driver: str, ms: str, status: int) -> None:
    """16.8 million operations: 168 TFLOP/s in 100 ns, 240 in 70 ns, where mma.sync reaches 100."""
    assert on_fake(driver, f"times={ms}", *SHORT).returncode == status


def test_a_shortcut_for_known_data_is_seen(driver: str) -> None:
    """Timed launches have other values than the checked one, and the next problem the first ones again."""
    done = on_fake(driver, "replay", "--runs", "1", "--config", "all", "--check", "all", "--json", "-")
    checks = [json.loads(line)["check"] for line in done.stdout.splitlines()]
    assert [(check["pass"], check["pass_after"]) for check in checks] == [(True, False), (False, None)]
    again = on_fake(driver, "", "--runs", "1", "--config", "all", "--check", "all", "--json", "-")
    checks = [json.loads(line)["check"] for line in again.stdout.splitlines()]
    assert [(check["pass"], check["pass_after"]) for check in checks] == [(True, True)] * 2
