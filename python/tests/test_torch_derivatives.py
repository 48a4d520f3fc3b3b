"""Derivatives in PyTorch: each argument and output that can carry a gradient carries one, or a message names it."""

import inspect
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
from test_bias import factors  # noqa: E402

from flashladder import _autograd, _composed  # noqa: E402
from flashladder import torch as fl  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
D_HEAD = 64


def tensor(*shape: int) -> Any:
    return torch.randn(shape).to(DEVICE, torch.bfloat16)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def starts(*rows: int) -> Any:
    return torch.tensor([0, *rows], device=DEVICE).cumsum(0).int()


def reference(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """O and log-sum-exp [batch, heads, seq_q] in the type of q."""
    group, rows, keys = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    k, v = (each.repeat_interleave(group, dim=2) for each in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * D_HEAD**-0.5
    if causal:
        scores = scores.masked_fill(
            ~torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows), -torch.inf
        )
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v), scores.logsumexp(-1)


def hidden(rows: int, keys: int, causal: bool, window: Any) -> Any:
    """The keys that a query does not attend to."""
    own = torch.arange(rows, device=DEVICE)[:, None] + keys - rows
    key = torch.arange(keys, device=DEVICE)[None]
    left, right = window or (-1, -1)
    right = 0 if causal else right
    return ((key < own - left) & (left >= 0)) | ((key > own + right) & (right >= 0))


def exact(
    q: Any,
    k: Any,
    v: Any,
    causal: bool = False,
    window: Any = None,
    softcap: float = 0.0,
    sinks: Any = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    factors: Any = 1,
) -> tuple[Any, Any]:
    """O and log-sum-exp [heads, rows] of a sequence [rows, heads, d_head]; a row without keys has O = 0."""
    group = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(group, dim=1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * D_HEAD**-0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, keys = q.shape[0], k.shape[0]
    if bias is not None:
        bias = bias.expand(-1, scores.shape[1] if bias.shape[1] == 1 else -1, -1)[:, :rows, :keys]
        scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias
    if alibi_slopes is not None:
        own = torch.arange(rows, device=DEVICE)[:, None] + keys - rows
        scores = scores - alibi_slopes[:, None, None] * (own - torch.arange(keys, device=DEVICE)).abs()
    scores = scores.masked_fill(hidden(q.shape[0], k.shape[0], causal, window), -torch.inf)
    of_sinks = [] if sinks is None else [sinks[:, None, None].expand(-1, q.shape[0], 1)]
    lse = torch.cat([scores, *of_sinks], dim=-1).logsumexp(-1)
    p = (scores - lse.clamp(min=-1e30)[..., None]).exp()
    return torch.einsum("hqk,khd->qhd", p * factors, v), lse


def near(found: Any, expected: Any) -> bool:
    return bool((found.double() - expected).norm() < 6e-3 * expected.norm())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("result", [0.0, 1.0])
def test_a_loss_may_use_log_sum_exp(causal: bool, result: float) -> None:
    inputs = [
        each.requires_grad_() for each in (tensor(2, 40, 4, D_HEAD), tensor(2, 56, 2, D_HEAD), tensor(2, 56, 2, D_HEAD))
    ]
    weights = torch.randn(2, 4, 40, device=DEVICE)
    weighted = torch.randn(2, 40, 4, D_HEAD, device=DEVICE)

    def loss(o: Any, lse: Any) -> Any:
        return (lse * weights).sum() + (result * (o.to(weighted.dtype) * weighted).sum() if result else 0)

    twins = [each.detach().double().requires_grad_() for each in inputs]
    loss(*fl.attention(*inputs, causal=causal, return_lse=True)).backward()
    loss(*reference(*twins, causal)).backward()
    for one, other in zip(inputs[: 3 if result else 2], twins, strict=False):
        assert near(one.grad, other.grad)
    if not result:
        assert not inputs[2].grad.any()


def test_a_loss_may_use_log_sum_exp_of_packed_sequences() -> None:
    rows = starts(30, 12)
    packed = [tensor(45, 2, D_HEAD).requires_grad_() for _ in range(3)]
    o, lse = fl.attention_varlen(*packed, rows, rows, 30, 30, causal=True, return_lse=True)
    ((lse[:, :42] ** 2).sum() + o[:42].float().square().sum()).backward()
    twins = [each.detach().double().requires_grad_() for each in packed]
    for first, last in ((0, 30), (30, 42)):
        o, lse = reference(*(each[None, first:last] for each in twins), True)
        ((lse**2).sum() + o.square().sum()).backward()
    for one, other in zip(packed, twins, strict=True):
        assert near(one.grad[:42], other.grad[:42]) and not one.grad[42:].any()


def test_gradients_of_rows_of_no_sequence_reach_nothing() -> None:
    rows = starts(30, 12)
    packed = [tensor(100, 2, D_HEAD).requires_grad_() for _ in range(3)]
    o = fl.attention_varlen(*packed, rows, rows, 30, 30, causal=True)
    dout = torch.randn_like(o)
    dout[42:] = torch.nan
    o.backward(dout)
    for each in packed:
        assert each.grad.isfinite().all() and not each.grad[42:].any() and each.grad[:42].any()


FEATURES: tuple[dict[str, Any], ...] = (
    {"window": (9, 4)},
    {"window": (0, -1), "causal": True, "softcap": 3.0},
    {"softcap": 20.0},
    {"sinks": True},
    {"window": (500, 500), "sinks": True, "softcap": 5.0},
    {"causal": True, "sinks": True, "window": (12, 0), "deterministic": True},
    {"bias": (3, 4, 40, 56), "causal": True},
    {"bias": (1, 4, 1, 56), "softcap": 3.0, "sinks": True, "window": (9, 4)},
    {"bias": (3, 1, 40, 56), "dtype": torch.bool, "alibi_slopes": (4,), "deterministic": True},
    {"alibi_slopes": (3, 4), "causal": True, "sinks": True},
    {"dropout_p": 0.3, "causal": True, "sinks": True, "window": (30, 0)},
    {"dropout_p": 0.5, "bias": (3, 4, 40, 56), "softcap": 3.0},
)


@pytest.mark.parametrize("of_lse", [False, True])
@pytest.mark.parametrize("lengths", [None, ((40, 0, 17), (56, 30, 0))])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("given", FEATURES)
def test_windows_soft_caps_sinks_biases_and_lengths(
    given: dict[str, Any], packed: bool, lengths: Any, of_lse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of a loss of O, or of log-sum-exp, and NaN in the rows that no sequence uses."""
    monkeypatch.setattr(_composed, "MOST_SCORES", 5000)  # seven rows at a time
    batch, rows, keys, heads = 3, 40, 56, 4
    used = lengths or ((rows,) * batch, (keys,) * batch)
    q, k, v = (tensor(batch, *shape, D_HEAD) for shape in ((rows, heads), (keys, 2), (keys, 2)))
    for b in range(batch):
        for one, count in zip((q, k, v), (used[0][b], used[1][b], used[1][b]), strict=True):
            one[b, count:] = torch.nan
    leaves = [one.requires_grad_() for one in (q, k, v)]
    floats = {"sinks": torch.randn(heads, device=DEVICE) if given.get("sinks") else None}
    floats |= {name: torch.rand(given[name], device=DEVICE) / 2 for name in ("bias", "alibi_slopes") if name in given}
    known = {name: one for name, one in given.items() if name not in (*floats, "dtype", "deterministic", "dropout_p")}
    p, state = given.get("dropout_p", 0.0), (5, 2**40 + 7)
    kept_weights = torch.tensor(factors(state, p, (batch, heads, rows, keys)) if p else 1.0, device=DEVICE)
    kept_weights = kept_weights.expand(batch, heads, rows, keys)
    if "dtype" in given:
        floats["bias"] = floats["bias"] > 0.2
    options = {**known, **floats, "deterministic": given.get("deterministic"), "return_lse": True}
    more_leaves = [one.requires_grad_() for one in floats.values() if one is not None and one.dtype != torch.bool]
    weights = torch.randn(batch, heads, rows, device=DEVICE), torch.randn(batch, rows, heads, D_HEAD, device=DEVICE)
    numbers = [torch.tensor(each, dtype=torch.int32, device=DEVICE) for each in used]
    more = {} if lengths is None else {"seqlens_q": numbers[0], "seqlens_k": numbers[1]}
    more |= {"dropout_p": p, "rng_state": torch.tensor(state, device=DEVICE)} if p else {}
    if packed:
        starts_q, starts_k = starts(*[rows] * batch), starts(*[keys] * batch)
        flat = [one.flatten(0, 1) for one in leaves]
        o, lse = fl.attention_varlen(*flat, starts_q, starts_k, rows, keys, **options, **more)
        o, lse = o.unflatten(0, (batch, rows)), lse.unflatten(1, (batch, rows)).transpose(0, 1)
    else:
        o, lse = fl.attention(*leaves, **options, **more)
    twins = [one.detach().double().requires_grad_() for one in leaves]
    exacts = {
        name: one if one is None or one.dtype == torch.bool else one.detach().double() for name, one in floats.items()
    }
    more_twins = [one.requires_grad_() for one in exacts.values() if one is not None and one.dtype != torch.bool]
    ours, theirs = 0.0, 0.0
    for b in range(batch):
        part = [one[b, :count] for one, count in zip(twins, (used[0][b], used[1][b], used[1][b]), strict=True)]
        of_sequence = {
            name: one if one is None or name == "sinks" or one.dim() == 1 else one[b % len(one)]
            for name, one in exacts.items()
        }
        of_sequence["factors"] = kept_weights[b, :, : used[0][b], : used[1][b]]
        of_o, of_l = exact(*part, **known, **of_sequence)
        some = used[0][b]
        weight, weighted = weights[0][b, :, :some], weights[1][b, :some]
        kept = of_l > -torch.inf
        theirs += (of_o * weighted).sum() + (of_l.where(kept, 0) * weight).sum() * of_lse
        ours += (o[b, :some] * weighted).sum() + (lse[b, :, :some].where(kept, 0) * weight).sum() * of_lse
    found = torch.autograd.grad(ours, [*leaves, *more_leaves])
    expected = torch.autograd.grad(theirs, [*twins, *more_twins])
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all() and (one.double() - other).norm() < 8e-3 * other.norm().clamp_min(1)


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_mask_of_flex_attention(causal: bool) -> None:
    """Hidden, partial and full blocks of documents with a window, with gradients."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    documents = torch.arange(600, device=DEVICE) // 250

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (documents[query] == documents[key]) & (key - query < 100 + 0 * head)

    mask = flex.create_block_mask(seen, None, None, 600, 600, device=DEVICE)
    q, k, v = (tensor(1, 600, 2, D_HEAD).requires_grad_() for _ in range(3))
    at = torch.arange(600, device=DEVICE)
    bias = seen(0, 0, at[:, None], at)[None]
    out, twins = fl.attention(q, k, v, causal=causal, block_mask=mask), [x.detach().double() for x in (q, k, v)]
    expected = exact(*(x.requires_grad_()[0] for x in twins), causal, bias=bias)[0]
    assert near(out[0], expected)
    weights = torch.randn_like(expected)
    found = torch.autograd.grad((out[0] * weights).sum(), (q, k, v))
    assert all(map(near, found, torch.autograd.grad((expected * weights).sum(), twins)))
    with pytest.raises(
        ValueError, match=r"block_mask is for \(600, 600\) queries and keys, and q and k have \(5, 600\)"
    ):
        fl.attention(q[:, :5], k, v, block_mask=mask)


def floats_of(function: Any) -> list[str]:
    """The arguments that may be floating-point tensors."""
    not_floats = {"cu_", "max_", "seqlens", "block_table", "causal", "scale", "window", "softcap", "deterministic"}
    not_floats |= {"return_", "dropout_p", "rng_state", "generator", "block_"}
    names = [name for name in inspect.signature(function).parameters if name not in ("version", "unknown")]
    return [name for name in names if not name.startswith(tuple(not_floats))]


CALLS = (fl.attention, fl.attention_varlen, fl.attention_with_cache)


@pytest.mark.parametrize(("function", "name"), [(one, name) for one in CALLS for name in floats_of(one)])
@pytest.mark.parametrize("result", [0, 1])
def test_every_tensor_has_a_gradient_or_is_named(function: Any, name: str, result: int) -> None:
    """A loss of O, or of log-sum-exp, by each argument of each call."""
    packed, cached = function is fl.attention_varlen, function is fl.attention_with_cache
    keys = tensor(1, 20, 2, D_HEAD)
    given: dict[str, Any] = dict(
        zip(floats_of(function)[:3], (tensor(1, 20, 2, D_HEAD), keys, keys.clone()), strict=True)
    )
    if packed:
        rows = {"cu_seqlens_q": starts(20), "cu_seqlens_k": starts(20), "max_seqlen_q": 20, "max_seqlen_k": 20}
        given = {key: one[0] for key, one in given.items()} | rows
    if cached:
        given["seqlens_k"] = torch.tensor([10], dtype=torch.int32, device=DEVICE)
    if name in ("k_new", "v_new"):
        given |= {"k_new": tensor(1, 4, 2, D_HEAD), "v_new": tensor(1, 4, 2, D_HEAD)}
    shape = (1, 2, 20, 20) if name == "bias" else (2,)
    given[name] = given.get(name, torch.ones(shape, device=DEVICE)).detach().requires_grad_()
    if name in ("q", "k", "v", *_autograd.FLOATS) and not cached:
        function(**given, return_lse=True)[result].float().square().sum().backward()
        assert given[name].grad.isfinite().all() and ((name == "v" and result) or given[name].grad.any())
    else:
        with pytest.raises(NotImplementedError, match=rf"{name} requires a gradient.*{name}\.detach\(\)"):
            function(**given, return_lse=True)


def test_torch_func_transforms_attention() -> None:
    q, k, v = (tensor(3, 20, 2, D_HEAD) for _ in range(3))

    def attend(q: Any, k: Any, v: Any) -> Any:
        return fl.attention(q, k, v, causal=True)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v).float().square().sum()

    def of_sample(function: Any) -> Any:
        return lambda q, k, v: function(q[None], k[None], v[None])

    expected = attend(q, k, v)
    assert torch.equal(torch.vmap(of_sample(attend))(q, k, v)[:, 0], expected)
    shared = torch.vmap(of_sample(attend), (0, None, None))(q, k[0], v[0])
    assert torch.equal(shared[:, 0], attend(q, k[:1].repeat(3, 1, 1, 1), v[:1].repeat(3, 1, 1, 1)))
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    loss(*leaves).backward()
    found = torch.func.grad(loss, (0, 1, 2))(q, k, v)
    of_samples = torch.vmap(torch.func.grad(of_sample(loss), (0, 1, 2)))(q, k, v)
    pulled = torch.func.vjp(attend, q, k, v)[1](2 * expected)
    for one in (found, of_samples, pulled):
        assert all(near(each, leaf.grad.double()) for each, leaf in zip(one, leaves, strict=True))


def test_other_transforms_and_tangents_are_refused_by_name() -> None:
    q, k, v = (tensor(3, 20, 2, D_HEAD) for _ in range(3))
    rows = starts(20)
    length = torch.tensor([20], dtype=torch.int32, device=DEVICE)

    def call(q: Any) -> Any:
        return fl.attention(q, k, v)

    transformed = (
        lambda: torch.vmap(lambda a: fl.attention(a[None], k[:1], v[:1], window=(3, 0)))(q),
        lambda: torch.vmap(lambda a: fl.attention_varlen(a, k[0], v[0], rows, rows, 20, 20))(q),
        lambda: torch.vmap(lambda a: fl.attention_with_cache(a[None], k[:1], v[:1], length))(q),
    )
    for function in transformed:
        with pytest.raises(NotImplementedError, match=r"torch\.func"):
            function()
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(call, (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        for arguments in ((dual, k, v), (k, dual, v), (k, v, dual)):
            with pytest.raises(NotImplementedError, match="forward-mode"):
                fl.attention(*arguments)
        assert fl.attention(q, k, v).isfinite().all()


@pytest.mark.parametrize("rows", [(1, 0, 1, 0), (3, 1, 2), (2, 4)])
@pytest.mark.parametrize("window", [(-1, 0), (7, 0), (-1, -1)])
def test_padded_rows_of_varlen_attn_belong_to_no_sequence(rows: tuple[int, ...], window: tuple[int, int]) -> None:
    """As many rows as sequences times the most of one, of which the offsets use fewer: a captured graph has that."""
    batch, most = len(rows), max(rows)
    pages = [tensor(8 * batch, 16, 2, D_HEAD) for _ in range(2)]
    table = torch.randperm(8 * batch, device=DEVICE).reshape(batch, 8).int()
    used = torch.tensor([70, 100, 50, 9][:batch], dtype=torch.int32, device=DEVICE)
    offsets, q = starts(*rows), tensor(batch * most, 4, D_HEAD)
    out = fl.varlen_attn(
        q, *pages, offsets, None, most, 0, window_size=window, enable_gqa=True, block_table=table, seqused_k=used
    )
    for i, (first, last) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:], strict=False)):
        if first == last:
            continue
        k, v = (each[table[i].long()].reshape(1, -1, 2, D_HEAD)[:, : int(used[i])] for each in pages)
        ours = (window[0], -1) if window[1] == 0 else window
        expected = fl.attention(q[None, first:last], k, v, causal=window[1] == 0, window=ours)
        assert torch.allclose(out[first:last], expected[0], atol=1e-2)
    assert not out[sum(rows) :].any()


def test_autocast_casts_as_pytorch_does() -> None:
    q, k, v = (torch.randn(1, 20, 2, D_HEAD, device=DEVICE) for _ in range(3))
    expected = fl.attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
    with torch.autocast(DEVICE, torch.bfloat16):
        assert torch.equal(fl.attention(q, k, v), expected)
        assert torch.equal(fl.attention(q, k, v.bfloat16()), expected)
        shown = fl.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))
    assert torch.equal(shown.transpose(1, 2), expected)
    with pytest.raises(ValueError, match="float32"):
        fl.attention(q, k, v)


def test_a_batch_of_one_is_broadcast_as_pytorch_does() -> None:
    query, key = tensor(2, 2, 20, D_HEAD), tensor(1, 2, 20, D_HEAD)
    out = fl.scaled_dot_product_attention(query, key, key)
    assert torch.equal(out[1:], fl.scaled_dot_product_attention(query[1:], key, key))
    one = tensor(1, 20, 2, D_HEAD).requires_grad_()
    every = one.detach().repeat(2, 1, 1, 1).requires_grad_()
    found, expected = (fl.attention(query.transpose(1, 2), x, x).sum() for x in (one, every))
    found.backward(), expected.backward()
    assert near(one.grad, every.grad.double().sum(0, keepdim=True))
