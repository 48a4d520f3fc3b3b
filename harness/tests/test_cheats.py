"""Known ways to seem faster, tried on the made-up GPU: none passes for a measurement.

What a kernel or a library can do to a harness is public: docs/measuring.md names the cases. Each word here makes the
made-up GPU do the same (faulty_cuda.c), for bin/v01, which computes everything right without it.
"""

import json

import numpy as np
import pytest
from made_up_gpu import NEEDS_V01, on_fake, records, timing

from analysis.measure.inputs import philox

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
        ("stale", "pass"),  # ... and the memory already holds a correct output
        ("part", "pass"),  # half of the CTAs is left out
        ("coarse", "pass"),  # P in fewer bits than the type has
        ("aliased", "pass"),  # the output overlaps an input
        ("escapes", "pass"),  # work goes on where the events do not see it
        ("late", "pass_after"),  # only the first launch works
        ("replay", "pass_after"),  # the first result is written again
        ("clobbers", "pass_after"),  # inputs are changed, so that later launches have others
        ("escapes_later", "pass_after"),  # only the launches after the checked one escape
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
    assert "CUDA events report 0.200 ms per launch, but the GPU's global timer reports 20.00" in done.stderr


def test_events_and_stamps_may_differ_by_what_lies_between(driver: str) -> None:
    """Launches of 1 µs, a tenth of the time between the stamps around them."""
    assert on_fake(driver, "times=0.001", *SHORT).returncode == HONEST


def test_work_that_waits_for_the_reader_is_no_measurement(driver: str) -> None:
    """The output is right whenever it is read, and a launch takes no time: faster than the tensor cores."""
    done = on_fake(driver, "lazy", *SHORT, "--json", "-")
    assert done.returncode == IMPOSSIBLE and not done.stdout
    assert "more than the GPU's measured peak of 99.94" in done.stderr


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


def rows_of_the_first_check(wanted: int, total: int, seed: int = 1) -> list[int]:
    """Return the rows that harness/verify.c compares: one of each of as many even pieces of all rows."""
    size = total // wanted
    high, low, *_ = philox(np.arange(wanted), 0xC0FFEE, seed, last=1)
    words = [int(a) << 32 | int(b) for a, b in zip(high, low, strict=True)]
    return [i * size + (word >> 1) % size for i, word in enumerate(words)]


def test_rows_that_are_right_because_they_are_compared(driver: str) -> None:
    """The second check takes others, by a seed that nobody knows."""
    known = ":".join(map(str, rows_of_the_first_check(8, 2 * 128)))
    done = on_fake(driver, f"rows={known}", "--runs", "3", "--check", "8", "--json", "-")
    (record,) = records(done)
    assert done.returncode == WRONG and (record["check"]["pass"], record["check"]["pass_after"]) == (True, False)


def test_what_persists_in_the_l2_is_flushed_all_the_same(driver: str) -> None:
    """A launch that keeps its tensors in a part of the L2 takes as long as one that does not: each sample ends that."""
    assert timing(driver, "", *SHORT, "--hot")["samples_ns"] == [16e6] * 3
    for how in ("", "persists", "persists,no_persisting"):
        assert timing(driver, how, *SHORT, "--cold")["samples_ns"] == ([16e6] * 3 if "no" in how else [20e6] * 3)
