"""Tests that need a GPU: streams, CUDA graphs, inductor, PyTorch's own attention on the kernels, several GPUs."""

import inspect
import time
from typing import Any
from unittest.mock import Mock

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
from flashladder import torch as fl  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
SECOND = 2_000_000_000  # cycles: a second on every GPU


def tensors(rows: int = 600, keys: int = 600, heads: int = 8, kv_heads: int = 2, device: str = "cuda") -> Any:
    """Q, K and V, [batch, seq, heads, d_head]."""
    torch.manual_seed(rows + keys)
    sizes = [(2, rows, heads, 128), (2, keys, kv_heads, 128), (2, keys, kv_heads, 128)]
    return [torch.randn(size, device=device, dtype=torch.bfloat16) for size in sizes]


def exact(q: Any, k: Any, v: Any) -> Any:
    """Causal, in fp32 by PyTorch's plain kernel, [batch, seq, heads, d_head]."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        query, key, value = (tensor.float().transpose(1, 2) for tensor in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2)


def test_the_launch_goes_to_the_current_stream_and_nobody_waits() -> None:
    q, k, v = tensors()
    expected = fl.attention(q * 2, k, v, causal=True)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SECOND)
        late = q * 2  # the stream has it after a second
        begin = time.perf_counter()
        out = fl.attention(late, k, v, causal=True)
        assert time.perf_counter() - begin < 0.3 and not stream.query()
    stream.synchronize()
    assert torch.equal(out, expected)


def test_a_graph_replays_the_launches_it_captured() -> None:
    q, k, v = tensors()
    fl.attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once = fl.attention(q, k, v, causal=True)
        twice, lse = fl.attention(once, k, v, causal=True, return_lse=True)
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        q.copy_(torch.randn_like(q))
        twice.zero_()
        graph.replay()
        graph.replay()
        expected, expected_lse = fl.attention(fl.attention(q, k, v, causal=True), k, v, causal=True, return_lse=True)
        assert torch.equal(twice, expected) and torch.equal(lse, expected_lse)


def test_graphs_run_beside_each_other_and_beside_launches() -> None:
    q, k, v = tensors()
    expected = fl.attention(q, k, v, causal=True)
    graphs, outs = [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append(fl.attention(q, k, v, causal=True))
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    torch.cuda.synchronize()
    for _ in range(20):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        outs.append(fl.attention(q, k, v, causal=True))
    torch.cuda.synchronize()
    assert all(torch.equal(out, expected) for out in outs)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_compiles_the_call_as_a_whole(mode: str) -> None:
    q, k, v = tensors()
    call = torch.compile(lambda q: fl.attention(q * 2, k, v, causal=True) + 1, fullgraph=True, mode=mode)
    with torch.no_grad():
        expected = fl.attention(q * 2, k, v, causal=True) + 1
        for _ in range(3):
            assert torch.equal(call(q).clone(), expected)


@pytest.fixture
def registered() -> Any:
    fl.register()
    torch.nn.attention.activate_flash_attention_impl("flashladder")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        yield torch.nn.functional.scaled_dot_product_attention
    torch.nn.attention.restore_flash_attention_impl()


def test_pytorchs_attention_runs_the_kernels(registered: Any) -> None:
    q, k, v = tensors()
    query, key, value = (tensor.transpose(1, 2) for tensor in (q, k, v))
    with torch.no_grad():
        out = registered(query, key, value, is_causal=True, enable_gqa=True)
        assert torch.equal(out.transpose(1, 2), fl.attention(q, k, v, causal=True))
        compiled = torch.compile(lambda q: registered(q, key, value, is_causal=True, enable_gqa=True), fullgraph=True)
        assert torch.equal(compiled(query), out)


def test_the_backward_pass_is_that_of_the_kernels_too(registered: Any) -> None:
    inputs = [tensor.repeat_interleave(8 // tensor.shape[2], dim=2).requires_grad_() for tensor in tensors()]
    twins = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    out = registered(*(tensor.transpose(1, 2) for tensor in inputs), is_causal=True).transpose(1, 2)
    gradient = torch.randn_like(out)
    out.backward(gradient)
    exact(*twins).backward(gradient.float())
    for ours, theirs in zip(inputs, twins, strict=True):
        assert (ours.grad - theirs.grad).abs().max() <= 0.02 * theirs.grad.abs().max()


def test_pytorch_keeps_what_the_kernels_lack(registered: Any) -> None:
    q, k, v = (tensor.repeat_interleave(8 // tensor.shape[2], dim=2)[..., :80].transpose(1, 2) for tensor in tensors())
    with torch.no_grad():
        expected = exact(*(tensor.transpose(1, 2) for tensor in (q, k, v))).transpose(1, 2)
        assert (registered(q, k, v, is_causal=True) - expected).abs().max() <= 0.02 * expected.abs().max()
        torch.manual_seed(1)
        dropped = registered(q, k, v, dropout_p=0.5)
        torch.manual_seed(2)
        assert not torch.equal(dropped, registered(q, k, v, dropout_p=0.5))


def test_pytorchs_varlen_runs_the_kernels_until_they_are_restored(
    registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    grouped = "enable_gqa" in inspect.signature(theirs).parameters  # newer than PyTorch 2.11
    q, k, v = (tensor.flatten(0, 1) for tensor in tensors(kv_heads=2 if grouped else 8))
    options: dict[str, Any] = {"window_size": (-1, 0)} | ({"enable_gqa": True} if grouped else {})
    starts = [torch.tensor([0, x.shape[0] // 3, x.shape[0]], dtype=torch.int32, device="cuda") for x in (q, k)]
    most = [int(x.diff().max()) for x in starts]
    with torch.no_grad():
        out = theirs(q, k, v, *starts, *most, **options)
        assert torch.equal(out, fl.attention_varlen(q, k, v, *starts, *most, causal=True))
        with monkeypatch.context() as patch:
            patch.setattr(fl.Call, "run", Mock(side_effect=AssertionError("our kernel runs")))
            with pytest.raises(AssertionError, match="our kernel runs"):
                theirs(q, k, v, *starts, *most, **options)
            torch.nn.attention.restore_flash_attention_impl()
            theirs(q, k, v, *starts, *most, **options)
            torch.nn.attention.activate_flash_attention_impl("flashladder")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_tensors_of_another_gpu_than_the_current_one() -> None:
    first, second = tensors(device="cuda:0"), tensors(device="cuda:1")
    for mine, other in zip(first, second, strict=True):
        other.copy_(mine)
    torch.cuda.synchronize(1)
    assert torch.cuda.current_device() == 0
    out = fl.attention(*second, causal=True)
    assert out.device.index == 1 and torch.cuda.current_device() == 0
    assert torch.equal(out.cpu(), fl.attention(*first, causal=True).cpu())
    with pytest.raises(ValueError, match="cuda:1"):
        fl.attention(first[0], *second[1:])
