"""The emulator's counters beside those that Nsight Compute measured on an H200 (ncu_counts.csv).

rows = compare("v01", folder)        # fp16, batch 1, 2 heads, seq 512

ncu_counts.csv, which ncu_record.py writes, holds, for each opcode of the machine code (sm_90), the sums of ncu's source
page over its instructions: "Instructions Executed", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal", "L2
Theoretical Sectors Global"; and one counter of the whole kernel under its own name.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from ncu_record import IDEAL, INSTRUCTIONS, MEASURED, PROBLEM, SECTORS, WAVEFRONTS
from support.versions import Launch, versions

VERSIONS = ("v01", "v02")
HOPPER = "v37"


@dataclass(frozen=True)
class Pair:
    """What is compared: PTX opcodes by their beginning, and machine opcodes. () on both sides: all that others leave.

    `why` explains a difference and is empty where there must be none.
    """

    name: str
    metric: str
    ptx: tuple[str, ...]
    machine: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Compared:
    pair: Pair
    ours: int
    measured: int


KERNEL_COUNTER = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
FLOATS = tuple(f"{name}.ftz.f32" for name in ("add", "sub", "mul", "max", "fma.rn", "div.approx"))
PAIRS = (
    Pair("mma / HMMA", INSTRUCTIONS, ("mma.",), ("HMMA",)),
    Pair("ldmatrix / LDSM", INSTRUCTIONS, ("ldmatrix.",), ("LDSM",)),
    Pair("cp.async / LDGSTS", INSTRUCTIONS, ("cp.async.cg",), ("LDGSTS",)),
    Pair("cp.async.commit_group / LDGDEPBAR", INSTRUCTIONS, ("cp.async.commit_group",), ("LDGDEPBAR",)),
    Pair("cp.async.wait_group / DEPBAR", INSTRUCTIONS, ("cp.async.wait_group",), ("DEPBAR",)),
    Pair("bar.sync / BAR", INSTRUCTIONS, ("bar.sync",), ("BAR",)),
    Pair("bar.warp.sync / NOP", INSTRUCTIONS, ("bar.warp.sync",), ("NOP",)),
    Pair("shfl / SHFL", INSTRUCTIONS, ("shfl.",), ("SHFL",)),
    Pair("st.shared / STS", INSTRUCTIONS, ("st.shared",), ("STS",)),
    Pair(
        "ld.shared / LDS", INSTRUCTIONS, ("ld.shared",), ("LDS",),
        "ptxas puts three loads without a lane (`@!PT LDS RZ, [RZ]`) ahead of each group of copies",
    ),
    Pair("st.global / STG", INSTRUCTIONS, ("st.global",), ("STG",)),
    Pair("f32 arithmetic / FADD FMUL FFMA FMNMX", INSTRUCTIONS, FLOATS, ("FADD", "FMUL", "FFMA", "FMNMX")),
    Pair(
        "ex2 / MUFU", INSTRUCTIONS, ("ex2.",), ("MUFU",),
        "div.approx is a multiplication by a reciprocal, and the quotients of a row share that",
    ),
    Pair("cvt to 16 bits / F2FP", INSTRUCTIONS, ("cvt.rn.f16x2", "cvt.rn.bf16x2"), ("F2FP",)),
    Pair(
        "moves, addresses, parameters, loop control", INSTRUCTIONS, (), (),
        "ptxas generates its own: other copies between registers, 64-bit sums in halves, other address arithmetic",
    ),
    Pair("wavefronts of ldmatrix / LDSM", WAVEFRONTS, ("ldmatrix.",), ("LDSM",)),
    Pair("wavefronts of cp.async / LDGSTS", WAVEFRONTS, ("cp.async.cg",), ("LDGSTS",)),
    Pair("wavefronts of st.shared / STS", WAVEFRONTS, ("st.shared",), ("STS",)),
    Pair("wavefronts of ld.shared / LDS", WAVEFRONTS, ("ld.shared",), ("LDS",)),
    Pair(
        f"the same without copies / `{KERNEL_COUNTER}`", WAVEFRONTS, ("ldmatrix.", "st.shared", "ld.shared"),
        (KERNEL_COUNTER,), "as many in both versions, which ncu gives to no instruction",
    ),
    Pair("all wavefronts without conflicts", IDEAL, (), ()),
    Pair("sectors of cp.async / LDGSTS", SECTORS, ("cp.async.cg",), ("LDGSTS",)),
    Pair("sectors of st.global / STG", SECTORS, ("st.global",), ("STG",)),
)  # fmt: skip


HOPPER_FLOATS = tuple(f"{name}.ftz.f32" for name in ("add", "sub", "mul", "max", "min", "neg", "fma.rn"))
HOPPER_PAIRS = (
    Pair("wgmma / HGMMA, once for each warp", INSTRUCTIONS, ("wgmma.mma_async",), ("HGMMA",)),
    Pair("tensor copies to shared memory / UTMALDG", INSTRUCTIONS, ("cp.async.bulk.tensor.5d.shared",), ("UTMALDG",)),
    Pair("tensor copies to global memory / UTMASTG", INSTRUCTIONS, ("cp.async.bulk.tensor.5d.global",), ("UTMASTG",)),
    Pair("cp.async.bulk.commit_group / UTMACMDFLUSH", INSTRUCTIONS, ("cp.async.bulk.commit",), ("UTMACMDFLUSH",)),
    Pair("setmaxnreg / USETMAXREG", INSTRUCTIONS, ("setmaxnreg.",), ("USETMAXREG",),
         "a device tries again until the registers are there"),
    Pair("stmatrix / STSM", INSTRUCTIONS, ("stmatrix.",), ("STSM",)),
    Pair("ex2 and rcp / MUFU", INSTRUCTIONS, ("ex2.", "rcp.", "div.approx"), ("MUFU",),
         "ptxas divides integers by MUFU.RCP"),
    Pair("cvt to 16 bits / F2FP", INSTRUCTIONS, ("cvt.rn.f16x2",), ("F2FP",)),
    Pair("f32 arithmetic / FADD FMUL FFMA FMNMX", INSTRUCTIONS, HOPPER_FLOATS, ("FADD", "FMUL", "FFMA", "FMNMX"),
         "ptxas leaves out two of a Q block's first KV block, where m is infinite before"),
    Pair("shfl / SHFL", INSTRUCTIONS, ("shfl.",), ("SHFL",)),
    Pair("bar.sync and bar.arrive / BAR", INSTRUCTIONS, ("bar.sync", "bar.arrive"), ("BAR",),
         "the bar.arrive of one consumer is predicated: ncu counts the warps of the other too"),
    Pair(
        "mbarriers / SYNCS", INSTRUCTIONS, ("mbarrier.",), ("SYNCS",),
        "a device also polls mbarriers whose phase is not complete",
    ),
    Pair(
        "moves, addresses, parameters, loop control", INSTRUCTIONS, (), (),
        "ptxas generates its own: other copies between registers, uniform registers, other address arithmetic",
    ),
)  # fmt: skip


def measured(version: str) -> dict[str, Counter[str]]:
    """ncu's sums: by metric, then by opcode."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    with MEASURED.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["version"] == version:
                for metric in (INSTRUCTIONS, WAVEFRONTS, IDEAL, SECTORS):
                    sums[metric][row["opcode"]] += int(row[metric])
    return sums


def emulated(version: str, folder: Path) -> dict[str, Counter[str]]:
    """The emulator's sums: by metric, then by opcode with its modifiers."""
    found = next(each for each in versions() if each.name == version)
    path = folder / "counters.csv"
    launch = Launch(found.entry("fp16"), **PROBLEM)
    # a device has a multiprocessor for every block of this small problem
    blocks = launch.seq // launch.config.B_r * launch.heads * launch.batch
    own = ("--grid", blocks) if launch.config.producer else ()
    done = launch.run(found.ptx, *own, "--counters-csv", path)
    assert done.returncode == 0, f"{version}: status {done.returncode}\n{done.stderr}"
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            opcode = next(word for word in row["ptx"].split() if not word.startswith("@")).rstrip(";")
            for metric in (INSTRUCTIONS, WAVEFRONTS, IDEAL, SECTORS):
                sums[metric][opcode] += int(row["executed" if metric == INSTRUCTIONS else metric])
    return sums


def total(sums: Counter[str], names: tuple[str, ...], others: tuple[str, ...], exact: bool) -> int:
    """Of the named opcodes; without names of all that are not among the others."""

    def among(opcode: str, chosen: tuple[str, ...]) -> bool:
        return opcode in chosen if exact else opcode.startswith(chosen)

    return sum(
        count for opcode, count in sums.items() if (among(opcode, names) if names else not among(opcode, others))
    )


def compare(version: str, folder: Path, pairs: tuple[Pair, ...] = PAIRS) -> list[Compared]:
    ours, theirs = emulated(version, folder), measured(version)
    rows = []
    for pair in pairs:
        same = [other for other in pairs if other.metric == pair.metric]
        ptx = tuple(name for other in same for name in other.ptx)
        machine = tuple(name for other in same for name in other.machine)
        rows.append(
            Compared(
                pair,
                total(ours[pair.metric], pair.ptx, ptx, False),
                total(theirs[pair.metric], pair.machine, machine, True),
            )
        )
    everything = Pair("all instructions", INSTRUCTIONS, (), (), "the rows above that differ")
    at = next((i for i, row in enumerate(rows) if row.pair.metric != INSTRUCTIONS), len(rows))
    rows.insert(at, Compared(everything, sum(ours[INSTRUCTIONS].values()), sum(theirs[INSTRUCTIONS].values())))
    return rows


def table(folder: Path) -> str:
    """Markdown: emulator, ncu and the difference for each version, and why there is one."""
    compared = [compare(version, folder) for version in VERSIONS]
    heads = [f"{version}: {what}" for version in VERSIONS for what in ("emulator", "ncu", "difference")]
    lines = ["| what | " + " | ".join(heads) + " | why |", "|---" + "|---:" * len(heads) + "|---|"]
    for rows in zip(*compared, strict=True):
        cells = [cell for row in rows for cell in (row.ours, row.measured, row.measured - row.ours)]
        numbers = " | ".join(f"{cell:,}" for cell in cells)
        lines.append(f"| {rows[0].pair.name} | {numbers} | {rows[0].pair.why} |")
    return "\n".join(lines)


def hopper_table(folder: Path) -> str:
    """Markdown for a version for sm_90a: the emulator and, where the record has it, ncu, and why they differ."""
    known = bool(measured(HOPPER))
    lines = [f"| what, in {HOPPER} | emulator | ncu | difference | why |", "|---|---:|---:|---:|---|"]
    for row in compare(HOPPER, folder, HOPPER_PAIRS):
        theirs = f"{row.measured:,} | {row.measured - row.ours:,}" if known else "not measured yet | "
        lines.append(f"| {row.pair.name} | {row.ours:,} | {theirs} | {row.pair.why} |")
    return "\n".join(lines)
