"""Timing on a fake GPU whose clock is exact (faulty_cuda.c): samples, records and conclusions.

flash_forward takes 20 ms, a fifth less where the L2 holds its tensors; filling 16 bytes takes 1 ns, a stamp 1 µs.
"""

import csv
import io
import re
import statistics
import subprocess
from pathlib import Path

import pytest
from made_up_gpu import NEEDS_V01, NOISY, ROOT, SLOW, made_up, on_fake, records, run, timing

pytestmark = NEEDS_V01
COLD, HOT = 20e6, 16e6  # ns
FLUSH = 1 << 24  # bytes
OUTPUT = 2 * 128 * 128 * 2  # bytes
PERSISTENCE = ["set_aside", "reset_persisting"]  # no line of the L2 persists any longer: what another subject left, too
TIMED = ["stamp_clocks", "record", "flash_forward", "record", "stamp_clocks"]


def stream(driver: str, how: str, *arguments: str) -> list[str]:
    """Return what the stream ran, in its order, without the kernels' shapes."""
    lines = on_fake(driver, f"log,{how}", *arguments).stderr.splitlines()
    return [line.split()[0] if not line.startswith("memset") else line.split(" of ")[0] for line in lines]


def test_the_timed_window_holds_the_launch_alone(driver: str) -> None:
    """Neither the flush, the stamps nor the held stream are timed."""
    cold = timing(driver, "", "--runs", "5", "--warmup", "2")
    assert cold["samples_ns"] == [COLD] * 5 and cold["mode"] == "cold"
    assert timing(driver, "", "--runs", "5", "--hot")["samples_ns"] == [HOT] * 5
    each = COLD + FLUSH / 16 + 2e3
    assert cold["wall_s"] == pytest.approx(7 * each / 1e9, rel=1e-5), "and the stream is never held for long"


@pytest.mark.parametrize("l2", [1 << 20, 12 << 20])
def test_cold_flushes_twice_the_l2_before_each_sample(driver: str, l2: int) -> None:
    sample = [*PERSISTENCE, "hold_stream", f"memset {max(2 * l2, FLUSH)}", *TIMED]
    lines = stream(driver, f"l2={l2}", "--runs", "2", "--warmup", "1")
    wanted = [*3 * sample, f"memset {OUTPUT}", *sample]
    assert lines[-len(wanted) :] == wanted, "the last one into an output full of NaN"
    samples = timing(driver, f"l2={l2}", "--runs", "3", "--cold")["samples_ns"]
    assert samples == [COLD] * 3, "an L2 that is not flushed makes it faster"


def test_hot_flushes_nothing(driver: str) -> None:
    sample = [*PERSISTENCE, "hold_stream", *TIMED]
    lines = stream(driver, "", "--runs", "2", "--warmup", "1", "--hot")
    wanted = [*3 * sample, f"memset {OUTPUT}", *sample]
    assert lines[-len(wanted) :] == wanted


def test_the_grid_covers_the_problem(driver: str) -> None:
    """Two Q blocks of each of two heads, with four warps; the stamps reach each of 7 SMs."""
    lines = on_fake(driver, "log,sms=7", "--runs", "1").stderr.splitlines()
    assert "flash_forward 2 x 2 x 1, 128" in lines and "stamp_clocks 14 x 1 x 1, 1024" in lines
    assert on_fake(driver, "", "--batch", "3", "--check", "all").returncode == 0


@pytest.mark.skipif(not (ROOT / "bin/v25").exists(), reason="bin/v25 is not built: make v25")
def test_a_build_that_dumps_launches_no_split_tail(driver: str, tmp_path: Path) -> None:
    """v25 with seven Q blocks on four SMs: an eighth CTA would share the last one out, and dump none of it."""
    objects = [path for folder in ("harness", "runtime", "emulator/*") for path in ROOT.glob(f"build/{folder}/*.o")]
    parts = ["harness/about.c", "build/v25/code.o", "build/device/code.o", *map(str, objects)]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-DFA_DEBUG", "-I.", "-Ibuild", "-Ibuild/v25", "-pthread"]
    dumps = tmp_path / "v25"
    command = ["cc", *flags, "-o", str(dumps), *(part for part in parts if "ptxrun" not in part), "-ldl", "-lm"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=600)
    for program, grid in ((ROOT / "bin/v25", 4), (dumps, 1)):
        done = run(
            "--batch", "1", "--heads", "7", "--seq", "256", "--profile", program=program, **made_up(driver, "log")
        )
        assert done.stderr.splitlines()[-1] == f"flash_forward {grid} x 1 x 1, 256"


def test_a_profiled_launch_is_alone_and_its_fault_is_seen(driver: str) -> None:
    done = on_fake(driver, "log", "--profile")
    assert done.returncode == 0 and not done.stdout and done.stderr == "flash_forward 2 x 2 x 1, 128\n"
    fault = on_fake(driver, "fault", "--profile")
    assert fault.returncode == 3 and "flash_forward" in fault.stderr and "ILLEGAL_ADDRESS" in fault.stderr


def test_a_profiler_that_serialises_launches(driver: str) -> None:
    """The holding kernel gives up once, after 0.2 s; the measurement continues without it."""
    serial = timing(driver, "serial", "--runs", "3", "--warmup", "0")
    assert serial["samples_ns"] == [COLD] * 3
    assert 0.2 < serial["wall_s"] - timing(driver, "", "--runs", "3", "--warmup", "0")["wall_s"] < 0.201


@pytest.mark.parametrize("sms", [3, 8])
def test_the_clock_of_a_sample_is_the_median_of_the_sms(driver: str, sms: int) -> None:
    clocks = [1.5e9 * 0.9**i for i in range(sms)]
    measured = timing(driver, f"sms={sms},uneven=10", "--runs", "2", "--throttle-threshold", "0")["sm_clock_hz"]
    assert measured == pytest.approx([statistics.median(clocks)] * 2, rel=1e-6)


def test_a_stamp_of_an_earlier_sample_does_not_count(driver: str) -> None:
    """All SMs but the first have it for one of both stamps, and their clock is wrong."""
    assert timing(driver, "missed", "--runs", "6")["sm_clock_hz"] == pytest.approx([1.5e9] * 6)


def test_the_clock_of_a_result_is_the_median_of_its_samples(driver: str) -> None:
    """The checked launch has the first clock."""
    done = on_fake(driver, "clocks=1500:1300:1200:1490", "--runs", "3", "--warmup", "0", "--csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert row["sm_clock_mhz"] == "1300"


def test_the_peak_clock_rises_with_the_fastest_sample(driver: str) -> None:
    """The device names 1500 MHz; after one sample of 2000 MHz, half of the peak is 1000 MHz and not 900 or 750."""
    script = "clocks=1500:2000:1800:890:990:1010"
    measured = timing(driver, script, "--runs", "5", "--warmup", "0")
    assert measured["sm_clock_hz"] == pytest.approx([2000e6, 1800e6, 1010e6], rel=1e-6)
    assert measured["discarded"] == 2


def test_the_threshold_is_a_share_of_the_peak_clock(driver: str) -> None:
    script = "clocks=1500:745:755"
    measured = timing(driver, script, "--runs", "2", "--warmup", "0")
    assert measured["sm_clock_hz"] == pytest.approx([755e6], rel=1e-6) and measured["discarded"] == 1
    assert timing(driver, script, "--runs", "2", "--throttle-threshold", "49")["discarded"] == 0


def test_discarded_samples_are_counted(driver: str) -> None:
    slow = timing(driver, SLOW, "--timeout", "0.3")
    assert slow["discarded"] > 0 and slow["samples_ns"] == [] and slow["median"] is None and not slow["converged"]
    counted = timing(driver, SLOW, "--runs", "5")
    assert counted["discarded"] == 5 and counted["samples_ns"] == []
    kept = timing(driver, SLOW, "--throttle-threshold", "0")
    assert kept["discarded"] == 0 and kept["sm_clock_hz"][0] == pytest.approx(0.5e9) and kept["converged"]


def test_discarded_samples_are_no_part_of_the_measured_time(driver: str) -> None:
    """Every other one is discarded: 1 s of 20 ms are 50 that are kept."""
    measured = timing(driver, "clocks=1500:500", "--min-time", "1")
    assert measured["stop_reason"] == "converged" and 50 <= len(measured["samples_ns"]) <= 53
    assert abs(measured["discarded"] - len(measured["samples_ns"])) <= 1


def test_warm_up_launches_are_not_samples(driver: str) -> None:
    """The checked launch and the next three are slow."""
    script = "times=90:80:70:60" + ":20" * 20
    assert timing(driver, script, "--runs", "5")["samples_ns"] == [COLD] * 5
    assert timing(driver, script, "--runs", "3", "--warmup", "1")["samples_ns"] == [70e6, 60e6, COLD]


def test_the_summary_is_that_of_all_samples(driver: str) -> None:
    """Summaries are made at 21 samples and at 23: with 22 the last one must count too. The checked launch is first."""
    script = "times=90" + ":20" * 21 + ":10"
    measured = timing(driver, script, "--runs", "22", "--warmup", "0")
    assert len(measured["samples_ns"]) == 22 and measured["samples_ns"][-1] == 10e6 == measured["min"]


def test_noise_keeps_it_from_converging_and_strict_is_4(driver: str) -> None:
    """With enough samples and time: noise is the only reason."""
    limits = ("--timeout", "1.5", "--min-samples", "10")
    noisy = timing(driver, NOISY, *limits)
    assert noisy["stop_reason"] == "timeout" and not noisy["converged"]
    assert len(noisy["samples_ns"]) > 40 and noisy["noise"] > 0.005 and noisy["wall_s"] > 1.5
    strict, lax = (on_fake(driver, NOISY, *limits, option) for option in ("--strict", "--quiet"))
    assert strict.returncode == 4 and lax.returncode == 0
    for done in (strict, lax):
        assert "not converged" in done.stderr and "--max-noise" in done.stderr
        said = re.findall(r"after ([\d.]+) s: noise ([\d.]+) % of the median, (\d+) samples", done.stderr)[0]
        assert float(said[0]) == pytest.approx(noisy["wall_s"], abs=0.06)
        assert float(said[1]) == pytest.approx(100 * noisy["noise"], abs=0.006)
        assert int(said[2]) == len(noisy["samples_ns"])
    assert on_fake(driver, NOISY, *limits, "--strict", "--max-noise", "100").returncode == 0
    assert on_fake(driver, "", *limits, "--strict").returncode == 0


@pytest.mark.parametrize("limit", [("--timeout", "0.5"), ("--runs", "5")])
def test_no_sample_is_not_a_result_and_strict_is_4(driver: str, limit: tuple[str, str]) -> None:
    assert timing(driver, SLOW, *limit)["converged"] is False
    strict, lax = (on_fake(driver, SLOW, *limit, option) for option in ("--strict", "--quiet"))
    assert strict.returncode == 4 and lax.returncode == 0
    for done in (strict, lax):
        assert "not measured" in done.stderr and "50 %" in done.stderr and "SM clock" in done.stderr


def test_runs_are_exact_and_hot_is_said(driver: str) -> None:
    measured = timing(driver, NOISY, "--runs", "7", "--hot")
    assert len(measured["samples_ns"]) == 7 and measured["stop_reason"] == "runs" and measured["mode"] == "hot"
    assert "hot" in on_fake(driver, "", "--runs", "3", "--hot").stdout
    assert on_fake(driver, NOISY, "--runs", "7", "--strict").returncode == 0, "who asks for 7 gets 7"


def test_a_wrong_result_outranks_an_untrusted_time(driver: str) -> None:
    assert on_fake(driver, f"late,{NOISY}", "--timeout", "0.5", "--strict").returncode == 1
    done = on_fake(driver, f"early,{NOISY}", "--timeout", "0.5", "--strict", "--config", "all", "--check", "all")
    assert done.returncode == 1, "also where a later problem is the untrusted one"
    assert "not converged" in done.stderr


@pytest.mark.parametrize("sms", [1, 4, 132])
def test_the_peak_is_that_of_the_device_and_of_the_dtype(driver: str, sms: int) -> None:
    """100 TFLOP/s with fp16 and 80 with bf16, plus 10 us a launch, which a short run would show."""
    half, brain = records(on_fake(driver, f"sms={sms}", "--runs", "2", "--config", "all", "--json", "-"))
    assert half["problem"]["dtype"] == "fp16" and brain["problem"]["dtype"] == "bf16"
    assert half["derived"]["peak_tflops"] == pytest.approx(100, rel=2e-3)
    assert brain["derived"]["peak_tflops"] == pytest.approx(80, rel=2e-3)
    for record in (half, brain):
        derived = record["derived"]
        assert derived["tflops"] == pytest.approx(4 * 2 * 128**3 / 20e-3 / 1e12, rel=1e-6)
        assert derived["share_of_peak"] == pytest.approx(derived["tflops"] / derived["peak_tflops"], rel=1e-4)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ("10:10:20:30:40", "  0.001 TFLOP/s  25000.0 us +-30.0 %  cold  4 samples  SM 1500 MHz  0.0 % of the measured"),
        ("0.001:0.001:0.0018", "  16.8 TFLOP/s  1.0 us +-10.0 %  cold  4 samples  SM 1500 MHz  16.8 % of the measured"),
    ],
)
def test_the_line_of_a_result(driver: str, times: str, words: str) -> None:
    """4 * 2 * 128^3 operations: the checked launch takes the first time. Half of the span of the quartiles is told."""
    done = on_fake(driver, f"times={times}", "--runs", "4", "--warmup", "0")
    assert done.stdout.splitlines()[2].startswith(f"{words} mma.sync peak 100  correct: 256 rows")


def test_the_example_of_the_page_ends_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/internals.md").read_text()
    (example,) = re.findall(r"\n\n((?:    .*\n)*    LD_PRELOAD=.*\n)", page)
    assert "This run ends with status 4" in page
    script = f"set -e\n{example}".replace("build/made-up", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 4 and "not converged" in done.stderr
