"""The operator for PyTorch, on a GPU or in host memory: opcheck, torch.compile, errors, PyTorch's attention on it."""

import inspect
from typing import Any
from unittest.mock import Mock

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
import flashladder  # noqa: E402
from flashladder import _library  # noqa: E402
from flashladder import torch as fl  # noqa: E402

OPERATOR = torch.ops.flashladder.attention.default
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

replaceable = pytest.mark.skipif(
    not hasattr(torch.nn.attention, "register_flash_attention_impl"),
    reason="this PyTorch has no register_flash_attention_impl",
)


def tensors(rows: int = 40, keys: int = 72, heads: int = 2, kv_heads: int = 1, dtype: Any = None) -> Any:
    """Q, K and V, [batch, seq, heads, d_head]."""
    torch.manual_seed(rows + keys)
    sizes = [(1, rows, heads, 64), (1, keys, kv_heads, 64), (1, keys, kv_heads, 64)]
    return [torch.randn(size).to(DEVICE, dtype or torch.bfloat16) for size in sizes]


def reference(q: Any, k: Any, v: Any, causal: bool, scale: float | None = None) -> tuple[Any, Any]:
    """In float64: O, and log-sum-exp [batch, heads, seq_q]."""
    q, k, v = (tensor.double() for tensor in (q, k, v))
    group, rows, keys = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    k, v = (tensor.repeat_interleave(group, dim=2) for tensor in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v), scores.logsumexp(-1)


def agrees(out: Any, expected: Any) -> bool:
    allowed = 3 * torch.finfo(out.dtype).eps * expected.abs().amax(-1, keepdim=True)
    return bool(((out.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_the_operator_and_the_eager_call_compute_the_same(dtype: Any, causal: bool) -> None:
    q, k, v = tensors(dtype=dtype)
    expected, expected_lse = reference(q, k, v, causal, scale=0.2)
    out, lse = fl.attention(q, k, v, causal=causal, scale=0.2, return_lse=True)
    assert agrees(out, expected)
    assert torch.allclose(lse.double(), expected_lse, atol=1e-4)
    again, again_lse = torch.ops.flashladder.attention(q, k, v, causal, 0.2, True)
    assert torch.equal(out, again) and torch.equal(lse, again_lse)
    without, empty = torch.ops.flashladder.attention(q, k, v, causal, 0.2)
    assert torch.equal(out, without) and empty.numel() == 0


def test_opcheck_passes() -> None:
    q, k, v = tensors()
    torch.library.opcheck(OPERATOR, (q, k, v))
    torch.library.opcheck(OPERATOR, (q, k, v, True, 0.5, True, "best"))
    transposed = q.transpose(1, 2).contiguous().transpose(1, 2)
    torch.library.opcheck(OPERATOR, (transposed, k, v, True))


SINKS = {"seqlens_k": 50, "sinks": torch.ones(2, dtype=torch.bfloat16, device=DEVICE)}


@pytest.mark.parametrize("given", [{"causal": True}, {"scale": -0.2}, {"scale": 0.0}, {"softcap": 5.0}, SINKS])
def test_compile_traces_the_call_as_a_whole(given: dict[str, Any]) -> None:
    q, k, v = tensors()
    call = torch.compile(lambda q: fl.attention(q * 2, k, v, **given) + 1, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(call(q), fl.attention(q * 2, k, v, **given) + 1)


def test_heads_before_rows_need_no_copy() -> None:
    q, k, v = tensors(rows=48, keys=48)
    query, key, value = (tensor.transpose(1, 2).contiguous() for tensor in (q, k, v))
    out = fl.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    assert agrees(out.transpose(1, 2), reference(q, k, v, causal=True)[0])
    assert out.transpose(1, 2).is_contiguous()


def leaves(**sizes: Any) -> Any:
    return [tensor.requires_grad_() for tensor in tensors(**sizes)]


def gradients(function: Any, inputs: Any) -> Any:
    torch.manual_seed(1)
    out = function(*inputs)
    return torch.autograd.grad(out, inputs, torch.randn(out.shape).bfloat16().to(out.device, out.dtype))


def near(found: Any, expected: Any) -> bool:
    """By the lengths of the vectors: the roundings of P, dS, O and the result."""
    pairs = zip(found, expected, strict=True)
    return all(
        (one.double() - other).norm() < 1.2 * torch.finfo(one.dtype).eps / 2 * other.norm() for one, other in pairs
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_float64(dtype: Any, causal: bool) -> None:
    inputs = leaves(rows=70, keys=90, dtype=dtype)
    found = gradients(lambda q, k, v: fl.attention(q, k, v, causal=causal, scale=0.2), inputs)
    twins = [tensor.detach().double().requires_grad_() for tensor in inputs]
    assert near(found, gradients(lambda q, k, v: reference(q, k, v, causal, 0.2)[0], twins))
    assert [one.stride() for one in found] == [one.stride() for one in inputs]


def test_heads_before_rows_are_differentiated_as_they_lie() -> None:
    inputs = [tensor.detach().transpose(1, 2).contiguous().requires_grad_() for tensor in tensors(rows=40, keys=40)]
    found = gradients(lambda q, k, v: fl.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), inputs)
    twins = [tensor.detach().double().requires_grad_() for tensor in inputs]

    def right(*heads_first: Any) -> Any:
        return reference(*(one.transpose(1, 2) for one in heads_first), causal=True)[0].transpose(1, 2)

    assert near(found, gradients(right, twins))
    assert [one.stride() for one in found] == [one.stride() for one in inputs]


def test_gradients_in_order_are_the_same_bits() -> None:
    inputs, before = leaves(rows=200, keys=300), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (gradients(fl.attention, inputs) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(before)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_opcheck_passes_with_gradients() -> None:
    torch.library.opcheck(OPERATOR, (*leaves(), True, None, True, "best"))


def test_compile_and_checkpoint_differentiate() -> None:
    from torch.utils.checkpoint import checkpoint

    def call(q: Any, k: Any, v: Any) -> Any:
        return fl.attention(q * 2, k, v, causal=True) + 1

    def call_again(q: Any, k: Any, v: Any) -> Any:
        return checkpoint(call, q, k, v, use_reentrant=False)

    inputs = leaves()
    expected = gradients(call, inputs)
    for other in (torch.compile(call, fullgraph=True, backend="aot_eager"), call_again):
        assert all(torch.equal(*pair) for pair in zip(gradients(other, inputs), expected, strict=True))


def test_what_has_no_gradients_is_refused() -> None:
    q, k, v = leaves()
    lengths = torch.tensor([k.shape[1]] * k.shape[0], dtype=torch.int32, device=DEVICE)
    with pytest.raises(NotImplementedError, match="caches have no backward"):
        fl.attention_with_cache(q, k, v, lengths)
    with pytest.raises(NotImplementedError, match=r"has no backward: flashladder\.torch\.attention has one"):
        flashladder.attention(q, k, v)
    with pytest.raises(NotImplementedError, match="reads log-sum-exp"):
        torch.ops.flashladder.attention(q, k, v)[0].sum().backward()
    with torch.no_grad():
        fl.attention(q, k, v)


def test_a_compiled_call_names_a_wrong_argument() -> None:
    call = torch.compile(fl.attention, backend="eager")
    with torch.no_grad(), pytest.raises(TypeError, match="causal is 'no'"):
        call(*tensors(), causal="no")


def test_a_parameter_is_a_tensor() -> None:
    q, k, v = tensors()
    out = fl.attention(torch.nn.Parameter(q, requires_grad=False), k, v)
    assert torch.equal(out, fl.attention(q, k, v))


@replaceable
def test_pytorchs_attention_takes_the_kernels_and_keeps_its_own_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that activate_flash_attention_impl installs instead of a CUDA kernel, called by hand."""

    class Original:
        def call_boxed(self, *arguments: Any, **options: Any) -> str:
            return "PyTorch's own"

    fl.register()
    assert "flashladder" in torch.nn.attention.list_flash_attention_impls()
    registration = fl._Registration()
    try:
        registration.original = Original()
        q, k, v = tensors()
        query, key, value = (tensor.transpose(1, 2) for tensor in (q, k, v))
        out, lse, *rest = registration.forward(None, query, key, value, is_causal=True, scale=0.2)
        expected, expected_lse = reference(q, k, v, causal=True, scale=0.2)
        assert agrees(out.transpose(1, 2), expected) and out.stride() == query.stride()
        assert torch.allclose(lse.double(), expected_lse, atol=1e-4)
        assert rest[2:4] == [40, 72]
        dropped, _, *rest = registration.forward(None, query, key, value, dropout_p=0.1)
        again = fl.attention(q, k, v, dropout_p=0.1, rng_state=rest[4].view(torch.int64))
        assert torch.equal(dropped.transpose(1, 2), again) and rest[4].dtype == torch.uint64
        assert registration.drew(0.1, rest[4]) and not registration.drew(0.1, rest[4].clone())
        odd = [tensor[..., :36].contiguous() for tensor in (query, key, value)]
        assert registration.forward(None, *odd) == "PyTorch's own"
        for error in (_library.EXCEPTIONS[_library.UNAVAILABLE]("too little shared memory"), RuntimeError("failed")):
            monkeypatch.setattr(fl.Call, "run", Mock(side_effect=error))
            if isinstance(error, _library.Unavailable):
                assert registration.forward(None, query, key, value) == "PyTorch's own"
            else:
                with pytest.raises(RuntimeError, match="failed"):
                    registration.forward(None, query, key, value)
    finally:
        registration.remove()


@replaceable
def test_the_operator_behind_pytorchs_own_has_our_arguments() -> None:
    schema = torch.ops.aten._scaled_dot_product_flash_attention.default._schema
    ours = list(inspect.signature(fl._Registration.forward).parameters.values())[2:]
    assert [(one.name, one.kwarg_only) for one in schema.arguments] == [
        (one.name, one.kind is inspect.Parameter.KEYWORD_ONLY) for one in ours
    ]
    assert len(schema.returns) == 9  # out, log-sum-exp, two for packed sequences, two lengths, seed, offset, debug mask
    schema = torch.ops.aten._flash_attention_forward.default._schema
    read = ["key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask"]
    assert [one.name for one in schema.arguments if not one.kwarg_only] == ["query", *read]
    options = ["scale", "window_size_left", "window_size_right", "seqused_k", "alibi_slopes"]
    later = ["block_table", "num_splits"]  # PyTorch 2.11 does not have them
    named = [one.name for one in schema.arguments if one.kwarg_only]
    assert named in (options, [*options, *later])
    assert len(schema.returns) == 5  # out, log-sum-exp, seed, offset, debug mask


def varlen(d_head: int = 64) -> Any:
    """q, k and v of sequences of 9, 0 and 30 queries and 20, 7 and 40 keys, and the arguments after them."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(*rows, d_head).to(DEVICE, torch.bfloat16) for rows in ((39, 2), (67, 1), (67, 1)))
    cu_q, cu_k = (torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([0, 9, 9, 39], [0, 20, 27, 67]))
    return q, k, v, cu_q, cu_k, 30, 40


def cache(pages: int = 0) -> Any:
    """Three sequences of 5, 0 and 33 keys in a cache of 48, NaN after them; one query and one new key each."""
    torch.manual_seed(6)
    k, v = (torch.randn(3, 48, 1, 64).to(DEVICE, torch.bfloat16) for _ in range(2))
    lengths = torch.tensor([5, 0, 33], dtype=torch.int32, device=DEVICE)
    for rows in (k, v):
        rows[torch.arange(48, device=DEVICE)[None] >= lengths[:, None]] = float("nan")
    q, k_new, v_new = (torch.randn(3, 1, heads, 64).to(DEVICE, torch.bfloat16) for heads in (2, 1, 1))
    table = None
    if pages:
        order = torch.randperm(3 * 48 // pages, device=DEVICE)
        table = torch.argsort(order).to(torch.int32).reshape(3, -1)
        k, v = (rows.reshape(-1, pages, 1, 64)[order] for rows in (k, v))
    return q, k, v, lengths, table, k_new, v_new


def unpaged(rows: Any, table: Any) -> Any:
    return rows if table is None else rows[table.long()].reshape(3, 48, 1, 64)


@pytest.mark.parametrize("window", [None, (6, 0)])
def test_packed_sequences_are_those_alone(window: Any) -> None:
    q, k, v, cu_q, cu_k, *most = varlen()
    out, lse = fl.attention_varlen(q, k, v, cu_q, cu_k, *most, causal=True, window=window, return_lse=True)
    for (a, b), (c, d) in zip(((0, 9), (9, 39)), ((0, 20), (27, 67)), strict=True):
        alone, alone_lse = fl.attention(
            q[None, a:b], k[None, c:d], v[None, c:d], causal=True, window=window, return_lse=True
        )
        assert agrees(out[None, a:b], alone.double())
        assert torch.allclose(lse[None, :, a:b], alone_lse, atol=1e-4)
    compiled = torch.compile(fl.attention_varlen, fullgraph=True)
    assert torch.equal(compiled(q, k, v, cu_q, cu_k, *most, causal=True, window=window), out)


@pytest.mark.parametrize("pages", [0, 16])
def test_new_rows_are_written_and_seen(pages: int) -> None:
    q, k, v, lengths, table, k_new, v_new = cache(pages)
    compiled_k, compiled_v = k.clone(), v.clone()
    out = fl.attention_with_cache(q, k, v, lengths, table, k_new, v_new, causal=True)
    for b, keys in enumerate(lengths.tolist()):
        rows = [unpaged(x, table)[b : b + 1, : keys + 1] for x in (k, v)]
        assert torch.equal(rows[0][:, keys], k_new[b]) and torch.equal(rows[1][:, keys], v_new[b])
        assert agrees(out[b : b + 1], reference(q[b : b + 1], *rows, causal=True)[0])
    compiled = torch.compile(fl.attention_with_cache, fullgraph=True)
    again = compiled(q, compiled_k, compiled_v, lengths, table, k_new, v_new, causal=True)
    assert torch.equal(again, out)
    assert torch.equal(compiled_k.nan_to_num(), k.nan_to_num()) and torch.equal(compiled_v.nan_to_num(), v.nan_to_num())


def alone(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, causal: bool) -> Any:
    """The packed sequences one after the other in float64; q, k and v as attention_varlen takes them."""
    outs = []
    for b in range(len(cu_q) - 1):
        of_q, of_k = slice(int(cu_q[b]), int(cu_q[b + 1])), slice(int(cu_k[b]), int(cu_k[b + 1]))
        outs.append(reference(q[None, of_q], k[None, of_k], v[None, of_k], causal)[0][0])
    return torch.cat(outs)


def packed(extra: int = 0, d_head: int = 64) -> Any:
    """Leaves of varlen(), with NaN in so many rows that belong to no sequence."""
    *rows, cu_q, cu_k, most_q, most_k = varlen(d_head)
    nan = [torch.full((extra, *one.shape[1:]), float("nan"), dtype=one.dtype, device=DEVICE) for one in rows]
    return [torch.cat(pair).requires_grad_() for pair in zip(rows, nan, strict=True)], (cu_q, cu_k, most_q, most_k)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("deterministic", [None, "batch"])
@pytest.mark.parametrize("d_head", [64, 256])
def test_packed_sequences_have_the_gradients_of_float64(causal: bool, deterministic: str | None, d_head: int) -> None:
    inputs, (cu_q, cu_k, *most) = packed(3, d_head)
    dout = torch.randn(39, 2, d_head, device=DEVICE).to(torch.bfloat16)
    given = {"causal": causal, "deterministic": deterministic}

    def gradients(first: float = 1.0) -> Any:
        """With so much in each input and dout of the first sequence, and NaN in rows of none."""
        with torch.no_grad():
            for one, end in zip((*inputs, dout), (9, 20, 20, 9), strict=True):
                one[:end] *= first
        out = fl.attention_varlen(*inputs, cu_q, cu_k, *most, **given)
        return torch.autograd.grad(out, inputs, torch.cat([dout, torch.full_like(dout[:3], float("nan"))]))

    found = gradients()
    exact = [one.detach()[: 39 if i == 0 else 67].double().requires_grad_() for i, one in enumerate(inputs)]
    expected = torch.autograd.grad(alone(*exact, cu_q, cu_k, causal), exact, dout.double())
    assert near([one[: len(other)] for one, other in zip(found, expected, strict=True)], expected)
    assert not any(one[len(other) :].any() for one, other in zip(found, expected, strict=True))
    if deterministic:  # the same bits alone
        rows = slice(9, 39), slice(27, 67), slice(27, 67)
        last = [one.detach()[part].requires_grad_() for one, part in zip(inputs, rows, strict=True)]
        starts = [torch.tensor([0, length], dtype=torch.int32, device=DEVICE) for length in (30, 40)]
        again = torch.autograd.grad(fl.attention_varlen(*last, *starts, 30, 40, **given), last, dout[9:])
        assert all(torch.equal(one[part], other) for one, part, other in zip(found, rows, again, strict=True))
    for one, other, end in zip(found, gradients(float("nan")), (9, 20, 20), strict=True):
        assert near([other[end:]], [one[end:]]) and other[:end].isnan().all()


def test_packed_gradients_pass_opcheck_and_compile() -> None:
    inputs, (cu_q, cu_k, *most) = packed()
    serve = torch.ops.flashladder.serve.default
    sinks = torch.randn(2, device=DEVICE, requires_grad=True)
    more = (*[None] * 3, sinks, None, None, *most, True, None, 5, -1, 20.0, False, True)
    torch.library.opcheck(serve, (*inputs, cu_q, cu_k, *more))

    def call(q: Any, k: Any, v: Any, sinks: Any) -> Any:
        return fl.attention_varlen(q * 2, k, v, cu_q, cu_k, *most, causal=True, window=(5, -1), sinks=sinks) + 1

    expected = torch.autograd.grad(call(*inputs, sinks).sum(), (*inputs, sinks))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*inputs, sinks).sum(), (*inputs, sinks))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_opcheck_passes_with_arrays() -> None:
    serve = torch.ops.flashladder.serve.default
    q, k, v, cu_q, cu_k, *most = varlen()
    torch.library.opcheck(serve, (q, k, v, cu_q, cu_k, *[None] * 6, *most, True, None, 5, 0, 0.0, False, True))
    q, k, v, lengths, table, _, _ = cache(16)
    torch.library.opcheck(serve, (q, k, v, None, None, None, lengths, table))


@pytest.mark.parametrize(
    ("window", "options"), [((-1, 0), {"causal": True}), ((5, 0), {"causal": True, "window": (5, -1)})]
)
def test_varlen_attn_has_pytorchs_arguments(window: Any, options: dict[str, Any]) -> None:
    q, k, v, cu_q, cu_k, *most = varlen()
    given = (q, k, v, cu_q, cu_k, *most)
    expected, expected_lse = fl.attention_varlen(*given, **options, return_lse=True)
    out, lse = fl.varlen_attn(*given, window_size=window, enable_gqa=True, return_aux=Mock(lse=True))
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    with pytest.raises(NotImplementedError, match="num_splits"):
        fl.varlen_attn(*given, enable_gqa=True, num_splits=3)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        fl.varlen_attn(*given)
    with pytest.raises(ValueError, match="cu_seq_k is None"):
        fl.varlen_attn(*given[:4], None, *most, enable_gqa=True)
    theirs = inspect.signature(pytest.importorskip("torch.nn.attention.varlen").varlen_attn).parameters.values()
    names = {one.name: one for one in inspect.signature(fl.varlen_attn).parameters.values()}
    for one in theirs:  # PyTorch 2.11 has fewer, and newer ones have all of them
        ours = names[one.name]
        assert (ours.kind, ours.default) == (one.kind, one.default)


def paged() -> tuple[Any, dict[str, Any]]:
    """As varlen_attn takes them: 3 sequences of 1 query, over pages; and what attention_with_cache says."""
    q, k, v, _, table, _, _ = cache(16)
    used = torch.tensor([5, 7, 33], dtype=torch.int32, device=DEVICE)
    k, v = k.nan_to_num(), v.nan_to_num()
    starts = torch.arange(4, dtype=torch.int32, device=DEVICE)
    expected = fl.attention_with_cache(q, k, v, used, table, causal=True, return_lse=True)
    return (q[:, 0], k, v, starts, None, 1, 48), {"seqused_k": used, "block_table": table, "expected": expected}


def test_varlen_attn_takes_pages() -> None:
    given, options = paged()
    expected, expected_lse = options.pop("expected")
    out, lse = fl.varlen_attn(*given, **options, window_size=(-1, 0), enable_gqa=True, return_aux=Mock(lse=True))
    assert torch.allclose(out, expected[:, 0], atol=4e-3) and torch.allclose(lse, expected_lse[:, :, 0].T, atol=1e-4)


def ragged_pages() -> Any:
    """The sequences of varlen() with the keys in pages of 16: q, k, v, cu_q, used keys, table. Unused pages are NaN."""
    q, k, v, cu_q, cu_k, *_ = varlen()
    used = (cu_k[1:] - cu_k[:-1]).to(torch.int32)
    table = torch.tensor([[5, 0, 999], [3, 999, 999], [1, 6, 2]], dtype=torch.int32, device=DEVICE)
    pools = []
    for rows in (k, v):
        pool = torch.full((8, 16, 1, 64), float("nan"), device=DEVICE, dtype=rows.dtype)
        for b, keys in enumerate(used.tolist()):
            for i in range(-(-keys // 16)):
                part = rows[cu_k[b] + 16 * i : min(cu_k[b] + 16 * i + 16, cu_k[b + 1])]
                pool[table[b, i], : len(part)] = part
        pools.append(pool)
    return q, *pools, cu_q, used, table


@pytest.mark.parametrize("window", [None, (6, 0)])
def test_queries_of_several_lengths_over_pages(window: Any) -> None:
    q, k, v, cu_q, used, table = ragged_pages()
    given, cu_k, options = varlen(), varlen()[4], {"causal": True, "window": window}
    expected, expected_lse = fl.attention_varlen(*given, **options, return_lse=True)
    for keys, lengths in ((None, used), (cu_k, None)):
        more = {"seqlens_k": lengths, "block_table": table, "return_lse": True, **options}
        for call in (fl.attention_varlen, torch.compile(fl.attention_varlen, fullgraph=True)):
            out, lse = call(q, k, v, cu_q, keys, 30, 40, **more)
            assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
        theirs = (-1, 0) if window is None else window
        out, lse = fl.varlen_attn(
            q, k, v, cu_q, keys, 30, 40, seqused_k=lengths, block_table=table, window_size=theirs, enable_gqa=True,
            return_aux=Mock(lse=True),
        )  # fmt: skip
        assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


@replaceable
def test_pytorchs_varlen_takes_the_kernels_and_keeps_its_own_for_the_rest() -> None:
    """The function that activate_flash_attention_impl installs instead of two CUDA kernels, called by hand."""
    original = Mock(call_boxed=Mock(return_value="PyTorch's own"))
    fl.register()
    registration = fl._Registration()
    try:
        registration.original_varlen = registration.original_varlen_into = original
        q, k, v, *more = varlen()
        q.requires_grad_()
        plain, window = (0.0, False, False), {"window_size_left": 5, "window_size_right": 0, "scale": 0.2}
        with torch.no_grad():
            expected = fl.attention_varlen(q, k, v, *more, causal=True, window=(5, -1), scale=0.2, return_lse=True)
        out, lse, seed, offset, mask = registration.varlen(None, q, k, v, *more, *plain, **window)
        assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1]) and not out.requires_grad
        assert (seed.shape, offset.shape, mask.shape) == ((2,), (), (0,))
        into = torch.zeros_like(q, requires_grad=False)
        assert torch.equal(registration.varlen_into(None, into, q, k, v, *more, *plain, **window), lse)
        assert torch.equal(into, out)
        given, options = paged()
        expected = options.pop("expected")
        out, lse, *_ = registration.varlen(None, *given, 0.0, True, False, **options)
        assert torch.allclose(out, expected[0][:, 0], atol=4e-3)
        assert torch.allclose(lse, expected[1][:, :, 0].T, atol=1e-4)
        q_of_several, k, v, cu_q, used, table = ragged_pages()
        with torch.no_grad():
            expected = fl.attention_varlen(*varlen(), causal=True, return_lse=True)
        for keys, lengths in ((None, used), (varlen()[4], None)):
            arguments = (q_of_several, k, v, cu_q, keys, 30, 40, 0.0, True, False)
            out, lse, *_ = registration.varlen(None, *arguments, seqused_k=lengths, block_table=table)
            assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
        assert not original.call_boxed.called
        q, k, v, *more = varlen()
        for arguments, kept in (
            ((q, k, v, *more, 0.1, False, False), {}),
            ((q, k, v, *more, *plain), {"alibi_slopes": lse}),
            ((q, k, v, *more, *plain), {"num_splits": 4}),
            ((q, k, v, None, None, *more[2:], *plain), {}),
            # Only host memory: offsets that a GPU has are cut at the rows of the tensor, without reading them here.
            *([((given[0][:2], *given[1:], *plain), options)] if DEVICE == "cpu" else []),
        ):
            assert registration.varlen(None, *arguments, **kept) == "PyTorch's own"
            original.call_boxed.assert_called_with(None, *arguments, **kept)
    finally:
        registration.remove()
