"""Kernels that serve, on the emulator: random lengths, windows, sinks, soft caps and schedules, every row checked.

Rows behind the end of a sequence are NaN, or another sequence's, and what is written there is a finding or a stray. The
executable compares with the float64 reference, which test_reference_numpy.py compares with NumPy.
"""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import emu
import numpy as np
import numpy.typing as npt
import pytest
from caches import ServingArgs, map_of_groups, tensor_map
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT, run

from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import load_attention
from analysis.tests.support.kinds import some_in_check

PROGRAM = ROOT / "bin/attention.wgmma"
SEEDS = st.integers(0, 2**62)
# 0, a few, about a block or two.
LENGTHS = st.one_of(st.integers(0, 3), st.integers(1, 280), st.sampled_from((63, 64, 65, 127, 128, 129, 255, 256, 257)))
WINDOWS = st.one_of(st.just(-1), st.integers(0, 20), st.integers(0, 300), st.sampled_from((63, 64, 127, 128)))


@pytest.fixture(autouse=True)
def _built() -> None:
    if not PROGRAM.exists():
        pytest.skip("bin/attention.wgmma is not built: make attention")


@st.composite
def cases(draw: st.DrawFn) -> list[str]:
    """Arguments of a small problem that takes serving_args."""
    ragged = draw(st.booleans())
    KV_heads = draw(st.integers(1, 2))
    sizes: dict[str, object] = {
        "d-head": draw(st.sampled_from((64, 128, 256))),
        "dtype": draw(st.sampled_from(("fp16", "bf16"))),
        "heads": KV_heads * draw(st.sampled_from((1, 2, 3, 5))),
        "kv-heads": KV_heads,
        "dist": draw(st.sampled_from(("normal", "normal", "large"))),
        "window": f"{draw(WINDOWS)},{draw(WINDOWS)}",
        "seed": draw(SEEDS),
        "schedule": draw(st.integers(0, 99)),
    }
    if ragged:
        count = draw(st.integers(1, 5))
        Q, K = (draw(st.lists(LENGTHS, min_size=count, max_size=count)) for _ in range(2))
        packed = any(Q) and any(K) and draw(st.booleans())  # a tensor has a row
        sizes |= {"seqlens-q": ",".join(map(str, Q)), "seqlens-k": ",".join(map(str, K))}
        sizes["layout"] = "packed" if packed else draw(st.sampled_from(("bshd", "bhsd", "padded")))
    else:
        sizes |= {"seq-q": draw(LENGTHS) + 1, "seq-k": draw(LENGTHS) + 1, "batch": draw(st.integers(1, 2))}
    if draw(st.booleans()):
        sizes["softcap"] = draw(st.sampled_from((0.5, 5, 30)))
    if "softcap" not in sizes and not ragged:
        sizes["window"] = f"{draw(st.integers(0, 300))},{draw(WINDOWS)}"  # or it would be a problem of the plain config
    if draw(st.booleans()):
        sizes["page-rows"] = draw(st.sampled_from((16, 32, 64, 128, 256)))
    flags = [name for name in ("--lse", "--causal", "--sinks") if draw(st.booleans())]
    return [*(f"--{name}={value}" for name, value in sizes.items()), *flags]


def assert_right(arguments: list[str]) -> None:
    done = run("--backend", "emu", "--check", "all", "--quiet", "--json", "-", *arguments, program=PROGRAM)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["check"]["pass"] and record["check"]["strays"] == 0 and record["counters"]["findings"] == 0
    assert "serve" in record["config"] and "window_left" in record["problem"]


@settings(max_examples=12)
@given(cases())
def test_random_cases_are_right(arguments: list[str]) -> None:
    assert_right(arguments)


@pytest.mark.long
@settings(max_examples=400)
@given(cases())
def test_many_random_cases_are_right(arguments: list[str]) -> None:
    assert_right(arguments)


def output_of(folder: Path, *arguments: str) -> bytes:
    done = run("--backend", "emu", "--quiet", "--output", str(folder / "O"), *arguments, program=PROGRAM)
    assert done.returncode == 0, done.stderr
    return (folder / "O").read_bytes()


def instructions_of(*arguments: str) -> int:
    done = run("--backend", "emu", "--no-check", "--json", "-", *arguments, program=PROGRAM)
    executed: int = json.loads(done.stdout)["counters"]["total"]["wgmma"]
    return executed


def test_consumers_do_not_overrun_a_ring_of_parts_of_Q() -> None:
    """With one key nothing else makes one of them wait for the other."""
    assert_right(["--d-head=256", "--seq-q=129", "--seq-k=1", "--heads=40", "--window=5,5", "--causal"])


def test_blocks_outside_a_window_are_skipped() -> None:
    whole = instructions_of("--seq", "2048", "--heads", "1", "--window", "-1,2047")
    window = instructions_of("--seq", "2048", "--heads", "1", "--window", "127,0")
    assert window <= whole / 16 * 2.1  # of 16 KV blocks two


def test_a_sequence_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    """Bit for bit: its rows alone, before another sequence, and with NaN behind them."""
    fixed = ("--heads", "2", "--dist", "large", "--causal", "--dtype", "bf16")
    alone = output_of(tmp_path, *fixed, "--seqlens-q", "100", "--seqlens-k", "170", "--layout", "packed")
    for layout in ("packed", "bshd"):
        both = output_of(tmp_path, *fixed, "--seqlens-q", "100,90", "--seqlens-k", "170,160", "--layout", layout)
        assert both[: len(alone)] == alone


@pytest.mark.parametrize("d_head", some_in_check([64, 128, 256], [128]))
def test_pages_change_no_bit(tmp_path: Path, d_head: int) -> None:
    """Of scores that outgrow their maximum, too, for which the kernel reads K itself."""
    fixed = ["--heads", "4", "--kv-heads", "2", "--dist", "large", "--causal", "--layout", "packed"]
    fixed += ["--d-head", str(d_head), "--seqlens-q", "5,130,0,1,64", "--seqlens-k", "300,130,17,513,0"]
    in_order = output_of(tmp_path, *fixed)
    for page_rows in (16, 64, 256):
        assert output_of(tmp_path, *fixed, "--page-rows", str(page_rows)) == in_order


@pytest.mark.parametrize(
    ("d_head", "shape"),
    [
        pytest.param(64, "(FP16, 64, 256, 64, 16): wgmma+stages_4+exp_16+serve", marks=pytest.mark.long),
        (128, "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve"),
        pytest.param(256, "(FP16, 256, 128, 64, 8): wgmma+stages_2+exp_16+serve", marks=pytest.mark.long),
    ],
)
def test_packed_heads_have_the_bits_of_their_own_Q_blocks(tmp_path: Path, d_head: int, shape: str) -> None:
    """Of queries for which the same KV blocks are masked. Three heads leave one row of four empty."""
    fixed = ["--d-head", str(d_head), "--causal", "--layout", "packed", "--sinks", "--kv-heads", "2"]
    fixed += ["--seqlens-q", "1,64,0,2,33", "--seqlens-k", "300,128,17,512,0"]
    for heads, pages, words in (("6", ["--page-rows", "16"], "+pages"), ("8", [], "")):
        own, packed = (
            output_of(tmp_path, *fixed, *pages, "--heads", heads, "--config", shape + words + pack)
            for pack in ("", "+pack")
        )
        assert own == packed


def test_heads_of_a_group_share_Q_blocks() -> None:
    """Where they need fewer: 130 queries of a head alone take two, and those of four heads take five."""
    fixed = ("--heads", "8", "--kv-heads", "2", "--layout", "packed", "--seqlens-k", "128,128")
    one = instructions_of("--heads", "1", "--seqlens-q", "128", "--seqlens-k", "128")
    for lengths, blocks in (("1,1", 2 + 2), ("130,1", 10 + 2), ("128,32", 8 + 2)):
        assert instructions_of(*fixed, "--seqlens-q", lengths) == blocks * one


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--seqlens-q", "5,x"),
            "--seqlens-q '5,x': expected a positive number at 'x'; write a number, a list 512,1024 or a range "
            "512:16384:*2 or 128:1024:+128",
        ),
        (("--seqlens-k", "5"), "--seqlens-k: needs --seqlens-q, --seq or --seq-q, the number of queries"),
        (
            ("--seqlens-q", "5", "--batch", "2"),
            "--seqlens-q and --batch: both say how many sequences: drop one of them",
        ),
        (("--seqlens-q", "5", "--seq", "2"), "--seqlens-q: says all lengths of queries: drop --seq"),
        (("--seqlens-q", "5,6", "--seqlens-k", "7"), "--seqlens-k: 1 lengths for 2 sequences: must be as many"),
        (("--seqlens-q", "0", "--layout", "packed"), "--seqlens-q: no sequence has a row: one must have"),
        (("--window", "3"), "--window '3': must be two numbers from -1 to 999999999, left,right"),
        (("--window", "-2,3"), "--window '-2,3': must be two numbers from -1 to 999999999, left,right"),
        (("--softcap", "0"), "--softcap '0': must be from 1e-06 to 1e+06"),
        (
            ("--sinks", "--config", "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong"),
            "--sinks: config (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong of attention/wgmma takes no "
            "serving_args: attention/wgmma has configs that do, with the word serve",
        ),
        (
            ("--softcap", "5", "--config", "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve"),
            "--softcap 5: config (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve has no soft cap: take "
            "one with the word cap",
        ),
        (
            ("--config", "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+cap"),
            "--softcap: config (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+cap needs one",
        ),
        (("--page-rows", "24"), "--page-rows 24: must be a power of two from 16 on"),
        (
            ("--page-rows", "16", "--config", "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve"),
            "--page-rows: config (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve has no pages: take "
            "one with the word pages",
        ),
        (
            ("--config", "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+pages"),
            "--page-rows: config (FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong+serve+pages needs it",
        ),
        (("--split-keys", "128"), "--split-keys: attention/wgmma does not take it: attention/decode does"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = run("--backend", "emu", *arguments, program=PROGRAM)
    assert (done.returncode, done.stderr) == (2, f"attention/wgmma: {sentence}\n")


def launch_served(
    config: KernelConfig,
    tensors: dict[str, npt.NDArray[Any]],
    seq_k: int,
    arrays: dict[str, npt.NDArray[np.int32]],
    causal: bool = False,
    **more: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """O and log-sum-exp of a launch as a GPU sees it: nothing looks at the arrays first. Q is [rows, heads, d_head],
    K and V are that or pages of it, and `more` are members of serving_args. What no row fills is 7."""
    module = emu.Module(ROOT / "build/attention.wgmma/attention.wgmma.ptx")
    Q, K = tensors["Q"], tensors["K"]
    (all_rows, heads, d), (pages, keys, KV_heads, _) = Q.shape, (1, *K.shape)[-4:]
    given = tensors | {"O": np.full_like(Q, 7), "LSE": np.full((heads, all_rows), 7, np.float32)}
    given |= {"tickets": np.zeros(64, np.int32)}
    on_device = {name: module.buffer(array, name, False) for name, array in given.items()}
    args = ServingArgs(window_left=-1, window_right=-1, Q_rows=all_rows, KV_rows=keys, **more)
    buffers = {name: module.buffer(array, name, False) for name, array in arrays.items()}
    for name, buffer in buffers.items():
        setattr(args, name, buffer.address)
    front, maps = args.front, b""
    front.seq_q, front.heads, front.seq_k, front.KV_heads = all_rows, heads, seq_k, KV_heads
    front.batch, front.softmax_scale, front.causal = len(arrays["Q_offsets"]) - 1, d**-0.5, causal
    for name, buffer in on_device.items():
        setattr(front, name, buffer.address)
    for name, box in zip("QKVO", config.box_rows(), strict=True):
        of_keys = name in "KV"
        sizes = [pages, keys, KV_heads] if of_keys else [1, all_rows, heads]
        row, box = sizes[2] * d, min(box, keys) if of_keys and config.paged_kv else box
        setattr(front, f"{name}_strides", type(front.Q_strides)(batch=sizes[1] * row, seq=row, head=d))
        tiles = 1 if of_keys and box < config.B_c else 0
        if config.packs and name == "O":
            maps += map_of_groups(on_device["Q"].address, all_rows, heads, KV_heads, d)
        else:
            maps += tensor_map(on_device[name].address, sizes, row, d, box, tiles=tiles)
    module[config.symbol()][3, config.threads(), config.smem_bytes()](bytes(args), maps)
    return on_device["O"].array, on_device["LSE"].array


def serving_config(d_head: int, pages: bool, packs: bool = False) -> KernelConfig:
    (config,) = (
        each
        for each in load_attention(ROOT)["attention/wgmma"].header.serving
        if (each.d_head, each.cap, each.paged_kv, each.packs) == (d_head, False, pages, packs) and "FP16" in str(each)
    )
    return config


def attend(
    Q: npt.NDArray[Any], K: npt.NDArray[Any], V: npt.NDArray[Any], causal: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """O and log-sum-exp of the rows of one sequence, in float64."""
    group, aligned = Q.shape[1] // K.shape[1], len(K) - len(Q)
    output, LSE = np.zeros(Q.shape), np.full((Q.shape[1], len(Q)), -np.inf)
    for row, head in product(range(len(Q)), range(Q.shape[1])):
        seen = max(0, min(len(K), row + aligned + 1)) if causal else len(K)
        scores = K[:seen, head // group].astype(float) @ Q[row, head].astype(float) * Q.shape[2] ** -0.5
        if seen:
            output[row, head] = np.exp(scores) @ V[:seen, head // group].astype(float) / np.exp(scores).sum()
            LSE[head, row] = np.log(np.exp(scores).sum())
    return output, LSE


@pytest.mark.parametrize(
    ("Q_offsets", "KV_offsets", "lengths", "rows", "keys"),
    [
        ((4, 2, -7, 2**31 - 1, -(2**31)), (0, 0, 30, 2**31 - 1, 5), 2**31 - 1, (0, 12), (30, 40)),
        ((12, 9, 2, 5, 3), (40, -1, -9, 7, 0), -1, (2, 5), (0, 0)),
        ((12, 12, 12, 99, 12), (0, 50, 9, 1, 50), 5, (0, 0), (0, 0)),
    ],
)
def test_arrays_that_do_not_fit_the_tensors_are_cut(
    Q_offsets: tuple[int, ...], KV_offsets: tuple[int, ...], lengths: int, rows: tuple[int, int], keys: tuple[int, int]
) -> None:
    """As a GPU reads them: decreasing, negative, behind the end. Nothing outside of a tensor is read or written, and of
    four sequences at most the third has rows, those that are left of it."""
    rng = np.random.default_rng(1)
    tensors = {
        name: rng.standard_normal((n, 2, 64)).astype(np.float16) for name, n in (("Q", 12), ("K", 40), ("V", 40))
    }
    arrays = {"Q_offsets": Q_offsets, "KV_offsets": KV_offsets, "KV_lengths": (lengths,) * 4}
    integers = {name: np.array(array, np.int32) for name, array in arrays.items()}
    output, LSE = launch_served(serving_config(64, pages=False), tensors, 40, integers)
    wanted, wanted_LSE = np.full(output.shape, 7.0), np.full(LSE.shape, 7.0)
    Q, K, V = tensors["Q"][slice(*rows)], tensors["K"][slice(*keys)], tensors["V"][slice(*keys)]
    wanted[slice(*rows)], wanted_LSE[:, slice(*rows)] = attend(Q, K, V, causal=False)
    assert np.abs(output - wanted).max() < 2e-3
    np.testing.assert_allclose(LSE, wanted_LSE, atol=1e-3)


@pytest.mark.parametrize(("page", "packs"), [(16, False), (128, False), (16, True)])
@pytest.mark.parametrize("d_head", [64, 128, 256])
def test_pages_that_sequences_share_and_pages_that_are_not_there(page: int, packs: bool, d_head: int) -> None:
    """Tables name the same first pages. A number outside is a page of zeros, lengths are cut to what the table can
    name, and the table ends behind the last page in use. Behind every length there are NaN."""
    rng = np.random.default_rng(page + d_head)
    of_sequence, n_pages = 3, 7
    tensors = {"Q": rng.standard_normal((9, 4, d_head)).astype(np.float16)}
    tensors |= {name: rng.standard_normal((n_pages, page, 2, d_head)).astype(np.float16) for name in "KV"}
    lengths = [page + 5, 3 * page + 9, 0, 2 * page]
    table = [[3, 0, 2**31 - 1], [3, -5, 1], [2**31 - 1] * 3, [3, 2**30]]
    for name in "KV":
        tensors[name][0, 5:] = tensors[name][[2, 4, 5, 6]] = np.nan
    rows = [0, 2, 7, 7, 9]
    arrays = {
        "Q_offsets": np.array(rows, np.int32),
        "KV_lengths": np.array(lengths, np.int32),
        "pages": np.array([number for of_one in table for number in of_one], np.int32),
    }
    sizes = {"page_rows": page, "pages_of_sequence": of_sequence, "n_pages": n_pages}
    config = serving_config(d_head, True, packs)
    output, LSE = launch_served(config, tensors, of_sequence * page, arrays, True, **sizes)
    pools = {name: np.concatenate([tensors[name], np.zeros_like(tensors[name][:1])]) for name in "KV"}
    for sequence, (first, end) in enumerate(pairwise(rows)):
        used = min(lengths[sequence], of_sequence * page)
        numbers = [n if 0 <= n < n_pages else n_pages for n in table[sequence][: -(-used // page)]]
        K, V = (pools[name][numbers].reshape(-1, 2, d_head)[:used] for name in "KV")
        wanted, wanted_LSE = attend(tensors["Q"][first:end], K, V, causal=True)
        assert np.abs(output[first:end] - wanted).max(initial=0) < 2e-3
        np.testing.assert_allclose(LSE[:, first:end], wanted_LSE, atol=1e-3)
