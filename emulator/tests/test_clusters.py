"""Clusters: kernels whose CTAs share memory give what NumPy gives, under any schedule; broken ones are found by name.

clusters.cu has the kernels, and records/clusters.csv hashes of what an H200 computed.
"""

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array, entry, ptxrun
from vectors.opcodes_cluster import BOX_FOR_BOTH

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "support/kernels/clusters.cu"
CTAS, BINS, TILES, TILE_WORDS, WIDTH, HEIGHT = 8, 256, 7, 512, 72, 15
SIZES = (1, 2, 4, 8)


def scrambled(x: Array) -> Array:
    x = x.astype(np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    result: Array = x ^ x >> 16
    return result


def reduce(ctas: int) -> Array:
    sums = scrambled(np.arange(CTAS * 1024)).reshape(CTAS // ctas, ctas, 1024).sum(2, dtype=np.uint32)
    return sums.cumsum(1, dtype=np.uint32)


def multicast(ctas: int) -> Array:
    del ctas
    sums = np.arange(CTAS, dtype=np.uint32)[:, None].repeat(128, 1)
    for part in np.arange(TILES * TILE_WORDS, dtype=np.uint32).reshape(-1, 128):
        sums = sums * np.uint32(31) + part
    return sums


def boxes_multicast(ctas: int) -> Array:
    """16 rows of 64 halves from column -8 and row -2 on, chunks of 16 bytes in the order of the 128-byte swizzle."""
    whole = np.zeros((HEIGHT + 8, WIDTH + 8), np.uint16)
    whole[2 : 2 + HEIGHT, 8:] = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    offsets = np.arange(1024) * 2
    box = np.zeros(1024, np.uint16)
    box[(offsets ^ (offsets >> 7 & 7) << 4) // 2] = whole[:16, :64].reshape(-1)
    words: Array = box.view(np.uint32)[None] + (np.arange(CTAS, dtype=np.uint32) % ctas)[:, None]
    return words


def histogram(ctas: int) -> Array:
    numbers = scrambled(np.arange(CTAS * 2048)).reshape(CTAS // ctas, -1) % BINS
    return np.array([np.bincount(row, minlength=BINS) for row in numbers], np.uint32)


def exchange(ctas: int) -> Array:
    stored = scrambled(np.arange(CTAS * 256)).reshape(CTAS // ctas, ctas, 256)
    return np.roll(stored, 1, 1)


MODELS: dict[str, Callable[[int], Array]] = {
    "reduce": reduce, "multicast": multicast, "boxes_multicast": boxes_multicast, "histogram": histogram,
    "exchange": exchange,
}  # fmt: skip
THREADS = {"multicast": 160}
INPUTS = {
    "multicast": [f"buf:u32:{TILES * TILE_WORDS}:ramp"],
    "boxes_multicast": [f"tmap:{WIDTH}x{HEIGHT}:64x4:128B:buf:u16:{WIDTH * HEIGHT}:ramp"],
}


def run(kernel: str, ctas: int, *options: object, broken: int = 0) -> subprocess.CompletedProcess[str]:
    inputs = [word for spec in INPUTS.get(kernel, []) for word in ("--arg", spec)]
    return ptxrun(
        SOURCE, "--entry", kernel, "--grid", CTAS, "--block", THREADS.get(kernel, 128), "--cluster", ctas, *inputs,
        "--arg", f"out:u32:{MODELS[kernel](ctas).size}", "--arg", f"u32:{broken}", *options, "--", "-arch=compute_90a",
    )  # fmt: skip


def check(kernel: str, ctas: int, out: Path, *options: object) -> None:
    done = run(kernel, ctas, "--dump", f"{len(INPUTS.get(kernel, []))}={out}", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert (np.fromfile(out, np.uint32) == MODELS[kernel](ctas).reshape(-1)).all()


@pytest.mark.parametrize("kernel", MODELS)
@pytest.mark.parametrize("ctas", SIZES)
def test_a_cluster_computes_what_numpy_does(kernel: str, ctas: int, tmp_path: Path) -> None:
    check(kernel, ctas, tmp_path / "out.bin")


SEEDS = [range(1, 5), pytest.param(range(5, 21), marks=pytest.mark.long)]


@pytest.mark.parametrize("kernel", MODELS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_any_schedule_gives_the_same(kernel: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        check(kernel, 4 if seed % 2 else 2, tmp_path / "out.bin", "--schedule", seed)


def test_the_record_is_what_numpy_computes() -> None:
    rows = ["kernel,ctas,hash"]
    for ctas in SIZES:
        for kernel, model in MODELS.items():
            sum_ = 0xCBF29CE484222325
            for word in model(ctas).reshape(-1).tolist():
                sum_ = (sum_ ^ word) * 0x100000001B3 % 2**64
            rows.append(f"{kernel},{ctas},{sum_:016x}")
    record = FOLDER / "records/clusters.csv"
    assert list(csv.reader(rows)) == list(csv.reader(record.read_text().splitlines()))


def test_a_box_for_two_ctas(tmp_path: Path) -> None:
    (tmp_path / "box.ptx").write_text(BOX_FOR_BOTH)
    done = ptxrun(
        tmp_path / "box.ptx", "--grid", 2, "--block", 64, "--cluster", 2, "--arg", "tmap:64:32:none:buf:u32:64:ramp",
        "--arg", "out:u32:128", "--dump", f"1={tmp_path / 'out.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (np.fromfile(tmp_path / "out.bin", np.uint32) == np.tile(np.arange(64), 2)).all()


# enum broken of clusters.cu: the kernel, the class of the first finding, and what its message says.
BROKEN = {
    1: ("multicast", "race", ["cp.async.bulk.shared::cluster", "ld.shared.u32"]),
    2: ("multicast", "deadlock", ["CTA rank 0, warps 0 to 3", "phase 1 needs 0 of 1 arrivals and 2048 bytes"]),
    3: ("multicast", "cta-exited", ["mbarrier.arrive.release.cluster", "that CTA may end before"]),
    4: ("histogram", "uninitialised-shared", ["red.shared::cluster", "of the CTA with rank 3"]),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_kernel_is_found_by_name(broken: int) -> None:
    kernel, name, says = BROKEN[broken]
    done = run(kernel, 4, broken=broken)
    assert done.returncode == (3 if "deadlock" in done.stderr else 1)
    assert done.stderr.startswith(f"{name} at ")
    assert all(text in done.stderr for text in says), done.stderr


def test_findings_depend_on_the_seed_only() -> None:
    for seed in (0, 5):
        one, four = (run("multicast", 2, "--schedule", seed, "--threads", n, broken=1).stderr for n in (1, 4))
        assert one == four and "race" in one


SPECIALS = [
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    "%cluster_ctarank", "%cluster_nctarank",
]  # fmt: skip


def test_special_registers(tmp_path: Path) -> None:
    """A grid of 4 x 6 x 2 CTAs in clusters of 2 x 3 x 1."""
    code = [".reg .b32 %x, %y, %i;", ".reg .b64 %p, %o;", ".reg .pred %e;", "ld.param.u64 %p, [out];"]
    code += ["mov.u32 %i, %ctaid.z;", "mad.lo.u32 %i, %i, 6, %ctaid.y;", "mad.lo.u32 %i, %i, 4, %ctaid.x;"]
    code += [f"mad.wide.u32 %o, %i, {4 * len(SPECIALS) + 4}, %p;"]
    for at, name in enumerate(SPECIALS):
        code += [f"mov.u32 %x, {name};", f"st.global.u32 [%o+{4 * at}], %x;"]
    code += [
        "mov.pred %e, %is_explicit_cluster;",
        f"selp.u32 %x, 1, 0, %e;\nst.global.u32 [%o+{4 * len(SPECIALS)}], %x;",
    ]
    ptx = tmp_path / "specials.ptx"
    ptx.write_text(entry("\n".join(code), ".param .u64 out"))
    for size in ((2, 3, 1), None):
        columns = len(SPECIALS) + 1
        cluster = ["--cluster", ",".join(map(str, size))] if size else []
        done = ptxrun(
            ptx, "--grid", "4,6,2", "--block", 1, *cluster, "--arg", f"out:u32:{48 * columns}",
            "--dump", f"0={tmp_path / 'out.bin'}",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        got = np.fromfile(tmp_path / "out.bin", np.uint32).reshape(2, 6, 4, columns)
        by = np.array(size or (1, 1, 1))
        for z, y, x in np.ndindex(2, 6, 4):
            at = np.array((x, y, z))
            within = at % by
            rank = within[0] + by[0] * (within[1] + by[1] * within[2])
            want = [*at // by, *np.array((4, 6, 2)) // by, *within, *by, rank, by.prod(), size is not None]
            assert got[z, y, x].tolist() == [int(value) for value in want]


REFUSED = [
    ("", "", ["--cluster", "3"], "size x of the grid is 8, not a multiple of the cluster's 3"),
    ("", "", ["--cluster", "32", "--grid", "32"], "the cluster has 32 CTAs: more than 16 are not possible"),
    ("", ".reqnctapercluster 4", ["--cluster", "2"], "the entry is written for clusters of 4 x 1 x 1 CTAs"),
    ("", ".maxclusterrank 2", ["--cluster", "4"], "the cluster has 4 CTAs, above the 2 of .maxclusterrank"),
    ("", ".explicitcluster", [], "the entry is written for clusters (.explicitcluster), and the launch has none"),
    ("", ".reqnctapercluster 17", [], "the number of CTAs of a cluster"),
    (".reg .b64 %p;\n.reg .b32 %r;\nmapa.u32 %r, %r, 0;", "", [], "a generic address has 64 bits"),
    (".reg .b64 %p;\n.reg .b32 %r;\nmbarrier.arrive.shared::cluster.b64 %p, [%r];", "", [], "_ is needed"),
    (".reg .b32 %r;\nmov.u32 %r, %is_explicit_cluster;", "", [], "is a predicate"),
]


@pytest.mark.parametrize(("code", "tuning", "options", "says"), REFUSED)
def test_bad_launches_and_code_are_refused(
    code: str, tuning: str, options: list[str], says: str, tmp_path: Path
) -> None:
    ptx = tmp_path / "refused.ptx"
    ptx.write_text(entry(code or "ret;").replace("\n{", f"\n{tuning}\n{{", 1))
    done = ptxrun(ptx, "--grid", 8, *options)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_clusters_of_the_entry_are_taken(tmp_path: Path) -> None:
    """.reqnctapercluster needs no --cluster: each CTA reads the next one's number, and what another stored."""
    code = """.shared .align 4 .b32 own;
.reg .b32 %rank, %size, %a, %x, %i; .reg .b64 %p;
mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank; mov.u32 %i, %ctaid.x;
st.shared.u32 [own], %i;
barrier.cluster.arrive;
barrier.cluster.wait;
add.u32 %rank, %rank, 1; rem.u32 %rank, %rank, %size; mapa.shared::cluster.u32 %a, own, %rank;
ld.shared::cluster.u32 %x, [%a]; ld.param.u64 %p, [out]; mad.wide.u32 %p, %i, 4, %p;
st.global.u32 [%p], %x;
barrier.cluster.arrive;
barrier.cluster.wait;
xor.b32 %i, %i, 8; ld.param.u64 %p, [out]; mad.wide.u32 %p, %i, 4, %p; ld.global.u32 %x, [%p];
"""
    ptx = tmp_path / "own.ptx"
    ptx.write_text(entry(code, ".param .u64 out").replace("\n{", "\n.explicitcluster\n.reqnctapercluster 16\n{", 1))
    assert "clusters of 16 x 1 x 1" in ptxrun(ptx, "--list").stdout
    done = ptxrun(ptx, "--grid", 16, "--block", 1, "--arg", "out:u32:16", "--print", 0)
    got = [int(word) for line in done.stdout.splitlines()[1:] for word in line.split()[1:]]
    assert done.returncode == 0 and got == [*range(1, 16), 0], done.stderr


# The first CTA waits for a flag in global memory that the second sets.
FLAG = """.reg .b32 %rank, %x;
.reg .b64 %flag; .reg .pred %waits;
mov.u32 %rank, %cluster_ctarank; setp.eq.u32 %waits, %rank, 0; ld.param.u64 %flag, [flag];
mov.u32 %x, %clusterid.x; mad.wide.u32 %flag, %x, 4, %flag;
@%waits bra wait;
SET
bra.uni end;
wait:
ld.acquire.gpu.global.u32 %x, [%flag]; setp.eq.u32 %waits, %x, 0;
@%waits bra wait;
end:"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_cta_that_polls_lets_the_others_of_its_cluster_run(seed: int, tmp_path: Path) -> None:
    for set_, status in (("st.release.gpu.global.u32 [%flag], 1;", 0), ("", 3)):
        ptx = tmp_path / "flag.ptx"
        ptx.write_text(entry(FLAG.replace("SET", set_), ".param .u64 flag"))
        done = ptxrun(ptx, "--grid", 8, "--block", 32, "--cluster", 2, "--schedule", seed, "--arg", "buf:u32:4")
        assert done.returncode == status and ("livelock" in done.stderr) == (status == 3), done.stderr


CHAIN = """.shared .align 16 .b8 board[64];
.reg .pred %leader, %first, %waits;
.reg .b32 %rank, %t, %board, %a, %b, %x; .reg .b64 %out;
mov.u32 %rank, %cluster_ctarank; mov.u32 %t, %tid.x; mov.u32 %board, board; ld.param.u64 %out, [out];
setp.eq.u32 %leader, %rank, 0; setp.eq.u32 %first, %t, 0;
@%first st.shared.v4.b32 [board], {5, 5, 5, 5};
@%first mbarrier.init.shared.b64 [board+32], 1;
@%first mbarrier.init.shared.b64 [board+40], 1;
fence.mbarrier_init.release.cluster;
fence.proxy.async.shared::cta;
barrier.cluster.arrive; barrier.cluster.wait;
setp.eq.u32 %waits, %t, 32;
@%leader bra leads;
@%waits bra follows;
@!%first bra done;
mapa.shared::cluster.u32 %a, %board, 0;
STEPS
bra.uni done;
follows:
mbarrier.arrive.expect_tx.shared.b64 _, [board+40], 16;
copied:
mbarrier.try_wait.parity.shared.b64 %waits, [board+40], 0;
@!%waits bra copied;
st.shared.b32 [board], 7;
bra.uni done;
leads:
@!%first bra done;
told:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %waits, [board+32], 0;
@!%waits bra told;
mapa.shared::cluster.u32 %a, %board, 1;
add.u32 %b, %a, 16; add.u32 %a, %a, 40;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%b], [board], 16, [%a];
done:
barrier.cluster.arrive; barrier.cluster.wait;"""
READ = "ld.shared.b32 %x, [board];\nst.global.b32 [%out], %x;"
TELL = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%a+32];"


@pytest.mark.parametrize(("steps", "found"), [((READ, TELL), ""), ((TELL, READ), "race at ")])
def test_a_copy_tells_what_its_thread_knew(steps: tuple[str, str], found: str, tmp_path: Path) -> None:
    """A thread of CTA 1 tells CTA 0 that it has read, whose copy tells another thread of CTA 1, which writes."""
    ptx = tmp_path / "chain.ptx"
    ptx.write_text(entry(CHAIN.replace("STEPS", "\n".join(steps)), ".param .u64 out"))
    done = ptxrun(ptx, "--grid", 2, "--block", 64, "--cluster", 2, "--arg", "buf:u32:1")
    assert found in done.stderr if found else done.stderr == ""
