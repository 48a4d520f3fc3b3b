"""K and V of float8_e4m3fn with different numbers of queries: against float64 of the same bytes on the emulator, NumPy.

Rows past every length and unused pages are NaN.
"""

from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies
from test_lengths import FEW, MANY, PAGES, RNG, Case, cases, cumulated, lengths, paged, reference, right, sequence

import flashladder

BYTES = ml_dtypes.float8_e4m3fn
D = 128
IN_PARTS = strategies.sampled_from([None, "batch"])


def in_bytes(rows: list[Any]) -> tuple[list[Any], list[Any], Any]:
    """Each sequence in e4m3, the values of its elements, and the scales of the heads."""
    values, scale = flashladder.quantize_e4m3(np.concatenate(rows))
    parts = [values[a:e] for a, e in pairwise(cumulated(rows))]
    return parts, [part.astype(np.float32) * scale[:, None] for part in parts], scale


def check(case: Case, page_rows: int, **more: Any) -> Any:
    (k, wide_k, k_scale), (v, wide_v, v_scale) = in_bytes(case.k), in_bytes(case.v)
    cu_q, cu_k = cumulated(case.q), cumulated(case.k)
    most = max(len(x) for x in case.q), max(len(x) for x in case.k)
    given: dict[str, Any] = {"k_scale": k_scale, "v_scale": v_scale}
    if page_rows:
        caches = [paged(RNG(1), part, page_rows, most[1] + 5) for part in (k, v)]
        K, V = (cache.astype(BYTES) for cache, _ in caches)
        given |= {"block_table": caches[0][1], "seqlens_k": lengths(case.k)}
        cu_k = None
    else:
        K, V = np.concatenate(k), np.concatenate(v)
    o, lse = flashladder.attention_varlen(
        np.concatenate(case.q), K, V, cu_q, cu_k, *most, return_lse=True, **given, **case.options, **more
    )
    for b, (a, e) in enumerate(pairwise(cu_q)):
        right(o[a:e], lse[:, a:e], reference(case.q[b], wide_k[b], wide_v[b], case.options))
    return o


def of_128(case: Case) -> bool:
    return bool(case.q[0].shape[2] == D)


@FEW
@given(cases(plain=True).filter(of_128), PAGES, IN_PARTS)
def test_packed_sequences_and_pages(case: Case, page_rows: int, deterministic: Any) -> None:
    check(case, page_rows, deterministic=deterministic)


@pytest.mark.long
@MANY
@given(cases(most_q=150, most_k=1500, plain=True).filter(of_128), PAGES, IN_PARTS)
def test_many_packed_sequences_and_pages(case: Case, page_rows: int, deterministic: Any) -> None:
    check(case, page_rows, deterministic=deterministic)


def some(sizes: list[tuple[int, int]]) -> Case:
    rng = RNG(4)
    q = [sequence(rng, n, 4, D) for n, _ in sizes]
    k, v = ([sequence(rng, n, 1, D) for _, n in sizes] for _ in range(2))
    return Case(q, k, v, {"causal": True})


def test_bits_do_not_depend_on_the_batch() -> None:
    """Nor on how many queries there are, by which a call without "batch" chooses blocks."""
    case = some([(1, 300), (40, 90), (3, 33)])  # the second alone has more than 64 rows
    for part in (case.k, case.v):  # so that the scales are those of each alone
        for one in part:
            one[0, 0, 0] = 9
    o, cu = check(case, 16, deterministic="batch"), cumulated(case.q)
    for b in range(3):
        alone = Case(case.q[b : b + 1], case.k[b : b + 1], case.v[b : b + 1], case.options)
        assert (check(alone, 0, deterministic="batch").view(np.uint16) == o[cu[b] : cu[b + 1]].view(np.uint16)).all()


def arguments() -> dict[str, Any]:
    case = some([(2, 20), (5, 7)])
    (k, _, k_scale), (v, _, v_scale) = in_bytes(case.k), in_bytes(case.v)
    starts = {"cu_seqlens_q": cumulated(case.q), "cu_seqlens_k": cumulated(case.k)}
    tensors = {name: np.concatenate(rows) for name, rows in (("q", case.q), ("k", k), ("v", v))}
    return {**tensors, **starts, "max_seqlen_q": 5, "max_seqlen_k": 20, "k_scale": k_scale, "v_scale": v_scale}


def test_a_number_is_the_scale_of_all_heads() -> None:
    plain = flashladder.attention_varlen(**arguments() | {"k_scale": None, "v_scale": None}, scale=2 * D**-0.5)
    scaled = flashladder.attention_varlen(**arguments() | {"k_scale": 2.0, "v_scale": 4})
    np.testing.assert_array_equal(4 * plain, scaled)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k_scale": 0.0}, ValueError, "k_scale is 0.0: it must be a positive number"),
        ({"v_scale": np.ones(3, np.float32)}, ValueError, r"v_scale has the shape \(3,\): \(1,\) is needed"),
        ({"window": (3, 0)}, NotImplementedError, "window: cannot be combined with kv_dtype"),
        ({"v": np.zeros((27, 1, D), np.float16)}, ValueError, "v is float16"),
        (
            {"k": np.zeros((27, 1, D), np.float16), "v": np.zeros((27, 1, D), np.float16)},
            ValueError,
            "k_scale and v_scale are for k and v of float8_e4m3fn or int8: k is float16",
        ),
        (
            {"k": np.zeros((27, 1, 64), BYTES), "v": np.zeros((27, 1, 64), BYTES), "q": np.zeros((7, 4, 64), np.half)},
            NotImplementedError,
            "d_head 64: must be 128 for a cache of e4m3 or int8",
        ),
    ],
)
def test_bad_input_gets_a_sentence(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        flashladder.attention_varlen(**arguments() | change)
