"""Cases in which attention libraries failed for their users, against float64 on the emulator.

Each test names the rule that the result has to follow. test_needless_rejections.py has arguments in other forms, and
test_torch_derivatives.py what needs PyTorch.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_frameworks import ROOT
from test_lengths import HALF, RNG, cumulated, lengths, paged, reference, right, sequence

import flashladder
from flashladder import _call, _launch

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "python")}


def three(rows: int, keys: int, heads: int = 2, d_head: int = 64, batch: int = 1) -> Any:
    """q, k and v [batch, rows, heads, d_head]."""
    rng = RNG(rows + keys)
    return [rng.standard_normal((batch, n, heads, d_head)).astype(HALF) for n in (rows, keys, keys)]


def test_rows_above_the_causal_diagonal_of_a_paged_prefill_are_zero() -> None:
    rng, rows, keys = RNG(1), (20, 7, 9), (6, 7, 0)
    q = [sequence(rng, n, 4, 64) for n in rows]
    k, v = ([sequence(rng, n, 2, 64) for n in keys] for _ in range(2))
    k_cache, table = paged(RNG(2), k, 16, 16)
    v_cache, _ = paged(RNG(2), v, 16, 16)
    starts = cumulated(q)
    o, lse = flashladder.attention_varlen(
        np.concatenate(q), k_cache, v_cache, starts, None, 20, 0, seqlens_k=lengths(k), block_table=table, causal=True,
        return_lse=True,
    )  # fmt: skip
    for b in range(3):
        part = slice(starts[b], starts[b + 1])
        right(o[part], lse[:, part], reference(q[b], k[b], v[b], {"causal": True}))


@pytest.mark.parametrize("size", [1e2, 6e4, 2.5e5])
@pytest.mark.parametrize("version", ["attention/wgmma", "attention/mma_sync", "attention/decode"])
def test_scores_far_below_zero_are_not_taken_for_masked_ones(size: float, version: str) -> None:
    q, k, v = three(8, 70)
    q[..., 0], k[..., 0] = np.sqrt(size), -np.sqrt(size)
    q, k = (x * np.array([1] + [0] * 31 + [1] * 32, HALF) for x in (q, k))
    o = flashladder.attention(q, k, v, version=version)
    expected = reference(q[0], k[0], v[0], {})[0]
    np.testing.assert_allclose(o[0].astype(float), expected, atol=8e-3 + 1e-7 * size)


def test_a_first_block_that_is_masked_and_then_negative_scores() -> None:
    q, k, v = three(70, 200)
    q, k = abs(q), -abs(k)
    options = {"causal": True, "window": (9, 0)}
    right(
        *(x[0] for x in flashladder.attention(q, k, v, return_lse=True, **options)),
        reference(q[0], k[0], v[0], options),
    )


def test_a_soft_cap_that_is_saturated_stays_finite() -> None:
    q, k, v = three(6, 40)
    q *= 60
    expected = reference(q[0], k[0], v[0], {"softcap": 2.0})
    right(*(x[0] for x in flashladder.attention(q, k, v, softcap=2.0, return_lse=True)), expected)


def test_a_length_that_is_a_number_has_the_limits_of_an_array() -> None:
    q, k, v = three(3, 40, batch=2)
    with pytest.raises(ValueError, match=r"seqlens_k\[0\] 41: must be from 0 to 40"):
        flashladder.attention(q, k, v, seqlens_k=41)


@pytest.mark.parametrize("page_rows", [48, 16, 80])
def test_pages_of_any_multiple_of_16_rows(page_rows: int) -> None:
    """Also where two caches share a buffer page by page, as engines store K and V."""
    keys = 150
    pages = -(-keys // page_rows)
    q, k, v = three(2, pages * page_rows)
    buffer = np.full((pages + 1, 2, page_rows, 2, 64), np.nan, HALF)
    table = RNG(5).permutation(pages + 1)[:pages].astype(np.int32)[None]
    for x, i in ((k, 0), (v, 1)):
        buffer[table[0], i] = x.reshape(pages, page_rows, 2, 64)
    found = flashladder.attention_with_cache(
        q, buffer[:, 0], buffer[:, 1], np.array([keys], np.int32), table, causal=True, return_lse=True
    )
    right(*(x[0] for x in found), reference(q[0], k[0, :keys], v[0, :keys], {"causal": True}))


def test_a_batch_of_1_counts_for_all_samples() -> None:
    q, k, v = three(4, 33, batch=3)
    one = flashladder.attention(q, k[:1], v[:1])
    for b in range(3):
        np.testing.assert_allclose(one[b].astype(float), reference(q[b], k[0], v[0], {})[0], atol=6e-3)
    assert flashladder.attention(q[:1], k, v).shape == (3, 4, 2, 64)
    with pytest.raises(ValueError, match="batch of k is 2 and of q 3"):
        flashladder.attention(q, k[:2], v[:2])


@pytest.mark.parametrize("given_out", [False, True])
def test_more_sequences_than_a_grid_has_blocks(monkeypatch: pytest.MonkeyPatch, given_out: bool) -> None:
    """Several launches: a grid of two sequences represents one of 65,535."""
    q, k, v = three(4, 20, batch=5)
    used = np.array([20, 3, 0, 7, 11], np.int32)
    options: dict[str, Any] = {"seqlens_k": used, "return_lse": True, "sinks": np.array([0.5, 1], np.float32)}
    wanted = flashladder.attention(q, k, v, **options)
    starts = np.array([0, 1, 4, 4, 9, 12], np.int32)
    rows = q.reshape(20, 2, 64)
    packed = flashladder.attention_varlen(rows, rows, rows, starts, starts, 5, 5, return_lse=True)
    monkeypatch.setattr(_call, "MOST_SEQUENCES", 2)
    launches: list[int] = []
    forward = _launch.forward
    monkeypatch.setattr(_launch, "forward", lambda *given: launches.append(forward(*given)))  # type: ignore[func-returns-value]
    outs = [np.zeros_like(q) if given_out else None, np.zeros_like(rows) if given_out else None]
    found = flashladder.attention(q, k, v, **options, out=outs[0])
    again = flashladder.attention_varlen(rows, rows, rows, starts, starts, 5, 5, return_lse=True, out=outs[1])
    assert len(launches) == 6
    for one, other in zip((*found, *again), (*wanted, *packed), strict=True):
        assert np.array_equal(one, other)


def test_what_would_run_is_false_for_more_heads_than_a_grid_has_blocks() -> None:
    q = np.zeros((1, 1, 65_537, 64), HALF)
    found = flashladder.supports(q, q, q)
    assert not found and "heads 65537: must be from 1 to 65535" in found.reason


FORKS = """
import os, signal, sys, threading, time
import numpy as np, flashladder
q = np.ones((1, 16, 1, 64), np.float16)
flashladder.backend()
first, children = threading.Thread(target=flashladder.attention, args=(q, q, q)), []
first.start()
while not children or (first.is_alive() and len(children) < 20):
    time.sleep(0.002)
    child = os.fork()
    if not child:
        signal.alarm(600)  # a child that waits for a lock ends with an error
        os._exit(int(not np.allclose(flashladder.attention(q, q, q).astype(float), 1)))
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_a_fork_while_another_thread_makes_its_first_call() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=900, env=ENVIRONMENT)


@pytest.mark.parametrize(("rows", "version"), [(1, "best"), (4, "best"), (4, "attention/mma_sync")])
@pytest.mark.parametrize("d_head", [64, 128, 256])
def test_pages_that_a_window_has_left_behind(d_head: int, rows: int, version: str) -> None:
    """Cases: one block of keys, the first of several, one that also ends the sequence, and the first of many."""
    for keys, left in [(128, 15), (190, 40), (100, 63), (400, 290)]:
        q, k, v = three(rows, keys, d_head=d_head)
        seen = keys - rows - left
        pages = np.full((2, 26, 16, 2, d_head), np.nan, HALF)
        table = np.arange(1, 26, dtype=np.int32)[None]
        table[0, : seen // 16] = 0
        for cache, x in zip(pages, (k, v), strict=True):
            for row in range(seen, keys):
                cache[table[0, row // 16], row % 16] = x[0, row]
        options: dict[str, Any] = {"causal": True, "window": (left, 0), "version": version}
        k[:, :seen], v[:, :seen] = 0, 0
        expected = reference(q[0], k[0], v[0], options)[0]
        found = flashladder.attention_with_cache(q, *pages, np.array([keys], np.int32), table, **options)
        np.testing.assert_allclose(found[0].astype(float), expected, atol=6e-3)
        k[:, :seen], v[:, :seen] = np.nan, np.nan
        found = flashladder.attention(q, k, v, **options)
        np.testing.assert_allclose(found[0].astype(float), expected, atol=6e-3)


def test_batch_strides_of_more_than_2_to_the_31_elements() -> None:
    """The memory between the two sequences is never touched."""
    rng, step = RNG(7), (1 << 31) + 8
    buffers = [np.zeros(step + 40 * 64, HALF) for _ in "kv"]
    k, v = (np.lib.stride_tricks.as_strided(one, (2, 40, 1, 64), (2 * step, 128, 128, 2)) for one in buffers)
    k[:, :39], v[:, :39] = (rng.standard_normal((2, 39, 1, 64)) for _ in "kv")
    q, new = rng.standard_normal((2, 3, 1, 64)).astype(HALF), rng.standard_normal((2, 2, 1, 1, 64)).astype(HALF)
    found = flashladder.attention(q, k[:, :39], v[:, :39])
    for b in range(2):
        np.testing.assert_allclose(found[b].astype(float), reference(q[b], k[b, :39], v[b, :39], {})[0], atol=6e-3)
    found = flashladder.attention_with_cache(q, k, v, np.array([20, 39], np.int32), None, *new, causal=True)
    assert np.array_equal(k[[0, 1], [20, 39]], new[0][:, 0]) and np.array_equal(v[[0, 1], [20, 39]], new[1][:, 0])
    for b, keys in enumerate((21, 40)):
        expected = reference(q[b], k[b, :keys], v[b, :keys], {"causal": True})[0]
        np.testing.assert_allclose(found[b].astype(float), expected, atol=6e-3)


def test_pages_of_a_cache_as_large_as_the_memory() -> None:
    """They lie beyond 2^31 elements, and a copy of the caches would have no room."""
    rng, n_pages, limits = RNG(8), (1 << 31) // (16 * 64) + 5, resource.getrlimit(resource.RLIMIT_AS)
    caches = [np.zeros((n_pages, 16, 1, 64), HALF) for _ in "kv"]
    table, keys = np.array([[n_pages - 1, 3], [n_pages - 4, n_pages - 5]], np.int32), np.array([20, 31], np.int32)
    for cache in caches:
        cache[table] = rng.standard_normal((2, 2, 16, 1, 64))
    q, new = rng.standard_normal((2, 1, 1, 64)).astype(HALF), rng.standard_normal((2, 2, 1, 1, 64)).astype(HALF)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), limits[1]))
    try:
        found = flashladder.attention_with_cache(q, *caches, keys, table, *new, causal=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    for b in range(2):
        k, v = (cache[table[b]].reshape(32, 1, 64)[: keys[b] + 1] for cache in caches)
        assert np.array_equal((k[-1], v[-1]), new[:, b, 0])
        np.testing.assert_allclose(found[b].astype(float), reference(q[b], k, v, {})[0], atol=6e-3)


@pytest.mark.parametrize("size", [1e9, 3e12, -1e9, -3e12])
@pytest.mark.parametrize("version", ["attention/wgmma", "attention/decode", "attention/mma_sync"])
@pytest.mark.parametrize("d_head", [64, 128])
def test_the_largest_scores_of_any_size_win(d_head: int, version: str, size: float) -> None:
    """Three keys share the maximum, in blocks that begin with smaller ones. Scores are all above or all below 0."""
    q, k, v = three(3, 300, d_head=d_head)
    q[..., 1:], k[..., 1:] = 0, 0
    top = 901 if size > 0 else -1
    q[..., 0], k[..., 0] = 0.75, np.sign(size) * RNG(1).integers(2, 900, (1, 300, 2)) / 1024
    k[:, [5, 150, 299], :, 0] = top / 1024
    o, lse = flashladder.attention(q, k, v, scale=abs(size), version=version, return_lse=True)
    mean = v[0, [5, 150, 299]].astype(float).mean(0)
    np.testing.assert_allclose(o[0].astype(float), np.broadcast_to(mean, (3, 2, d_head)), atol=6e-3)
    np.testing.assert_allclose(lse, abs(size) * 0.75 * top / 1024 + np.log(3), rtol=1e-6)
