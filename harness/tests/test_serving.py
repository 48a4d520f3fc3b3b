"""Kernels that serve, on the emulator: random lengths, windows, sinks, soft caps and schedules, every row checked.

Rows behind the end of a sequence are NaN, or another sequence's, and what is written there is a finding or a stray. The
executable compares with the float64 reference, which test_reference_numpy.py compares with NumPy.
"""

from __future__ import annotations

import json
from pathlib import Path

import emu
import numpy as np
import pytest
from caches import ServingArgs, tensor_map
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT, run

from analysis.ladder.headers import load_attention

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
        "heads": KV_heads * draw(st.integers(1, 3)),
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
    flags = [name for name in ("--lse", "--causal", "--sinks") if draw(st.booleans())]
    return [*(f"--{name}={value}" for name, value in sizes.items()), *flags]


def assert_right(arguments: list[str]) -> None:
    done = run("--backend", "emu", "--check", "all", "--quiet", "--json", "-", *arguments, program=PROGRAM)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["check"]["pass"] and record["check"]["strays"] == 0 and record["counters"]["findings"] == 0
    assert "serve" in record["config"] and "window_left" in record["problem"]


@settings(max_examples=25)
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
    ],
)
def test_bad_input_gets_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = run("--backend", "emu", *arguments, program=PROGRAM)
    assert (done.returncode, done.stderr) == (2, f"attention/wgmma: {sentence}\n")


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
    heads, d, all_rows, all_keys = 2, 64, 12, 40
    (config,) = (
        each
        for each in load_attention(ROOT)["attention/wgmma"].header.serving
        if each.d_head == d and not each.cap and "FP16" in str(each)
    )
    module = emu.Module(ROOT / "build/attention.wgmma/attention.wgmma.ptx")
    rng = np.random.default_rng(1)
    Q, K, V = (rng.standard_normal((n, heads, d)).astype(np.float16) for n in (all_rows, all_keys, all_keys))
    given = {"Q": Q, "K": K, "V": V, "O": np.full_like(Q, 7), "LSE": np.full((heads, all_rows), 7, np.float32)}
    given |= {"tickets": np.zeros(64, np.int32)}
    on_device = {name: module.buffer(array, name, False) for name, array in given.items()}
    args = ServingArgs(window_left=-1, window_right=-1, Q_rows=all_rows, KV_rows=all_keys)
    arrays = {"Q_offsets": Q_offsets, "KV_offsets": KV_offsets, "KV_lengths": (lengths,) * 4}
    buffers = {name: module.buffer(np.array(array, np.int32), name, False) for name, array in arrays.items()}
    for name, buffer in buffers.items():
        setattr(args, name, buffer.address)
    front, maps = args.front, b""
    front.seq_q, front.heads, front.batch, front.seq_k, front.KV_heads = all_rows, heads, 4, all_keys, heads
    front.softmax_scale = d**-0.5
    for name, buffer in on_device.items():
        setattr(front, name, buffer.address)
    for name, size, box in zip("QKVO", (all_rows, all_keys, all_keys, all_rows), config.box_rows(), strict=True):
        setattr(front, f"{name}_strides", type(front.Q_strides)(batch=size * heads * d, seq=heads * d, head=d))
        maps += tensor_map(on_device[name].address, [1, size, heads], heads * d, d, box)
    module[config.symbol()][3, config.threads(), config.smem_bytes()](bytes(args), maps)
    wanted, LSE = given["O"].astype(float), given["LSE"].astype(float)
    wanted[slice(*rows)], LSE[:, slice(*rows)] = 0, -np.inf
    for row in range(*rows) if keys[0] < keys[1] else ():
        for head in range(heads):
            scores = K[slice(*keys), head].astype(float) @ Q[row, head].astype(float) * d**-0.5
            wanted[row, head] = np.exp(scores) @ V[slice(*keys), head].astype(float) / np.exp(scores).sum()
            LSE[head, row] = np.log(np.exp(scores).sum())
    assert np.abs(on_device["O"].array - wanted).max() < 2e-3
    np.testing.assert_allclose(on_device["LSE"].array, LSE, atol=1e-3)
