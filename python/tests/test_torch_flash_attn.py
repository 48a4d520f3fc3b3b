"""flash-attention's names over the kernels: each argument has its effect or is refused by its name."""

import re
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
from flashladder import _launch  # noqa: E402
from flashladder import flash_attn_interface as fa  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16


def random(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float32).to(DEVICE, BF16)


def int32(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def exact(q: Any, k: Any, v: Any, window: tuple[int, int] = (-1, 0), softcap: float = 0.0, slopes: Any = None) -> Any:
    """[seq, heads, d_head] in float64; a window to the right of 0 is the causal mask."""
    k, v = (one.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for one in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * q.shape[2] ** -0.5
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    ahead = torch.arange(k.shape[0])[None] - torch.arange(q.shape[0])[:, None] - k.shape[0] + q.shape[0]
    if slopes is not None:
        scores -= slopes.double()[:, None, None] * ahead.abs().to(DEVICE)
    for side, seen in ((window[0], -ahead), (window[1], ahead)):
        scores = scores.masked_fill((seen.to(DEVICE) > side) & (side >= 0), float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(), v)


def near(found: Any, expected: Any) -> bool:
    return bool((found.double() - expected).norm() <= 2 * torch.finfo(BF16).eps * expected.norm())


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


MASKS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "window_size": (4, -1)},
    {"window_size": (2, 3), "softcap": 2.0},
]


def asked(options: dict[str, Any]) -> dict[str, Any]:
    left, right = options.get("window_size", (-1, -1))
    return {"window": (left, 0 if options.get("causal") else right), "softcap": options.get("softcap", 0.0)}


@pytest.mark.parametrize("options", MASKS)
@pytest.mark.parametrize("d_head", [64, 40])
def test_the_forms_of_flash_attn_func(options: dict[str, Any], d_head: int) -> None:
    qkv = random(2, 9, 3, 2, d_head)
    q, k, v = qkv.unbind(2)
    expected = torch.stack([exact(q[b], k[b], v[b], **asked(options)) for b in range(2)])
    out, lse, probabilities = fa.flash_attn_func(q, k, v, **options, return_attn_probs=True)
    assert near(out, expected) and lse.shape == (2, 2, 9) and not probabilities.numel()
    others = [fa.flash_attn_kvpacked_func(q, qkv[:, :, 1:], **options), fa.flash_attn_qkvpacked_func(qkv, **options)]
    others.append(fa.flash_attn_qkvpacked_func(qkv.flatten(2, 3), num_heads_q=2, **options))
    rows, starts = qkv.flatten(0, 1), int32(0, 9, 18)
    packed = fa.flash_attn_varlen_func(*rows.unbind(1), starts, starts, 9, 9, **options)
    others += [packed.view(q.shape), fa.flash_attn_varlen_qkvpacked_func(rows, starts, 9, **options).view(q.shape)]
    again = fa.flash_attn_varlen_kvpacked_func(rows[:, 0], rows[:, 1:], starts, starts, 9, 9, **options)
    assert all(near(other, expected) for other in (*others, again.view(q.shape)))


@pytest.mark.parametrize("d_head", [64, 59])
def test_slopes_and_heads_of_an_odd_size(d_head: int) -> None:
    """Sequences in a batch, packed, in caches with new rows and in pages. A size that is no multiple of 8 is padded."""
    q, k, v = random(2, 3, 4, d_head), random(2, 32, 2, d_head), random(2, 32, 2, d_head)
    slopes = torch.rand(2, 4, device=DEVICE)
    expected = torch.stack([exact(q[b], k[b], v[b], slopes=slopes[b]) for b in range(2)])
    options = {"causal": True, "alibi_slopes": slopes}
    assert near(fa.flash_attn_func(q, k, v, **options), expected)
    rows, starts, of_keys = [one.flatten(0, 1) for one in (q, k, v)], int32(0, 3, 6), int32(0, 32, 64)
    packed = fa.flash_attn_varlen_func(*rows, starts, of_keys, 3, 32, **options)
    table, pages = int32(1, 0, 3, 2).view(2, 2), [one.unflatten(1, (2, 16)).flip(1).flatten(0, 1) for one in (k, v)]
    of_pages = fa.flash_attn_varlen_func(rows[0], *pages, starts, of_keys, 3, 32, block_table=table, **options)
    assert near(packed.view(q.shape), expected) and near(of_pages.view(q.shape), expected)
    for caches, where in (([k, v], {}), (pages, {"block_table": table})):
        for leftpad in (None, int32(0, 0)) if caches is not pages else (None,):
            cleared = [one.clone() for one in caches]
            for one in cleared:
                one.view(-1, 16, 2, d_head)[[1, 3] if caches is not pages else [0, 2], 14:] = 0
            new = {"k": k[:, 30:], "v": v[:, 30:], "cache_seqlens": int32(30, 30), "cache_leftpad": leftpad}
            found = fa.flash_attn_with_kvcache(q, *cleared, **new, **where, **options)
            assert near(found, expected) and all(map(torch.equal, cleared, caches))


@pytest.mark.parametrize("d_v", [40, 36, 128, 264])
def test_heads_of_v_of_another_size(d_v: int) -> None:
    """As latent attention has them; with gradients."""
    q, k, v = random(1, 9, 2, 72), random(1, 12, 1, 72), random(1, 12, 1, d_v)
    starts, of_keys, rows = int32(0, 9), int32(0, 12), [one[0] for one in (q, k, v)]
    expected = exact(*rows)
    with torch.no_grad():
        assert near(fa.flash_attn_func(q, k, v, causal=True)[0], expected)
    assert near(fa.flash_attn_with_kvcache(q, k, v, causal=True)[0], expected)
    assert near(fa.flash_attn_varlen_func(*rows, starts, of_keys, 9, 12, causal=True), expected)
    leaves = [one.requires_grad_() for one in (q, k, v)]
    found = torch.autograd.grad(fa.flash_attn_func(*leaves, causal=True).sum(), leaves)
    of_exact = torch.autograd.grad(exact(*(one[0] for one in leaves)).sum(), leaves)
    assert all(near(one, other) for one, other in zip(found, of_exact, strict=True))


def test_dropout_of_a_generator_drops_the_same_weights_again() -> None:
    qkv, generator = random(2, 20, 3, 2, 64), torch.Generator(DEVICE)
    rows, starts = qkv.flatten(0, 1), int32(0, 20, 40)
    found = [fa.flash_attn_qkvpacked_func(qkv, 0.5, generator=generator.manual_seed(2)) for _ in range(2)]
    packed = fa.flash_attn_varlen_qkvpacked_func(rows, starts, 20, 0.5, generator=generator.manual_seed(2))
    assert torch.equal(*found) and torch.equal(packed.view_as(found[0]), found[0])
    assert not torch.equal(found[0], fa.flash_attn_qkvpacked_func(qkv, 0.5, generator=generator))


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_of_packed_tensors(deterministic: bool) -> None:
    qkv = random(1, 20, 3, 2, 40).requires_grad_()
    out = fa.flash_attn_qkvpacked_func(qkv, 0.0, None, True, deterministic=deterministic)
    expected = torch.autograd.grad(exact(*qkv[0].unbind(1)).sum(), qkv)[0]
    assert near(torch.autograd.grad(out.sum(), qkv)[0], expected)


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_reaches_the_backward_pass(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """True asks for gradients with the same bits in every run, False does not, as in flash-attention."""
    asked: list[bool] = []
    launch = _launch.backward

    def backward(*given: Any) -> None:
        asked.append(given[6])
        launch(*given)

    monkeypatch.setattr(_launch, "backward", backward)
    qkv, starts = random(1, 6, 3, 2, 64), int32(0, 6)
    rows = qkv[0]
    for function, tensors, arrays in (
        (fa.flash_attn_func, qkv.unbind(2), ()),
        (fa.flash_attn_kvpacked_func, (qkv[:, :, 0], qkv[:, :, 1:]), ()),
        (fa.flash_attn_qkvpacked_func, (qkv,), ()),
        (fa.flash_attn_varlen_func, rows.unbind(1), (starts, starts, 6, 6)),
        (fa.flash_attn_varlen_kvpacked_func, (rows[:, 0], rows[:, 1:]), (starts, starts, 6, 6)),
        (fa.flash_attn_varlen_qkvpacked_func, (rows,), (starts, 6)),
    ):
        leaves = [one.detach().clone().requires_grad_() for one in tensors]
        function(*leaves, *arrays, deterministic=deterministic).sum().backward()
        assert asked.pop() == deterministic and not asked


def turned(x: Any, cos: Any, sin: Any, first: int, interleaved: bool, step: int = 1) -> Any:
    """Rotary embedding as a product of complex numbers."""
    half = cos.shape[1]
    pairs = x[..., : 2 * half].double()
    pairs = pairs.unflatten(-1, (half, 2)) if interleaved else pairs.unflatten(-1, (2, half)).transpose(-1, -2)
    at = first + step * torch.arange(x.shape[0], device=DEVICE)
    made = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, sin)[at][:, None])
    made = made.flatten(-2) if interleaved else made.transpose(-1, -2).flatten(-2)
    return torch.cat([made.to(BF16), x[..., 2 * half :]], dim=-1)


@pytest.mark.parametrize("capacity", [48, 40])
@pytest.mark.parametrize("index", [None, (3, 1)])
@pytest.mark.parametrize("leftpad", [None, (2, 0)])
@pytest.mark.parametrize(("new", "causal"), [(0, True), (3, True), (3, False)])
def test_a_cache(capacity: int, index: Any, leftpad: Any, new: int, causal: bool) -> None:
    caches = [random(4 if index else 2, capacity, 1, 64) for _ in "kv"]
    expected_caches, lengths, q = [one.clone() for one in caches], (7, 30), random(2, 3, 2, 64)
    k, v = (random(2, new, 1, 64) for _ in "kv") if new else (None, None)
    angles, interleaved = 6 * torch.rand(capacity, 16, device=DEVICE).double(), capacity == 48
    cos, sin = angles.cos(), angles.sin()
    out, lse = fa.flash_attn_with_kvcache(
        q, *caches, k, v, *((cos, sin) if new else (None, None)), int32(*lengths), index and int32(*index),
        leftpad and int32(*leftpad), causal=causal, rotary_interleaved=interleaved, return_softmax_lse=True,
    )  # fmt: skip
    assert lse.shape == (2, 2, 3)
    for b, keys in enumerate(lengths):
        sample, own = index[b] if index else b, q[b]
        if new:
            own = turned(own, cos, sin, keys, interleaved, step=int(causal))
            expected_caches[0][sample, keys : keys + new] = turned(k[b], cos, sin, keys, interleaved)
            expected_caches[1][sample, keys : keys + new] = v[b]
        seen = slice(leftpad[b] if leftpad else 0, keys + new)
        window = (-1, 0) if causal else (-1, -1)
        assert near(out[b], exact(own, *(one[sample, seen] for one in expected_caches), window))
    assert all(torch.equal(*pair) for pair in zip(caches, expected_caches, strict=True))


def test_pages_and_queries_of_several_lengths() -> None:
    pages, table, lengths = [random(6, 16, 1, 64) for _ in "kv"], int32(5, 0, 2, 4).view(2, 2), int32(20, 31)
    q, starts = random(5, 2, 64), int32(0, 2, 5)
    found = [
        fa.flash_attn_with_kvcache(
            q, *pages, cache_seqlens=lengths, page_table=table, cu_seqlens_q=starts, max_seqlen_q=3, causal=True
        ),
        fa.flash_attn_varlen_func(q, *pages, starts, None, 3, 0, causal=True, block_table=table, seqused_k=lengths),
        fa.flash_attn_varlen_func(q, *pages, starts, int32(0, 20, 51), 3, 31, causal=True, block_table=table),
    ]
    own, rows = q[2:], [one[[2, 4]].flatten(0, 1)[:31] for one in pages]
    assert all(near(one[2:], exact(own, *rows)) for one in found)
    fresh = random(2, 2, 1, 64)
    written = {"k": fresh, "v": -fresh, "cache_seqlens": int32(18, 29), "block_table": table, "cu_seqlens_q": starts}
    appended = fa.flash_attn_with_kvcache(q, *(one.clone() for one in pages), **written, max_seqlen_q=3, causal=True)
    rows = [
        torch.cat([one[[2, 4]].flatten(0, 1)[:29], new]) for one, new in zip(pages, (fresh[1], -fresh[1]), strict=True)
    ]
    assert near(appended[2:], exact(own, *rows))
    padded = q[2:4].view(2, 1, 2, 64)
    alone = [fa.flash_attn_with_kvcache(padded, *pages, cache_seqlens=lengths, block_table=table, num_splits=1)]
    alone.append(fa.flash_attn_with_kvcache(padded[1:], *pages, None, None, None, None, lengths[1:], None, None, table[1:], num_splits=1))  # fmt: skip # noqa: E501
    assert torch.equal(alone[0][1:], alone[1])


def test_a_model_that_leaves_gradients_on_may_use_caches() -> None:
    q, pages, table = random(1, 3, 2, 64).requires_grad_(), random(2, 16, 1, 64), int32(1, 0)[None]
    with torch.no_grad():
        expected = fa.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=20, block_table=table, causal=True)
    found = fa.flash_attn_with_kvcache(
        q, pages, pages, cache_seqlens=20, block_table=table, causal=True, return_softmax_lse=True
    )
    starts = int32(0, 3)
    packed = fa.flash_attn_varlen_func(
        q[0], pages, pages, starts, None, 3, 20, causal=True, block_table=table, seqused_k=int32(20)
    )
    assert torch.equal(found[0], expected) and near(packed, expected[0].double())
    for one in (*found, packed):
        with pytest.raises(NotImplementedError, match="q requires a gradient, and caches have no backward"):
            one.sum().backward()


Q, CACHE = (torch.zeros(1, rows, 2, 64, dtype=BF16, device=DEVICE) for rows in (2, 32))
ROTARY = torch.zeros(32, 64, device=DEVICE)
# Arguments of flash_attn_func, and of flash_attn_with_kvcache from "cache" on.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dropout_p": 1.0}, ValueError, "dropout_p is 1.0: it must be at least 0 and less than 1"),
    ({"generator": 3}, TypeError, "generator is int: a torch.Generator is needed, or None"),
    ({"alibi_slopes": Q}, ValueError, "alibi_slopes is bfloat16: float32 is needed"),
    ({"qv": Q}, NotImplementedError, "qv is torch.Tensor: scores have no second product; concatenate"),
    (
        {"k_descale": Q},
        NotImplementedError,
        "k_descale is torch.Tensor: k has no scale here; use attention_e4m3(k_scale=)",
    ),
    ({"attention_chunk": 64}, NotImplementedError, "attention_chunk is 64: there are no chunks; use window_size"),
    ({"sm_margin": 2}, NotImplementedError, "sm_margin is 2: kernels use all SMs; leave it out"),
    ({"num_splits": -1}, ValueError, "num_splits is -1: an integer from 0 on"),
    ({"attn_mask": Q}, TypeError, "unexpected argument 'attn_mask': neither flash-attention 2 nor 3 has it"),
    ({"window_size": 3}, TypeError, "window_size is 3: (left, right) is needed"),
    ({"deterministic": "batch"}, TypeError, "deterministic is 'batch': True or False is needed"),
    ({"softcap": "x"}, TypeError, "softcap is 'x'"),
    ({"q": "q"}, TypeError, "q is str: a torch.Tensor is needed"),
    ({"k": Q[0]}, ValueError, "k has the shape (2, 2, 64): 4 dimensions are needed, [batch, seq, heads, d_head]"),
    ({"q": Q.repeat(1, 1, 1, 5)}, ValueError, "d_head of k is 64 and of q 320: they must be equal"),
    (
        {"cache": 1, "cache_leftpad": int32(1), "block_table": int32(1)[None]},
        NotImplementedError,
        "cache_leftpad with block_table: pages are chosen by block_table",
    ),
    ({"cache": 1, "rotary_cos": ROTARY}, ValueError, "k is None: rotary_cos and v need it"),
    ({"cache": 1, "k": Q, "v": Q, "rotary_sin": ROTARY}, ValueError, "rotary_cos is None: pass both or none"),
    (
        {"cache": 1, "k": Q, "v": Q, "rotary_cos": ROTARY, "rotary_sin": ROTARY},
        ValueError,
        "rotary_cos has the shape (32, 64) and rotary_sin (32, 64)",
    ),
    (
        {"cache": 1, "cu_seqlens_k_new": Q},
        NotImplementedError,
        "cu_seqlens_k_new is torch.Tensor: new rows have no offsets; write them",
    ),
    (
        {"cache": 1, "scheduler_metadata": Q},
        NotImplementedError,
        "scheduler_metadata is torch.Tensor: the kernels schedule themselves",
    ),
]


@pytest.mark.parametrize(("given", "kind", "message"), REFUSED, ids=[message[:30] for *_, message in REFUSED])
def test_what_is_not_served_is_refused_by_name(given: dict[str, Any], kind: Any, message: str) -> None:
    given = dict(given)
    with pytest.raises(kind, match=re.escape(message)):
        if given.pop("cache", None):
            fa.flash_attn_with_kvcache(Q, CACHE, CACHE, **{"cache_seqlens": int32(4), **given})
        else:
            fa.flash_attn_func(**{"q": Q, "k": Q, "v": Q, **given})
