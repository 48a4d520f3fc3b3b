"""attention/decode with a length for each sequence, pages and parts of a size, on the emulator with all checks.

Results are compared with float64. K and V behind every length are NaN, and the table ends behind the last used page.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import caches
import numpy as np
import pytest
from caches import CONFIGS, Cache, Result, assert_right, launch
from made_up_gpu import ROOT, made_up, run

from analysis.ladder.config import KernelConfig
from analysis.tests.support.kinds import some_in_check

BY_CONFIG = pytest.mark.parametrize("config", CONFIGS, ids=str)
# A check has each shape in one type, check-long both.
IN_CHECK = [
    pytest.param(config, id=str(config), marks=() if i % 4 in (0, 3) else pytest.mark.long)
    for i, config in enumerate(CONFIGS)
]


BYTES = "(FP16,128,16,128,4):mma_sync+tensor+stages_3+serve+e4m3"
RAGGED = [config for config in CONFIGS if config.ragged_queries]


def random_cache(rng: random.Random, config: KernelConfig) -> Cache:
    page = rng.choice((0, 16, 32, 64, 128, 256))
    seq_k, batch = rng.choice((16, 40, 200, 500)), rng.choice((1, 2, 5))
    lengths = [rng.choice((0, 1, seq_k, seq_k + 9, -3, rng.randint(0, seq_k))) for _ in range(batch)]
    return Cache(
        lengths=None if rng.random() < 0.1 and not page else lengths,
        seq_k=seq_k,
        page=page,
        batch=batch,
        KV_heads=rng.randint(1, 3),
        group=rng.choice((1, 2, 4)),
        seq_q=rng.choice((1, 2, 5) if config.B_r == 16 else (3, 9, 17) if config.B_r < 128 else (9, 33, 70)),
        causal=rng.random() < 0.5,
        seed=rng.randrange(1 << 30),
    )


def random_queries(rng: random.Random, config: KernelConfig) -> Cache:
    """As many queries in each sequence as it likes, none in some."""
    cache = random_cache(rng, config)
    lengths = cache.lengths if cache.lengths is not None else [cache.seq_k] * cache.batch
    most = rng.choice((1, 3, 20) if config.B_r == 16 else (1, 20, 70))
    queries = [rng.choice((0, 1, rng.randint(0, most), most)) for _ in lengths]
    queries[rng.randrange(len(queries))] = most
    packed = sum(cache.used) > 0 and rng.random() < 0.7  # a tensor has a row
    return replace(
        cache, lengths=lengths, seq_q=most, queries=queries, packed=packed, unused=packed * rng.choice((0, 0, 3))
    )


def check_random(config: KernelConfig, seeds: range) -> None:
    draw = random_queries if config.ragged_queries else random_cache
    for seed in seeds:
        rng = random.Random(f"{config} {seed}")
        cache = draw(rng, config)
        settings = {"split_keys": rng.choice((0, 128, 256)), "multiprocessors": rng.choice((1, 3, 7, 16))}
        settings["schedule"] = rng.randint(0, 5)
        try:
            assert_right(config, cache, launch(config, cache, **settings))
        except BaseException:
            print(seed, cache, settings)
            raise


@pytest.mark.parametrize("config", IN_CHECK)
def test_random_caches(config: KernelConfig) -> None:
    check_random(config, range(2))


@pytest.mark.long
@BY_CONFIG
def test_many_random_caches(config: KernelConfig) -> None:
    check_random(config, range(2, 32))


def test_more_sequences_than_lanes() -> None:
    """The copying warp holds 32 lengths at a time."""
    rng = random.Random(5)
    cache = Cache(lengths=[rng.choice((0, 1, 63, 64, 65)) for _ in range(67)], seq_k=80, page=16)
    for split_keys in (0, 64):
        assert_right(CONFIGS[0], cache, launch(CONFIGS[0], cache, split_keys, multiprocessors=6))


def test_more_pages_than_lanes() -> None:
    """It holds the numbers of 32 pages, and those of the next 32."""
    cache = Cache(lengths=[1300, 530], seq_k=1400, page=16)
    for multiprocessors in (1, 7):
        assert_right(CONFIGS[0], cache, launch(CONFIGS[0], cache, multiprocessors=multiprocessors))


@pytest.mark.parametrize("schedule", some_in_check(range(6), [0, 5]))
def test_ctas_end_in_any_order(schedule: int) -> None:
    """A CTA has all parts of one row block and the first of the next, whose last part may be stored before."""
    cache = Cache(lengths=[130, 1], seq_k=130, KV_heads=2, group=4, seq_q=9)
    for config in CONFIGS[:3:2]:
        for split_keys in (0, 64):
            result = launch(config, cache, split_keys, multiprocessors=7, schedule=schedule)
            assert_right(config, cache, result)


@pytest.mark.parametrize("config", IN_CHECK)
def test_parts_of_a_size_give_the_same_bits_in_every_batch(config: KernelConfig) -> None:
    lengths, order = [300, 17, 0, 257, 128, 1, 299], [4, 0, 6, 2, 3, 1, 5]
    cache = Cache(lengths=lengths, seq_k=300, KV_heads=2, group=2, seq_q=2)
    whole = launch(config, cache, split_keys=128, multiprocessors=9)
    assert_right(config, cache, whole)
    paged = Cache(lengths=lengths, seq_k=300, page=32, KV_heads=2, group=2, seq_q=2)
    in_order = launch(config, paged, split_keys=128, multiprocessors=16, order=order, schedule=3)
    for place, sequence in enumerate(order):
        assert_same(in_order, place, whole, sequence)
    for sequence in (0, 2, 3):
        alone = launch(config, cache, split_keys=128, multiprocessors=3, order=[sequence])
        assert_same(alone, 0, whole, sequence)


def assert_same(one: Result, place: int, other: Result, sequence: int) -> None:
    assert (one.output[place] == other.output[sequence]).all() and (one.LSE[place] == other.LSE[sequence]).all()


@pytest.mark.parametrize("config", RAGGED[::3], ids=str)
def test_parts_of_ragged_queries_give_the_same_bits_in_every_batch(config: KernelConfig) -> None:
    """Whatever lies behind the queries of a sequence. A part has two blocks: the first always sets the maximum."""
    cache = Cache(
        lengths=[300, 5, 257, 0, 129],
        seq_k=300,
        KV_heads=2,
        group=4,
        seq_q=21,
        causal=True,
        queries=[21, 0, 1, 2, 17],
        packed=True,
    )
    whole = launch(config, cache, split_keys=256, multiprocessors=9)
    assert_right(config, cache, whole)
    paged, order = replace(cache, page=32, packed=False), [4, 2, 0, 3, 1]
    in_order = launch(config, paged, split_keys=256, multiprocessors=16, order=order, schedule=3)
    for place, sequence in enumerate(order):
        assert_same(in_order, place, whole, sequence)
    assert_same(launch(config, cache, split_keys=256, multiprocessors=3, order=[4]), 0, whole, 4)


def test_more_ragged_sequences_than_lanes() -> None:
    rng = random.Random(6)
    lengths = [rng.choice((0, 1, 127, 128, 129)) for _ in range(67)]
    queries = [rng.choice((0, 0, 1, 3)) for _ in lengths]
    cache = Cache(lengths=lengths, seq_k=140, page=16, group=4, seq_q=7, queries=[7, *queries[1:]], packed=True)
    for split_keys in (0, 128):
        assert_right(RAGGED[0], cache, launch(RAGGED[0], cache, split_keys, multiprocessors=6))


def test_ragged_sequences_without_queries_read_nothing() -> None:
    cache = Cache(lengths=[9, 4], queries=[0, 0], seq_q=3)
    assert_right(RAGGED[0], cache, launch(RAGGED[0], cache))


@pytest.mark.parametrize(
    ("length", "wild", "tame"),
    [
        (
            2**31 - 1,
            {"Q": (4, 2, -7, 2**31 - 1, -(2**31)), "KV": (0, 0, 30, 2**31 - 1, 5)},
            {"Q": (0, 0, 0, 12, 12), "KV": (30, 30, 30, 40, 40)},
        ),
        (-1, {"Q": (12, 9, 2, 5, 3), "KV": (40, -1, -9, 7, 0)}, {"Q": (2, 2, 2, 5, 5), "KV": (0, 0, 0, 0, 0)}),
    ],
)
def test_offsets_that_do_not_fit_the_tensors_are_cut(
    monkeypatch: pytest.MonkeyPatch, length: int, wild: dict[str, tuple[int, ...]], tame: dict[str, tuple[int, ...]]
) -> None:
    """As a GPU reads them: decreasing, negative, behind the end. Of four sequences only the third has queries."""
    pack, results = caches._one_behind_the_other, []
    monkeypatch.setattr(caches, "_of_sequences", lambda cache, queries, *made: Result(*made))
    for given in (wild, tame):
        offsets = [np.array(given[name], np.int32) for name in ("KV", "KV", "Q")]
        monkeypatch.setattr(
            caches, "_one_behind_the_other", lambda tensor, *_, left=offsets: (pack(tensor[:1], [99], 0)[0], left.pop())
        )
        cache = Cache(lengths=[length] * 4, seq_k=40, seq_q=12, queries=[12] * 4, packed=True)
        results.append(launch(RAGGED[0], cache, split_keys=128))
    assert (results[0].output == results[1].output).all() and (results[0].LSE == results[1].LSE).all()
    written = (results[0].output != caches.UNWRITTEN).any(axis=(0, 2, 3))
    assert written.sum() == tame["Q"][3] - tame["Q"][2]


@pytest.mark.parametrize("number", [-1, 9, 2**31 - 1, -(2**31)])
def test_a_page_number_outside_reads_zeros(number: int) -> None:
    """Nothing outside of K and V is read, and the other sequence is as it was."""
    config, lengths = CONFIGS[0], [70, 40]
    as_it_was = launch(config, Cache(lengths=lengths, page=16))
    result = launch(config, Cache(lengths=lengths, page=16, pages={(0, 1): number}))
    assert (result.output[1] == as_it_was.output[1]).all() and (result.output[0] != as_it_was.output[0]).any()
    assert np.isfinite(result.LSE).all() and np.isfinite(result.output.view(np.float16)).all()


# ---- the executable --------------------------------------------------------------------------------------------------

PROGRAM = ROOT / "bin/attention.decode"


@pytest.fixture
def _built() -> None:
    if not PROGRAM.exists():
        pytest.skip("bin/attention.decode is not built: make attention")


SMALL_CACHES = [
    "--seq-q 1 --seqlens-k 70,0,33,128 --heads 8 --kv-heads 2 --page-rows 16 --split-keys 64",
    "--seq-q 3 --seqlens-k 70,1,33,128 --heads 8 --kv-heads 2 --page-rows 32 --causal --layout padded",
    "--seq-q 2 --seqlens-k 200,3 --heads 4 --page-rows 64 --layout bhsd --dtype bf16",
    "--seq-q 1 --seq-k 300 --batch 2 --heads 4 --split-keys 128 --d-head 64",
    "--seq-q 9 --seqlens-k 90,41 --heads 4 --kv-heads 1 --config (FP16,128,64,64,4):wgmma+tensor+stages_4+serve",
    "--seq-q 17 --seqlens-k 90,41,0 --heads 8 --kv-heads 1 --causal --page-rows 16 --dtype bf16 "
    "--config (BF16,128,128,64,8):wgmma+tensor+stages_4+serve",
    f"--seq-q 2 --seqlens-k 90,0,41 --heads 4 --kv-heads 2 --page-rows 16 --descale-v 3 --config {BYTES}",
    f"--seq-k 90 --heads 4 --kv-heads 2 --layout padded --split-keys 128 --descale-k 0.3 --config {BYTES}",
    f"--seq-q 2 --seq-k 130 --heads 4 --kv-heads 2 --descale-k 0.3 --descale-v 2 --config {BYTES}",
    "--layout packed --seqlens-q 3,0,20 --seqlens-k 70,5,130 --heads 4 --kv-heads 2 --causal --split-keys 128 "
    f"--config {BYTES}+ragged",
    "--layout packed --seqlens-q 20,1,0 --seqlens-k 90,130,0 --heads 4 --kv-heads 1 --page-rows 16 --descale-v 2 "
    "--config (BF16,128,64,128,8):mma_sync+tensor+stages_3+serve+e4m3+ragged",
    f"--layout padded --seqlens-q 3,0,20 --seqlens-k 70,5,0 --heads 4 --kv-heads 2 --config {BYTES}+ragged",
]


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("arguments", SMALL_CACHES)
def test_the_executable_places_pages(arguments: str) -> None:
    done = run(
        *["--backend", "emu", "--check", "all", "--lse", "--quiet", "--json", "-"], *arguments.split(), program=PROGRAM
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout)
    assert record["check"]["pass"] and record["counters"]["findings"] == 0 and "serve" in record["config"]
    asked = dict(pairwise(arguments.split()))
    for name in ("page_rows", "split_keys"):
        assert record["problem"][name] == int(asked.get(f"--{name.replace('_', '-')}", 0))


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("arguments", some_in_check(SMALL_CACHES, SMALL_CACHES[:1] + SMALL_CACHES[-1:]))
def test_a_gpu_has_the_lengths_pages_and_scales(driver: str, arguments: str) -> None:
    """On the made-up GPU, which reads what was uploaded for the kernel."""
    done = run("--lse", "--runs", "1", *arguments.split(), program=PROGRAM, **made_up(driver, ""))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--page-rows 24", "--page-rows 24: must be a power of two from 16 on"),
        ("--page-rows 8", "--page-rows 8: must be a power of two from 16 on"),
        ("--split-keys 100", "--split-keys 100: must be a multiple of B_c = 64"),
        ("--window 3,0", "--window: attention/decode does not take it: attention/wgmma does"),
        ("--sinks", "--sinks: attention/decode does not take it: attention/wgmma does"),
        ("--layout packed", "--layout packed: attention/decode does not take it: attention/wgmma does"),
        ("--split-keys 0", "--split-keys '0': must be from 1 to 1073741824"),
        (
            "--descale-k 2",
            "--descale-k 2: attention/decode takes no e4m3; attention/fp8 and the versions of kernels/fp8/ do",
        ),
        (f"--descale-q 2 --config {BYTES}", "--descale-q 2: attention/decode takes no e4m3 of Q"),
        (
            f"--layout packed --config {BYTES}",
            "--layout packed: config (FP16, 128, 16, 128, 4): mma_sync+tensor+stages_3+serve+e4m3 does not take it: "
            "one with the word ragged does",
        ),
        (f"--sinks --config {BYTES}+ragged", "--sinks: attention/decode does not take it: attention/wgmma does"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: str, sentence: str) -> None:
    done = run(*["--backend", "emu", "--seq-q", "1", "--seqlens-k", "40,3"], *arguments.split(), program=PROGRAM)
    assert (done.returncode, done.stderr) == (2, f"attention/decode: {sentence}\n")


def test_other_kernels_have_no_pages() -> None:
    program = ROOT / "bin/attention.fp8"
    if not program.exists():
        pytest.skip("bin/attention.fp8 is not built: make attention")
    done = run("--backend", "emu", "--seq", "64", "--page-rows", "16", program=program)
    sentence = "--page-rows: fp8 kernels do not take it"
    assert (done.returncode, done.stderr) == (2, f"attention/fp8: {sentence}\n")
