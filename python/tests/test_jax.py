"""The foreign function for JAX, on the CPU: in and out of jit, under vmap, errors."""

from typing import Any

import numpy as np
import pytest

import flashladder

jax: Any = pytest.importorskip("jax", reason="JAX is not installed, and make check does without it")
jnp: Any = jax.numpy
from flashladder import _call  # noqa: E402
from flashladder import jax as flj  # noqa: E402
from flashladder.jax import (  # noqa: E402
    attention,
    attention_e4m3,
    attention_varlen,
    attention_with_cache,
    quantize_e4m3,
)


def arrays(dtype: Any = None) -> Any:
    random = np.random.default_rng(0)
    shapes = [(1, 24, 2, 64), (1, 40, 1, 64), (1, 40, 1, 64)]
    return [jnp.asarray(random.standard_normal(shape), dtype or jnp.bfloat16) for shape in shapes]


def reference(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, q.shape[2] // k.shape[2], axis=2) for array in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[3])
    if causal:
        rows, keys = scores.shape[2:]
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -np.inf)
    lse = np.log(np.exp(scores).sum(-1))
    return np.einsum("bhqk,bkhd->bqhd", np.exp(scores - lse[..., None]), v), lse


def agrees(out: Any, expected: Any) -> bool:
    allowed = 3 * float(jnp.finfo(out.dtype).eps) * np.abs(expected).max(-1, keepdims=True)
    return bool((np.abs(np.asarray(out, np.float64) - expected) <= allowed).all())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_call_and_a_compiled_program_agree(dtype: str, causal: bool) -> None:
    q, k, v = arrays(dtype)
    expected, expected_lse = reference(q, k, v, causal)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    assert agrees(out, expected)
    np.testing.assert_allclose(np.asarray(lse), expected_lse, atol=1e-4)
    compiled = jax.jit(lambda q, k, v: attention(q, k, v, causal=causal) * 2)(q, k, v)
    assert (compiled == out * 2).all()


def test_the_package_takes_arrays_of_jax() -> None:
    q, k, v = arrays()
    out = flashladder.attention(q, k, v, causal=True)
    assert isinstance(out, jax.Array) and (out == attention(q, k, v, causal=True)).all()
    assert flashladder.supports(q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_float64(causal: bool) -> None:
    q, k, v = arrays("float16")
    out, pull = jax.vjp(lambda q, k, v: attention(q, k, v, causal=causal), q, k, v)
    dout = jnp.asarray(np.random.default_rng(1).standard_normal(out.shape), out.dtype)
    found = pull(dout)
    Q, K, V, dO = (np.asarray(array, np.float64).transpose(0, 2, 1, 3) for array in (q, k, v, dout))
    scores = Q @ K.transpose(0, 1, 3, 2) / 8
    if causal:
        scores = np.where(np.tri(24, 40, 16, dtype=bool), scores, -np.inf)
    P = np.exp(scores - scores.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = P * (dO @ V.transpose(0, 1, 3, 2) - (dO * (P @ V)).sum(-1, keepdims=True)) / 8
    by_key = [(one.transpose(0, 1, 3, 2) @ rows).sum(1, keepdims=True) for one, rows in ((dS, Q), (P, dO))]
    for gradient, expected in zip(found, (dS @ K, *by_key), strict=True):
        difference = np.asarray(gradient, np.float64).transpose(0, 2, 1, 3) - expected
        assert np.linalg.norm(difference) < 1.2 * 2**-11 * np.linalg.norm(expected)


def test_a_gradient_inside_jit() -> None:
    q, k, v = arrays()

    def loss(q: Any) -> Any:
        return (attention(q, k, v).astype(jnp.float32) ** 2).sum()

    assert (jax.jit(jax.grad(loss))(q) == jax.grad(loss)(q)).all()
    with pytest.raises(RuntimeError, match="d_head 96: attention/backward supports 64, 128, 256"):
        wide = jnp.zeros((1, 8, 1, 96), jnp.float16)
        jax.block_until_ready(jax.grad(lambda q: attention(q, wide, wide).sum())(wide))


def test_vmap_is_a_call_for_each() -> None:
    q, k, v = arrays()
    many = jax.vmap(lambda q: attention(q, k, v))(jnp.stack([q, q * 2]))
    assert (many[1] == attention(q * 2, k, v)).all()


ONES, LENGTH = jnp.ones(2, jnp.float32), jnp.asarray([10], jnp.int32)
WITHOUT_GRADIENT: dict[str, dict[str, Any]] = {
    "window": {"window": (3, 0)},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": ONES},
    "seqlens_k": {"seqlens_k": LENGTH},
    "bias": {"bias": jnp.zeros((1, 2, 24, 40), jnp.float32)},
    "alibi_slopes": {"alibi_slopes": ONES},
    "dropout_p": {"dropout_p": 0.5, "rng_state": (1, 2)},
    "block_mask": {"block_mask": jnp.ones((1, 1), bool)},
}


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_what_has_no_gradient_is_named(name: str) -> None:
    """By q and by the array, in either mode; stop_gradient() keeps derivatives away."""
    (q, k, v), given = arrays(), WITHOUT_GRADIENT[name]

    def loss(q: Any, given: Any) -> Any:
        return attention(q, k, v, **given).astype(jnp.float32).sum()

    words = rf"attention with {name} has no gradient in JAX: use flashladder\.torch"
    with pytest.raises(NotImplementedError, match=words):
        jax.grad(loss)(q, given)
    if name in ("sinks", "bias", "alibi_slopes"):
        with pytest.raises(NotImplementedError, match=words):
            jax.jit(jax.grad(lambda given: loss(q, given)))(given)
    with pytest.raises(NotImplementedError, match=words):
        jax.jvp(lambda q: loss(q, given), (q,), (q,))
    assert jax.grad(lambda q: q[0, 0, 0, 0] * loss(jax.lax.stop_gradient(q), given))(q).any()


def test_a_cache_has_no_gradient() -> None:
    q, k, v = arrays()
    with pytest.raises(NotImplementedError, match="attention with seqlens_k has no gradient in JAX"):
        jax.grad(lambda q: attention_with_cache(q, k, v, LENGTH).astype(jnp.float32).sum())(q)


def test_a_loss_may_use_log_sum_exp() -> None:
    q, k, v = (array.astype(jnp.float16) for array in arrays())

    def loss(q: Any, k: Any, v: Any) -> Any:
        out, lse = attention(q, k, v, causal=True, return_lse=True)
        return (out.astype(jnp.float32) ** 2).sum() + (lse**2).sum()

    def exact(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[3] ** -0.5
        seen = jnp.tril(jnp.ones(scores.shape[2:], bool), k.shape[1] - q.shape[1])
        scores = jnp.where(seen, scores, -jnp.inf)
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        return (out**2).sum() + (jax.nn.logsumexp(scores, axis=-1) ** 2).sum()

    found = jax.grad(loss, (0, 1, 2))(q, k, v)
    expected = jax.grad(exact, (0, 1, 2))(*(x.astype(jnp.float32) for x in (q, k, v)))
    for one, other in zip(found, expected, strict=True):
        assert jnp.linalg.norm(one.astype(jnp.float32) - other) < 6e-3 * jnp.linalg.norm(other)


def test_errors_of_a_launch_say_what_is_wrong() -> None:
    q, k, v = arrays()
    for given, options, error, words in (
        ([array[..., :36] for array in (q, k, v)], {}, RuntimeError, "36"),
        ((q, k, v), {"version": "v99"}, RuntimeError, "v99"),
    ):
        with pytest.raises(error, match=words):
            jax.block_until_ready(attention(*given, **options))


@pytest.mark.parametrize("deterministic", [True, "batch"])
def test_gradients_may_have_the_same_bits_in_every_run(deterministic: Any) -> None:
    rows = [jnp.tile(array[0], (5, 1, 1)) for array in arrays()]
    starts = [jnp.asarray([0, 100, len(one)], jnp.int32) for one in rows[:2]]

    def loss(*rows: Any) -> Any:
        return attention_varlen(*rows, *starts, 200, 200, deterministic=deterministic).astype(jnp.float32).sum()

    once, again = (jax.grad(loss, (0, 1, 2))(*rows) for _ in range(2))
    assert all((one == other).all() for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize("most", [2, 100])
def test_any_number_of_sequences(most: int, monkeypatch: Any) -> None:
    """In several launches of at most 65,535, here 2, with gradients."""
    monkeypatch.setattr(_call, "MOST_SEQUENCES", most)
    (q, k, v), _ = served()
    many = [jnp.asarray(np.concatenate([x, x[::-1], x[:1]])[:, :7]) for x in (q, k, v)]
    out, lse, largest = attention(*many, return_lse=True, return_max_logits=True)
    assert same([largest], [flashladder.attention(*map(np.asarray, many), return_max_logits=True)[1]])
    expected = reference(*many, False)
    assert out.shape == (5, 7, 2, 64) and agrees(out, expected[0]) and np.allclose(lse, expected[1], atol=1e-3)
    rows, starts = [x.reshape(35, -1, 64) for x in many], jnp.arange(0, 36, 7, dtype=jnp.int32)
    packed, of_packed = attention_varlen(*rows, starts, starts, 7, 7, return_lse=True)
    assert same([packed], [np.asarray(out).reshape(35, 2, 64)])
    assert same([of_packed.reshape(2, 5, 7)], [np.asarray(lse).transpose(1, 0, 2)])
    whole = jax.grad(lambda q: attention(q, *many[1:]).astype(jnp.float32).sum())(many[0])
    parts = jax.grad(lambda q: attention_varlen(q, *rows[1:], starts, starts, 7, 7).astype(jnp.float32).sum())(rows[0])
    assert np.allclose(parts.reshape(whole.shape), whole, atol=1e-2)


def test_one_sample_counts_for_all_and_pages_need_no_power_of_two() -> None:
    q, k, v = arrays()
    many = jnp.concatenate([q, q * 2])
    assert (attention(many, k, v)[1:] == attention(q * 2, k, v)).all()
    pages = [jnp.tile(x, (1, 3, 1, 1))[:, :96].reshape(2, 48, 1, 64) for x in (k, v)]
    table, keys = jnp.asarray([[1, 0]], jnp.int32), jnp.asarray([90], jnp.int32)
    whole = [x[::-1].reshape(1, 96, 1, 64)[:, :90] for x in pages]
    assert agrees(attention_with_cache(q, *pages, keys, table, causal=True), reference(q, *whole, True)[0])


def served() -> tuple[list[Any], Any]:
    """q, k and v [2, 24 and 40, heads, 64] in fp16, NaN past the keys in use; and their numbers."""
    random, keys = np.random.default_rng(2), np.array([33, 7], np.int32)
    q, k, v = (
        random.standard_normal((2, rows, heads, 64)).astype(np.float16) for rows, heads in ((24, 2), *[(40, 1)] * 2)
    )
    for rows in (k, v):
        rows[np.arange(40)[None] >= keys[:, None]] = np.nan
    return [q, k, v], keys


def same(ours: Any, theirs: Any) -> bool:
    return all((np.asarray(one) == other).all() for one, other in zip(ours, theirs, strict=True))


def of_jax(options: dict[str, Any]) -> dict[str, Any]:
    return {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}


def as_the_package(name: str, given: dict[str, Any]) -> Any:
    """The results of a function, after a comparison with those for NumPy and in a compiled program."""
    expected, function = getattr(flashladder, name)(**given), getattr(flj, name)
    arrays = of_jax({name: x for name, x in given.items() if isinstance(x, np.ndarray)})
    found = function(**(given | arrays))
    compiled = jax.jit(lambda arrays: function(**(given | arrays)))
    assert same(found, expected) and same(compiled(arrays), expected) and found[0].dtype == expected[0].dtype
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"window": (5, 0), "deterministic": "batch", "scale": 0.2},
        {"softcap": 2.0, "sinks": np.array([0.5, -1], np.float32), "seqlens_q": np.array([24, 3], np.int32)},
        {"return_max_logits": True, "dropout_p": 0.3, "rng_state": (-3, 2**40 + 5)},
        {"return_max_logits": True, "block_mask": np.array([[0, 1], [1, 1]], bool)[..., None, None]},
    ],
)
def test_options_give_the_bits_of_the_package(options: dict[str, Any]) -> None:
    tensors, keys = served()
    as_the_package(
        "attention", dict(zip("qkv", tensors, strict=True)) | options | {"seqlens_k": keys, "return_lse": True}
    )


def test_seed_and_offset_are_arrays() -> None:
    """JAX accepts them in its own integer types, also under jit and vmap."""
    q, k, v = arrays("float16")

    @jax.jit
    def drop(state: Any) -> Any:
        return attention(q, k, v, dropout_p=0.3, rng_state=state)

    key, wide = jax.random.key_data(jax.random.key(2**31 + 3)), np.array([-(2**61) - 1, 2**40 + 5])
    states = [jnp.asarray([-7, 5], jnp.int32), jnp.asarray([7, 6], jnp.int32), key, jnp.asarray(wide.view(np.uint32))]
    expected = []
    for numbers in (*states[:3], wide):
        given = [np.asarray(x) for x in (q, k, v)]
        expected.append(flashladder.attention(*given, dropout_p=0.3, rng_state=tuple(map(int, numbers))))
    assert same(map(drop, states), expected) and same(jax.vmap(drop)(jnp.stack(states[:2])), expected[:2])
    with jax.enable_x64():
        assert (attention(q, k, v, dropout_p=0.3, rng_state=jnp.asarray(wide)) == expected[3]).all()


def in_pages(*rows: Any) -> list[Any]:
    """Caches and their table."""
    pages = [np.pad(x, ((0, 0), (0, 8), (0, 0), (0, 0))).reshape(6, 16, 1, 64)[::-1].copy() for x in rows]
    return [*pages, np.arange(6, dtype=np.int32)[::-1].reshape(2, 3).copy()]


@pytest.mark.parametrize("paged", [False, True])
def test_caches_and_pages(paged: bool) -> None:
    (q, k, v), keys = served()
    k, v, table = in_pages(k, v) if paged else (k, v, None)
    given = {"q": q[:, :2], "k_cache": k, "v_cache": v, "seqlens_k": keys, "block_table": table}
    as_the_package("attention_with_cache", given | {"causal": True, "return_lse": True})


@pytest.mark.parametrize("paged", [False, True])
def test_packed_sequences(paged: bool) -> None:
    (q, k, v), keys = served()
    given = {"q": q[0], "cu_seqlens_q": np.array([0, 9, 24], np.int32), "max_seqlen_q": 15, "max_seqlen_k": 20}
    if paged:
        k, v, table = in_pages(k, v)
        given |= {"k": k, "v": v, "seqlens_k": keys, "block_table": table, "cu_seqlens_k": None}
    else:
        given |= {"k": k[0, :33], "v": v[0, :33], "cu_seqlens_k": np.array([0, 13, 33], np.int32)}
    as_the_package("attention_varlen", given | {"causal": True, "return_lse": True})


def in_e4m3() -> tuple[dict[str, Any], dict[str, Any]]:
    """q, k and v [2, 24 and 150, heads, 64] of float8_e4m3fn and the scales of their heads, of NumPy."""
    random, tensors, scales = np.random.default_rng(3), {}, {}
    for name, rows, heads in (("q", 24, 2), ("k", 150, 1), ("v", 150, 1)):
        wide = random.standard_normal((2, rows, heads, 64)).astype(np.float32)
        tensors[name], scales[f"{name}_scale"] = flashladder.quantize_e4m3(wide)
    return tensors, scales


BLOCKS = np.random.default_rng(4).uniform(0.5, 2, (2, 1, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True, "accurate": True, "dtype": "float16", "scale": 0.1},
        {"dtype": "float8_e4m3fn", "o_scale": 0.01, "q_scale": 2.0, "k_scale": np.float32(0.5)},
        {"seqlens_q": np.array([24, 3], np.int32), "seqlens_k": np.array([150, 7], np.int32)},
        {"scale_keys": 64, "k_scale": BLOCKS, "v_scale": 1 / BLOCKS},
    ],
)
def test_e4m3_is_that_of_the_package(options: dict[str, Any]) -> None:
    tensors, scales = in_e4m3()
    as_the_package("attention_e4m3", tensors | scales | options | {"return_lse": True})


def test_e4m3_of_packed_sequences() -> None:
    """Rows 0 and from 19 on belong to none, and 3 of the second sequence are not used."""
    tensors, scales = in_e4m3()
    packed = {name: x[0] for name, x in tensors.items()} | {"seqlens_q": np.array([9, 6], np.int32)}
    starts = {"cu_seqlens_q": np.array([1, 10, 19], np.int32), "cu_seqlens_k": np.array([0, 13, 150], np.int32)}
    options = scales | starts | {"max_seqlen_q": 9, "max_seqlen_k": 137, "causal": True, "return_lse": True}
    found = as_the_package("attention_e4m3", packed | options)
    assert not np.asarray(found[0][16:]).any() and np.isneginf(found[1][:, 16:]).all()


def test_it_is_quantised_as_by_the_package() -> None:
    wide = np.random.default_rng(5).standard_normal((1, 9, 3, 64)).astype(np.float32)
    wide[:, :, 1], wide[0, 2, 2, 5] = 0, np.nan
    given = np.array([0.01, 1, 1], np.float32)
    for scale in (None, given):
        found = jax.jit(quantize_e4m3)(*of_jax({"x": wide, "scale": scale}).values())
        for one, other in zip(found, flashladder.quantize_e4m3(wide, scale), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))


def test_what_is_wrong_of_e4m3_is_named() -> None:
    tensors, _ = in_e4m3()
    given = of_jax(tensors)
    for options, error, words in (
        ({"scale_keys": 64, "v_scale": 2.0}, ValueError, r"v_scale is 2\.0: with scale_keys an array"),
        ({"cu_seqlens_q": jnp.zeros(3, jnp.int32)}, TypeError, "pass both or neither"),
        ({"q_scale": jnp.asarray([1.0, -1.0])}, RuntimeError, r"q_scales\[1\] -1: must be positive and finite"),
        ({"scale_keys": 48}, RuntimeError, "scale_keys 48: must be 0 or a power of two"),
    ):
        with pytest.raises(error, match=words):
            jax.block_until_ready(attention_e4m3(**(given | options)))


# test_e4m3_cache.py compare with float64 ------------------------------------------------------------------------------


def cache(page_rows: int = 0) -> dict[str, Any]:
    """Queries in bf16, and caches of 2 sequences with the scales of their heads: NaN past the keys in use."""
    random, keys = np.random.default_rng(6), np.array([43, 7], np.int32)
    given: dict[str, Any] = {"q": np.asarray(random.standard_normal((2, 3, 4, 128)), jnp.bfloat16), "seqlens_k": keys}
    for name in "kv":
        wide = random.standard_normal((2, 48, 2, 128)).astype(np.float32) * np.array([[1], [8]], np.float32)
        rows, given[f"{name}_scale"] = flashladder.quantize_e4m3(wide)
        rows[np.arange(48)[None] >= keys[:, None]] = np.nan
        given[f"{name}_cache"] = rows
    if page_rows:
        for name in ("k_cache", "v_cache"):
            given[name] = given[name].reshape(-1, page_rows, 2, 128)[::-1].copy()
        given["block_table"] = np.arange(96 // page_rows, dtype=np.int32)[::-1].reshape(2, -1).copy()
    return given


@pytest.mark.parametrize("page_rows", [0, 16])
def test_caches_of_e4m3(page_rows: int) -> None:
    found = as_the_package("attention_with_cache", cache(page_rows) | {"causal": True, "return_lse": True})
    assert np.isfinite(np.asarray(found[0], np.float32)).all()


@pytest.mark.parametrize("page_rows", [0, 16])
def test_packed_queries_beside_e4m3(page_rows: int) -> None:
    """With a number as the scale of v, and none of k."""
    given = cache(page_rows)
    k, v, table = given.pop("k_cache"), given.pop("v_cache"), given.pop("block_table", None)
    starts = {"cu_seqlens_q": np.array([0, 5, 6], np.int32), "max_seqlen_q": 5, "max_seqlen_k": 48}
    if page_rows:
        starts |= {"cu_seqlens_k": None, "block_table": table, "seqlens_k": given["seqlens_k"]}
    else:
        k, v = (np.concatenate([x[0, :43], x[1, :7]]) for x in (k, v))
        starts["cu_seqlens_k"] = np.array([0, 43, 50], np.int32)
    options = {"q": given["q"].reshape(6, 4, 128), "k": k, "v": v, "v_scale": 0.5, "return_lse": True} | starts
    as_the_package("attention_varlen", options | {"causal": True})


def test_what_is_wrong_of_a_cache_of_e4m3_is_named() -> None:
    given = of_jax(cache())
    narrow = {name: given[name][..., :64] for name in ("q", "k_cache", "v_cache")}
    for change, error, words in (
        ({"v_scale": jnp.asarray([1.0, -1.0])}, RuntimeError, r"v_scales\[1\] -1: must be positive and finite"),
        ({"window": (3, 0)}, RuntimeError, "window: cannot be combined with kv_dtype"),
        (narrow, RuntimeError, "d_head 64: must be 128 for a cache of e4m3 or int8"),
    ):
        with pytest.raises(error, match=words):
            jax.block_until_ready(attention_with_cache(**(given | change)))
