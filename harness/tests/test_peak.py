"""bin/peak on a made-up GPU: the record of how fast wgmma runs, and who reads it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from made_up_gpu import ROOT, made_up, run

from analysis.machine_code.wgmma_rates import Rates, parse_rates
from analysis.measure.microbenchmarks import record_text

PARTS = ("cuda_driver", "image", "config", "launch", "sha256", "json", "status")
OBJECTS = [*(ROOT / f"build/runtime/{name}.o" for name in PARTS), ROOT / "build/harness/stats.o"]
IMAGES = """
#include "runtime/image.h"
extern const struct code_image fl_peak_images[];
extern const uint64_t fl_peak_image_count;
const struct code_image fl_peak_images[] = {{"sm_90a", (const unsigned char *)"made up", 7}};
const uint64_t fl_peak_image_count = 1;
"""

pytestmark = pytest.mark.skipif(not OBJECTS[0].exists(), reason="the harness is not built: make v01")


@pytest.fixture(scope="module")
def peak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program without machine code, which the made-up driver does not look at."""
    folder = tmp_path_factory.mktemp("peak")
    (folder / "images.c").write_text(IMAGES)
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", f"-I{ROOT / 'build'}", "-o", str(folder / "peak")]
    sources = [
        *(str(ROOT / f"harness/device/{name}.c") for name in ("peak", "microbenchmark")),
        str(folder / "images.c"),
    ]
    subprocess.run(["cc", *flags, *sources, *map(str, OBJECTS), "-ldl", "-lm"], check=True, timeout=600)
    return folder / "peak"


def test_the_record_is_what_bounds_read(driver: str, peak: Path) -> None:
    done = run(program=peak, **made_up(driver, "left"))
    assert done.returncode == 0
    assert done.stderr == "left: 0 contexts, 0 modules, 0 streams, 0 events, 0 pinned, 0 bytes\n"
    record = json.loads(done.stdout)
    assert (record["schema"], record["device"]["name"], record["device"]["cc"]) == (1, "Fake GPU", "9.0")
    rows = record["wgmma"]
    assert len(rows) == 3 * 2 * 2 * (3 + 5) and {row["k"] for row in rows} == {16}
    assert {row["warpgroups"] for row in rows if not row["beside"]} == {1, 2, 3}
    first = rows[0]
    assert (first["n"], first["cycles"], first["beside_cycles"]) == (64, 32, None)
    # 1.5 GHz, 4 SMs; two operations for each of 64 x 64 x 16 multiply-adds
    assert first["tflops"] == pytest.approx(2 * 64 * 64 * 16 / 32 * 1.5e9 * 4 / 1e12, rel=1e-3)
    rates = Rates(tuple(parse_rates(record_text(record), "record", "sm_90a")))
    assert rates.cycles(128, 16) == 64 and rates.cycles(256, 16) == 128
    beside = rates.beside("MUFU.EX2")
    assert beside and (beside.alone, beside.cycles, beside.own_cycles) == (128, 144, 9)


@pytest.mark.parametrize(
    ("how", "words"), [("cc=80", "Fake GPU has 8.0"), ("no_device", "no GPU"), ("hidden", "no GPU it may use")]
)
def test_another_gpu_or_none_is_77(driver: str, peak: Path, how: str, words: str) -> None:
    done = run(program=peak, **made_up(driver, how))
    assert done.returncode == 77 and words in done.stderr and not done.stdout
