"""attention() on a GPU with the arrays of PyTorch, CuPy, JAX and NumPy: one JSON object per check, 1 if any failed.

    PYTHONPATH=python:. python3 python/tools/gpu_arrays.py [WORD …]     # checks whose names have one of the words

It needs lib/libflashladder.so, a GPU and PyTorch. Checks of packages that are not installed say so and do not fail.
Times are those of the host: how long a call takes until it returns, while the GPU is not waited for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import flashladder
from analysis.emulate.online_softmax import output_bound
from flashladder import _launch
from flashladder._call import Call
from flashladder._frameworks import framework_of
from flashladder._options import Options

Facts = dict[str, Any]
CHECKS: list[tuple[str, str, Callable[[], Facts]]] = []
GPU = torch.device("cuda:0")
SLEEP = 200_000_000  # clocks: a tenth of a second, far longer than a launch


def check(needs: str = "torch") -> Callable[[Callable[[], Facts]], Callable[[], Facts]]:
    """Puts a function on the list; the package must be installed."""

    def add(function: Callable[[], Facts]) -> Callable[[], Facts]:
        CHECKS.append((function.__name__, needs, function))
        return function

    return add


def tensors(
    batch: int = 2, heads: int = 8, kv_heads: int = 0, seq_q: int = 129, seq_k: int = 0, d_head: int = 128,
    dtype: Any = torch.float16, seed: int = 1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """q, k and v of normal numbers, [batch, seq, heads, d_head]."""
    torch.manual_seed(seed)
    kv = (batch, seq_k or seq_q, kv_heads or heads, d_head)
    shapes = ((batch, seq_q, heads, d_head), kv, kv)
    q, k, v = (torch.randn(shape, device=GPU, dtype=torch.float32).to(dtype) for shape in shapes)
    return q, k, v


def over_bound(o: Any, q: Any, k: Any, v: Any, causal: bool, scale: float | None = None, lse: Any = None) -> float:
    """Largest error of O against float64, divided by the bound of the executables; infinite for a wrong log-sum-exp."""
    wide_q, wide_k, wide_v = (a.double().transpose(1, 2) for a in (q, k, v))
    group = q.shape[2] // k.shape[2]
    wide_k, wide_v = (a.repeat_interleave(group, dim=1) for a in (wide_k, wide_v))
    scores = wide_q @ wide_k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=GPU).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~seen, -torch.inf)
    wanted_lse = scores.logsumexp(-1)
    p = (scores - torch.where(wanted_lse.isfinite(), wanted_lse, 0.0)[..., None]).exp()
    wanted, weight = ((p @ a).cpu().numpy() for a in (wide_v, wide_v.abs()))
    bound = output_bound(wanted, weight, {torch.float16: "fp16", torch.bfloat16: "bf16"}[q.dtype], scale or 0.0)
    error = abs(o.double().transpose(1, 2).cpu().numpy() - wanted)
    if lse is not None and not torch.allclose(lse.double(), wanted_lse, rtol=1e-5, atol=1e-4):
        return float("inf")
    return float(np.nan_to_num(error / bound, nan=np.inf).max())


@contextmanager
def addresses() -> Iterator[list[tuple[int, ...]]]:
    """Record the arguments of _launch.forward(): q, k, v, o, lse and the stream."""
    seen: list[tuple[int, ...]] = []
    forward = _launch.forward

    def noted(problem: int, tensors: Any, arrays: Any, stream: int) -> None:
        seen.append((*tensors, stream))
        forward(problem, tensors, arrays, stream)

    _launch.forward = noted
    try:
        yield seen
    finally:
        _launch.forward = forward


def raised(error: type[Exception], words: str, function: Callable[[], Any]) -> str:
    """The sentence of an error; AssertionError unless it is of that type and has the words."""
    try:
        function()
        torch.cuda.synchronize()
    except Exception as caught:
        assert type(caught) is error and words in str(caught), f"{type(caught).__name__}: {caught}"
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


# ---- results ---------------------------------------------------------------------------------------------------------


@check()
def results_against_float64() -> Facts:
    """Types, sizes of heads, masks, groups, lengths, scales; each with log-sum-exp."""
    worst, ran = 0.0, set()
    for dtype in (torch.float16, torch.bfloat16):
        for d_head in (64, 96, 128, 192, 256):
            for causal in (False, True):
                for sizes in (
                    {},
                    {"kv_heads": 2, "seq_q": 77, "seq_k": 300},
                    {"seq_q": 1, "seq_k": 1000, "kv_heads": 1},
                ):
                    q, k, v = tensors(dtype=dtype, d_head=d_head, **sizes)
                    scale = 0.3 if sizes else None
                    o, lse = flashladder.attention(q, k, v, causal=causal, scale=scale, return_lse=True)
                    worst = max(worst, over_bound(o, q, k, v, causal, scale, lse))
                    ran.add(str(flashladder.supports(q, k, v, causal=causal).version))
    assert worst < 1, worst
    return {"largest_error_over_bound": worst, "versions": sorted(ran)}


@check()
def results_beside_sdpa() -> Facts:
    """As close to float64 as PyTorch's scaled_dot_product_attention, up to a factor of 2."""
    facts = {}
    for causal in (False, True):
        q, k, v = tensors(seq_q=1024, heads=16)
        ours = over_bound(flashladder.attention(q, k, v, causal=causal), q, k, v, causal)
        sdpa = torch.nn.functional.scaled_dot_product_attention(
            *(a.transpose(1, 2) for a in (q, k, v)), is_causal=causal
        )
        theirs = over_bound(sdpa.transpose(1, 2), q, k, v, causal)
        assert ours < 2 * theirs, (ours, theirs)
        facts["causal" if causal else "full"] = {"ours": ours, "sdpa": theirs}
    return facts


@check()
def every_version() -> Facts:
    """Each embedded version by name, on a problem that it says it computes."""
    worst, refused = {}, {}
    for version in flashladder.versions():
        q, k, v = tensors(d_head=version.d_heads[-1], kv_heads=2 if version.grouped else 0)
        found = flashladder.supports(q, k, v, causal=version.causal, version=version.name)
        if not found:
            refused[version.name] = found.reason
            continue
        o = flashladder.attention(q, k, v, causal=version.causal, version=version.name)
        worst[version.name] = over_bound(o, q, k, v, version.causal)
    assert worst and max(worst.values()) < 1, worst
    return {"largest_error_over_bound": worst, "refused": refused}


# ---- memory and streams ----------------------------------------------------------------------------------------------


@check()
def torch_without_a_copy() -> Facts:
    """The kernel gets the tensors' own addresses, views keep theirs, and only O and log-sum-exp are allocated."""
    q, k, v = tensors()
    heads_first = [a.transpose(1, 2).contiguous().transpose(1, 2) for a in (q, k, v)]
    packed = torch.stack((q, k, v), dim=2).unbind(2)
    wanted = flashladder.attention(q, k, v)
    for arrays in ((q, k, v), heads_first, packed):
        out = torch.full_like(q, float("nan"))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        with addresses() as seen:
            assert flashladder.attention(*arrays, out=out) is out
        assert torch.cuda.memory_allocated() == before
        assert seen[0][:4] == (*(a.data_ptr() for a in arrays), out.data_ptr())
        assert torch.equal(out, wanted)
    with addresses() as seen:
        o, lse = flashladder.attention(q, k, v, return_lse=True)
    grown = torch.cuda.memory_allocated() - before
    assert seen[0][3:5] == (o.data_ptr(), lse.data_ptr())
    assert grown <= sum(-(-a.nbytes // 512) * 512 for a in (o, lse)), grown
    return {"allocated_bytes": grown}


@check()
def torch_streams() -> Facts:
    """On the current stream or the given one: after the work that is queued there, and the host does not wait."""
    q, k, v = tensors()
    new = torch.randn_like(q)
    wanted = flashladder.attention(new, k, v)
    torch.cuda.synchronize()
    waited = {}
    for how in ("current", "given", "address"):
        target, stream = torch.zeros_like(q), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            target.copy_(new)
            if how == "current":
                o = flashladder.attention(target, k, v)
        if how != "current":
            o = flashladder.attention(target, k, v, stream=stream if how == "given" else stream.cuda_stream)
        waited[how] = stream.query()  # true: the stream is empty already, so the host has waited
        stream.synchronize()
        assert torch.equal(o, wanted), how
    assert not any(waited.values()), waited
    return {"host_waited": waited}


@check()
def torch_graph() -> Facts:
    """A captured call computes again from what the tensors hold then; each of three captured calls by itself."""
    q, k, v = tensors(kv_heads=2)
    out = [torch.empty_like(q) for _ in range(3)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in out:
            flashladder.attention(q, k, v, causal=True, out=one)
    for seed in (2, 3):
        for old, new in zip((q, k, v), tensors(kv_heads=2, seed=seed), strict=True):
            old.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        worst = max(over_bound(one, q, k, v, True) for one in out)
        assert worst < 1, worst
    return {"largest_error_over_bound": worst}


@check()
def threads() -> Facts:
    """Eight threads, each with a stream of its own, on the same tensors."""
    q, k, v = tensors(seq_q=512, kv_heads=2)
    wanted = flashladder.attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    failures: list[str] = []

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    if not torch.equal(flashladder.attention(q, k, v, causal=True), wanted):
                        failures.append("another result")
        except Exception as error:
            failures.append(repr(error))

    running = [threading.Thread(target=work) for _ in range(8)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert not failures, failures[:3]
    return {"calls": 400}


@check("cupy")
def cupy_arrays() -> Facts:
    """The arrays' own addresses, on CuPy's current stream, a CuPy array back."""
    import cupy

    q, k, v = tensors()
    arrays = [cupy.from_dlpack(a) for a in (q, k, v)]
    stream = cupy.cuda.Stream(non_blocking=True)
    torch.cuda.synchronize()
    with stream, addresses() as seen:
        o, lse = flashladder.attention(*arrays, causal=True, return_lse=True)
    stream.synchronize()
    assert seen[0] == (q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data.ptr, lse.data.ptr, stream.ptr)
    assert type(o) is cupy.ndarray and o.shape == q.shape
    worst = over_bound(torch.from_dlpack(o), q, k, v, True, lse=torch.from_dlpack(lse))
    assert worst < 1, worst
    out = cupy.empty_like(o)
    assert flashladder.attention(*arrays, causal=True, out=out, stream=stream) is out
    stream.synchronize()
    assert (out == o).all()
    return {"largest_error_over_bound": worst}


@check()
def dlpack_arrays() -> Facts:
    """Array of an unknown package: the addresses, and the stream that its producer receives."""

    class Unknown:
        def __init__(self, tensor: Any) -> None:
            self.tensor, self.asked = tensor, -2

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, stream: int | None = None, max_version: Any = None) -> Any:
            self.asked = stream
            return self.tensor.__dlpack__(stream=stream, max_version=max_version)

    q, k, v = tensors(dtype=torch.bfloat16)
    out, stream = torch.empty_like(q), torch.cuda.Stream()
    torch.cuda.synchronize()
    arrays = [Unknown(a) for a in (q, k, v, out)]
    with addresses() as seen:
        flashladder.attention(*arrays[:3], out=arrays[3], stream=stream)
    stream.synchronize()
    assert seen[0] == (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0, stream.cuda_stream)
    assert {one.asked for one in arrays} == {stream.cuda_stream}
    worst = over_bound(out, q, k, v, False)
    assert worst < 1, worst
    return {"largest_error_over_bound": worst}


@check("jax")
def jax_arrays() -> Facts:
    """JAX arrays outside jit: an array of JAX back, right."""
    import jax

    q, k, v = tensors(dtype=torch.bfloat16, kv_heads=2)
    arrays = [jax.dlpack.from_dlpack(a) for a in (q, k, v)]
    o = flashladder.attention(*arrays, causal=True)
    assert isinstance(o, jax.Array)
    worst = over_bound(torch.from_dlpack(o), q, k, v, True)
    assert worst < 1, worst
    return {"largest_error_over_bound": worst}


@check()
def numpy_arrays() -> Facts:
    """Host memory: copied to the GPU and back, O is complete when the call returns."""
    q, k, v = tensors(seq_q=300, kv_heads=2)
    o, lse = flashladder.attention(*(a.cpu().numpy() for a in (q, k, v)), causal=True, return_lse=True)
    worst = over_bound(torch.from_numpy(o), q, k, v, True, lse=torch.from_numpy(lse).to(GPU))
    assert worst < 1, worst
    on_cpu = flashladder.attention(*(a.bfloat16().cpu() for a in (q, k, v)))
    assert on_cpu.device.type == "cpu" and on_cpu.isfinite().all()
    return {"largest_error_over_bound": worst}


# ---- errors ----------------------------------------------------------------------------------------------------------


@check()
def errors() -> Facts:
    """Each is an exception with a sentence, and the GPU works afterwards."""
    q, k, v = tensors()
    wide = torch.zeros((2, 129, 8, 132), device=GPU, dtype=torch.float16)
    shifted = torch.zeros(q.numel() + 8, device=GPU, dtype=torch.float16)[1 : q.numel() + 1].view(q.shape)
    odd = torch.zeros((2, 129, 8, 84), device=GPU, dtype=torch.float16)
    learned = q.clone().requires_grad_()
    attention = flashladder.attention

    def plain(o: int, stream: int = 0) -> None:
        steps = (129 * 8 * 128, 8 * 128, 128)
        wanted = _launch.problem("fp16", 0, (2, 8, 8, 129, 129, 128), (steps,) * 4, False, None, "best")
        tensors = (q.data_ptr(), k.data_ptr(), v.data_ptr(), o, 0)
        _launch.forward(ctypes.addressof(wanted), tensors, _launch.NO_ARRAYS, stream)

    on_host = np.zeros(q.shape, np.float16)
    pinned = torch.empty_like(q, device="cpu").pin_memory()
    sentences = {
        "mixed": raised(ValueError, "pass both on one device", lambda: attention(q, k.cpu(), v)),
        "float32": raised(ValueError, "q is float32", lambda: attention(q.float(), k, v)),
        "rank": raised(ValueError, "four dimensions", lambda: attention(q[0], k, v)),
        "row": raised(ValueError, "along d_head", lambda: attention(q.transpose(2, 3), k, v)),
        "stride": raised(ValueError, "multiple", lambda: attention(wide[..., :128], k, v)),
        "expanded": raised(ValueError, "multiple", lambda: attention(q[:1].expand(q.shape), k, v)),
        "address": raised(ValueError, "16", lambda: attention(shifted, k, v)),
        "d_head": raised(NotImplementedError, "84", lambda: attention(odd, odd, odd)),
        "version": raised(ValueError, "v99", lambda: attention(q, k, v, version="v99")),
        "grad": raised(NotImplementedError, "no backward", lambda: attention(learned, k, v)),
        "in place": raised(ValueError, "overlap", lambda: attention(q, k, v, out=q)),
        "host pointer": raised(ValueError, "", lambda: plain(on_host.ctypes.data)),
        "pinned pointer": raised(ValueError, "", lambda: plain(pinned.data_ptr())),
        "no pointer": raised(ValueError, "", lambda: plain(16)),
    }
    with torch.no_grad():
        attention(learned, k, v)
    if torch.cuda.device_count() > 1:
        far = q.to("cuda:1")
        sentences["other GPU"] = raised(ValueError, "pass both on one device", lambda: attention(q, far, v))
        sentences["other GPU's pointer"] = raised(ValueError, "", lambda: plain(far.data_ptr()))
        near = [a.to("cuda:1") for a in (q, k, v)]
        assert torch.equal(attention(*near).cpu(), attention(q, k, v).cpu())  # while GPU 0 is the current one
        foreign = torch.cuda.Stream("cuda:1").cuda_stream
        sentences["other GPU's stream"] = raised(ValueError, "", lambda: attention(q, k, v, stream=foreign))
    assert over_bound(attention(q, k, v), q, k, v, False) < 1
    return sentences


FREED = """
import ctypes, torch, flashladder
from flashladder import _launch
q = torch.zeros((1, 64, 2, 128), device="cuda", dtype=torch.float16)
o = flashladder.attention(q, q, q)
torch.cuda.synchronize()
cuda, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 22)); cuda.cuMemFree_v2(memory)
s = (64 * 256, 256, 128)
try:
    wanted = _launch.problem("fp16", 0, (1, 2, 2, 64, 64, 128), (s,) * 4, False, None, "best")
    tensors = (memory.value, q.data_ptr(), q.data_ptr(), o.data_ptr(), 0)
    _launch.forward(ctypes.addressof(wanted), tensors, (0,) * 10, 0)
    torch.cuda.synchronize()
    print("no error")
except ValueError as error:
    print("refused:", error)
"""


@check()
def freed() -> Facts:
    """Memory that is no longer there: an exception, in a process of its own as CUDA promises none.

    The handle of a destroyed stream is not tried: the driver itself stops the process, in the first call that reads it.
    """
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, timeout=120, check=False)
    says = done.stdout.strip() or done.stderr.strip()[-300:]
    assert done.returncode == 0 and says.startswith("refused:"), (done.returncode, says)
    return {"says": says}


# ---- times -----------------------------------------------------------------------------------------------------------


def host_us(function: Callable[[], Any], calls: int = 300, rounds: int = 7) -> float:
    """Median time of a call in µs, as the host sees it. The GPU is idle before each round."""
    for _ in range(20):
        function()
    medians = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        times = []
        for _ in range(calls):
            start = time.perf_counter_ns()
            function()
            times.append(time.perf_counter_ns() - start)
        medians.append(statistics.median(times))
    torch.cuda.synchronize()
    return min(medians) / 1e3


def bare_launch() -> Callable[[], Any]:
    """cuLaunchKernel of a kernel that does nothing, through ctypes, on the current stream."""
    ptx = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"
    cuda, module, kernel = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing") == 0
    launch = cuda.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    arguments = (kernel.value, 1, 1, 1, 32, 1, 1, 0, torch.cuda.current_stream().cuda_stream, None, None)
    return lambda: launch(*arguments)


@check()
def overhead() -> Facts:
    """Host time of a call over that of a bare launch: at most 15 µs for PyTorch, but where a stream has to change."""
    q, k, v = tensors(batch=1, heads=2, seq_q=64, d_head=128)
    out, other = torch.empty_like(q), torch.cuda.Stream()
    plan = Call(q, k, v, Options()).plan(framework_of("q", q))
    plain = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    turned = [a.transpose(1, 2) for a in (q, k, v)]
    times = {
        "bare": host_us(bare_launch()),
        "fl_forward": host_us(lambda: _launch.forward(plan.address, plain, _launch.NO_ARRAYS, 0)),
        "torch_out": host_us(lambda: flashladder.attention(q, k, v, out=out)),
        "torch": host_us(lambda: flashladder.attention(q, k, v)),
        "torch_empty": host_us(lambda: torch.empty(q.shape, dtype=q.dtype, device=q.device)),
        "torch_lse": host_us(lambda: flashladder.attention(q, k, v, return_lse=True)),
        "torch_stream": host_us(lambda: flashladder.attention(q, k, v, out=out, stream=0)),
        "torch_stream_new": host_us(lambda: flashladder.attention(q, k, v, stream=other)),
        "sdpa": host_us(lambda: sdpa(*turned)),
    }
    if importlib.util.find_spec("cupy"):
        import cupy

        arrays = [cupy.from_dlpack(a) for a in (q, k, v)]
        times["cupy"] = host_us(lambda: flashladder.attention(*arrays))
    facts = {"us": times, "over_bare_us": {name: us - times["bare"] for name, us in times.items() if name != "bare"}}
    assert max(facts["over_bare_us"][name] for name in ("torch_out", "torch", "torch_lse", "torch_stream")) <= 15, facts
    return facts


FIRST_CALL = """
import time
start = time.perf_counter(); import flashladder; imported = time.perf_counter()
import torch
q = torch.randn((2, 1024, 16, {d_head}), device="cuda").half()
torch.cuda.synchronize()
times = []
for _ in range(2):
    before = time.perf_counter()
    flashladder.attention(q, q, q, causal=True)
    torch.cuda.synchronize()
    times.append(1e3 * (time.perf_counter() - before))
print(1e3 * (imported - start), *times)
"""


@check()
def first_call() -> Facts:
    """Import at most 50 ms, first call at most 150 ms with the result ready, in new processes: medians of five."""
    facts = {}
    for d_head in (64, 128, 256):
        rows = []
        for _ in range(5):
            command = [sys.executable, "-c", FIRST_CALL.format(d_head=d_head)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            rows.append([float(word) for word in done.stdout.split()])
        imported, first, second = (statistics.median(column) for column in zip(*rows, strict=True))
        facts[f"d_head {d_head}"] = {"import_ms": imported, "first_call_ms": first, "second_call_ms": second}
    assert all(fact["import_ms"] <= 50 and fact["first_call_ms"] <= 150 for fact in facts.values()), facts
    return facts


def main(words: list[str]) -> int:
    """Run the checks; the exit status."""
    about = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "backend": flashladder.backend()._asdict(),
    }
    print(json.dumps(about), flush=True)
    failed = 0
    for name, needs, function in CHECKS:
        if words and not any(word in name for word in words):
            continue
        start = time.perf_counter()
        if not importlib.util.find_spec(needs):
            line = {"check": name, "pass": None, "why": f"{needs} is not installed"}
        else:
            try:
                line = {"check": name, "pass": True, **function()}
            except Exception as error:
                failed += 1
                line = {"check": name, "pass": False, "error": f"{type(error).__name__}: {error}"}
                traceback.print_exc()
        print(json.dumps(line | {"s": round(time.perf_counter() - start, 2)}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
