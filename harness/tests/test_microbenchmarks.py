"""bin/peak and bin/pipes on a fake GPU: how fast wgmma runs, and what instructions, copies and launches cost."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from made_up_gpu import ROOT, made_up, run

from analysis.machine_code.wgmma_rates import Rates, parse_rates
from analysis.measure.microbenchmarks import record_text
from analysis.measure.pipes import TOLD, power_of

PARTS = ("cuda_driver", "image", "config", "launch", "sha256", "json", "status")
OBJECTS = [*(ROOT / f"build/runtime/{name}.o" for name in PARTS), ROOT / "build/harness/stats.o"]
IMAGES = """
#include "runtime/image.h"
extern const struct code_image fl_NAME_images[];
extern const uint64_t fl_NAME_image_count;
const struct code_image fl_NAME_images[] = {{"sm_90a", (const unsigned char *)"made up", 7}};
const uint64_t fl_NAME_image_count = 1;
"""

pytestmark = pytest.mark.skipif(not OBJECTS[0].exists(), reason="the harness is not built: make v01")


def link(folder: Path, name: str) -> Path:
    """A program without machine code, which the emulated driver does not look at."""
    (folder / "images.c").write_text(IMAGES.replace("NAME", name))
    sources = [*(ROOT / f"harness/device/{part}.c" for part in (name, "microbenchmark")), folder / "images.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", f"-I{ROOT / 'build'}", "-o", folder / name]
    subprocess.run(["cc", *flags, *sources, *OBJECTS, "-ldl", "-lm"], check=True, timeout=600)
    return folder / name


@pytest.fixture(scope="module")
def pipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link(tmp_path_factory.mktemp("pipes"), "pipes")


@pytest.fixture(scope="module")
def peak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link(tmp_path_factory.mktemp("peak"), "peak")


def record_of(program: Path, driver: str) -> Any:
    done = run(program=program, **made_up(driver, "left"))
    assert done.returncode == 0
    assert done.stderr == "left: 0 contexts, 0 modules, 0 streams, 0 events, 0 pinned, 0 bytes\n"
    return json.loads(done.stdout)


def test_the_record_is_what_bounds_read(driver: str, peak: Path) -> None:
    record = record_of(peak, driver)
    assert (record["schema"], record["device"]["name"], record["device"]["cc"]) == (1, "Fake GPU", "9.0")
    rows = record["wgmma"]
    assert len(rows) == 3 * 2 * 2 * (3 + 5) and {row["k"] for row in rows} == {16}
    assert {row["warpgroups"] for row in rows if not row["companion"]} == {1, 2, 3}
    first = rows[0]
    assert (first["n"], first["cycles"], first["companion_cycles"]) == (64, 32, None)
    # 1.5 GHz, 4 SMs; two operations for each of 64 x 64 x 16 multiply-adds
    assert first["tflops"] == pytest.approx(2 * 64 * 64 * 16 / 32 * 1.5e9 * 4 / 1e12, rel=1e-3)
    rates = Rates(tuple(parse_rates(record_text(record), "record", "sm_90a")))
    assert rates.cycles(128, 16) == 64 and rates.cycles(256, 16) == 128
    companion = rates.with_companion("MUFU.EX2")
    assert companion and (companion.alone, companion.cycles, companion.own_cycles) == (128, 144, 9)


@pytest.mark.parametrize(
    ("how", "words"), [("cc=80", "Fake GPU has 8.0"), ("no_device", "no GPU"), ("hidden", "no GPU it may use")]
)
def test_another_gpu_or_none_is_77(driver: str, peak: Path, how: str, words: str) -> None:
    done = run(program=peak, **made_up(driver, how))
    assert done.returncode == 77 and words in done.stderr and not done.stdout


def test_the_record_has_every_operation(driver: str, pipes: Path) -> None:
    record = record_of(pipes, driver)
    assert (record["schema"], record["device"]["cc"]) == (1, "9.0")
    rows = record["pipes"]
    alone = [row for row in rows if row.get("companion") == ""]
    assert {row["cycles"] for row in alone} == {2} and {row["companion_cycles"] for row in alone} == {None}
    assert {row["warps"] for row in alone if row["operation"] == "HMMA"} == {1, 4, 8, 16}
    assert {row["sms"] for row in alone if row["operation"] == "LDGSTS.128"} == {1, 4}
    assert set(TOLD) <= {row["operation"] for row in alone}
    widths = [row["operation"] for row in alone if row["operation"].startswith("QGMMA") and row["warps"] == 8]
    assert sorted(widths) == sorted(
        f"QGMMA.64x{n}x32{a}" for n in (8, 16, 32, 64, 96, 128, 192, 256) for a in ("", ", A in registers")
    )
    companions = [row for row in rows if row.get("companion")]
    assert {row["companion_cycles"] for row in companions} == {9}
    assert {(row["warps"], row["companion_warps"]) for row in companions if row["operation"] == "HGMMA.64x128x16"} == {
        (4, 4), (4, 8), (8, 4), (8, 8)
    }  # fmt: skip
    assert {row["operation"] for row in companions if row["companion"] == "LDGSTS.128"} == {
        "LDSM.x4", "HGMMA.64x128x16", "HGMMA.64x128x16, A in registers", "QGMMA.64x128x32",
        "QGMMA.64x128x32, A in registers",
    }, "what reads shared memory while copies write it"  # fmt: skip
    assert {(row["operation"], row["companion"]) for row in companions if row["operation"].endswith("chain")} == {
        (f"{chain}, chain", other)
        for chain in ("LDSM.x4", "LDS.32", "SHFL", "MUFU.EX2")
        for other in ("HMMA", "HGMMA.64x128x16", "LDSM.x4")
    }
    assert {(row["ahead"], row["sms"], row["pause"], row["cycles"]) for row in rows if "copy" in row} == {
        (ahead, sms, pause, 1000) for sms in (1, 4) for ahead, pause in ((1, 0), (4, 0), (1, 1500))
    }
    orders = {(row["order"], row["warps"]): row["ends"] for row in rows if "order" in row}
    assert [orders["MUFU.EX2", warps] for warps in (8, 12, 16)] == [[2, 4], [2, 4, 6], [2, 4, 6, 8]]
    assert orders["a group of 8 QGMMA.64x96x32", 12] == [1000, 2000, 3000]
    assert [row["load"] for row in rows if "load" in row] == ["L2", "DRAM"]
    assert len([row for row in rows if "launch" in row]) == 2
    assert json.loads(record_text(record)) == record


TWO = """
#include "harness/device/pipes.h"
#undef FL_PIPE_OPERATIONS
#define FL_PIPE_OPERATIONS(X) X(LDS_CHAIN, "") X(WGMMA, "")
#include "harness/device/pipes.cu"
"""


@pytest.mark.long
def test_a_warpgroup_ends_together(tmp_path: Path) -> None:
    """Warp 5 looks late at whether the others are done: its warpgroup must not have started another round."""
    source, ptx = tmp_path / "two.cu", tmp_path / "two.ptx"
    source.write_text(TWO)
    nvcc = [ROOT / ".venv/toolkit/bin/nvcc", "-ptx", "-arch=sm_90a", "-std=c++20", "-I", ROOT, "-o", ptx, source]
    subprocess.run(nvcc, check=True, timeout=600)
    looks = [i for i, line in enumerate(ptx.read_text().splitlines(), 1) if "ld.relaxed.cta.shared" in line]
    assert len(looks) == 2, "one of each operation"
    header = (ROOT / "harness/device/pipes.h").read_text()
    names = re.findall(r"^    X\((\w+),", header, re.M)
    job = f"struct:[i32:{names.index('LDS_CHAIN')},i32:{names.index('WGMMA')},i32:4,i32:1000,u64:0]"
    shape = ["--entry", "pipes", "--block", "256", "--delay", f"5@{looks[1]}"]
    results = ["--arg", "buf:u64:21", "--arg", "buf:f32:256", "--arg", job]
    done = subprocess.run(
        [ROOT / "bin/ptxrun", ptx, *shape, *results, "--print", "0:4"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    count = done.stdout.splitlines()[1].split()[1:]
    assert int(count[2]) == 1000 * 512 and int(count[3]) > 0


def test_an_operation_can_be_held(driver: str, pipes: Path) -> None:
    done = run("HMMA", "0.01", program=pipes, **made_up(driver, ""))
    assert done.returncode == 0 and json.loads(done.stdout)["cycles"] == 2


@pytest.mark.parametrize(("arguments", "status"), [(("HMMA",), 2), (("HMMA", "0"), 2), (("none", "1"), 2)])
def test_what_cannot_be_held_is_refused(driver: str, pipes: Path, arguments: tuple[str, ...], status: int) -> None:
    done = run(*arguments, program=pipes, **made_up(driver, ""))
    assert done.returncode == status and done.stderr.startswith("pipes: ") and not done.stdout


class MadeUpTime:
    """A clock that readings of the counter move, by 1 ms each. The counter moves by 20 J every 50 ms: 400 W."""

    def __init__(self, ended: Path) -> None:
        self.now, self.ended = 0.0, ended

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def millijoules(self) -> int:
        self.now += 0.001
        return int(self.now / 0.05) * 20000

    def celsius(self) -> int:
        """Read after both moves: the operation may end now."""
        self.ended.touch()
        return 50


def test_watts_are_between_two_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read between moves, 0.413 s apart, they would be up to a step of 20 J wrong: 48 W."""
    program, ended = tmp_path / "pipes", tmp_path / "ended"
    told = '{"warps": 8, "cycles": 2.0, "sm_clock_hz": 1.5e9}'
    program.write_text(f"#!/bin/sh\nuntil [ -e '{ended}' ]; do sleep 0.01; done\necho '{told}'\n")
    program.chmod(0o755)
    made_up_time = MadeUpTime(ended)
    monkeypatch.setattr("analysis.measure.pipes.time", made_up_time)
    monkeypatch.setattr("analysis.measure.pipes.START_SECONDS", 0.113)
    monkeypatch.setattr("analysis.measure.pipes.LEAST_SECONDS", 0.413)
    row = power_of(program, "HMMA", made_up_time)  # type: ignore[arg-type]
    assert row is not None and row["operation"] == "HMMA" and row["celsius"] == 50
    assert row["watts"] == pytest.approx(400, abs=2)  # a reading is up to 1 ms later than a move
    program.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(Exception, match="exit status 0"):
        power_of(program, "HMMA", made_up_time)  # type: ignore[arg-type]
