"""Kernels on the emulator, by their executables: every production kernel on edges and random problems, every frozen
version of the backward pass and of fp8 once. All rows are compared with float64, and a finding is a failure.

Rows past the end of a sequence hold NaN, and a write to them is a finding or a stray.
"""

import json
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT, made_up, records
from made_up_gpu import run as run_executable

from analysis.ladder.config import ConfigError, Dtype, KernelConfig
from analysis.ladder.headers import GRADIENTS, Version, load_attention, load_backward, load_fp8, refusals
from analysis.measure.schema import fault_of
from analysis.tests.support.kinds import some_in_check

FORWARD = load_attention(ROOT)
KERNELS = FORWARD | {name: load_backward(ROOT)[name] for name in GRADIENTS}
FP8, BACKWARD = load_fp8(ROOT), {name: one for name, one in load_backward(ROOT).items() if name not in GRADIENTS}
HOPPER_GRADIENTS, MMA_GRADIENTS = GRADIENTS
MMA_SYNC, WGMMA, DECODE = (f"attention/{name}" for name in ("mma_sync", "wgmma", "decode"))
FP8_KERNEL, FP8_MMA, FP8_SCALED = (f"attention/{name}" for name in ("fp8", "fp8_mma_sync", "fp8_mma_scaled"))
CP_ASYNC = "attention/decode_mma_sync"


def program_of(kernel: str) -> Path:
    path = ROOT / "bin" / kernel.replace("/", ".")
    if not path.exists():
        pytest.skip(f"{path} is not built: make {path.name}")
    return path


def run(kernel: str, *arguments: str, **environment: str) -> Any:
    return run_executable(*arguments, program=program_of(kernel), **environment)


def record_of(kernel: str, arguments: str | list[str]) -> dict[str, Any]:
    """The record of a run that is correct and has no finding."""
    words = arguments.split() if isinstance(arguments, str) else arguments
    done = run(kernel, "--backend", "emu", "--check", "all", "--quiet", "--json", "-", *words)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    (record,) = records(done)
    assert record["check"]["pass"] and not record["check"]["strays"] and not record["counters"]["findings"]
    assert not fault_of(record)
    return record


def config_of(kernel: str, *words: str) -> str:
    """The first config of a kernel with these words, without spaces: one word of a command."""
    version = KERNELS[kernel]
    names = (each.short_form().replace(" ", "") for each in (version.header.config, *version.header.additional))
    return next(name for name in names if all(word in name for word in words))


def served_configs(kernel: str) -> list[KernelConfig]:
    return [one for one in KERNELS[kernel].header.additional if one.serves]


# ---- edges -----------------------------------------------------------------------------------------------------------

# One case for each thing that a kernel can do.
PLAIN = {
    "any length": "--seq-q 150 --seq-k 133 --heads 2 --lse",
    "a mask": "--seq-q 290 --seq-k 200 --heads 2 --lse --causal",
    "shared heads": "--seq-q 40 --seq-k 70 --heads 6 --kv-heads 2 --batch 2 --lse",
    "more Q blocks than CTAs": "--seq-q 300 --seq-k 200 --heads 9 --kv-heads 3 --causal --dist large --schedule 1",
}
RAGGED = "--layout packed --seqlens-q 70,0,3,0,9 --seqlens-k 66,5,0,0,2 --causal"
OF_LENGTHS = [
    f"{RAGGED} --heads 3 --kv-heads 1 --lse --sinks",
    "--seqlens-q 5,130,0 --seqlens-k 300,130,17 --heads 4 --kv-heads 2 --page-rows 16 --softcap 5",
    "--seq-q 129 --seq-k 1 --heads 40 --window 5,5 --causal --d-head 256",
    "--seq-q 70 --seq-k 260 --heads 2 --window 63,0 --lse --layout bhsd",
]
OF_CACHES = [
    "--seq-q 1 --seqlens-k 70,0,33,128 --heads 8 --kv-heads 2 --page-rows 16 --split-keys 64 --lse",
    "--seq-q 3 --seqlens-k 70,1,33,128 --heads 8 --kv-heads 2 --page-rows 32 --causal --layout padded",
    f"--seq-q 1 --seqlens-k {','.join(['65,0,1,63'] * 17)} --heads 1 --page-rows 16 --split-keys 64",
    "--seq-q 1 --seqlens-k 1300,530 --heads 1 --page-rows 16",
    "--seq-q 1 --seqlens-k 1300,530 --heads 8 --split-keys 64",  # 11 parts of 128 keys, and 9 of 64
]
SERVED = {
    WGMMA: [*OF_LENGTHS, *(f"{RAGGED} --heads 2 --config {config_of(WGMMA, d, 'dropout')}" for d in ("64", "128"))],
    MMA_SYNC: [
        *OF_LENGTHS,
        f"--seqlens-q {','.join(['3,0,1,65'] * 17)} --seqlens-k {','.join(['65,9,1,63'] * 17)} --heads 1 --causal",
        *(f"{RAGGED} --heads 6 --kv-heads 2 --window 20,0 --d-head {d_head} --lse" for d_head in (64, 96, 192)),
        f"{RAGGED} --heads 5 --kv-heads 1 --config {config_of(MMA_SYNC, 'FP16,256,64,16', 'serve')}",
    ],
    CP_ASYNC: [
        *OF_CACHES,
        f"--seq-q 2 --seqlens-k 90,0,41 --heads 4 --kv-heads 2 --page-rows 16 --descale-v 3 "
        f"--config {config_of(CP_ASYNC, 'FP16,128,16,128,2', 'e4m3')}",
        f"{RAGGED} --heads 4 --kv-heads 2 --split-keys 128 --config {config_of(CP_ASYNC, 'ragged')}",
        f"{RAGGED} --heads 4 --kv-heads 2 --lse --config {config_of(CP_ASYNC, '128,2)', 'ragged', 'int8')}",
        f"--seq-q 3 --seqlens-k 90,41 --heads 8 --kv-heads 1 --causal --config {config_of(CP_ASYNC, 'FP16,64,32')}",
    ],
    DECODE: [
        *OF_CACHES,
        "--seq-q 9 --seqlens-k 90,41 --heads 4 --kv-heads 1 --config (FP16,128,64,64,4):wgmma+tensor+stages_4+serve",
        "--seq-q 17 --seqlens-k 90,41,0 --heads 8 --kv-heads 1 --causal --page-rows 16 --dtype bf16 "
        "--config (BF16,128,128,64,8):wgmma+tensor+stages_4+serve",
        "--seq-q 2 --seqlens-k 90,0,41 --heads 4 --kv-heads 2 --page-rows 16 --descale-v 3 "
        f"--config {config_of(DECODE, 'e4m3')}",
        f"{RAGGED} --heads 4 --kv-heads 2 --split-keys 128 --config {config_of(DECODE, 'ragged')}",
        "--seq-q 2 --seqlens-k 90,0,41 --heads 4 --kv-heads 2 --page-rows 16 --descale-v 3 --dist large "
        f"--config {config_of(DECODE, 'int8')}",
    ],
    FP8_KERNEL: [
        f"{RAGGED} --heads 2 --kv-heads 1 --lse --config {config_of(FP8_KERNEL, *words)}"
        for words in (("FP16,128", "serve"), ("FP16,64", "flush", "serve"), ("FP16,256", "serve"))
    ],
    **{
        name: [f"{RAGGED} --heads 2 --lse --config {config_of(name, f'FP16,{d}', 'serve')}" for d in (64, 128, 256)]
        for name in (FP8_MMA, FP8_SCALED)
    },
    HOPPER_GRADIENTS: [
        f"{RAGGED} --heads 1 --config {config_of(HOPPER_GRADIENTS, *words)}"
        for words in (("FP16,128", "serve"), ("FP16,64", "order", "serve"), ("FP16,256", "serve"))
    ],
    MMA_GRADIENTS: [
        f"{RAGGED} --heads 1 --config {one.short_form().replace(' ', '')}" for one in served_configs(MMA_GRADIENTS)
    ],
}
# Edges of windows, queries that attend to one key or to none, and rows past the used lengths, which hold NaN.
OF_GRADIENTS = (
    "--seq-q 200 --seq-k 150 --heads 2 --kv-heads 1 --window 0,0 --sinks --softcap 5",
    "--seq-q 70 --seq-k 260 --heads 1 --window 63,0 --causal --sinks",
    "--seqlens-q 70,0,3 --seqlens-k 66,5,130 --heads 2 --causal --softcap 50 --window 500,-1",
    "--seqlens-q 130,70 --seqlens-k 0,300 --heads 2 --kv-heads 1 --window 64,64 --sinks",
    "--seq-q 300 --seq-k 40 --heads 1 --window 5,128 --causal",
    f"{RAGGED} --heads 2 --kv-heads 1 --window 3,-1 --softcap 5 --sinks",
)
for name in GRADIENTS:
    for number, (one, arguments) in enumerate(zip(served_configs(name), cycle(OF_GRADIENTS), strict=False)):
        SERVED[name].append(f"{arguments} --schedule {number} --config {one.short_form().replace(' ', '')}")


@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("kernel", KERNELS)
def test_edges(kernel: str, case: str) -> None:
    arguments = PLAIN[case]
    if kernel in GRADIENTS:
        arguments = arguments.replace(" --lse", "")
    version = KERNELS[kernel]
    sizes = [each.d_head for each in (version.header.config, *version.header.others)]
    d_head = max(sizes) if "--schedule" in arguments else sizes[0]
    record_of(kernel, f"--batch 1 --heads 1 {arguments} --d-head {d_head}")


@pytest.mark.parametrize(
    ("kernel", "arguments"), [(kernel, each) for kernel, several in SERVED.items() for each in several]
)
def test_lengths_pages_and_masks(kernel: str, arguments: str) -> None:
    record = record_of(kernel, arguments)
    assert "serve" in record["config"]
    asked = dict(pairwise(arguments.split()))
    if kernel in (DECODE, CP_ASYNC):
        for name in ("page_rows", "split_keys"):
            assert record["problem"][name] == int(asked.get(f"--{name.replace('_', '-')}", 0))
    if kernel in GRADIENTS and arguments.startswith(f"{RAGGED} --heads 1 "):
        assert record["check"]["rows"] == 70 + 3 + 9 + 66 + 5 + 2


# Rows of all sizes, with block masks or split keys: sequences that end within a block, rows without keys.
IN_ORDERS = {
    "--d-head 64 --seq-q 300 --seq-k 1100 --heads 3 --kv-heads 1 --causal": "--block-mask random:1",
    "--seq-q 700 --seq-k 600 --heads 2 --dtype bf16": "--block-mask causal",
    "--d-head 256 --seq-q 150 --seq-k 1000 --heads 2 --window 500,0": "--block-mask random:2",
    "--d-head 192 --d-head-v 128 --seq-q 1000 --seq-k 1100 --heads 1": "--block-mask document",
    "--d-head 576 --d-head-v 512 --seq-q 150 --seq-k 700 --heads 1": "--block-mask random:3",
    "--d-head 72 --d-head-v 40 --layout packed --seqlens-q 300,0 --seqlens-k 520,7 --heads 2": "--block-mask random:4",
    "--d-head 80 --seq-q 300 --seqlens-k 1100,30,0,250 --heads 2 --kv-heads 1 --causal --sinks": "--split-keys 256",
    "--d-head 256 --seq-q 150 --seq-k 1000 --heads 1 --window 500,-1 --softcap 5": "--split-keys 128",
    "--d-head 192 --d-head-v 128 --layout packed --seqlens-q 3,150 --seqlens-k 700,200 --heads 1": "--split-keys 128",
    "--d-head 512 --seq-q 700 --seq-k 800 --heads 1 --softcap 5": "--split-keys 256",
    "--d-head 320 --layout packed --seqlens-q 150,0,1 --seqlens-k 300,9,250 --heads 2": "--page-rows 16",
    f"--config {config_of(WGMMA, 'latent')} --seq-q 100 --seqlens-k 333,0,64,31 --heads 1 --causal": "--split-keys 64",
    f"--config {config_of(WGMMA, 'latent')} --seq-q 3 --seqlens-k 333,5 --heads 2 --page-rows 16": "--split-keys 32",
}  # fmt: skip
CASES = [(WGMMA, each) for each in IN_ORDERS] + [(MMA_SYNC, each) for each in IN_ORDERS if "mask" in IN_ORDERS[each]]


@pytest.mark.parametrize(("kernel", "arguments"), CASES)
def test_extended_configs_in_several_orders(kernel: str, arguments: str) -> None:
    """Without a race, whichever warp runs first."""
    name, value = IN_ORDERS[arguments].removeprefix("--").replace("-", "_").split()
    d_head_v = dict(pairwise(arguments.split())).get("--d-head-v", "512" if "latent" in arguments else "None")
    for schedule in range(4):
        record = record_of(kernel, f"{arguments} --lse {IN_ORDERS[arguments]} --schedule {schedule}")
        assert str(record["problem"][name]) == value and "extend" in record["config"]
        assert str(record["problem"].get("d_head_v")) == d_head_v


def test_hidden_blocks_are_skipped() -> None:
    """Documents of 1, 2, 3, 1 and 1 blocks: 16 of 64."""
    sizes = "--seq 1024 --heads 1 --block-mask"
    record = record_of(WGMMA, f"{sizes} document")
    assert record["problem"]["visible_pairs"] == 16 * 128**2
    assert record["counters"]["total"]["wgmma"] == count_of(WGMMA, "wgmma", f"{sizes} causal") * 16 / 36


SMALLEST = {
    MMA_SYNC: ("FP16,256,64,16", "FP16,128,128,32", "FP16,192,64"),
    CP_ASYNC: ("FP16,128,16,64,2",),
    MMA_GRADIENTS: tuple(
        f"FP16,{sizes}):backward_mma_sync+dq_sums{order}"
        for sizes in ("64,64,128,8", "128,64,64,4", "256,32,32,4")
        for order in ("", "+in_order")
    ),
}


@pytest.mark.parametrize("arch", ["sm_86", "sm_89"])
@pytest.mark.parametrize("kernel", SMALLEST)
def test_every_head_size_fits_a_gpu_with_99_KB(kernel: str, arch: str) -> None:
    """On emulated GPUs with the limits of real ones. Without --config one that fits runs; others state their bytes."""
    emulated, program = ROOT / "bin/emulated-gpu", str(program_of(kernel))
    if not emulated.exists():
        pytest.skip("bin/emulated-gpu is not built: make libcuda")
    words = ("--backend", "gpu", "--profile", "--seq-q", "3", "--seq-k", "70", "--batch", "1", "--heads", "1")
    for config in ((), *(("--config", config_of(kernel, name, "serve")) for name in SMALLEST[kernel])):
        done = run_executable("--arch", arch, program, *words, *config, program=emulated)
        assert done.returncode == 0, done.stderr
    done = run_executable("--arch", arch, program, *words, "--config", config_of(kernel), program=emulated)
    assert done.returncode == 77 and "bytes of shared memory per CTA" in done.stderr


# ---- random problems -------------------------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**62)
# 0, a few, about a block or two.
LENGTHS = st.one_of(st.integers(0, 3), st.integers(1, 280), st.sampled_from((63, 64, 65, 127, 128, 129, 255, 256, 257)))
WINDOWS = st.one_of(st.just(-1), st.integers(0, 20), st.integers(0, 300), st.sampled_from((63, 64, 127, 128)))


def words_of(sizes: dict[str, object], flags: list[str]) -> list[str]:
    return [*(f"--{name}={value}" for name, value in sizes.items()), *flags]


@st.composite
def common(draw: st.DrawFn, groups: tuple[int, ...] = (1, 2, 3, 8)) -> dict[str, object]:
    KV_heads = draw(st.integers(1, 2))
    return {
        "heads": KV_heads * draw(st.sampled_from(groups)),
        "kv-heads": KV_heads,
        "seed": draw(SEEDS),
        "schedule": draw(st.integers(0, 9)),
    }


@st.composite
def sequences(draw: st.DrawFn, layouts: tuple[str, ...]) -> dict[str, object]:
    """Lengths of some sequences; packed ones have a row of Q and one of K."""
    count = draw(st.integers(1, 5))
    Q, K = (draw(st.lists(LENGTHS, min_size=count, max_size=count)) for _ in range(2))
    layout = draw(st.sampled_from(layouts))
    if layout == "packed":
        Q[0], K[-1] = max(1, Q[0]), max(1, K[-1])
    return {"seqlens-q": ",".join(map(str, Q)), "seqlens-k": ",".join(map(str, K)), "layout": layout}


@st.composite
def plain(draw: st.DrawFn, version: Version) -> list[str]:
    header = version.header
    config = draw(st.sampled_from([one for one in (header.config, *header.additional) if not one.serves]))
    sizes = draw(common()) | {
        "seq-q": max(1, draw(LENGTHS)),
        "seq-k": max(1, draw(LENGTHS)),
        "batch": draw(st.integers(1, 2)),
        "config": config.replace(dtype=draw(st.sampled_from(tuple(Dtype)))).short_form(),
    }
    if scale := draw(st.sampled_from((0, 0, 0.01, 0.3))):
        sizes["scale"] = scale
    flags = ["--causal"] * draw(st.booleans())
    if version.version in GRADIENTS:
        return words_of(sizes, flags)
    sizes["dist"] = draw(st.sampled_from(("normal", "normal", "uniform", "large")))
    sizes["layout"] = draw(st.sampled_from(("bshd",) if config.e4m3_inputs else ("bshd", "bhsd", "padded")))
    return words_of(sizes, flags + ["--lse"] * draw(st.booleans()))


@st.composite
def served_by_attention(draw: st.DrawFn, kernel: str) -> list[str]:
    sizes = draw(common((1, 2, 3, 5))) | draw(sequences(("packed", "bshd", "bhsd", "padded")))
    if kernel == WGMMA:
        sizes |= {"d-head": draw(st.sampled_from((64, 128, 256))), "dtype": draw(st.sampled_from(("fp16", "bf16")))}
    else:
        config = draw(st.sampled_from(FORWARD[kernel].header.serving))
        sizes["config"] = config.replace(dtype=draw(st.sampled_from(tuple(Dtype)))).short_form()
    sizes |= {"window": f"{draw(WINDOWS)},{draw(WINDOWS)}", "dist": draw(st.sampled_from(("normal", "large")))}
    if draw(st.booleans()):
        sizes["softcap"] = draw(st.sampled_from((0.5, 5, 30)))
    if draw(st.booleans()):
        sizes["page-rows"] = draw(st.sampled_from((16, 32, 64, 128, 256)))
    return words_of(sizes, [name for name in ("--lse", "--causal", "--sinks") if draw(st.booleans())])


@st.composite
def served_by_decode(draw: st.DrawFn, kernel: str) -> list[str]:
    config = draw(st.sampled_from(FORWARD[kernel].header.serving))
    sizes = draw(common((1, 2, 4))) | {
        "config": config.replace(dtype=draw(st.sampled_from(tuple(Dtype)))).short_form(),
        "page-rows": draw(st.sampled_from((16, 32, 64, 128, 256))),
    }
    if draw(st.booleans()):
        sizes["split-keys"] = draw(st.sampled_from((128, 256)))
    if config.ragged_queries:
        sizes |= draw(sequences(("packed",)))
    else:
        sizes["seq-q"] = draw(st.sampled_from((1, 2, 5) if config.B_r == 16 else (3, 9, 17)))
        sizes["seqlens-k"] = ",".join(map(str, draw(st.lists(LENGTHS, min_size=1, max_size=5))))
    if config.e4m3_cache or config.int8_cache:
        sizes["descale-v"] = draw(st.sampled_from((0.3, 1, 2)))
    return words_of(sizes, [name for name in ("--lse", "--causal") if draw(st.booleans())])


@st.composite
def served_by(draw: st.DrawFn, kernel: str) -> list[str]:
    """With gradients also windows, soft caps and sinks, and sequences that are not packed."""
    gradients = kernel in GRADIENTS
    config = draw(st.sampled_from(served_configs(kernel)))
    sizes = draw(common((1, 2, 4))) | draw(sequences(("packed", "bshd") if gradients else ("packed",)))
    sizes["config"] = config.replace(dtype=draw(st.sampled_from(tuple(Dtype)))).short_form()
    if gradients:
        sizes["window"] = f"{draw(WINDOWS)},{draw(WINDOWS)}"
    if gradients and draw(st.booleans()):
        sizes["softcap"] = draw(st.sampled_from((1, 5, 50)))
    flags = ("--causal", "--sinks") if gradients else ("--causal",)
    return words_of(sizes, [name for name in flags if draw(st.booleans())])


SERVES = dict.fromkeys((WGMMA, MMA_SYNC), served_by_attention) | dict.fromkeys((DECODE, CP_ASYNC), served_by_decode)
SERVES |= dict.fromkeys((FP8_KERNEL, FP8_MMA, FP8_SCALED, *GRADIENTS), served_by)
RANDOM = {name: [plain(one), *(SERVES[name](name) for _ in range(name in SERVES))] for name, one in KERNELS.items()}


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize(("kernel", "kind"), [(name, kind) for name in RANDOM for kind in range(len(RANDOM[name]))])
def test_random_problems(kernel: str, kind: int, examples: int) -> None:
    @settings(max_examples=examples)
    @given(arguments=RANDOM[kernel][kind])
    def each(arguments: list[str]) -> None:
        record_of(kernel, arguments)

    each()


# ---- bits and work ---------------------------------------------------------------------------------------------------


def output_of(folder: Path, kernel: str, arguments: str) -> bytes:
    done = run(kernel, "--backend", "emu", "--quiet", "--output", str(folder / "O"), *arguments.split())
    assert done.returncode == 0, done.stderr
    return (folder / "O").read_bytes()


@pytest.mark.parametrize(
    ("kernel", "fixed"),
    [
        (WGMMA, "--heads 2 --dist large --dtype bf16"),
        (MMA_SYNC, "--heads 2 --dist large --dtype bf16"),
        (DECODE, f"--heads 4 --kv-heads 2 --split-keys 256 --config {config_of(DECODE, 'FP16,128,64', 'ragged')}"),
        (CP_ASYNC, f"--heads 4 --kv-heads 2 --split-keys 256 --config {config_of(CP_ASYNC, 'ragged')}"),
    ],
)
def test_a_sequence_does_not_depend_on_its_neighbours(tmp_path: Path, kernel: str, fixed: str) -> None:
    """Bit for bit: its rows alone, and before another sequence."""
    alone, both = (
        output_of(tmp_path, kernel, f"{fixed} --causal --layout packed --seqlens-q {Q} --seqlens-k {K}")
        for Q, K in (("100", "170"), ("100,90", "170,160"))
    )
    assert both[: len(alone)] == alone


@pytest.mark.parametrize("d_head", some_in_check([64, 128, 256], [128]))
@pytest.mark.parametrize("kernel", [WGMMA, MMA_SYNC])
def test_pages_change_no_bit(tmp_path: Path, kernel: str, d_head: int) -> None:
    """Of scores that exceed their first maximum, too, for which the kernel reads K itself."""
    fixed = f"--heads 4 --kv-heads 2 --dist large --causal --layout packed --d-head {d_head} "
    fixed += "--seqlens-q 5,130,0,1,64 --seqlens-k 300,130,17,513,0"
    in_order = output_of(tmp_path, kernel, fixed)
    for page_rows in (16, 256):
        assert output_of(tmp_path, kernel, f"{fixed} --page-rows {page_rows}") == in_order


@pytest.mark.parametrize(("heads", "words"), [(6, "+pages"), (8, "")])
def test_packed_heads_have_the_bits_of_their_own_Q_blocks(tmp_path: Path, heads: int, words: str) -> None:
    """Of queries for which the same KV blocks are masked. Three heads leave one row of four empty."""
    shape = f"(FP16,128,128,128,8):wgmma+stages_2+exp_32+ping_pong+serve{words}"
    fixed = f"--causal --layout packed --sinks --kv-heads 2 --heads {heads} {'--page-rows 16 ' if words else ''}"
    fixed += "--seqlens-q 1,64,0,2,33 --seqlens-k 300,128,17,512,0"
    own, packed = (output_of(tmp_path, WGMMA, f"{fixed} --config {shape}{pack}") for pack in ("", "+pack"))
    assert own == packed


@pytest.mark.parametrize("mask", ["--causal", "--window 150,70"])
@pytest.mark.parametrize(
    ("kernel", "config"), [(name, one) for name in GRADIENTS for one in served_configs(name) if one.in_order]
)
def test_gradients_in_order_have_the_same_bits_in_every_run(
    tmp_path: Path, kernel: str, config: KernelConfig, mask: str
) -> None:
    """Of three or more CTAs that add to one dQ, in orders in which CTAs that do not wait give different bits."""
    fixed = f"--seq-q 200 --seq-k 300 --heads 1 --d-head {config.d_head} {mask} --config "
    fixed += config.short_form().replace(" ", "")
    runs = {output_of(tmp_path, kernel, f"{fixed} --schedule {number}") for number in (0, 1, 4, 6)}
    assert len(runs) == 1


def count_of(kernel: str, name: str, arguments: str) -> int:
    count: int = record_of(kernel, arguments)["counters"]["total"][name]
    return count


def test_blocks_outside_a_window_are_skipped() -> None:
    for kernel, name in ((WGMMA, "wgmma"), (MMA_SYNC, "mma")):
        whole = count_of(kernel, name, "--seq 2048 --heads 1 --window -1,2047")
        assert count_of(kernel, name, "--seq 2048 --heads 1 --window 127,0") <= whole / 16 * 2.1  # of 16 KV blocks two


def test_heads_of_a_group_share_Q_blocks() -> None:
    """Where they need fewer: 130 queries of a head alone take two, and those of four heads take five. With mma.sync
    only warps of 16 rows that exist multiply: of 520 rows 33."""
    own = f"--config {config_of(MMA_SYNC, 'FP16,128,128', 'serve')}"
    for kernel, name, config, cases in (
        (WGMMA, "wgmma", "", (("1,1", 2 + 2), ("130,1", 10 + 2), ("128,32", 8 + 2))),
        (MMA_SYNC, "mma", own, (("1,1", 4 / 8), ("130,1", 68 / 8))),
    ):
        one = count_of(kernel, name, f"--heads 1 --layout packed --seqlens-q 128 --seqlens-k 128 {config}")
        for lengths, blocks in cases:
            fixed = f"--heads 8 --kv-heads 2 --layout packed --seqlens-q {lengths} --seqlens-k 128,128"
            assert count_of(kernel, name, f"{fixed} {config}") == blocks * one


def test_scores_that_overflow_are_computed_again() -> None:
    """mma.sync is in attention/fp8 for these alone; f07 and f08 copy K and V again, f08 Q as well."""
    sizes = "--heads 1 --seq-q 64 --seq-k 480 --dist large --scale"
    few, many = (count_of(FP8_KERNEL, "mma", f"{sizes} {scale}") for scale in ("0.001", "0.5"))
    assert few == 0 < many
    Q, blocks = 192 * 128, 2 * 480 * 128  # bytes of Q, and of K and V; O has those of Q twice
    for version, again in (("f07", blocks), ("f08", blocks + Q)):
        sizes = "--heads 1 --seq-q 192 --seq-k 480 --dist large --scale"
        copied = [count_of(version, "copied", f"{sizes} {scale}") for scale in ("0.01", "0.0884")]
        assert copied == [3 * Q + blocks, 3 * Q + blocks + again]


def test_accurate_sums_keep_a_mean() -> None:
    """wgmma of e4m3 cuts sums towards zero; V of U(0, 1) has a mean."""
    sizes = "--heads 1 --seq-q 64 --seq-k 1000 --dist uniform --config"
    fast, accurate = (
        record_of(FP8_KERNEL, f"{sizes} {name}")["check"]["max_error"]
        for name in (config_of(FP8_KERNEL, "FP16,128"), config_of(FP8_KERNEL, "FP16,128", "flush"))
    )
    assert accurate < 0.5 * fast


# ---- frozen versions -------------------------------------------------------------------------------------------------

# Warp instructions, wgmma and wavefronts of one block of queries on 256 keys: a change is either meant or a mistake.
GOLDEN = {
    "f01": (11608, 128, 256, 256),
    "f02": (13935, 128, 1024, 768),
    "f03": (10789, 128, 256, 256),
    "f04": (24718, 252, 1344, 960),
    "f05": (18031, 128, 1024, 768),
    "f06": (25913, 252, 1344, 960),
    "f07": (23092, 252, 1361, 977),
    "f08": (24381, 252, 1373, 989),
}


@pytest.mark.parametrize("version", FP8)
def test_a_version_of_fp8_is_right(version: str) -> None:
    config = FP8[version].header.config
    record = record_of(version, f"--heads 1 --seq-q {config.B_r} --seq-k 256 --lse --descale-v 2")
    problem, total = record["problem"], record["counters"]["total"]
    assert (problem["dtype"], problem["output_dtype"], problem["descale_v"]) == ("e4m3", "fp16", 2)
    assert (total["executed"], total["wgmma"], total["wavefronts"], total["ideal"]) == GOLDEN[version]


@pytest.mark.parametrize(
    ("version", "config"),
    [(name, one) for name, each in BACKWARD.items() for one in (each.header.config, *each.header.ordered)],
)
def test_a_version_of_the_backward_pass_is_right(version: str, config: KernelConfig) -> None:
    form = config.replace(dtype=Dtype.BF16).short_form().replace(" ", "")
    record = record_of(version, f"--heads 2 --seq 256 --schedule 7 --config {form}")
    assert record["problem"]["pass"] == "backward"
    assert all(0 < record["check"][f"d{name}_relative_error"] < 1.2 * 2**-8 for name in "qkv")


def test_a_record_of_the_backward_pass_sums_its_kernels(tmp_path: Path) -> None:
    """Counters are sums over the three kernels, events those of flash_backward alone."""
    events = tmp_path / "events.json"
    record = record_of("b03", f"--heads 1 --seq 64 --counters --trace-events {events}")
    lines = record["counters"]["lines"]
    assert {"rows.cuh", "b03_one_pass.cu"} <= {Path(line["file"]).name for line in lines}
    assert sum(line["executed"] for line in lines) == record["counters"]["total"]["executed"]
    assert json.loads(events.read_text())


def test_a_flag_that_a_kernel_does_not_act_on_is_rejected() -> None:
    for version in (*FP8.values(), FORWARD[FP8_KERNEL]):
        config = version.header.config
        for name in ("V_transposed", "K_permuted", "any_length", "causal", "persistent"):
            try:
                flipped = config.replace(**{name: not getattr(config, name)})
            except ConfigError:
                continue  # a rule of common/fp8_fields.h
            assert any("must be" in sentence for sentence in refusals(version, flipped)), (version.version, name)


# ---- what is rejected ------------------------------------------------------------------------------------------------

SERVE = "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve"
TAKES = f"--config {SERVE.replace(' ', '')}"
BYTES = config_of(DECODE, "FP16,128,16", "e4m3")
CACHES = "--seq-q 1 --seqlens-k 40,3"


@pytest.mark.parametrize(
    ("kernel", "arguments", "sentence"),
    [
        (MMA_SYNC, "--d-head 513", "attention/mma_sync supports 128, 64, 96, 192, 256 and multiples of 8 up to 512"),
        (WGMMA, "--seqlens-q 5,x", "--seqlens-q '5,x': expected a positive number at 'x'"),
        (WGMMA, "--seqlens-k 5", "--seqlens-k: needs the number of queries; add --seqlens-q, --seq-q or --seq"),
        (WGMMA, "--seqlens-q 5 --batch 2", "--seqlens-q: cannot be combined with --batch, because both set the number"),
        (WGMMA, "--seqlens-q 5 --seq 2", "--seqlens-q: already sets the number of queries; remove --seq"),
        (WGMMA, "--seqlens-q 5,6 --seqlens-k 7", "--seqlens-k: has 1 lengths for 2 sequences; give one"),
        (WGMMA, "--seqlens-q 0 --layout packed", "--seqlens-q: every length is 0; at least one"),
        (WGMMA, "--window 3", "--window '3': must be two numbers from -1 to 999999999, left,right"),
        (WGMMA, "--softcap 0", "--softcap '0': must be from 1e-06 to 1e+06"),
        (WGMMA, f"--sinks {TAKES.removesuffix('+serve')}", "use attention/wgmma with a config that has the flag serve"),
        (WGMMA, f"--softcap 5 {TAKES}", f"--softcap 5: config {SERVE} does not support it; use one with the flag cap"),
        (WGMMA, f"{TAKES}+cap", f"--softcap: config {SERVE}+cap requires it; set a positive"),
        (WGMMA, f"--page-rows 16 {TAKES}", f"--page-rows: config {SERVE} does not support it; use one with the flag"),
        (WGMMA, f"{TAKES}+pages", f"--page-rows: config {SERVE}+pages requires it; set the rows"),
        (WGMMA, "--block-mask random:", "--block-mask 'random:': must be causal, document or random:SEED, a whole"),
        (WGMMA, f"--block-mask causal {TAKES}", f"--block-mask: config {SERVE} does not support it; use one with the"),
        (WGMMA, "--block-mask causal --page-rows 16", "--block-mask: cannot be combined with --page-rows"),
        (MMA_SYNC, "--d-head-v 12", "--d-head-v 12: must be a multiple of 8 up to 128, the rows of V of the config"),
        (DECODE, f"{CACHES} --d-head-v 64", "--d-head-v 64: must be 128, the rows of V of the config; use attention/"),
        (HOPPER_GRADIENTS, "--seq 70 --block-mask causal", "--block-mask: the backward pass does not support it"),
        (WGMMA, "--split-keys 100", "--split-keys 100: must be a multiple of 128, the KV block size B_c"),
        (WGMMA, "--split-keys 128 --block-mask causal", "--block-mask: cannot be combined with --split-keys"),
        (DECODE, f"{CACHES} --page-rows 24", "--page-rows 24: must be a power of two, 16 or more"),
        (DECODE, f"{CACHES} --split-keys 100", "--split-keys 100: must be a multiple of 64, the KV block"),
        (DECODE, f"{CACHES} --window 3,0", "--window: attention/decode does not support it; use attention/wgmma"),
        (DECODE, f"{CACHES} --descale-k 2", "--descale-k 2: attention/decode does not read e4m3; use attention/fp8"),
        (DECODE, f"{CACHES} --descale-q 2 --config {BYTES}", "--descale-q 2: attention/decode does not read e4m3 q"),
        (DECODE, f"{CACHES} --layout packed --config {BYTES}", "not support it; use a config with the flag ragged"),
        (FP8_KERNEL, "--d-head 96", "--d-head 96: attention/fp8 supports 128, 64, 256"),
        (FP8_KERNEL, "--seq 64 --page-rows 16", "--page-rows: fp8 kernels do not support it"),
        (FP8_KERNEL, "--layout bhsd", "--layout: must be bshd or packed for fp8 kernels"),
        ("f01", "--descale-q 0", "--descale-q '0': must be from 1e-30 to 1e+30"),
        ("f01", "--descale-v nan", "--descale-v 'nan': must be a number"),
        ("f01", "--causal", "--causal: needs a config with the flag causal"),
        ("f01", "--kv-heads 1 --heads 2", "--kv-heads: needs a config with the flag grouped"),
        ("b03", "--lse", "--lse: is an input of the backward pass, not a result; remove it"),
        ("b03", "--seq 100", "--seq 100: must be a multiple of 64"),
        ("b03", "--layout bhsd", "--layout: must be bshd or packed for the backward pass"),
        ("b07", "--layout packed --seqlens-q 64,64", "needs a config of attention/backward with the flag serve"),
        (HOPPER_GRADIENTS, "--seq 70 --split-keys 128", "--split-keys: the backward pass does not support it"),
    ],
)
def test_bad_input_gets_a_sentence(kernel: str, arguments: str, sentence: str) -> None:
    done = run(kernel, "--backend", "emu", *arguments.split())
    assert done.returncode == 2 and done.stderr.startswith(f"{kernel}: ") and sentence in done.stderr


# ---- the harness on a GPU --------------------------------------------------------------------------------------------

SMALL = "--batch 2 --heads 2 --seq-q 33 --seq-k 20 --causal --lse --check all"


@pytest.mark.parametrize("layout", ["bshd", "bhsd", "padded"])
def test_a_gpu_is_given_every_layout(driver: str, layout: str) -> None:
    """13 rows of 33 see no key."""
    more = ("--layout", layout, "--scale", "0.2", "--runs", "1", "--json", "-")
    done = run(MMA_SYNC, *SMALL.split(), *more, **made_up(driver, "left"))
    assert done.returncode == 0, done.stderr
    (record,) = records(done)
    assert record["backend"] == "gpu" and record["check"]["pass"] and record["check"]["pass_after"]
    assert record["check"]["lse_max_error_over_bound"] < 1 and record["check"]["rows"] == 132
    wanted = {"seq": 33, "seq_k": 20, "causal": True, "lse": True, "layout": layout, "kv_heads": 2}
    assert {name: record["problem"][name] for name in wanted} == wanted and abs(record["problem"]["scale"] - 0.2) < 1e-7
    pairs = 20 * 21 / 2  # of a query and a key that it sees, of one head
    tflops = 4 * 4 * 128 * pairs / record["timing"]["median"] / 1e3
    assert record["derived"]["tflops"] == pytest.approx(tflops, rel=1e-5)
    assert "left: 0 contexts, 0 modules, 0 streams, 0 events, 0 pinned, 0 bytes" in done.stderr


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [(DECODE, SERVED[DECODE][0]), (DECODE, SERVED[DECODE][-1]), (HOPPER_GRADIENTS, "--batch 1 --heads 1 --seq 70")],
)
def test_a_gpu_has_lengths_pages_and_gradients(driver: str, kernel: str, arguments: str) -> None:
    done = run(kernel, *arguments.split(), "--runs", "1", **made_up(driver, ""))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("how", "layout", "words"),
    [
        ("off", "bhsd", ["WRONG: 1 of", "column 5"]),
        ("lse_off", "bshd", ["WRONG: 1 of", "row 1, head 0, log-sum-exp"]),
        ("stray", "padded", ["WRONG: 0 of", "1 written between the rows"]),
        ("idle", "bshd", ["NaN or Inf"]),
        ("lse_late", "bshd", ["NaN or Inf"]),
    ],
)
def test_a_wrong_result_is_named(driver: str, how: str, layout: str, words: list[str]) -> None:
    square = f"--batch 1 --heads 1 --seq 20 --lse --check all --runs 1 --layout {layout}"
    done = run(MMA_SYNC, *square.split(), **made_up(driver, how))
    assert done.returncode == 1, done.stderr
    assert [word for word in words if word not in done.stdout] == []


@pytest.mark.parametrize(
    ("lengths", "last"), [("64 32,200", "64 200"), ("32,64 200", "64 200"), ("64 200,32", "64 32")]
)
def test_a_problem_has_the_same_inputs_after_another(driver: str, tmp_path: Path, lengths: str, last: str) -> None:
    """Inputs at hand serve a problem that needs no more of Q and of K; O of the last problem is what is kept."""
    outputs = []
    for Q, K in (lengths.split(), last.split()):
        sizes = f"--batch 1 --heads 2 --seq-q {Q} --seq-k {K} --output {tmp_path / 'O'} --runs 1 --check 1"
        done = run(MMA_SYNC, *sizes.split(), **made_up(driver, ""))
        assert done.returncode == 0, done.stderr
        outputs.append((tmp_path / "O").read_bytes())
    assert outputs[0] == outputs[1]


def test_the_written_output_does_not_depend_on_the_layout(tmp_path: Path) -> None:
    files = [output_of(tmp_path, MMA_SYNC, f"{SMALL} --layout {layout}") for layout in ("bshd", "bhsd", "padded")]
    assert files[0] == files[1] == files[2] and len(files[0]) == 2 * 2 * 33 * 2 * 128
    assert files[0][: 13 * 2 * 2 * 128] == bytes(13 * 2 * 2 * 128), "rows that see no key"
