"""The table of exercises: which version each starts from, what it is run on and what it asks for.

EXERCISES[3].slug, EXERCISES[3].kernel     # "04_lost_barrier", "v00"

The text of a task is exercises/NN_name/task.md. A kernel exercise starts from a version's source, changed by
exercises/NN_name/start.patch where there is one. Limits are what the solution takes, or a little more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.headers import load
from analysis.learn.asked import (
    Check,
    Question,
    at_least,
    at_most,
    barriers,
    findings,
    no_bank_conflicts,
    results,
)
from analysis.learn.kernel_run import Case, Run
from analysis.machine_code.loops import parts_of
from analysis.machine_code.occupancy import occupancy_of
from analysis.machine_code.opcodes import WARP_GROUP
from analysis.machine_code.regions import Parts
from analysis.machine_code.regs import read_registers
from analysis.machine_code.sass import parse_listing


@dataclass(frozen=True)
class Exercise:
    """One row: either a kernel with cases and checks, or questions."""

    number: int
    name: str
    title: str
    kernel: str = ""  # the version that it starts from; "" where numbers are asked for
    cases: tuple[Case, ...] = ()
    checks: tuple[Check, ...] = ()
    fails: tuple[str, ...] = ()  # kinds of the lines that the start does not pass: what is to be repaired
    questions: tuple[Question, ...] = ()

    @property
    def slug(self) -> str:
        return f"{self.number:02}_{self.name}"


# ---- figures that questions ask for ----------------------------------------------------------------------------------


@cache
def _parts(version: str, arch: str) -> Parts:
    path = root() / f"sass/{version}.{arch}.sass"
    return parts_of(parse_listing(read_text(path), str(path))[0])


def opcodes(version: str, arch: str, base: str) -> Callable[[], float]:
    """Instructions of an opcode family in the KV loop."""
    return lambda: sum(at.base == base for at in _parts(version, arch).loop)


def registers(version: str, arch: str) -> Callable[[], float]:
    """Registers of a thread, of the version's own configuration."""

    def figure() -> float:
        own = str(load(root(), version).header.config)
        for row in read_registers(root()).get(version, []):
            if (row.arch, row.config) == (arch, own):
                return row.registers
        raise AnalysisError(f"regs/registers.csv has no {version} for {arch}: run `make regs VER={version}`")

    return figure


def ctas(version: str, arch: str) -> Callable[[], float]:
    """CTAs that fit on a multiprocessor by registers, shared memory and warps."""
    return lambda: occupancy_of(arch, int(registers(version, arch)()), load(root(), version).header.config).ctas


def of_config(version: str, figure: str) -> Callable[[], float]:
    """Numbers that follow from the configuration of a version."""

    def value() -> float:
        config = load(root(), version).header.config
        rows, row_bytes = config.B_r // config.n_warps, config.d_head * 2
        return {
            "smem": config.smem_bytes(),
            "KV bytes": 2 * config.B_c * row_bytes,
            "K bytes": config.B_c * row_bytes,
            "S and O": rows * (config.B_c + config.d_head) // 32,
            "Q": rows * config.d_head // 2 // 32,
            "group S and O": 64 * (config.B_c + config.d_head) // 128,
            "consumers": config.n_warps // 4,
        }[figure]

    return value


def executed(run: Run) -> int:
    return run.total("executed")


# ---- the table -------------------------------------------------------------------------------------------------------

SMALL, ORDERS = Case(128), Case(256, schedules=(0, 1, 2))
EXERCISES = (
    Exercise(
        1,
        "online_softmax",
        "write the online softmax",
        "v00",
        (SMALL, Case(128, 2), Case(128, inputs="large")),
        (results(), findings()),
        ("results",),
    ),
    Exercise(
        2,
        "coalesced_copy",
        "let neighboring threads read neighboring bytes",
        "v00",
        (SMALL,),
        (
            results(),
            findings(),
            at_most("sectors", "sectors of 32 bytes in global memory", lambda run: run.total("sectors"), 6144),
            at_most("wavefronts", "wavefronts of shared memory", lambda run: run.total("wavefronts"), 66_560),
        ),
        ("sectors", "wavefronts"),
    ),
    Exercise(
        3,
        "bank_conflict",
        "remove a bank conflict",
        "v00",
        (SMALL,),
        (results(), findings(), no_bank_conflicts()),
        ("wavefronts",),
    ),
    Exercise(
        4,
        "lost_barrier",
        "repair a lost barrier",
        "v00",
        (Case(128, schedules=(0, 1, 2)),),
        (results(), findings(), barriers(64)),
        ("results", "race"),
    ),
    Exercise(
        5,
        "causal_mask",
        "mask the keys that a row may not see",
        "v00",
        (Case(128, 2, causal=True), Case(256, causal=True), Case(256, inputs="large", causal=True)),
        (results(), findings(), at_most("executed", "warp instructions", executed, 1_400_000)),
        ("results", "executed"),
    ),
    Exercise(
        6,
        "predict_a_tile",
        "predict what a tile costs",
        questions=(
            Question(
                "smem_bytes",
                "Bytes of shared memory of a CTA of v01: one Q block, one K block and one V block of 64 rows.",
                of_config("v01", "smem"),
                0,
                "./bin/v01 --list",
            ),
            Question(
                "kv_bytes",
                "Bytes of K and V that a CTA of v01 copies for each KV block.",
                of_config("v01", "KV bytes"),
                0,
                "2 tensors of 64 rows of 128 elements of 2 bytes",
            ),
            Question(
                "hmma",
                "HMMA that a warp of v01 executes for each KV block: an HMMA.16816 multiplies 16 x 16 by 16 x 8.",
                opcodes("v01", "sm_90", "HMMA"),
                0,
                "./fl loop v01",
            ),
            Question(
                "ldsm",
                "LDSM (ldmatrix.x4, four 8 x 8 matrices) that a warp of v01 executes for each KV block.",
                opcodes("v01", "sm_90", "LDSM"),
                0,
                "./fl loop v01",
            ),
            Question(
                "exponentials",
                "MUFU.EX2 that a thread of v01 executes for each KV block: its scores, and one factor per row.",
                opcodes("v01", "sm_90", "MUFU"),
                0,
                "./fl loop v01",
            ),
        ),
    ),
    Exercise(
        7,
        "swizzle",
        "write v02 from v01: a swizzle",
        "v01",
        (SMALL,),
        (results(), findings(), no_bank_conflicts()),
        ("wavefronts",),
    ),
    Exercise(
        8,
        "async_wait",
        "wait for a copy before reading it",
        "v01",
        (Case(128, schedules=(0, 1, 2)),),
        (results(), findings(), barriers(64)),
        ("results", "async-in-flight"),
    ),
    Exercise(
        9,
        "eager_copies",
        "write v03 from v02: copy one step ahead",
        "v02",
        (ORDERS,),
        (results(), findings(), barriers(160)),
        ("barriers",),
    ),
    Exercise(
        10,
        "wrong_fragment",
        "find a wrong operand of an mma",
        "v02",
        (SMALL,),
        (results(), findings()),
        ("results",),
    ),
    Exercise(
        11,
        "predict_registers",
        "predict registers",
        questions=(
            Question(
                "s_and_o",
                "Registers of a thread of v01 that S and O take, in fp32: 16 rows per warp, 64 keys, 128 columns.",
                of_config("v01", "S and O"),
                0,
                "16 * (64 + 128) / 32",
            ),
            Question(
                "q",
                "Registers of a thread of v01 that Q takes: 16 rows of 128 elements per warp, two in each register.",
                of_config("v01", "Q"),
                0,
                "16 * 128 / 2 / 32",
            ),
            Question(
                "v01",
                "Registers of v01 on sm_80 in all, to 10 %: K and V fragments, P, addresses and the rest come on top.",
                registers("v01", "sm_80"),
                0.1,
                "make regs VER=v01",
            ),
            Question(
                "ctas",
                "CTAs of v01 that fit on a multiprocessor of sm_80: 65536 registers, 164 KB of shared memory.",
                ctas("v01", "sm_80"),
                0,
                "./fl live v01",
            ),
            Question(
                "v00",
                "Registers of v00 on sm_80, to 10 %: 64 columns of Q and of O in fp32, 8 elements of K or V at a time.",
                registers("v00", "sm_80"),
                0.1,
                "make regs VER=v00",
            ),
        ),
    ),
    Exercise(
        12,
        "lazy_threshold",
        "choose the threshold of a lazy rescale",
        "v17",
        (Case(128), Case(512, inputs="falling")),
        (
            results(),
            findings(),
            at_most("shuffles", "warp shuffles", lambda run: run.total("executed", "shfl"), 640),
        ),
        ("results",),
    ),
    Exercise(
        13,
        "ring_phase",
        "wait for the right phase of an mbarrier",
        "v19",
        (Case(512, schedules=(0, 1, 2)),),
        (results(), findings()),
        ("results", "async-in-flight"),
    ),
    Exercise(
        14,
        "ring_release",
        "give the stages of a ring back",
        "v19",
        (Case(512, schedules=(0, 1, 2)),),
        (results(), findings()),
        ("results", "deadlock"),
    ),
    Exercise(
        15,
        "wgmma_fence",
        "order registers with wgmma",
        "v26",
        (Case(256),),
        (results(), findings()),
        ("wgmma-misuse",),
    ),
    Exercise(
        16,
        "proxy_fence",
        "make copies visible to wgmma",
        "v26",
        (Case(256),),
        (results(), findings()),
        ("missing-proxy-fence",),
    ),
    Exercise(
        17,
        "expect_bytes",
        "expect the bytes of a tensor copy",
        "v27",
        (Case(256),),
        (results(), findings()),
        ("results", "deadlock"),
    ),
    Exercise(
        18,
        "ping_pong",
        "end the deadlock of two consumers that take turns",
        "v30",
        (Case(384, schedules=(0, 1)),),
        (
            results(),
            findings(),
            at_least("turns", "warps that pass a named barrier", lambda run: run.total("executed", "bar"), 100),
        ),
        ("results", "deadlock", "turns"),
    ),
    Exercise(
        19,
        "predict_hopper",
        "predict what Hopper's instructions do",
        questions=(
            Question(
                "wgmma",
                "HGMMA that a warpgroup of v26 executes for each KV block: m64n128k16 for S and for O, 128 keys.",
                lambda: sum(at.base in WARP_GROUP for at in _parts("v26", "sm_90a").loop),
                0,
                "./fl loop v26",
            ),
            Question(
                "s_and_o",
                "Registers of a thread that S and O of v26 take: 64 rows, 128 keys and 128 columns in fp32.",
                of_config("v26", "group S and O"),
                0,
                "64 * (128 + 128) / 128 threads",
            ),
            Question(
                "expect_tx",
                "Bytes that the mbarrier of a K block of v27 expects: 128 rows.",
                of_config("v27", "K bytes"),
                0,
                "KV_bytes in kernels/wgmma/v27_tensor_copies.cu",
            ),
            Question(
                "arrivals",
                "Arrivals that complete a phase of an `empty` mbarrier of v28.",
                of_config("v28", "consumers"),
                0,
                "init_mbarriers in kernels/wgmma/v28_producer.cu",
            ),
            Question(
                "ctas",
                "CTAs of v28 that fit on a multiprocessor of an H100 or H200.",
                ctas("v28", "sm_90a"),
                0,
                "./fl live v28",
            ),
        ),
    ),
    Exercise(
        20,
        "predict_small_steps",
        "predict what small steps leave alone",
        questions=(
            Question(
                "hmma",
                "HMMA that a warp of v16 executes for each KV block: 32 rows, 64 keys, 128 columns, two products.",
                opcodes("v16", "sm_90", "HMMA"),
                0,
                "./fl loop v16",
            ),
            Question(
                "ldsm",
                "LDSM (ldmatrix.x4) of v16 for each KV block, Q read again for each step of 16 columns.",
                opcodes("v16", "sm_90", "LDSM"),
                0,
                "./fl loop v16",
            ),
            Question(
                "exponentials",
                "MUFU.EX2 of v16 for each KV block: a thread's scores, and a factor for each of its four rows.",
                opcodes("v16", "sm_90", "MUFU"),
                0,
                "./fl loop v16",
            ),
            Question(
                "moves",
                "MOV that v14's cache policy of the output stores adds to the loop of v13 on sm_90.",
                lambda: opcodes("v14", "sm_90", "MOV")() - opcodes("v13", "sm_90", "MOV")(),
                0,
                "make sass-diff A=v13 B=v14",
            ),
            Question(
                "ctas",
                "CTAs of v16 that fit on a multiprocessor of sm_80: 255 registers a thread, 128 threads.",
                ctas("v16", "sm_80"),
                0,
                "./fl live v16",
            ),
        ),
    ),
    Exercise(
        21,
        "predict_pipeline",
        "predict what one pipeline takes",
        questions=(
            Question(
                "smem_bytes",
                "Bytes of shared memory of a CTA of v33: two Q blocks and O of 128 rows, stages of K and V, mbarriers.",
                of_config("v33", "smem"),
                0.02,
                "./bin/v33 --list",
            ),
            Question(
                "s_and_o",
                "Registers of a thread that S and O of v37 take, in fp32.",
                of_config("v37", "group S and O"),
                0,
                "64 * (128 + 128) / 128 threads",
            ),
            Question(
                "wgmma",
                "HGMMA that a warpgroup of v33 executes for each KV block of 128 keys.",
                lambda: sum(at.base in WARP_GROUP for at in _parts("v33", "sm_90a").loop),
                0,
                "./fl loop v33",
            ),
            Question(
                "ctas",
                "CTAs of v37 that fit on a multiprocessor of an H100 or H200.",
                ctas("v37", "sm_90a"),
                0,
                "./fl live v37",
            ),
        ),
    ),
    Exercise(
        22,
        "mask_S",
        "write mask_S: a causal mask on fragments",
        "v02",
        (Case(128, 2, causal=True), Case(256, causal=True), Case(256, inputs="large", causal=True)),
        (results(), findings(), at_most("executed", "warp instructions", executed, 42_000)),
        ("results", "executed"),
    ),
    Exercise(
        23,
        "producer_loop",
        "write a producer's loop",
        "v28",
        (Case(640, schedules=(0, 1, 2)),),
        (
            results(),
            findings(),
            at_most("waits", "arrivals with bytes", lambda run: run.total("executed", "mbarrier.arrive.expect_tx"), 30),
        ),
        ("results", "deadlock"),
    ),
    Exercise(
        24,
        "overlap",
        "compute scores during exponentials",
        "v28",
        (Case(640, schedules=(0, 1, 2)),),
        (
            results(),
            findings(),
            at_least(
                "ahead",
                "warps that wait with one product still running",
                lambda run: run.total("executed", "wgmma.wait_group.sync.aligned 1"),
                160,
            ),
        ),
        ("ahead",),
    ),
    Exercise(
        25,
        "own_kernel",
        "your own kernel, within two limits",
        "v00a",
        (Case(128, 2), Case(256), Case(256, inputs="large")),
        (
            results(),
            findings(),
            at_most("wavefronts", "wavefronts of shared memory", lambda run: run.total("wavefronts"), 20_480),
            at_most("executed", "warp instructions", executed, 70_000),
        ),
        ("wavefronts", "executed"),
    ),
)
