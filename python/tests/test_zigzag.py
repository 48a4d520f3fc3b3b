"""The ring of examples/context_parallel.py in NumPy: who sees what, and one attention from many partial ones."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from zigzag import combine, needed, rows_of, visible  # noqa: E402

Array = npt.NDArray[np.float64]


def attend(q: Array, k: Array, v: Array, mask: npt.NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
    """[batch, seq, heads, d_head]: O and log-sum-exp [batch, heads, seq]."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[3])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    lse: Array = np.log(np.exp(scores).sum(axis=-1))
    return np.einsum("bhqk,bkhd->bqhd", np.exp(scores - lse[..., None]), v), lse


def take(tensor: Array, rank: int, ranks: int, axis: int) -> Array:
    chunks = rows_of(rank, ranks, tensor.shape[axis])
    return np.concatenate([tensor.take(range(c.start, c.stop), axis=axis) for c in chunks], axis=axis)


def causal_attention(ranks: int) -> tuple[Array, ...]:
    """q, k, v, and their attention and its log-sum-exp on one rank."""
    random = np.random.default_rng(ranks)
    q, k, v = (random.standard_normal((2, 2 * ranks * 3, 2, 8)) for _ in range(3))
    return q, k, v, *attend(q, k, v, np.tri(2 * ranks * 3, dtype=bool))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_the_ring_is_one_causal_attention(ranks: int) -> None:
    q, k, v, whole, whole_lse = causal_attention(ranks)
    for rank in range(ranks):
        mine, my_k, my_v = (take(tensor, rank, ranks, 1) for tensor in (q, k, v))
        rows = mine.shape[1]
        out, lse = attend(mine, my_k, my_v, np.tri(rows, dtype=bool))
        for step in range(1, ranks):
            source = (rank - step) % ranks
            here, there = visible(rank, source, rows)
            other_k, other_v = take(k, source, ranks, 1), take(v, source, ranks, 1)
            part, part_lse = attend(mine[:, here], other_k[:, there], other_v[:, there])
            combine(np, out[:, here], lse[:, :, here], part, part_lse)
        np.testing.assert_allclose(out, take(whole, rank, ranks, 1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(lse, take(whole_lse, rank, ranks, 2), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_the_chunks_that_a_rank_gathers_are_all_that_its_rows_see(ranks: int) -> None:
    """Two calls, one a chunk of queries, each causal to the keys up to the chunk's end."""
    q, k, v, whole, _ = causal_attention(ranks)
    seq = q.shape[1]
    for rank in range(ranks):
        there = np.zeros(seq, dtype=bool)
        for source in range(ranks):
            chunks = needed(rank, source, ranks, seq) if source != rank else rows_of(rank, ranks, seq)
            for rows in chunks:
                there[rows] = True
        for rows in rows_of(rank, ranks, seq):
            assert there[: rows.stop].all()
            seen = np.tri(seq, dtype=bool)[rows, : rows.stop]
            out, _ = attend(q[:, rows], k[:, : rows.stop], v[:, : rows.stop], seen)
            np.testing.assert_allclose(out, whole[:, rows], rtol=1e-12, atol=1e-12)
        assert not there[rows_of(rank, ranks, seq)[1].stop :].any()


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_all_ranks_have_the_same_work_in_each_step(ranks: int) -> None:
    rows = 10
    for step in range(1, ranks):
        pairs = set()
        for rank in range(ranks):
            here, there = visible(rank, (rank - step) % ranks, rows)
            pairs.add(len(range(rows)[here]) * len(range(rows)[there]))
        assert pairs == {rows * rows // 2}


def test_a_dominant_part_takes_over_without_overflow() -> None:
    out, lse = np.ones((1, 1, 1, 2)), np.full((1, 1, 1), 1000.0)
    combine(np, out, lse, np.full((1, 1, 1, 2), 3.0), np.full((1, 1, 1), 2000.0))
    np.testing.assert_allclose(out, 3.0)
    np.testing.assert_allclose(lse, 2000.0)
