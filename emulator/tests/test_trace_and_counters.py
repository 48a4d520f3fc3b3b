"""Output of --trace and --counters: stable, and correct on a program small enough to count by hand."""

import csv
import re
import subprocess
from pathlib import Path

import pytest
from support.emulation import ROOT, entry, ptxrun

SHARED = '.file 1 "lesson.cu"\n.shared .align 16 .b8 smem[4096];'
POINTER = ".param .u64 data"
PROGRAM = """.reg .b32 %t, %x, %s;
.reg .b64 %p; .reg .pred %q;
.loc 1 5 0
mov.u32 %t, %tid.x;
.loc 1 6 0
setp.lt.u32 %q, %t, 4; @%q add.u32 %x, %t, 100;
.loc 1 7 0
mov.u32 %s, smem;
mad.lo.u32 %s, %t, STRIDE, %s;
st.shared.u32 [%s], %t;
.loc 1 8 0
ld.param.u64 %p, [data]; mad.wide.u32 %p, %t, 4, %p; st.global.u32 [%p], %t;
"""


def write(folder: Path, stride: int = 4) -> Path:
    path = folder / "lesson.ptx"
    path.write_text(entry(PROGRAM.replace("STRIDE", str(stride)), POINTER, directives=SHARED))
    return path


def trace(folder: Path, what: str) -> list[str]:
    done = ptxrun(write(folder), "--grid", 2, "--block", 64, "--arg", "buf:u32:64", "--trace", what)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_trace_of_one_warp(tmp_path: Path) -> None:
    lines = trace(tmp_path, "cta=1,warp=0")
    heads = [line for line in lines if line.startswith("cta ")]
    assert all(line.startswith("cta 1 warp 0 ") for line in heads)
    assert [line.split("]  ")[1] for line in heads][:3] == [
        "mov.u32 %t, %tid.x;", "setp.lt.u32 %q, %t, 4;", "@%q add.u32 %x, %t, 100;   lanes 0x0000000f",
    ]  # fmt: skip
    assert "lesson.cu:5" in heads[0] and "lesson.cu:7" in "\n".join(heads)
    assert trace(tmp_path, "cta=1,warp=0") == lines


def test_trace_of_lines_and_of_one_lane(tmp_path: Path) -> None:
    heads = [line for line in trace(tmp_path, "cta=0,warp=1,lines=6-6") if line.startswith("cta ")]
    assert len(heads) == 2 or (len(heads) == 1 and "setp" in heads[0])  # the add has no lane on in warp 1
    one = "\n".join(trace(tmp_path, "cta=0,warp=1,lane=5,lines=5"))
    assert "37" in one or "0x00000025" in one  # thread 32 + 5
    assert len(one.splitlines()) < 4


WRONG_TRACES = [
    ("", "'' should be one of cta=N, warp=N, lane=N and lines=A-B"),
    ("cta=", "'cta=' should be cta=N, a number from 0"),
    ("cta=first", "'cta=first' should be cta=N"),
    ("cta=18446744073709551617", "'cta=18446744073709551617' should be cta=N"),
    ("cta=0,warp=1x", "'warp=1x' should be warp=N, a number from 0"),
    ("lane=32", "'lane=32' should be lane=N, a number from 0 to 31"),
    ("lines=0", "'lines=0' should be lines=A or lines=A-B, from 1"),
    ("lines=9-3", "'lines=9-3' should be lines=A or lines=A-B"),
    ("cta=0,,warp=1", "'' should be one of"),
    ("cta=0,warp=1,cta=0", "'cta=0' should be named once"),
]


@pytest.mark.parametrize(("what", "says"), WRONG_TRACES)
def test_a_wrong_trace_is_refused_with_the_part_that_is_wrong(what: str, says: str, tmp_path: Path) -> None:
    done = ptxrun(write(tmp_path), "--grid", 2, "--block", 64, "--arg", "buf:u32:64", "--trace", what)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--trace {what}: {says}" in done.stderr and done.stderr.endswith("cta=0,warp=1[,lane=2][,lines=100-120]\n")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("cta=2", "no cta=2 in the launch: its CTAs are 0 to 1"),
        ("cta=2147483647", "no cta=2147483647 in the launch"),
        ("cta=1,warp=2", "no warp=2 in a CTA: its warps are 0 to 1"),
    ],
)
def test_a_trace_of_what_the_launch_lacks_is_refused(what: str, says: str, tmp_path: Path) -> None:
    done = ptxrun(write(tmp_path), "--grid", 2, "--block", 64, "--arg", "buf:u32:64", "--trace", what)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_trace_of_lines_that_did_not_run_is_an_error(tmp_path: Path) -> None:
    done = ptxrun(write(tmp_path), "--grid", 2, "--block", 64, "--arg", "buf:u32:64", "--trace", "lines=900")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--trace: no such instruction ran; --counters lists the lines that ran" in done.stderr


def test_the_parts_of_a_trace_have_no_order(tmp_path: Path) -> None:
    one = trace(tmp_path, "cta=1,warp=0,lane=31,lines=5-8")
    assert one and trace(tmp_path, "lines=5-8,lane=31,warp=0,cta=1") == one
    assert {line.split()[1] for line in trace(tmp_path, "warp=1") if line.startswith("cta ")} == {"0", "1"}
    heads = [line for line in trace(tmp_path, "cta=0,warp=0,lines=6-7") if line.startswith("cta ")]
    assert {line.split()[4] for line in heads} == {"lesson.cu:6", "lesson.cu:7"}


# A store that ops.cuh wraps, unrolled twice in a function of the kernel's file, and a load of another thread's word.
INLINED = """.reg .b32 %t, %s, %x;
.loc 1 50 0
mov.u32 %t, %tid.x; mov.u32 %s, smem; mad.lo.u32 %s, %t, 4, %s;
.loc 1 20 0, function_name $fill, inlined_at 1 50 0
.loc 2 3 0, function_name $store, inlined_at 1 20 0
st.shared.u32 [%s], %t;
.loc 1 20 0, function_name $fill, inlined_at 1 50 0
.loc 2 3 0, function_name $store, inlined_at 1 20 0
st.shared.u32 [%s+256], %t;
.loc 1 51 0
xor.b32 %s, %s, 128;
.loc 1 30 0, function_name $read, inlined_at 1 51 0
ld.shared.u32 %x, [%s];
ld.shared.u32 %x, [%s+256];"""
TWO_FILES = '.file 1 "lib/lesson.cu"\n.file 2 "lib/ops.cuh"\n.shared .align 16 .b8 smem[4096];'


def test_counters_and_findings_stand_at_the_innermost_line_of_the_own_file(tmp_path: Path) -> None:
    path, table = tmp_path / "inlined.ptx", tmp_path / "counters.csv"
    path.write_text(entry(INLINED, directives=TWO_FILES))
    done = ptxrun(path, "--block", 64, "--counters", "--counters-csv", table)
    lines = {row.split()[0]: int(row.split()[1]) for row in done.stdout.splitlines() if row.startswith("lesson.cu:")}
    assert lines == {
        "lesson.cu:20": 4,
        "lesson.cu:30": 6,
        "lesson.cu:50": 6,
        "lesson.cu:51": 2,
    }  # the last ret is of line 30
    with table.open(newline="") as file:
        store = next(row for row in csv.DictReader(file) if row["ptx"].startswith("st.shared"))
    lines = [store[key] for key in ("file", "line", "own_file", "own_line")]
    assert lines == ["lib/ops.cuh", "3", "lib/lesson.cu", "20"]
    assert done.returncode == 1 and "1 finding: race (128 times)" in done.stderr, done.stderr
    assert re.search(r"^race at lib/lesson\.cu:(20|30), PTX line \d+: ", done.stderr)
    assert "inlined: ops.cuh:3 in lesson.cu:20 in lesson.cu:50\n" in done.stderr
    assert "inlined: lesson.cu:30 in lesson.cu:51\n" in done.stderr


def counters(folder: Path, stride: int) -> dict[str, dict[str, str]]:
    """Rows by the text of the instruction."""
    path = folder / "counters.csv"
    done = ptxrun(write(folder, stride), "--block", 64, "--arg", "buf:u32:64", "--counters-csv", path)
    assert (done.returncode, done.stderr) == (0, "")
    with path.open(newline="") as file:
        return {row["ptx"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize(("stride", "wavefronts"), [(4, 1), (8, 2), (16, 4), (32, 8), (64, 16), (12, 1), (0x14, 1)])
def test_bank_conflicts(stride: int, wavefronts: int, tmp_path: Path) -> None:
    """32 banks of 4 bytes: a stride of n words has gcd(n, 32) lanes a bank."""
    row = counters(tmp_path, stride)["st.shared.u32 [%s], %t;"]
    assert int(row["wavefronts"]) == 2 * wavefronts and int(row["ideal"]) == 2 and row["executed"] == "2"


def test_counts_of_guards_and_sectors(tmp_path: Path) -> None:
    rows = counters(tmp_path, 4)
    guarded = rows["@%q add.u32 %x, %t, 100;"]
    assert guarded["executed"] == "1" and guarded["lanes"] == "4"  # warp 1 has no lane on
    store = rows["st.global.u32 [%p], %t;"]
    assert (store["sectors"], store["requests"], store["bytes"], store["line"]) == ("8", "2", "256", "8")
    shared = rows["st.shared.u32 [%s], %t;"]
    assert (shared["sectors"], shared["requests"], shared["bytes"]) == ("0", "2", "256")
    parameter = rows["ld.param.u64 %p, [data];"]  # neither shared nor global: bytes alone
    assert (parameter["sectors"], parameter["requests"], parameter["bytes"]) == ("0", "0", "512")
    assert {rows["mov.u32 %s, smem;"][name] for name in ("requests", "bytes")} == {"0"}


def test_a_copy_is_one_request_and_moves_its_bytes_once(tmp_path: Path) -> None:
    body = ".reg .b32 %t, %s;\n.reg .b64 %p;\nld.param.u64 %p, [data];\nmov.u32 %t, %tid.x;\nmov.u32 %s, smem;\n"
    body += "shl.b32 %t, %t, 4;\nadd.u32 %s, %s, %t;\ncvt.u64.u32 %q, %t;\nadd.u64 %p, %p, %q;\n"
    body += "cp.async.cg.shared.global [%s], [%p], 16;\ncp.async.wait_all;\n"
    (tmp_path / "copy.ptx").write_text(entry(".reg .b64 %q;\n" + body, POINTER, directives=SHARED))
    table = tmp_path / "copy.csv"
    done = ptxrun(tmp_path / "copy.ptx", "--block", 64, "--arg", "buf:u32:256", "--counters-csv", table)
    assert (done.returncode, done.stderr) == (0, "")
    with table.open(newline="") as file:
        (copy,) = (row for row in csv.DictReader(file) if row["ptx"].startswith("cp.async.cg"))
    numbers = [copy[name] for name in ("requests", "bytes", "sectors", "wavefronts", "ideal")]
    assert numbers == ["2", "1024", "32", "8", "8"]  # two warps of 32 lanes of 16 bytes; 8 lanes a phase


def test_counters_as_tables(tmp_path: Path) -> None:
    done = ptxrun(write(tmp_path, 8), "--block", 64, "--arg", "buf:u32:64", "--counters")
    assert (done.returncode, done.stderr) == (0, "")
    table = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert "no times" in done.stdout
    assert table["lesson.cu:7"][1:] == ["6", "4", "2", "0", "256"]  # three instructions in two warps
    assert table["total"][1:5] == ["19", "4", "2", "8"]
    assert [line for line in done.stdout.splitlines() if line.startswith("region")]
    assert "wgmma" not in done.stdout  # nor is anything said of what it does not use


@pytest.mark.parametrize("what", [["--help"], ["--forms"], ["--list"], ["--print", "0"], ["--trace", "cta=0"], []])
def test_a_full_standard_output_is_an_error(tmp_path: Path, what: list[str]) -> None:
    """The lines that print."""
    command = [str(ROOT / "bin/ptxrun"), str(write(tmp_path)), "--block", "64", "--arg", "buf:u32:64", *what]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600)
    if what:
        assert done.returncode == 2
        assert done.stderr == "ptxrun: standard output: cannot be written: No space left on device\n"
    else:
        assert (done.returncode, done.stderr) == (0, "")
