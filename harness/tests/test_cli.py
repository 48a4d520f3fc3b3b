"""Runs bin/v01 as a person would: exit statuses, messages, records, on the emulator and against a made-up driver.

The fake driver (faulty_cuda.c) replaces libcuda.so.1, so that every exit status is seen without a GPU.
"""

import csv
import datetime
import io
import json
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from made_up_gpu import NEEDS_V01, NOISY, OWN, ROOT, SLOW, SMALL, V01, made_up, on_fake, records, run

from analysis.machine_code.cubin import Cubin
from analysis.measure.schema import FIELDS, fault_of

pytestmark = NEEDS_V01


ATTRIBUTES = ("compute capability", "compute capability", "number of SMs", "size of the L2 cache", "clock rate")
ATTRIBUTES += ("shared memory of a CTA",)
HELPERS = ("hold_stream", "stamp_clocks", "mma_peak_fp16", "mma_peak_bf16")
# In the order of a run with one warm-up and one sample: loading, the check, the peak, two launches with their stamps.
SAMPLE = ("hold_stream", "stamp_clocks", "_Z13flash_forward", "stamp_clocks")
LAUNCHES = ("hold_stream", "stamp_clocks", "_Z13flash_forward", "mma_peak", "mma_peak", "mma_peak", *SAMPLE, *SAMPLE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seq", "100"], ["--seq 100", "B_r = 64", "use 64 or 128"]),
        (["--seq", "64", "--batch", "70000"], ["--batch 70000", "65535"]),
        (["--config", "(FP16, 128, 64, 64): async"], ["must have 5 values", "not 4"]),
        (["--config", "(FP16, 128, 64, 64, 4): turbo"], ["unknown flag 'turbo'", "opt_softmax"]),
        (["--config", "(FP16, 128, 128, 64, 8): load_0_0_0_tiles"], ["not built", OWN, "make v01 KERNELS="]),
        (["--config", OWN, "--dtype", "bf16"], ["fp16", "bf16", "one of them"]),
        (["--dump", "x"], ["make DUMP=1 v01", "bin/dump/v01"]),
        (["--trace", "cta=x"], ["cta=x", "cta=0,warp=1"]),
        (["--trace", "warp=1,lines=9-3"], ["lines=9-3"]),
        (["--trace", "cta=8"], ["no cta=8", "0 to 7", "seq 256"]),
        (["--trace", "cta=0,warp=4"], ["no warp=4", "0 to 3"]),
        (["--ptx", "no such file"], ["--ptx no such file", "No such file or directory"]),
        (["--trace-events", "x", "--trace", "cta=0"], ["--trace: cannot be combined with --trace-events"]),
        (["--trace-events", "x", "--seq", "128,256"], ["--trace-events x", "a single problem"]),
        (["--backend", "emu", "--hot", "--runs", "3"], ["--runs, --hot", "does not measure time"]),
        (["--tokens", "256", "--seq", "128,192"], ["--tokens 256", "multiple", "--seq 192"]),
        (["--tokens", "256", "--seq-q", "96"], ["--tokens 256", "queries per sequence, --seq-q 96"]),
        (["--tokens", "512", "--batch", "2"], ["--tokens: cannot be combined with --batch"]),
        (["--energy", "--profile"], ["--energy", "--profile"]),
        (["--causal"], ["--causal: v01 has no causal mask; attention/mma_sync has one"]),
        (["--lse"], ["--lse: v01 returns no log-sum-exp; attention/mma_sync returns it"]),
        (["--seq-q", "64", "--seq-k", "128"], ["--seq-q 64 --seq-k 128: v01 requires as many keys as queries"]),
        (["--heads", "8", "--kv-heads", "2"], ["--kv-heads 2: v01 requires as many KV heads as heads"]),
        (["--heads", "8", "--kv-heads", "3"], ["--kv-heads 3: must divide --heads, 8"]),
        (["--scale", "0.5"], ["--scale 0.5: v01 multiplies scores by 1 / sqrt(d_head)"]),
        (["--layout", "padded"], ["--layout padded: v01 requires contiguous tensors (bshd)"]),
        (["--d-head", "64"], ["--d-head 64: v01 supports 128; attention/mma_sync supports more sizes"]),
        (["--d-head", "64", "--config", OWN], ["has d_head 128, but --d-head is 64"]),
        (["--d-head", "64", "--config", "all"], ["--d-head 64: no built config has this head size"]),
        (["--seq", "65"], ["attention/mma_sync accepts any length"]),
        (["--seq", "1", "--seq-q", "2", "--seq-k", "3"], ["--seq: --seq-q and --seq-k already set both lengths"]),
        (["--seq-k", "1073741824", "--heads", "64"], ["heads 64 x seq 1073741824", "at most 68719476736 elements"]),
    ],
)
def test_bad_usage_names_what_is_wrong(arguments: list[str], words: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert not done.stdout


def test_a_problem_beyond_the_hosts_memory_is_refused_before_it_is_made() -> None:
    """Here the second one: what the first one had is given back once."""
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 1 << 40:
        pytest.skip("this machine holds the largest problem there is")
    done = run("--backend", "emu", "--batch", "1", "--heads", "1", "--seq", "128,536870912")
    assert done.returncode == 3 and "batch 1 heads 1 seq 128" in done.stdout
    for word in ("batch 1, heads 1, seq 536870912 needs 1924.15 GB of host memory", "are available"):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("options", "copies"),
    [
        ("--backend gpu --profile", 4),
        ("--backend gpu --runs 1 --no-check", 4),
        ("--backend gpu --runs 1", 5),
        ("--backend emu --profile --checks off", 8),
        ("--backend emu", 14),
    ],
)
def test_host_memory_holds_every_copy(options: str, copies: int, driver: str) -> None:
    """64 KiB each: Q, K, V and O, and O again where a GPU is timed and checked. The emulator's memory is the host's
    too, and it keeps six times O of who wrote it."""
    arguments = (*SMALL, *options.split())
    assert run(*arguments, **made_up(driver, f"host_kb={64 * copies}")).returncode == 0
    assert run(*arguments, **made_up(driver, "host_kb=0")).returncode == 0, "unknown is not none"
    done = run(*arguments, **made_up(driver, f"host_kb={64 * copies - 1}"))
    assert done.returncode == 3 and "needs 0.00 GB of host memory" in done.stderr


def test_help_version_list() -> None:
    helped = run("--help")
    assert run("-h").stdout == helped.stdout and run("-h").returncode == 0
    assert helped.returncode == 0 and "--throttle-threshold" in helped.stdout and "77" in helped.stdout
    for option in ("--causal", "--kv-heads", "--lse", "--window", "--page-rows", "--split-keys", "--descale-q"):
        assert not re.search(rf"^  {option}\b", helped.stdout, re.MULTILINE), "what v01 rejects"
    assert re.fullmatch(r"v01 base \(revision \w+(, changed)?, toolkit [\d.]+\)\n", run("--version").stdout)
    listed = run("--list")
    assert listed.returncode == 0 and OWN in listed.stdout and "sm_80" in listed.stdout


def test_the_list_has_the_figures_of_info() -> None:
    """A row for each instance: its config, shared memory, registers on each architecture, symbol."""
    header, *rows, legend = run("--list").stdout.splitlines()
    instances = json.loads(run("--info").stdout)["instances"]
    archs = [code["arch"] for code in instances[0]["code"]]
    assert header.split() == ["config", "smem", *archs, "symbol"] and "registers per thread" in legend
    assert len(rows) == len(instances) > 1
    for row, instance in zip(rows, instances, strict=True):
        assert row.startswith(instance["config"])
        figures = [instance["smem_bytes"], *(code["registers"] for code in instance["code"]), instance["symbol"]]
        assert row.removeprefix(instance["config"]).split() == list(map(str, figures))


def test_info_agrees_with_the_cubins() -> None:
    """Registers and code hashes that the executable finds in itself are those that the analysis finds in the files."""
    info = json.loads(run("--info").stdout)
    assert info["schema"] == 1 and info["version"] == "v01" and info["config"] == OWN
    assert info["instances"][0]["smem_bytes"] == 49152 and info["instances"][0]["threads"] == 128
    files = {file.stem: file.stat().st_size for file in (ROOT / "build/v01").glob("*.cubin")}
    files["ptx"] = (ROOT / "build/v01/v01.ptx").stat().st_size
    images = {image["kind"]: image["bytes"] for image in info["images"]}
    assert len(images) > 1 and images.items() <= files.items()
    for instance in info["instances"]:
        assert instance["code"], "machine code of at least one architecture"
        for code in instance["code"]:
            kernels = Cubin.read(ROOT / f"build/v01/{code['arch']}.cubin").kernels
            kernel = next(each for each in kernels if each.symbol == instance["symbol"])
            assert code["registers"] == kernel.registers
            assert code["code_hash"] == kernel.code_hash


@pytest.mark.parametrize("dirty", [False, True])
def test_a_record_tells_whether_the_tree_was_changed(tmp_path: Path, dirty: bool) -> None:
    """Return the record of v01 linked with another revision.h, as make writes it."""
    (tmp_path / "revision.h").write_text(f'#define FL_REVISION "abc1234"\n#define FL_DIRTY {int(dirty)}\n')
    sources = [path for room in ("harness/*.c", "runtime/*.c", "emulator/*/*.c") for path in ROOT.glob(room)]
    others = ("about.c", "ptxrun.c")
    objects = [
        ROOT / "build" / path.relative_to(ROOT).with_suffix(".o")
        for path in sources
        if path.name not in others
        and path.parent.name not in ("tests", "driver", "cudart", "judge", "wasm", "bench", "suite")
    ]
    objects += [ROOT / "build/v01/code.o", ROOT / "build/device/code.o"]
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-pthread", f"-I{tmp_path}", f"-I{ROOT}", f"-I{ROOT}/build/v01"]
    command += [f"-I{ROOT}/build", "-o", str(tmp_path / "v01"), str(ROOT / "harness/about.c"), *map(str, objects)]
    subprocess.run([*command, "-ldl", "-lm"], check=True, timeout=600)

    def said(*arguments: str) -> str:
        return subprocess.run([tmp_path / "v01", *arguments], capture_output=True, text=True, timeout=600).stdout

    assert f"(revision abc1234{', changed' if dirty else ''}, toolkit" in said("--version")
    for text in (said("--info"), said("--backend", "emu", *SMALL, "--no-check", "--quiet", "--json", "-")):
        record = json.loads(text)
        assert record["revision"] == "abc1234" and record["dirty"] is dirty


def test_auto_without_a_gpu_says_so_and_runs_on_the_emulator() -> None:
    done = run()
    assert done.returncode == 0
    assert done.stderr.startswith(
        "No GPU: running on the emulator, which counts but does not time; the reason: no NVIDIA driver"
    )
    assert done.stderr.count("\n") == 1
    assert "batch 1 heads 2 seq 256" in done.stdout and "no times" in done.stdout and "correct: 256 rows" in done.stdout
    assert "TFLOP" not in done.stdout


def test_auto_without_a_gpu_names_the_options_that_have_no_effect() -> None:
    done = run("--runs", "3", "--hot", "--device", "2", "--quiet")
    assert done.returncode == 0 and not done.stdout
    assert done.stderr == "v01: --device, --runs, --hot: no effect on the emulator\n", "a warning, in spite of --quiet"
    assert "no effect" not in run("--threads", "1").stderr


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program whose stderr is a terminal, as far as it can tell. A minimal system has no ptys.

    The next time to say how far the work has come never comes, or each millisecond with TIME_FLIES.
    """
    library = tmp_path_factory.mktemp("terminal") / "terminal.so"
    command = ["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-xc", "-", "-o", library]
    subprocess.run(command, input=TERMINAL, text=True, check=True)
    return {"LD_PRELOAD": str(library)}


TERMINAL = """
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

int isatty(int fd) { return fd == 2; }

int pthread_cond_timedwait(pthread_cond_t *wake, pthread_mutex_t *lock, const struct timespec *when) {
    struct timespec soon;
    (void)when;
    if (!getenv("TIME_FLIES")) return pthread_cond_wait(wake, lock);
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += 1000000;
    if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
    return pthread_cond_clockwait(wake, lock, CLOCK_MONOTONIC, &soon);
}
"""
FLIES = {"TIME_FLIES": "1"}


def on_terminal(terminal: dict[str, str], until: str, *arguments: str) -> str:
    """Return what bin/v01 writes to a terminal until that matches or it ends; then end it."""
    command, quiet = [V01, "--backend", "emu", *arguments], subprocess.DEVNULL
    text = ""
    with subprocess.Popen(
        command, stdout=quiet, stdin=quiet, stderr=subprocess.PIPE, env=terminal, cwd=ROOT
    ) as process:
        assert process.stderr
        while not re.search(until, text) and (piece := os.read(process.stderr.fileno(), 4096).decode()):
            text += piece
        process.kill()
    return text


def test_a_long_run_says_on_a_terminal_how_far_it_has_come(terminal: dict[str, str]) -> None:
    said = r"\rv01: batch 1, heads 1, seq 8192: \d+ of 128 CTAs, \d+ s, about \S.* left\x1b\[K"
    text = on_terminal(terminal | FLIES, said, "--seq", "8192", "--heads", "1", "--no-check")
    assert re.search(said, text), repr(text)
    assert re.search(r"v01: batch 1, heads 1, seq 8192: about [\dhmins ]+ on \d+ threads\n", text), "stated beforehand"
    assert on_terminal(terminal, "never", *SMALL) == "", "a short run says nothing"


@pytest.mark.parametrize("option", ["--quiet", "--trace=cta=0,lines=1"])
def test_quiet_and_traced_runs_show_no_progress(option: str, terminal: dict[str, str]) -> None:
    assert "CTAs" not in on_terminal(terminal | FLIES, "never", *SMALL, option)
    assert "CTAs" in on_terminal(terminal | FLIES, "never", *SMALL)


def test_gpu_without_a_gpu_is_77() -> None:
    done = run("--backend", "gpu")
    assert done.returncode == 77 and "libcuda.so.1" in done.stderr and not done.stdout


def test_sweep_on_the_emulator() -> None:
    done = run(
        "--backend", "emu", "--seq", "64:192:+64", "--heads", "1,3", "--config", "all", "--check", "all", "--csv"
    )
    assert done.returncode == 0 and not done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["seq"], row["heads"]) for row in rows[::2]] == [
        (s, h) for s in ("64", "128", "192") for h in ("1", "3")
    ]
    for row in rows:
        assert row["pass"] == "yes" and 0 < float(row["max_error_over_bound"]) < 1
        assert None not in row and None not in row.values(), "every row has the columns of the header"
        assert row["tflops"] == "" and row["median_ns"] == ""
        assert int(row["executed"]) > int(row["mma"]) > int(row["ldmatrix"]) > 0 and row["findings"] == "0"
        assert int(row["wavefronts"]) > int(row["ideal"]) > 0 and int(row["sectors"]) > 0


def test_csv_has_the_counts_of_the_record(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    done = run("--backend", "emu", *SMALL, "--csv", "--json", str(file))
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    counters = json.loads(file.read_text())["counters"]
    assert {name: int(row[name]) for name in counters["total"]} == counters["total"]
    assert int(row["findings"]) == counters["findings"]


def test_csv_has_the_timing_of_the_record(driver: str) -> None:
    how = "times=0.009:0.001:0.002:0.003:0.004:0.005,clocks=1400"
    timed = ("--runs", "5", "--warmup", "0")
    (row,) = csv.DictReader(io.StringIO(on_fake(driver, how, *timed, "--csv").stdout))
    (record,) = records(on_fake(driver, how, *timed, "--json", "-"))
    timing, derived = record["timing"], record["derived"]
    for column, figure in {"median_ns": "median", "q1_ns": "q1", "q3_ns": "q3", "min_ns": "min"}.items():
        assert float(row[column]) == pytest.approx(timing[figure], abs=0.1), column
    assert timing["min"] < timing["q1"] < timing["median"] < timing["q3"] < max(timing["samples_ns"])
    assert (row["mode"], row["samples"], row["discarded"], row["stop_reason"]) == ("cold", "5", "0", "runs")
    assert row["sm_clock_mhz"] == "1400"
    assert float(row["tflops"]) == pytest.approx(derived["tflops"], rel=1e-3) and derived["tflops"] > 5
    assert float(row["share_of_peak"]) == pytest.approx(derived["share_of_peak"], abs=1e-4)
    assert float(row["max_error_over_bound"]) == pytest.approx(record["check"]["max_error_over_bound"], abs=1e-4)


def test_the_device_of_a_record(driver: str) -> None:
    how = "cc=86,sms=7,l2=3145728,memory=1000000000"
    (record,) = records(on_fake(driver, how, "--runs", "1", "--json", "-"))
    device = record["device"]
    assert device.pop("driver").endswith("CUDA 13.5")
    expected = {"name": "Fake GPU", "cc": "8.6", "sms": 7, "l2_bytes": 3145728, "memory_bytes": 1000000000}
    assert device == {**expected, "clock_hz": 1500000000}


def test_the_time_of_a_record_is_utc(driver: str) -> None:
    (record,) = records(on_fake(driver, "", "--runs", "1", "--json", "-", TZ="XYZ-9"))
    written = datetime.datetime.fromisoformat(record["utc"].replace("Z", "+00:00"))
    assert abs(datetime.datetime.now(datetime.UTC) - written) < datetime.timedelta(minutes=10)


def test_the_page_names_every_column_of_the_csv() -> None:
    page = (ROOT / "docs/measuring.md").read_text()
    header = run("--backend", "emu", *SMALL, "--csv").stdout.splitlines()[0].split(",")
    assert len(header) == 39
    for column in header:
        assert f"`{column}`" in page[page.index("## CSV") :], column


def test_emulator_record() -> None:
    done = run("--backend", "emu", *SMALL, "--json", "-", "--quiet")
    assert done.returncode == 0 and not done.stderr
    record = json.loads(done.stdout)
    assert next(iter(record)) == "schema"
    assert record["backend"] == "emu" and record["timing"] is None and record["derived"] is None
    assert record["check"]["pass"] is True and record["check"]["pass_after"] is None
    total = record["counters"]["total"]
    assert total["mma"] == 2 * 2 * (128 * 128 * 128) // (16 * 8 * 16) and record["counters"]["findings"] == 0
    assert total["wavefronts"] > total["ideal"] > 0
    other = json.loads(
        run("--backend", "emu", *SMALL, "--json", "-", "--quiet", "--schedule", "9", "--threads", "1").stdout
    )
    assert other["counters"] == record["counters"], "counts depend on neither schedule nor threads"


def test_counters_and_trace() -> None:
    done = run("--backend", "emu", *SMALL, "--counters")
    assert done.returncode == 0 and "v01_base.cu:" in done.stdout and "wavefronts" in done.stdout
    assert "orders: no race, no deadlock in any order" in done.stdout
    traced = run("--backend", "emu", *SMALL, "--no-check", "--trace", "cta=1,warp=2")
    assert traced.returncode == 0 and "cta 1 warp 2" in traced.stdout
    assert "cta 0" not in traced.stdout and "warp 1" not in traced.stdout


def test_a_trace_stays_out_of_the_records() -> None:
    """Standard output has only records, for other programs; the trace is written where the findings are."""
    traced = ("--backend", "emu", *SMALL, "--no-check", "--trace", "cta=0,warp=0,lines=200-220")
    in_json = run(*traced, "--json", "-")
    assert in_json.returncode == 0 and "cta 0 warp 0" in in_json.stderr and len(records(in_json)) == 1
    table = run(*traced, "--csv")
    assert table.returncode == 0 and "cta 0 warp 0" in table.stderr
    assert [row["version"] for row in csv.DictReader(io.StringIO(table.stdout))] == ["v01"]


def test_the_tables_of_counters_add_up_to_the_totals() -> None:
    (record,) = records(run("--backend", "emu", *SMALL, "--counters", "--no-check", "--quiet", "--json", "-"))
    counters, source = record["counters"], (ROOT / "kernels/mma_sync/v01_base.cu").read_text().splitlines()
    for table in ("lines", "regions", "groups"):
        rows = counters[table]
        assert len(rows) > 2
        for name in ("executed", "wavefronts", "ideal", "sectors"):
            assert sum(row[name] for row in rows) == counters["total"][name], (table, name)
    own = [row["line"] for row in counters["lines"] if row["file"].endswith("v01_base.cu")]
    assert [row["depth"] for row in counters["regions"]] == [0, 1, 0]
    assert len(set(own)) == len(own) > 10 and all(1 <= line <= len(source) and source[line - 1].strip() for line in own)


def test_a_trace_of_nothing_is_an_error() -> None:
    done = run("--backend", "emu", *SMALL, "--trace", "cta=0,lines=9000-9100")
    assert done.returncode == 2 and "lines=9000-9100': no such instruction ran" in done.stderr


def test_a_full_disk_is_an_error() -> None:
    done = run("--backend", "emu", *SMALL, "--json", "/dev/full")
    assert done.returncode == 3 and "/dev/full" in done.stderr and "No space left" in done.stderr
    with Path("/dev/full").open("w") as full:
        command = [str(V01), "--backend", "emu", *SMALL]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 3 and "standard output" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--list"], ["--info"]])
def test_a_full_standard_output_is_an_error(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([V01, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 3 and "standard output: cannot be written: No space left" in done.stderr


# A disk may report errors late, as a full one over NFS does: no write of the record fails, but its close does.
LATE = r"""
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int close(int file) {
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "late.jsonl")) return errno = EIO, -1;
    return (int)syscall(SYS_close, file);
}
"""


def test_a_record_that_cannot_be_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "late.c").write_text(LATE)
    shim, record = tmp_path / "late.so", tmp_path / "late.jsonl"
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, tmp_path / "late.c"], check=True)
    done = run("--backend", "emu", *SMALL, "--json", str(record), LD_PRELOAD=str(shim))
    assert done.returncode == 3 and f"--json {record}: Input/output error" in done.stderr


def without_stream(number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """bin/v01 with a standard stream closed."""
    command = ["sh", "-c", f'exec "$0" "$@" {number}>&-', str(V01), "--backend", "emu", *SMALL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)


def test_a_report_never_goes_into_the_file_of_the_record(tmp_path: Path) -> None:
    """A file opened while a standard stream is closed would get that stream's number."""
    file = tmp_path / "x.jsonl"
    done = without_stream(1, "--json", str(file))
    assert done.returncode == 3 and "standard output: cannot be written" in done.stderr
    assert not file.exists() or not file.read_text()
    assert without_stream(1, "--json", str(file), "--quiet").returncode == 0, "nothing goes to standard output"
    assert without_stream(2, "--json", str(file), "--runs=3").returncode == 2
    assert without_stream(2, "--json", str(file)).returncode == 0
    assert [json.loads(line)["version"] for line in file.read_text().splitlines()] == ["v01", "v01"]


def test_findings_are_1_without_a_check_too(tmp_path: Path) -> None:
    """Findings of a copy whose PTX lost its barriers."""
    copy = tmp_path / "v01"
    barrier = b"bar.sync \t0;"
    copy.write_bytes(V01.read_bytes().replace(barrier, b" " * len(barrier)))
    copy.chmod(0o755)
    for option, stream in (("--diff", "stdout"), ("--no-check", "stdout"), ("--profile", "stderr")):
        done = subprocess.run(
            [copy, "--backend", "emu", *SMALL, option], capture_output=True, text=True, timeout=600, cwd=ROOT
        )
        assert done.returncode == 1, "a finding is a wrong result, whatever is compared"
        assert "race" in getattr(done, stream) and "in any order" not in done.stdout


def test_right_and_timed(driver: str) -> None:
    done = on_fake(driver, "", "--config", "all", "--json", "-")
    assert done.returncode == 0 and not done.stderr
    for line, dtype in zip(done.stdout.splitlines(), ("fp16", "bf16"), strict=True):
        record = json.loads(line)
        timing = record["timing"]
        assert record["problem"]["dtype"] == dtype and record["device"]["name"] == "Fake GPU"
        assert record["check"]["pass"] and record["check"]["pass_after"]
        assert timing["mode"] == "cold" and timing["stop_reason"] == "converged" and timing["discarded"] == 0
        assert len(timing["samples_ns"]) == len(timing["sm_clock_hz"]) >= 10
        assert timing["median"] == timing["min"] == 20e6
        assert timing["sm_clock_hz"][0] == pytest.approx(1.5e9)
        assert record["derived"]["tflops"] == pytest.approx(4 * 2 * 128**3 / 20e-3 / 1e12 * 1, rel=1e-4)
        assert record["code_hash"] and record["registers"] > 100


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("idle", ["WRONG", "32768 of 32768", "NaN", "first wrong: batch 0, row 0, head 0, column 0"]),
        ("late", ["WRONG after timing: 32768 of 32768", "32768 NaN", "first wrong: batch 0, row 0, head 0, column 0"]),
        ("decay", ["WRONG after timing: 32768 of 32768", ", 0 NaN", "first wrong: batch 0, row 0, head 0, column 0"]),
    ],
)
def test_wrong_results_are_1(driver: str, how: str, words: list[str]) -> None:
    done = on_fake(driver, how, "--json", "/dev/null")
    assert done.returncode == 1
    for word in words:
        assert word in done.stdout
    (row,) = csv.DictReader(io.StringIO(on_fake(driver, how, "--csv").stdout))
    assert row["pass"] == "no" and float(row["max_error_over_bound"]) > 1
    quiet = on_fake(driver, how, "--quiet", "--json", "/dev/null")
    assert (quiet.returncode, quiet.stdout) == (1, "")
    for word in words:
        assert word in quiet.stderr
    quiet = on_fake(driver, how, "--quiet", "--json", "-")
    assert quiet.returncode == 1 and "WRONG" not in quiet.stderr, "the record says it"


@pytest.mark.parametrize(("how", "said"), [("package", "570.86.15, CUDA 13.5"), ("no_package", "CUDA 13.5")])
def test_the_driver_is_named_by_its_package_where_that_is_known(driver: str, how: str, said: str) -> None:
    (record,) = records(on_fake(driver, how, "--runs", "1", "--json", "-"))
    assert record["device"]["driver"] == said


def test_one_wrong_element_is_found_and_named(driver: str) -> None:
    done = on_fake(driver, "off", "--check", "all", "--diff")
    assert done.returncode == 1
    assert "1 of 32768 compared elements differ (0.003 %)" in done.stdout
    summary = (
        r"largest error 0\.00\d+, ([\d.]+) times the tolerance\n  first wrong: .*: (\S+), expected (\S+) \+- (\S+)\n"
    )
    (times, got, expected, bound) = map(float, re.findall(summary, done.stdout)[0])
    assert times == pytest.approx((got - expected) / bound, rel=2e-3)
    assert "first wrong: batch 0, row 0, head 0, column 5" in done.stdout
    assert "TFLOP" not in done.stdout, "a wrong kernel is not timed"


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("no_device", 77, ["no GPU"]),
        ("hidden", 77, ["no GPU it may use"]),
        ("cc=75", 77, ["7.5", "at least 8.0"]),
        ("cc=100", 77, ["10.0", "sm_80", 'make ARCHS="80 90 100" v01']),
        ("smem=1000", 77, ["49152 bytes of shared memory per CTA, 0 of them static: Fake GPU has 1000"]),
        ("broken", 3, ["cuInit", "999"]),
        ("fault", 3, ["CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"]),
        ("memory=17000000", 3, ["GPU memory", "free"]),
    ],
)
def test_what_a_gpu_cannot_do(driver: str, how: str, status: int, words: list[str]) -> None:
    done = on_fake(driver, how, "--backend", "gpu", "--batch", "2")
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr


NOTHING_LEFT = "left: 0 contexts, 0 modules, 0 streams, 0 events, 0 pinned, 0 bytes\n"


@pytest.mark.parametrize("arguments", [("--runs", "2"), ("--profile",), ("--config", "all", "--runs", "1")])
def test_all_that_the_driver_gave_is_given_back(driver: str, arguments: tuple[str, ...]) -> None:
    done = on_fake(driver, "left", *arguments)
    assert done.returncode == 0 and done.stderr.endswith(NOTHING_LEFT)


@pytest.mark.parametrize(
    ("call", "after", "words"),
    [
        *((name, 0, name) for name in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGetName")),
        *((name, 0, name) for name in ("cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate")),
        *(
            (name, 0, name.removesuffix("_v2"))
            for name in ("cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuEventCreate")
        ),
        ("cuDeviceGet", 0, "cuDeviceGet 0"),
        ("cuDeviceTotalMem_v2", 0, "cuDeviceTotalMem"),
        *(("cuDeviceGetAttribute", i, f"cuDeviceGetAttribute of the {name}") for i, name in enumerate(ATTRIBUTES)),
        *(("cuModuleLoadData", i, "cuModuleLoadData of the sm_90 code, made by toolkit") for i in range(2)),
        *(("cuModuleGetFunction", i, f"cuModuleGetFunction of {name}") for i, name in enumerate(HELPERS)),
        ("cuFuncSetAttribute", 0, "cuFuncSetAttribute of 49152 bytes of dynamic shared memory for (FP16, 128, 64"),
        ("cuMemGetInfo_v2", 1, "cuMemGetInfo"),
        ("cuMemAlloc_v2", 0, "cuMemAlloc of 16777216 bytes to flush the L2"),
        ("cuMemAlloc_v2", 4, "cuMemAlloc of 65536 bytes for a tensor"),
        ("cuMemAlloc_v2", 5, "cuMemAlloc for mma_peak"),
        ("cuMemcpyHtoD_v2", 2, "cuMemcpyHtoD of 65536 bytes"),
        *(("cuMemcpyDtoH_v2", i, "cuMemcpyDtoH of 65536 bytes") for i in (0, 1)),
        *(("cuMemsetD8Async", i, "cuMemsetD8Async of the output") for i in (1, 2)),
        ("cuMemsetD8Async", 4, "cuMemsetD8Async of the buffer that flushes the L2"),
        ("cuCtxSetLimit", 2, "cuCtxSetLimit of lines that persist in the L2"),
        ("cuCtxResetPersistingL2Cache", 2, "cuCtxResetPersistingL2Cache"),
        ("cuStreamSynchronize", 0, "the first launch of the helper kernels"),
        ("cuStreamSynchronize", 1, "filling the output with NaN"),
        ("cuStreamSynchronize", 2, "_Z13flash_forward"),
        ("cuStreamSynchronize", 5, "mma_peak"),
        ("cuStreamSynchronize", 7, "_Z13flash_forward"),
        *(("cuEventRecord", i, "cuEventRecord") for i in (0, 9)),
        *(("cuEventElapsedTime", i, "cuEventElapsedTime") for i in (0, 4)),
        *(("cuLaunchKernel", i, f"cuLaunchKernel of {name}") for i, name in enumerate(LAUNCHES)),
        ("cuLaunchKernel", 2, "grid 2 x 2 x 1, 128 threads, 49152 bytes of shared memory"),
    ],
)
def test_a_call_of_the_driver_that_fails_is_named(driver: str, call: str, after: int, words: str) -> None:
    done = on_fake(driver, f"left,fails={call}:{after}", "--runs", "1", "--warmup", "1")
    assert done.returncode == 3 and f"{words}" in done.stderr, done.stderr
    assert "CUDA_ERROR_UNKNOWN (999, " in done.stderr and done.stderr.endswith(NOTHING_LEFT)


def test_tensors_may_fill_the_memory_of_the_gpu(driver: str) -> None:
    """Four of 64 KiB, and no byte less."""
    assert on_fake(driver, f"memory={4 << 16}", "--profile").returncode == 0
    done = on_fake(driver, f"memory={(4 << 16) - 4}", "--profile")
    assert done.returncode == 3 and "seq 128 needs 0.00 GB of GPU memory" in done.stderr


@pytest.mark.skipif(not (ROOT / "bin/v25").exists(), reason="bin/v25 is not built: make v25")
@pytest.mark.parametrize(("sms", "grid"), [(4, "4 x 1 x 1"), (7, "7 x 4 x 1")])
def test_a_persistent_grid_is_that_of_the_gpu(driver: str, sms: int, grid: str) -> None:
    """A CTA for each multiprocessor; where the last wave is not full, its Q blocks are split."""
    program = ROOT / "bin/v25"
    square = ("--batch", "1", "--heads", "16", "--seq", "2048", "--profile")
    done = run(*square, program=program, **made_up(driver, f"log,idle,sms={sms}"))
    assert done.stderr == f"flash_forward {grid}, 256\n"


def test_a_gpu_that_is_not_there(driver: str) -> None:
    assert on_fake(driver, "", "--device", "0", "--runs", "1").returncode == 0
    done = on_fake(driver, "", "--device", "1", "--runs", "1")
    assert done.returncode == 2 and "--device 1: must be less than 1, the number of GPUs" in done.stderr


def test_emulator_options_are_refused_on_a_gpu(driver: str) -> None:
    done = on_fake(driver, "", "--counters")
    assert done.returncode == 2 and "--counters" in done.stderr and "--backend emu" in done.stderr


def test_old_driver(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True, timeout=600
    )
    done = run("--backend", "gpu", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 77 and "has no cuGetErrorName" in done.stderr and "CUDA 12" in done.stderr


def test_the_schema_names_every_field_of_a_record(driver: str) -> None:
    """Check a record with timing and one with counters; other commands write the remaining fields."""
    named = {field.path for field in FIELDS}
    written = set()
    for done in (
        on_fake(driver, "", "--runs", "1", "--energy", "--json", "-"),
        run("--backend", "emu", *SMALL, "--quiet", "--json", "-"),
    ):
        (record,) = records(done)
        written |= set(record)
        written |= {f"{name}.{part}" for name, value in record.items() if isinstance(value, dict) for part in value}
    others = re.compile(r"peer|library|run|run\..*|problem\.kind|timing\.kept_(of|every)")
    # Records of varlen kernels, of a backward pass and of e4m3:
    serving = re.compile(
        r"problem\.(seqlens_[qk]|window_(left|right)|softcap|sinks|page_rows|split_keys|d_head_v|block_mask|visible_pairs|pass|(output|cache)_dtype|descale_[qkv])"
        r"|check\.d[qkv]_relative_error"
    )
    assert {name for name in named if not (others.fullmatch(name) or serving.fullmatch(name))} == written


@pytest.mark.parametrize("how", ["", "late", "blind", SLOW])
def test_records_fit_the_schema_that_readers_check(driver: str, how: str) -> None:
    for options in (("--runs", "3"), ("--no-check", "--hot", "--energy"), ("--check", "all", "--dtype", "bf16")):
        (record,) = records(on_fake(driver, how, "--timeout", "0.2", *options, "--json", "-"))
        assert not fault_of(record)


@pytest.mark.parametrize("options", [(), ("--counters",), ("--no-check",)])
def test_records_of_the_emulator_fit_it_too(options: tuple[str, ...]) -> None:
    (record,) = records(run("--backend", "emu", *SMALL, "--quiet", *options, "--json", "-"))
    assert not fault_of(record)


@pytest.mark.parametrize(
    ("how", "arguments"), [(None, []), (NOISY, ["--timeout", "0.2"]), (SLOW, ["--timeout", "0.2"])]
)
def test_the_page_about_trouble_quotes_the_messages(driver: str, how: str | None, arguments: list[str]) -> None:
    done = run(*arguments) if how is None else on_fake(driver, how, *arguments)
    page = (ROOT / "docs/building.md").read_text()
    quotes = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    patterns = [".*".join(re.escape(part.strip()) for part in quote.split("`")[1].split("…")) for quote in quotes]
    lines = [line.removeprefix("v01: ") for line in done.stderr.splitlines() if line.startswith(("v01: ", "No GPU: "))]
    assert lines and any(re.match(pattern, lines[-1]) for pattern in patterns), lines


@pytest.mark.skipif(not (ROOT / "bin/dump/v01").exists(), reason="bin/dump/v01 is not built: make DUMP=1 v01")
def test_dump(tmp_path: Path) -> None:
    file = tmp_path / "dump"
    command = [str(ROOT / "bin/dump/v01"), "--backend", "emu", "--heads", "1", "--seq", "128", "--dump", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    record = 64 * 64 + 64 + 64 * 64 + 64 + 64 * 128
    floats = struct.unpack(f"<{2 * 2 * record}f", file.read_bytes())
    assert len(set(floats[: 64 * 64])) > 64 * 32, "scores of 64 rows with 64 columns"
    m = floats[64 * 64 : 64 * 64 + 64]
    assert m[0] == pytest.approx(max(floats[:64])), (
        "the running maximum of row 0 after the first block is that of its scores"
    )
    full = subprocess.run([*command[:-1], "/dev/full"], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert full.returncode == 3 and "--dump /dev/full: No space left on device" in full.stderr
    many = subprocess.run([*command, "--heads", "1,2"], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert many.returncode == 2 and "requires a single problem and config" in many.stderr


def test_nothing_links_libcuda() -> None:
    needed = subprocess.run(["readelf", "-d", V01], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"NEEDED.*\[(.*)\]", needed)
    assert libraries and all(
        name.startswith(("libc.", "libm.", "libpthread", "libdl", "ld-linux")) for name in libraries
    )
    assert os.access(V01, os.X_OK)
