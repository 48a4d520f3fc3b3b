"""Biases, masks, largest scores and dropout: each kernel against float64 on the emulator."""

import re
import textwrap
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_lengths import cumulated, lengths, paged, reference, right, sequence

import flashladder

RNG = np.random.default_rng
KERNELS = ["attention/wgmma", "attention/mma_sync"]


def tensors(rng: Any, batch: int, rows: int, keys: int, heads: tuple[int, int], d_head: int) -> list[Any]:
    shapes = ((batch, rows, heads[0], d_head), (batch, keys, heads[1], d_head), (batch, keys, heads[1], d_head))
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


def made(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A bias, or a mask that hides a third of the keys."""
    return rng.random(shape) > 0.33 if dtype == "bool" else (3 * rng.standard_normal(shape)).astype(dtype)


def check(q: Any, k: Any, v: Any, bias: Any, **options: Any) -> Any:
    """Each sequence against its part of the bias, which may be broadcast."""
    results = {"return_lse": True, "return_max_logits": True}
    o, lse, largest = flashladder.attention(q, k, v, bias=bias, **results, **options)
    wide = np.broadcast_to(bias, (q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    for b in range(len(q)):
        right(o[b], lse[b], reference(q[b], k[b], v[b], {**options, "bias": wide[b]}), largest[b])
    assert np.array_equal(o, flashladder.attention(q, k, v, bias=bias, **options))
    return o


def philox(counter: Any, key: Any) -> Any:
    """Words [4, …] of Philox 4x32-10, from the paper: Salmon et al. 2011, section 3."""
    word, words, key = np.uint64(2**32 - 1), np.stack(np.broadcast_arrays(*counter)).astype(np.uint64), list(key)
    for _ in range(10):
        low, high = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        mixed = (high >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0])
        other = (low >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1])
        words = np.stack([mixed, high & word, other, low & word])
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return words


def factors(state: tuple[int, int], p: float, shape: tuple[int, ...]) -> Any:
    """0 where a weight [batch, heads, seq_q, seq_k] is dropped, else 1 / (1 - p)."""
    (seed, offset), (batch, head, query, key) = (x % 2**64 for x in state), np.ogrid[tuple(map(slice, shape))]
    counter = (key // 64 * 4 + key % 8 // 2, query, batch * shape[1] + head, offset % 2**32)
    words = philox(counter, (seed % 2**32, seed >> 32 ^ offset >> 32))
    word = np.take_along_axis(words, np.broadcast_to(key // 16 % 4, shape)[None], 0)[0]
    byte = np.array([[1, 3], [0, 2]])[key // 8 % 2, key % 2]
    upper, lower = ((word >> (8 * one).astype(np.uint64)) % np.uint64(128) for one in (byte, (byte + 3) % 4))
    return (upper * np.uint64(128) + lower >= round(p * 2**14)) / (1 - p)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32"])
@pytest.mark.parametrize("d_head", [64, 72, 128, 256])
def test_types_and_sizes(d_head: int, dtype: str, kernel: str) -> None:
    rng = RNG(d_head)
    for keys in (200, 77):  # pairs of keys are aligned, and are not
        q, k, v = tensors(rng, 2, 70, keys, (2, 2), d_head)
        check(q, k, v, made(rng, (2, 2, 70, keys), dtype), version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(2, 4, 40, 150), (1, 4, 40, 150), (2, 1, 1, 150), (40, 150), (4, 1, 150), (150,)])
def test_broadcast_shapes(shape: tuple[int, ...], kernel: str) -> None:
    rng = RNG(len(shape))
    q, k, v = tensors(rng, 2, 40, 150, (4, 2), 64)
    for dtype in ("bool", "float16"):
        check(q, k, v, made(rng, shape, dtype), version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_strides(kernel: str) -> None:
    rng = RNG(3)
    q, k, v = tensors(rng, 2, 40, 90, (2, 2), 64)
    bias = made(rng, (40, 2, 2, 131), "float16")[:, :, :, 17:107].transpose(2, 1, 0, 3)
    check(q, k, v, bias, version=kernel)
    check(q, k, v, made(rng, (2, 2, 40, 128), "float16")[:, :, :, :90], version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_masks_windows_caps_and_sinks_with_a_bias(kernel: str) -> None:
    rng = RNG(4)
    q, k, v = tensors(rng, 1, 150, 200, (2, 1), 128)
    bias = made(rng, (1, 2, 150, 200), "float16")
    sinks = rng.standard_normal(2).astype(np.float32)
    for options in ({"causal": True}, {"window": (50, 10)}, {"softcap": 2.0, "sinks": sinks}):
        check(q, k, v, bias, version=kernel, **options)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_see_no_key_are_zero(kernel: str) -> None:
    """Biases of a mask, and the numbers that models add to hide keys."""
    rng = RNG(5)
    q, k, v = tensors(rng, 1, 90, 300, (1, 1), 64)
    mask = np.ones((90, 300), bool)
    mask[10:20] = False
    mask[40:, :260] = False
    for bias in (mask, np.where(mask, 0, -np.inf).astype(np.float16), np.where(mask, 0, -np.inf).astype(np.float32)):
        o = check(q, k, v, bias, version=kernel)
        assert not o[0, 10:20].any()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_bias_that_grows_along_the_keys_and_one_that_shrinks(dtype: str, kernel: str) -> None:
    """By more than one block of exponentials holds."""
    rng = RNG(6)
    q, k, v = tensors(rng, 1, 70, 400, (1, 1), 64)
    for sign in (1, -1):
        check(q, k, v, (sign * np.linspace(0, 900, 400)).astype(dtype), version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
def test_alibi(causal: bool, kernel: str) -> None:
    rng = RNG(7)
    q, k, v = tensors(rng, 2, 100, 260, (4, 2), 80)
    slopes = (2.0 ** -np.arange(1, 9)).astype(np.float32).reshape(2, 4)
    for of_heads in (slopes[0], slopes):
        o, lse = flashladder.attention(q, k, v, causal=causal, alibi_slopes=of_heads, return_lse=True, version=kernel)
        for b in range(2):
            own = of_heads if of_heads.ndim == 1 else of_heads[b]
            right(o[b], lse[b], reference(q[b], k[b], v[b], {"causal": causal, "alibi_slopes": own}))


@pytest.mark.parametrize("kernel", KERNELS)
def test_packed_sequences_and_pages(kernel: str) -> None:
    """The bias counts queries and keys from the first of each sequence."""
    rng = RNG(8)
    sizes = [(5, 130), (70, 70), (33, 200)]
    q = [sequence(rng, n, 2, 64) for n, _ in sizes]
    k, v = ([sequence(rng, n, 1, 64) for _, n in sizes] for _ in range(2))
    slopes = np.array([0.5, 0.03], np.float32)
    bias = made(rng, (3, 2, 70, 208), "float16")
    state = rng.bit_generator.state
    k_pages, table = paged(rng, k, 16, 208)
    rng.bit_generator.state = state
    v_pages, _ = paged(rng, v, 16, 208)
    starts = cumulated(q)
    options = {"causal": True, "alibi_slopes": slopes, "return_lse": True, "version": kernel, "return_max_logits": True}
    options |= {"dropout_p": 0.25, "rng_state": (-3, 2**40 + 5)}
    weights = factors((-3, 2**40 + 5), 0.25, (3, 2, 70, 200))
    packed = flashladder.attention_varlen(
        *(np.concatenate(x) for x in (q, k, v)), starts, cumulated(k), 70, 208, bias=bias, **options
    )
    of_pages = flashladder.attention_varlen(
        np.concatenate(q), k_pages, v_pages, starts, None, 70, 0, seqlens_k=lengths(k), block_table=table, bias=bias,
        **options,
    )  # fmt: skip
    for o, lse, largest in (packed, of_pages):
        for b, (a, e) in enumerate(pairwise(starts)):
            own = {name: one[b, :, : e - a, : len(k[b])] for name, one in (("bias", bias), ("factors", weights))}
            own |= {"causal": True, "alibi_slopes": slopes}
            right(o[a:e], lse[:, a:e], reference(q[b], k[b], v[b], own), largest[b])


def test_words_of_philox() -> None:
    """Known answers of Random123."""
    found = [int(one) for one in philox((0, 0, 0, 0), (0, 0))]
    assert found == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d_head", "p"), [(64, 0.17), (128, 0.5), (256, 0.003)])
def test_dropout_and_the_largest_scores(d_head: int, p: float, causal: bool, kernel: str) -> None:
    """State in an array, of any seed; every block size drops the same weights."""
    rng = RNG()
    q, k, v = tensors(rng, 2, 150, 333, (4, 2), d_head)
    state = rng.integers(-(2**63), 2**63, 2, dtype=np.int64)
    options = {"causal": causal, "dropout_p": p, "version": kernel, "return_lse": True, "return_max_logits": True}
    o, lse, largest = flashladder.attention(q, k, v, rng_state=state, **options)
    weights = factors((int(state[0]), int(state[1])), p, (2, 4, 150, 333))
    assert abs((weights == 0).mean() - p) < 0.01
    for b in range(2):
        right(o[b], lse[b], reference(q[b], k[b], v[b], {"causal": causal, "factors": weights[b]}), largest[b])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("d_head", "causal", "rows"), [(64, False, 300), (128, True, 300), (256, True, 300), (64, True, 1)]
)
def test_block_masks(d_head: int, causal: bool, rows: int, kernel: str) -> None:
    """Blocks that are hidden, that have a bias and that need none; rows without keys."""
    rng = RNG()
    q, k, v = tensors(rng, 2, rows, 900, (4, 2), d_head)
    kinds = rng.integers(0, 3, (2, 4, -(-rows // 128), 8)).astype(np.uint8)
    kinds[0, 0] = kinds[1, 1, 0] = 0
    of_scores = kinds.repeat(128, 2).repeat(128, 3)[:, :, :rows, :900]
    bias = np.where(of_scores == 1, made(rng, of_scores.shape, "float16"), np.float16(0))
    for added, results in ((bias, {"return_max_logits": True}), (None, {})):
        options = {"causal": causal, "return_lse": True, "version": kernel, **results}
        o, lse, *largest = flashladder.attention(q, k, v, block_mask=kinds, bias=added, **options)
        seen = np.where(of_scores > 0, 0 if added is None else added, -np.inf)
        for b in range(2):
            expected = reference(q[b], k[b], v[b], {"causal": causal, "bias": seen[b]})
            right(o[b], lse[b], expected, largest[0][b] if largest else None)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_tree_of_draft_tokens(kernel: str) -> None:
    """The recipe of attention_with_cache()."""
    q, k, v = tensors(RNG(11), 2, 3, 128, (4, 2), 128)
    tree, seqlens_k, n = np.array([[1, 3, 5], [1, 2, 7]], np.uint64), np.array([70, 3], np.int32), 3
    (recipe,) = re.findall(r"^ {8}(token = .*?\n)\n", flashladder.attention_with_cache.__doc__ or "", re.M | re.S)
    call = recipe.replace("attention_with_cache(", "found = flashladder.attention_with_cache(", 1)
    names: dict[str, Any] = {"q": q, "k_cache": k, "v_cache": v, "seqlens_k": seqlens_k, "tree": tree, "n": n, "np": np}
    names |= {"flashladder": flashladder, "kernel": kernel}
    exec(textwrap.dedent(" " * 8 + call).replace("seqlens_k, bias", "seqlens_k, version=kernel, bias"), names)
    for b, keys in enumerate(seqlens_k):
        seen = np.ones((1, 3, keys), bool)
        seen[0, :, keys - n :] = [[tree[b, i] >> np.uint64(j) & np.uint64(1) for j in range(n)] for i in range(n)]
        expected = reference(q[b], k[b, :keys], v[b, :keys], {"bias": seen})[0]
        np.testing.assert_allclose(names["found"][b].astype(float), expected, atol=6e-3, rtol=1e-2)


def test_wrong_biases_are_rejected() -> None:
    q, k, v = tensors(RNG(9), 2, 8, 16, (4, 2), 64)
    half = np.zeros((2, 4, 8, 16), np.float16)
    wrong = [
        ({"bias": half[:, :3]}, "bias has the shape (2, 3, 8, 16): (2 or 1, 4 or 1, 8 or 1, 16) is needed"),
        ({"bias": half[..., :1]}, "bias has the shape (2, 4, 8, 1): (2 or 1, 4 or 1, 8 or 1, 16) is needed"),
        ({"bias": half.astype(np.float64)}, "bias is float64: bool, float32 or float16, the type of q, is needed"),
        ({"bias": half.astype(np.int32)}, "bias is int32: bool, float32 or float16"),
        ({"bias": half.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)}, "bias has the strides (512, 128, 1, 8)"),
        ({"alibi_slopes": np.ones(3, np.float32)}, "alibi_slopes has the shape (3,): (4,) is needed"),
        ({"alibi_slopes": np.ones(4, np.float16)}, "alibi_slopes is float16: float32 is needed"),
        ({"attn_mask": half}, "here it is bias, which may be bool"),
        ({"dropout_p": 0.5}, "rng_state is None: dropout_p needs an int64 array [2], seed and offset"),
        ({"dropout_p": 1.0}, "dropout_p is 1.0: it must be at least 0 and less than 1"),
        ({"rng_state": (1, 2)}, "rng_state: requires dropout_p"),
        (
            {"block_mask": np.ones((2, 4, 1, 2), bool)},
            "block_mask has the shape (2, 4, 1, 2): (2 or 1, 4 or 1, 1, 1) is",
        ),
        ({"block_mask": half}, "block_mask is float16: bool or uint8 is needed"),
        ({"block_size": (64, 128)}, "block_size is (64, 128): both must be powers of two, 128 or more"),
    ]
    for options, message in wrong:
        with pytest.raises((ValueError, TypeError)) as raised:
            flashladder.attention(q, k, v, **options)
        assert message in str(raised.value)
    with pytest.raises(NotImplementedError, match="bias: attention/decode does not support it; use attention/wgmma"):
        flashladder.attention(q, k, v, bias=half, version="attention/decode")
