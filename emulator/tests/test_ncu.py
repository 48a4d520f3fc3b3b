"""The emulator's counters are those that Nsight Compute measured on an H200 (records/ncu_counts.csv).

The record holds, by opcode of the machine code for sm_90, the sums of ncu's source page for fp16, 2 heads, seq 512.
Choices of ptxas are not compared: moves, addresses, loop control and polls.
"""

import csv
from pathlib import Path

import pytest
from support.versions import Launch

RECORD = Path(__file__).parent / "records/ncu_counts.csv"
FLOATS = tuple(f"{name}.ftz.f32" for name in ("add", "sub", "mul", "max", "fma.rn", "div.approx"))
# metric: what PTX opcodes begin with -> the machine opcodes
MMA_SYNC: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "instructions": {
        ("mma.",): ("HMMA",),
        ("ldmatrix.",): ("LDSM",),
        ("cp.async.cg",): ("LDGSTS",),
        ("cp.async.commit_group",): ("LDGDEPBAR",),
        ("cp.async.wait_group",): ("DEPBAR",),
        ("bar.sync",): ("BAR",),
        ("bar.warp.sync",): ("NOP",),
        ("shfl.",): ("SHFL",),
        ("st.shared",): ("STS",),
        ("st.global",): ("STG",),
        FLOATS: ("FADD", "FMUL", "FFMA", "FMNMX"),
        ("cvt.rn.f16x2", "cvt.rn.bf16x2"): ("F2FP",),
    },
    "wavefronts": {
        ("ldmatrix.",): ("LDSM",),
        ("cp.async.cg",): ("LDGSTS",),
        ("st.shared",): ("STS",),
        ("ld.shared",): ("LDS",),
    },
    "ideal": {("",): ("LDSM", "LDGSTS", "STS", "LDS")},
    "sectors": {("cp.async.cg",): ("LDGSTS",), ("st.global",): ("STG",)},
}
WGMMA: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "instructions": {
        ("wgmma.mma_async",): ("HGMMA",),
        ("cp.async.bulk.tensor.5d.shared",): ("UTMALDG",),
        ("cp.async.bulk.tensor.5d.global",): ("UTMASTG",),
        ("cp.async.bulk.commit",): ("UTMACMDFLUSH",),
        ("stmatrix.",): ("STSM",),
        ("cvt.rn.f16x2",): ("F2FP",),
        ("shfl.",): ("SHFL",),
    }
}


@pytest.mark.parametrize(("name", "pairs"), [("v01", MMA_SYNC), ("v02", MMA_SYNC), ("v37", WGMMA)])
def test_counts_are_those_of_ncu(
    name: str, pairs: dict[str, dict[tuple[str, ...], tuple[str, ...]]], tmp_path: Path
) -> None:
    with RECORD.open(newline="") as file:
        measured = [row for row in csv.DictReader(file) if row["version"] == name]
    launch = Launch(name, seq=512, heads=2, ctas=132)
    done = launch.run("--counters-csv", tmp_path / "counters.csv")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "counters.csv").open(newline="") as file:
        emulated = [row | {"instructions": row["executed"]} for row in csv.DictReader(file)]
    for metric, opcodes in pairs.items():
        for ptx, machine in opcodes.items():
            ours = sum(int(row[metric]) for row in emulated if row["ptx"].split("\t")[-1].startswith(ptx))
            theirs = sum(int(row[metric]) for row in measured if row["opcode"] in machine)
            assert ours == theirs > 0, (metric, ptx)
