"""Several lengths, caches, windows, sinks and soft caps from Python: against float64 on the emulator, NumPy arrays.

Rows past every length, rows between sequences and unused pages are NaN, so that one row too many is noticed.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flashladder

RNG = np.random.default_rng
HALF = np.float16


class Case(NamedTuple):
    """Sequences of one problem, each [rows, heads, d_head]."""

    q: list[Any]
    k: list[Any]
    v: list[Any]
    options: dict[str, Any]

    def __repr__(self) -> str:
        sizes = [(len(q), len(k)) for q, k in zip(self.q, self.k, strict=True)]
        return f"{sizes} heads {self.q[0].shape[1:]} on {self.k[0].shape[1]} {self.options}"


def reference(q: Any, k: Any, v: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """O, log-sum-exp [heads, rows] and largest score [heads] in float64. "factors": of weights [heads, rows, keys]."""
    rows, heads, d_head = q.shape
    keys = k.shape[0]
    group = heads // k.shape[1]
    K, V = (np.repeat(x.astype(float), group, axis=1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q.astype(float), K) / np.sqrt(d_head)
    cap = options.get("softcap")
    if cap:
        s = cap * np.tanh(s / cap)
    scores = s
    distance = np.arange(keys)[None, :] - (np.arange(rows)[:, None] + keys - rows)  # of key j after the row's own
    bias = options.get("bias")  # [heads or 1, rows or 1, keys]
    if bias is not None:
        s = np.where(bias, s, -np.inf) if bias.dtype == bool else s + bias.astype(float)
    if options.get("alibi_slopes") is not None:
        s = s - options["alibi_slopes"].astype(float)[:, None, None] * abs(distance)
    left, right = options.get("window") or (-1, -1)
    seen = np.ones_like(distance, bool)
    seen &= (distance <= 0) | (not options.get("causal"))
    seen &= (distance >= -left) | (left < 0)
    seen &= (distance <= right) | (right < 0)
    s = np.where(seen, s, -np.inf)
    largest = np.where(s > -np.inf, scores, -np.inf).max(axis=(1, 2), initial=-np.inf)
    sinks = options.get("sinks")
    extra = (
        np.full((heads, rows, 1), -np.inf)
        if sinks is None
        else np.broadcast_to(sinks.astype(float)[:, None, None], (heads, rows, 1))
    )
    s = np.concatenate([s, extra], axis=2)
    most = s.max(axis=2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.exp(s - np.where(np.isfinite(most), most, 0))
        total = p.sum(axis=2)
        lse = np.where(total > 0, np.log(total) + np.where(np.isfinite(most), most, 0)[:, :, 0], -np.inf)
        weights = np.where(total[:, :, None] > 0, p / total[:, :, None], 0)[:, :, :-1]
        o = np.einsum("hij,jhd->ihd", weights * options.get("factors", 1), V)
    return o, lse, largest


def right(o: Any, lse: Any, expected: tuple[Any, Any, Any], largest: Any = None) -> None:
    np.testing.assert_allclose(o.astype(float), expected[0], atol=6e-3, rtol=1e-2)
    np.testing.assert_allclose(lse, expected[1], atol=4e-3, rtol=1e-3)
    if largest is not None:
        np.testing.assert_allclose(largest, expected[2], atol=1e-3, rtol=1e-3)


def sequence(rng: Any, rows: int, heads: int, d_head: int) -> Any:
    return rng.standard_normal((rows, heads, d_head)).astype(HALF)


def cumulated(rows: list[Any]) -> Any:
    return np.cumsum([0] + [x.shape[0] for x in rows]).astype(np.int32)


def padded(rows: list[Any], most: int) -> Any:
    """[batch, most, heads, d_head] with NaN after each."""
    made = np.full((len(rows), most, *rows[0].shape[1:]), np.nan, HALF)
    for one, x in zip(made, rows, strict=True):
        one[: len(x)] = x
    return made


def paged(rng: Any, rows: list[Any], page_rows: int, most: int) -> tuple[Any, Any]:
    """Pages of K-like rows, and the table: pages in any order, unused ones NaN, entries past the last page invalid."""
    used = [-(-len(x) // page_rows) for x in rows]
    numbers = rng.permutation(sum(used) + 2).astype(np.int32)
    cache = np.full((len(numbers), page_rows, *rows[0].shape[1:]), np.nan, HALF)
    table = np.full((len(rows), -(-most // page_rows)), 1 << 30, np.int32)
    at = 0
    for b, x in enumerate(rows):
        for i in range(used[b]):
            part = x[i * page_rows : (i + 1) * page_rows]
            cache[numbers[at], : len(part)] = part
            table[b, i], at = numbers[at], at + 1
    return cache, table


def lengths(rows: list[Any]) -> Any:
    return np.array([len(x) for x in rows], np.int32)


@st.composite
def cases(draw: Any, most_q: int = 20, most_k: int = 90, plain: bool = False) -> Case:
    """`plain`: what attention/decode takes."""
    rng = RNG(draw(st.integers(0, 2**32)))
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 2)]))
    d_head = draw(st.sampled_from([64, 128] if plain else [64, 128, 256]))
    sizes = draw(st.lists(st.tuples(st.integers(0, most_q), st.integers(0, most_k)), min_size=1, max_size=4))
    if not any(q for q, _ in sizes) or not any(k for _, k in sizes):
        sizes.append((3, 5))
    options: dict[str, Any] = {"causal": draw(st.booleans())}
    if not plain:
        side = st.integers(-1, 30)
        options["window"] = draw(st.none() | st.tuples(side, side))
        options["softcap"] = draw(st.sampled_from([None, 2.0]))
        if draw(st.booleans()):
            options["sinks"] = rng.standard_normal(kv_heads * group).astype(np.float32)
    q = [sequence(rng, n, kv_heads * group, d_head) for n, _ in sizes]
    k, v = ([sequence(rng, n, kv_heads, d_head) for _, n in sizes] for _ in range(2))
    return Case(q, k, v, options)


def check_varlen(case: Case, **more: Any) -> tuple[Any, Any]:
    q, k, v = (np.concatenate(x) for x in (case.q, case.k, case.v))
    cu_q, cu_k = cumulated(case.q), cumulated(case.k)
    most = max(len(x) for x in case.q), max(len(x) for x in case.k)
    o, lse = flashladder.attention_varlen(q, k, v, cu_q, cu_k, *most, return_lse=True, **case.options, **more)
    for b, (a, e) in enumerate(pairwise(cu_q)):
        right(o[a:e], lse[:, a:e], reference(case.q[b], case.k[b], case.v[b], case.options))
    return o, lse


def check_ragged_pages(case: Case, rng: Any, page_rows: int, by_offsets: bool, **more: Any) -> Any:
    """Queries of several lengths, keys in pages: also the bits of the same keys without pages."""
    state = rng.bit_generator.state
    most = max(1, *(len(x) for x in case.k)) + 5
    k, table = paged(rng, case.k, page_rows, most)
    rng.bit_generator.state = state
    v, _ = paged(rng, case.v, page_rows, most)
    cu_q, most_q = cumulated(case.q), max(len(x) for x in case.q)
    keys = {"seqlens_k": None if by_offsets else lengths(case.k)}
    o, lse = flashladder.attention_varlen(
        np.concatenate(case.q), k, v, cu_q, cumulated(case.k) if by_offsets else None, most_q, most,
        block_table=table, return_lse=True, **keys, **case.options, **more,
    )  # fmt: skip
    expected = check_varlen(case, **more)
    assert (o.view(np.uint16) == expected[0].view(np.uint16)).all()
    assert (lse.view(np.uint32) == expected[1].view(np.uint32)).all()
    return o


def check_padded(case: Case) -> None:
    q, k, v = (padded(x, max(1, *(len(y) for y in x)) + 3) for x in (case.q, case.k, case.v))
    o, lse = flashladder.attention(
        q, k, v, seqlens_q=lengths(case.q), seqlens_k=lengths(case.k), return_lse=True, **case.options
    )
    for b in range(len(q)):
        n = len(case.q[b])
        right(o[b, :n], lse[b, :, :n], reference(case.q[b], case.k[b], case.v[b], case.options))
        assert not o[b, n:].any() and (lse[b, :, n:] == -np.inf).all()


def check_cache(case: Case, rng: Any, page_rows: int, new: int, **more: Any) -> None:
    """All sequences have as many queries; the last `new` keys come with the call."""
    seq_q = max(1, len(case.q[0]))
    q = [sequence(rng, seq_q, case.q[0].shape[1], case.q[0].shape[2]) for _ in case.q]
    old_k, old_v = ([x[: max(0, len(x) - new)] for x in xs] for xs in (case.k, case.v))
    most = max(len(x) for x in case.k) + new + page_rows
    if page_rows:
        state = rng.bit_generator.state
        k_cache, table = paged(rng, old_k, page_rows, most)
        rng.bit_generator.state = state
        v_cache, _ = paged(rng, old_v, page_rows, most)
        spare = [np.full((table.size, *c.shape[1:]), np.nan, HALF) for c in (k_cache, v_cache)]
        free = iter(range(len(k_cache), len(k_cache) + table.size))  # pages that are to come
        table = np.array([[next(free) if page == 1 << 30 else page for page in row] for row in table], np.int32)
        k_cache, v_cache = (np.concatenate(pair) for pair in zip((k_cache, v_cache), spare, strict=True))
    else:
        table, k_cache, v_cache = None, padded(old_k, most), padded(old_v, most)
    k_new, v_new = ([sequence(rng, new, *x[0].shape[1:]) for _ in x] if new else None for x in (case.k, case.v))
    extra = {} if not new else {"k_new": np.stack(k_new), "v_new": np.stack(v_new)}
    o, lse = flashladder.attention_with_cache(
        np.stack(q), k_cache, v_cache, lengths(old_k), table, return_lse=True, **extra, **case.options, **more
    )
    for b in range(len(q)):
        k, v = (
            np.concatenate([old[b], added[b]]) if new else old[b] for old, added in ((old_k, k_new), (old_v, v_new))
        )
        right(o[b], lse[b], reference(q[b], k, v, case.options))


FEW = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
NEW = st.sampled_from([0, 1, 5])
PAGES = st.sampled_from([0, 16, 64])
PAGES_ALONE = st.sampled_from([16, 32, 64, 128, 256])


@FEW
@given(cases())
def test_sequences_one_behind_the_other(case: Case) -> None:
    check_varlen(case)


@FEW
@given(cases())
def test_padded_sequences(case: Case) -> None:
    check_padded(case)


@FEW
@given(cases(most_q=9, plain=True), PAGES, NEW, st.sampled_from([None, "batch"]))
def test_caches_and_pages(case: Case, page_rows: int, new: int, deterministic: Any) -> None:
    check_cache(case, RNG(1), page_rows, new, deterministic=deterministic)


@FEW
@given(cases(), PAGES_ALONE, st.booleans())
def test_queries_of_several_lengths_over_pages(case: Case, page_rows: int, by_offsets: bool) -> None:
    check_ragged_pages(case, RNG(1), page_rows, by_offsets)


@pytest.mark.long
@MANY
@given(cases(most_q=150, most_k=400), PAGES_ALONE, st.sampled_from([None, "batch"]))
def test_many_queries_of_several_lengths_over_pages(case: Case, page_rows: int, deterministic: Any) -> None:
    check_ragged_pages(case, RNG(1), page_rows, False, deterministic=deterministic)


@pytest.mark.long
@MANY
@given(cases(most_q=150, most_k=400))
def test_many_packed_and_padded_sequences(case: Case) -> None:
    check_varlen(case)
    check_padded(case)


@pytest.mark.long
@MANY
@given(cases(most_q=40, most_k=1500, plain=True), PAGES, NEW, st.sampled_from([None, "batch"]))
def test_many_caches(case: Case, page_rows: int, new: int, deterministic: Any) -> None:
    check_cache(case, RNG(2), page_rows, new, deterministic=deterministic)


# Sizes that FlashAttention-3's test_flash_attn.py tries.
PACKED = [(1, 1), (1, 3), (2, 1), (511, 1), (3, 513), (64, 128), (113, 203), (128, 217), (108, 256), (799, 3)]
CACHE_SIZES = [(1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (128, 128)]


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (37, 20)}], ids=["full", "causal", "window"])
def test_packed_sequences_of_all_sizes(options: dict[str, Any]) -> None:
    """In one call, so that short and long ones, with more queries than keys or fewer, are neighbors."""
    rng = RNG(5)
    q, k, v = ([sequence(rng, size[i], 2 - (i > 0), 64) for size in PACKED] for i in (0, 1, 1))
    check_varlen(Case(q, k, v, options))


@pytest.mark.parametrize(("rows", "keys"), CACHE_SIZES)
@pytest.mark.parametrize("page_rows", [0, 16])
def test_caches_of_these_sizes(rows: int, keys: int, page_rows: int) -> None:
    rng = RNG(6)
    q, k, v = ([sequence(rng, n, heads, 64) for n in (size, size)] for size, heads in ((rows, 2), (keys, 1), (keys, 1)))
    check_cache(Case(q, k, v, {"causal": True}), rng, page_rows, 0)


def decoded(q: Any, k: Any, v: Any, keys: Any, page_rows: int) -> tuple[Any, Any]:
    table = None
    if page_rows:  # each sequence has its own pages, in order
        n, capacity = k.shape[:2]
        table = np.arange(n * capacity // page_rows, dtype=np.int32).reshape(n, -1)
        k, v = (x.reshape(-1, page_rows, *x.shape[2:]) for x in (k, v))
    o, lse = flashladder.attention_with_cache(q, k, v, keys, table, deterministic="batch", return_lse=True, causal=True)
    return o, lse


@pytest.mark.parametrize(("seq_q", "page_rows"), [(1, 0), (3, 16), (70, 0)])
def test_bits_do_not_depend_on_the_batch(seq_q: int, page_rows: int) -> None:
    """Sizes and orders of the batch, and whether the others are long; more than one part of 2048 keys."""
    rng = RNG(3)
    keys = np.array([2100, 0, 37, 2304], np.int32)
    q = rng.standard_normal((4, seq_q, 2, 64)).astype(HALF)
    k, v = (rng.standard_normal((4, 2304, 1, 64)).astype(HALF) for _ in range(2))
    whole, whole_lse = decoded(q, k, v, keys, page_rows)
    for order in ([0], [1], [2], [3, 0], [2, 1, 0], [0, 0, 0, 0, 0]):
        o, lse = decoded(q[order], k[order], v[order], keys[order], page_rows)
        assert (o.view(np.uint16) == whole[order].view(np.uint16)).all()
        assert (lse.view(np.uint32) == whole_lse[order].view(np.uint32)).all()


def test_bits_of_packed_sequences_do_not_depend_on_the_others() -> None:
    rng = RNG(4)
    sizes = [(70, 90), (1, 33), (130, 200)]
    q = [sequence(rng, n, 2, 64) for n, _ in sizes]
    k, v = ([sequence(rng, n, 1, 64) for _, n in sizes] for _ in range(2))
    options = {"causal": True, "window": (40, -1)}
    o, _ = check_varlen(Case(q, k, v, options), deterministic="batch")
    cu = cumulated(q)
    for b in range(3):
        alone, _ = check_varlen(Case(q[b : b + 1], k[b : b + 1], v[b : b + 1], options), deterministic="batch")
        assert (alone.view(np.uint16) == o[cu[b] : cu[b + 1]].view(np.uint16)).all()


def arrays() -> dict[str, Any]:
    q = np.zeros((2, 1, 2, 64), HALF)
    cache = np.zeros((2, 32, 1, 64), HALF)
    return {"q": q, "k_cache": cache, "v_cache": cache.copy(), "seqlens_k": np.array([5, 32], np.int32)}


TABLE = np.zeros((2, 2), np.int32)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"seqlens_k": np.zeros(4, np.int32)[::2]}, ValueError, r"strides \(2,\): copy it"),
    ({"block_table": np.zeros((2, 0), np.int32)}, ValueError, "pages of a sequence"),
    ({"k_new": np.zeros((2, 1, 1, 64), HALF)}, ValueError, "one of k_new and v_new is None"),
    (
        {"k_new": np.zeros((2, 1, 1, 64), HALF), "v_new": np.zeros((2, 1, 1, 64), HALF)},
        ValueError,
        r"seqlens_k\[1\] is 32: 1 new rows need a length from 0 to 31, because the cache has 32 rows",
    ),
    ({"softcap": -1.0}, ValueError, "softcap is -1.0"),
    ({"rotary_cos": 1}, TypeError, "rotate q and k_new before the call"),
    (
        dict.fromkeys(("q", "k_cache", "v_cache"), np.zeros((2, 32, 1, 84), HALF)),
        NotImplementedError,
        r"d_head 84: must be a multiple of 8 up to 576; pad q, k_cache and v_cache with zeros and keep the scale",
    ),
    ({name: np.zeros((2, 24, 1, 64), HALF) for name in ("k_cache", "v_cache")} | {"block_table": TABLE}, ValueError,
     "page_rows 24: pages of k_cache, its second axis, must have a multiple of 16 rows"),
    ({name: np.zeros((0, 32, 1, 64), HALF) for name in ("k_cache", "v_cache")} | {"block_table": TABLE}, ValueError,
     "n_pages 0: must be from 1"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = arrays() | change
    before = given["k_cache"].copy()
    with pytest.raises(error, match=words):
        flashladder.attention_with_cache(**given)
    assert (given["k_cache"] == before).all()


def test_packed_queries_over_pages_need_one_kind_of_lengths() -> None:
    q, cache = np.zeros((4, 1, 64), HALF), np.zeros((3, 16, 1, 64), HALF)
    starts, used = np.array([0, 1, 4], np.int32), np.array([16, 20], np.int32)
    for offsets, lengths_, words in (
        (None, None, "block_table needs one of cu_seqlens_k and seqlens_k"),
        (np.array([0, 16, 36], np.int32), used, "set the other to None"),
    ):
        with pytest.raises(TypeError, match=words):
            flashladder.attention_varlen(q, cache, cache, starts, offsets, 4, 32, seqlens_k=lengths_, block_table=TABLE)


def test_sequences_may_share_pages() -> None:
    """As after a common prompt, each followed by a page of its own."""
    rng = RNG(8)
    prompt_k, prompt_v = (sequence(rng, 32, 1, 64) for _ in "kv")
    own = [[sequence(rng, n, 1, 64) for n in (5, 16, 1)] for _ in "kv"]
    caches = [np.full((6, 16, 1, 64), np.nan, HALF) for _ in "kv"]
    for cache, prompt, tails in zip(caches, (prompt_k, prompt_v), own, strict=True):
        cache[[4, 1]] = prompt.reshape(2, 16, 1, 64)
        for page, tail in zip((0, 2, 5), tails, strict=True):
            cache[page, : len(tail)] = tail
    table = np.array([[4, 1, 0], [4, 1, 2], [4, 1, 5]], np.int32)
    q = [sequence(rng, n, 2, 64) for n in (1, 3, 33)]
    k, v = (
        [np.concatenate([prompt, x]) for x in tails] for prompt, tails in zip((prompt_k, prompt_v), own, strict=True)
    )
    o, lse = flashladder.attention_varlen(
        np.concatenate(q), *caches, cumulated(q), None, 33, 48,
        seqlens_k=lengths(k), block_table=table, causal=True, return_lse=True,
    )  # fmt: skip
    for b, (a, e) in enumerate(pairwise(cumulated(q))):
        right(o[a:e], lse[:, a:e], reference(q[b], k[b], v[b], {"causal": True}))


def test_an_empty_batch_and_no_rows_give_what_they_should() -> None:
    none = np.zeros((0, 1, 64), HALF)
    k = np.zeros((6, 1, 64), HALF)
    cu = np.array([0, 0, 0], np.int32)
    assert flashladder.attention_varlen(none, k, k, cu, cu, 4, 4).shape == (0, 1, 64)
    assert flashladder.attention_varlen(none, k, k, cu[:1], cu[:1], 4, 4).shape == (0, 1, 64)
    given = arrays()
    for table in (None, np.zeros((0, 1), np.int32)):
        cache = given["k_cache"][: None if table is not None else 0]
        assert flashladder.attention_with_cache(given["q"][:0], cache, cache, cu[:0], table).shape == (0, 1, 2, 64)
    given["seqlens_k"][:] = 0
    o, lse = flashladder.attention_with_cache(**given, return_lse=True)
    assert not o.any() and (lse == -np.inf).all()
