"""The kernels for every GPU since Ampere next to PyTorch's FlashAttention-2 on a GPU, as CSV.

    PYTHONPATH=python python3 python/tools/gpu_sm80.py [--rounds 7] [--out FILE.csv] [GROUP …]    # needs a GPU

Groups: plain varlen window decode e4m3 gradients exact; without one all. Subjects of a case are CUDA graphs of
launches, and take turns; the time is the median. The first subject, FlashAttention-2 or a kernel that only reads the
same bytes, is what the others are divided by. Results that differ from the first one's by more than 0.03, and gradients
by more than 1 %, are printed. `exact` measures no time: it compares gradients with float64, and prints errors of more
than 0.8 %. `e4m3` also compares results with float64, and prints errors of more than 5 %.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_serving import compiled_read

import flashladder
from flashladder import _autograd, _functions, _launch

GPU = torch.device("cuda:0")
MMA_SYNC, DECODE, CP_ASYNC = (f"attention/{name}" for name in ("mma_sync", "decode", "decode_mma_sync"))
GRADIENTS = "attention/backward_mma_sync"
SIZES = {128: 16, 64: 32}  # heads by d_head
BATCHES: dict[str, Sequence[int]] = {
    "8 equal": [2048] * 8,
    "8 mixed": [4096, 512, 3000, 1024, 2500, 1800, 2428, 1024],
    "32 short": [64 + 28 * i for i in range(32)],
    "2 long": [8192, 8192],
}
TOKENS, GRAPH_MS, MOST_ERROR = 16384, 12, 0.03
DIFFERENCE, ROUNDING = 0.01, {torch.bfloat16: 0.008, torch.float16: 0.001}  # relative, of gradients
Call = Callable[[], Any]


def fa2(q: Any, k: Any, v: Any, causal: bool = False, **more: Any) -> Any:
    starts, longest = more.pop("starts", None), more.pop("longest", q.shape[1])
    forward = torch.ops.aten._flash_attention_forward
    return forward(q, k, v, starts, starts, longest, longest, 0.0, causal, False, **more)[0]


def fa2_gradients(q: Any, k: Any, v: Any, dout: Any, causal: bool, **more: Any) -> tuple[Call, Call]:
    """FlashAttention-2's backward pass, and its deterministic one."""
    starts, longest = more.pop("starts", None), more.pop("longest", q.shape[1])
    rows = (starts, starts, longest, longest, 0.0, causal)
    out, lse, *state = torch.ops.aten._flash_attention_forward(q, k, v, *rows, False, **more)[:4]

    def compute() -> Any:
        return torch.ops.aten._flash_attention_backward(dout, q, k, v, out, lse, *rows, *state, **more)

    def in_order() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return compute()
        finally:
            torch.use_deterministic_algorithms(False)

    return compute, in_order


def mma_sync_gradients(
    q: Any, k: Any, v: Any, dout: Any, asked: Any, ordered: bool, arrays: dict[str, Any]
) -> Callable[[], tuple[Any, ...]]:
    """dq, dk, dv, and with sinks dsinks, of a call with arrays."""
    options = {"causal": asked.causal, "window": asked.window, "softcap": asked.softcap, "return_lse": True}
    if "cu_seqlens_q" in arrays:
        starts = arrays["cu_seqlens_q"], arrays["cu_seqlens_k"]
        options |= {name: array for name, array in arrays.items() if not name.startswith("cu_")}
        out, lse = flashladder.attention_varlen(q, k, v, *starts, *asked.most, **options)
    else:
        out, lse = flashladder.attention(q, k, v, **options, **arrays)
    return lambda: _autograd.compute(dout, q, k, v, out, lse, asked, ordered, arrays)


def graph_of(call: Call) -> tuple[Any, int]:
    """Launches that together take about GRAPH_MS, and their number."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call(), call()
    end.record()
    end.synchronize()
    launches = max(2, min(60, int(2 * GRAPH_MS / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    return graph, launches


class Bench:
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.rows: list[dict[str, Any]] = []

    def compare(self, case: str, work: tuple[str, float], subjects: dict[str, Call], equal: bool = True) -> None:
        """`work` is the unit and how much of it, in millions, a launch does. Results are compared if they are equal."""
        results = {name: call() for name, call in subjects.items()}
        first = next(iter(results))
        for name in results:
            if equal and differ(results[name], results[first]):
                print(f"{case}: {name} differs from {first}", file=sys.stderr)
        graphs = {name: graph_of(call) for name, call in subjects.items()}
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for turn in range(self.rounds + 2):
            for name in list(graphs)[:: 1 if turn % 2 else -1]:
                graph, launches = graphs[name]
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times[name].append(begin.elapsed_time(end) * 1e3 / launches)
        median = {name: statistics.median(all_times[2:]) for name, all_times in times.items()}
        for name, us in median.items():
            row = {"case": case, "subject": name, "us": f"{us:.1f}", "unit": work[0], "speed": f"{work[1] / us:.1f}"}
            self.rows.append(row | {"ratio": f"{median[first] / us:.3f}"})
            print(*self.rows[-1].values(), sep=" | ", flush=True)

    def note_error(self, case: str, subject: str, error: float, most: float) -> None:
        row = {"case": case, "subject": subject, "us": "", "unit": "error", "speed": f"{error:.2e}", "ratio": ""}
        self.rows.append(row)
        if not error <= most:
            print(f"{case}: the error of {subject} is {error:.2e}", file=sys.stderr)


def relative_error(found: Any, expected: Any) -> float:
    """NaN is an error of infinity."""
    error = ((found.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30)).item()
    return error if error == error else float("inf")


def differ(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return any(relative_error(*pair) > DIFFERENCE for pair in zip(found, expected, strict=False))
    return torch.is_tensor(expected) and not (found - expected).abs().max().item() <= MOST_ERROR


def tensors(*shape: int, count: int = 3, dtype: Any = torch.bfloat16) -> list[Any]:
    return [torch.randn(*shape, device=GPU, dtype=dtype) for _ in range(count)]


def plain(bench: Bench) -> None:
    for d, heads in (SIZES | {256: 8, 96: 16, 192: 16}).items():
        for seq in (512, 1024, 2048, 4096, 8192, 16384) if d in SIZES else (1024, 4096):
            for causal in (False, True):
                q, k, v = tensors(TOKENS // seq, seq, heads, d)
                subjects = {
                    "fa2": lambda q=q, k=k, v=v, causal=causal: fa2(q, k, v, causal),
                    "mma_sync": lambda q=q, k=k, v=v, causal=causal: flashladder.attention(
                        q, k, v, causal=causal, version=MMA_SYNC
                    ),
                }
                flops = 4e-6 * TOKENS * heads * seq * d * (0.5 if causal else 1)
                bench.compare(f"plain d{d} {TOKENS // seq}x{seq} {causal=}", ("TFLOP/s", flops), subjects)


def starts_of(lengths: Sequence[int]) -> Any:
    return torch.tensor([0, *lengths], device=GPU).cumsum(0).to(torch.int32)


def varlen(bench: Bench) -> None:
    for d, heads in SIZES.items():
        for name, lengths in BATCHES.items():
            for causal, KV_heads in ((False, heads), (True, heads), (True, heads // 4)):
                starts = starts_of(lengths)
                most = max(lengths)
                (q,), (k, v) = tensors(sum(lengths), heads, d, count=1), tensors(sum(lengths), KV_heads, d, count=2)
                given = (q, k, v, starts, starts, most, most)
                subjects = {
                    "fa2": lambda given=given, causal=causal: fa2(
                        *given[:3], causal, starts=given[3], longest=given[5]
                    ),
                    "mma_sync": lambda given=given, causal=causal: flashladder.attention_varlen(
                        *given, causal=causal, version=MMA_SYNC
                    ),
                }
                flops = 4e-6 * heads * d * sum(n * n for n in lengths) * (0.5 if causal else 1)
                bench.compare(f"varlen d{d} {name} {KV_heads=} {causal=}", ("TFLOP/s", flops), subjects)


def window(bench: Bench) -> None:
    for d, heads in SIZES.items():
        for seq, left in ((2048, 256), (4096, 512), (8192, 1024), (16384, 1024), (16384, 4096)):
            q, k, v = tensors(TOKENS // seq, seq, heads, d)
            sides = {"window_size_left": left, "window_size_right": 0}
            subjects = {
                "fa2": lambda q=q, k=k, v=v, sides=sides: fa2(q, k, v, True, **sides),
                "mma_sync": lambda q=q, k=k, v=v, left=left: flashladder.attention(
                    q, k, v, causal=True, window=(left, 0), version=MMA_SYNC
                ),
            }
            pairs = TOKENS // seq * sum(min(row, left) + 1 for row in range(seq))
            bench.compare(f"window d{d} {TOKENS // seq}x{seq} {left=}", ("TFLOP/s", 4e-6 * heads * d * pairs), subjects)


def reader_of() -> Callable[[Any, Any], Call]:
    """What makes the launch that only reads two tensors of equal size."""
    library, sink = compiled_read(), torch.zeros(64, device=GPU, dtype=torch.int32)
    blocks, address = 4 * torch.cuda.get_device_properties(GPU).multi_processor_count, ctypes.c_void_p

    def reader(k: Any, v: Any) -> Call:
        def read() -> None:
            stream = address(torch.cuda.current_stream().cuda_stream)
            places = (address(tensor.data_ptr()) for tensor in (k, v))
            used = ctypes.c_size_t(k.numel() * k.element_size())
            library.read_both(*places, used, address(sink.data_ptr()), blocks, stream)

        return read

    return reader


def decode(bench: Bench) -> None:
    reader = reader_of()
    for d, kind in ((128, "bf16"), (128, "e4m3"), (128, "int8"), (64, "bf16")):
        for batch, seq, page in ((16, 32768, 0), (128, 2048, 0), (16, 8192, 64), (16, 8192, 16), (1, 32768, 0)):
            (q,) = tensors(batch, 1, 32, d, count=1)
            k, v = tensors(*((batch * seq // page, page) if page else (batch, seq)), 8, d, count=2)
            scales = {}
            if kind != "bf16":
                (k, k_scale), (v, v_scale) = (getattr(flashladder, f"quantize_{kind}")(one) for one in (k, v))
                scales = {"k_scale": k_scale, "v_scale": v_scale}
            pages = torch.randperm(batch * seq // page, device=GPU).to(torch.int32).view(batch, -1) if page else None
            given = (q, k, v, torch.full((batch,), seq, device=GPU, dtype=torch.int32), pages)
            used = k.numel() * k.element_size()
            subjects: dict[str, Call] = {"read": reader(k, v)}
            for name in (DECODE, CP_ASYNC):
                subjects[name] = lambda given=given, scales=scales, name=name: flashladder.attention_with_cache(
                    *given, version=name, **scales
                )
            bench.compare(f"decode d{d} {kind} {batch}x{seq} {page=}", ("GB/s", 2e-3 * used), subjects)


def attend_e4m3(version: str, *tensors_of_bytes: Any, **more: Any) -> Any:
    """attention_e4m3 by a kernel that the library does not prefer on this GPU."""
    options = _functions.options_of_e4m3
    _functions.options_of_e4m3 = lambda *given: options(*given)._replace(version=version)
    try:
        return flashladder.attention_e4m3(*tensors_of_bytes, **more)
    finally:
        _functions.options_of_e4m3 = options


def in_bytes(*all_tensors: Any) -> list[Any]:
    return [one.to(torch.float8_e4m3fn) for one in all_tensors]


def kernels_of_e4m3() -> dict[str, str]:
    """The versions by mma.sync that the library has, with code for this GPU, by their short names."""
    found, given = {}, in_bytes(*tensors(1, 8, 1, 64, count=3))
    for name in ("fp8_mma_sync", "fp8_mma_scaled"):
        try:
            attend_e4m3(f"attention/{name}", *given)
            found[name] = f"attention/{name}"
        except (RuntimeError, ValueError) as error:
            print(error, file=sys.stderr)
    return found


def e4m3(bench: Bench) -> None:
    kernels = kernels_of_e4m3()
    for d, heads in (SIZES | {256: 8}).items():
        for rows, keys, KV_heads in ((1, 1, 1), (128, 128, 4), (300, 517, 2), (1000, 1000, 1), (517, 300, 2)):
            for causal in (False, True):
                q, k, v = in_bytes(*tensors(2, rows, 4, d, count=1), *tensors(2, keys, KV_heads, d, count=2))
                twins = [attend(*(one[b].double() for one in (q, k, v)), _autograd.Asked(causal), None) for b in (0, 1)]
                expected = torch.stack(twins).nan_to_num(0)  # rows without keys
                for name, version in kernels.items():
                    error = relative_error(attend_e4m3(version, q, k, v, causal=causal), expected)
                    bench.note_error(f"exact d{d} {rows}x{keys} {KV_heads=} {causal=}", name, error, 0.05)
        for seq in (1024, 4096, 16384):
            for causal in (False, True):
                q, k, v = tensors(TOKENS // seq, seq, heads, d)
                given = in_bytes(q, k, v)
                subjects: dict[str, Call] = {
                    "fa2": lambda q=q, k=k, v=v, causal=causal: fa2(q, k, v, causal),
                    "mma_sync": lambda q=q, k=k, v=v, causal=causal: flashladder.attention(
                        q, k, v, causal=causal, version=MMA_SYNC
                    ),
                }
                for name, version in kernels.items():
                    subjects[name] = lambda given=given, causal=causal, version=version: attend_e4m3(
                        version, *given, causal=causal
                    )
                flops = 4e-6 * TOKENS * heads * seq * d * (0.5 if causal else 1)
                bench.compare(f"e4m3 d{d} {TOKENS // seq}x{seq} {causal=}", ("TFLOP/s", flops), subjects, equal=False)


def compare_gradients(bench: Bench, case: str, sizes: tuple[int, ...], causal: bool, **more: Any) -> None:
    """`sizes` are d_head, heads, KV heads, batch and rows; `more` has `lengths` of packed sequences, or `left`."""
    d, heads, KV_heads, batch, seq = sizes
    lengths, left = more.get("lengths"), more.get("left")
    shape = (sum(lengths),) if lengths else (batch, seq)
    (q, dout), (k, v) = tensors(*shape, heads, d, count=2), tensors(*shape, KV_heads, d, count=2)
    pairs = sum(n * n for n in lengths or [seq] * batch) * (0.5 if causal else 1)
    arrays, of_fa2, window = {}, {}, None
    if lengths:
        starts = starts_of(lengths)
        arrays = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
        of_fa2 = {"starts": starts, "longest": max(lengths)}
    if left:
        window, of_fa2 = (left, 0), {"window_size_left": left, "window_size_right": 0}
        pairs = batch * sum(min(row, left) + 1 for row in range(seq))
    compute, in_order = fa2_gradients(q, k, v, dout, causal, **of_fa2)
    asked = _autograd.Asked(causal, None, window, 0.0, (max(lengths),) * 2 if lengths else (0, 0))
    own = [mma_sync_gradients(q, k, v, dout, asked, ordered, arrays) for ordered in (False, True)]
    subjects = {"fa2": compute, "mma_sync": own[0], "fa2 in order": in_order, "mma_sync in order": own[1]}
    bench.compare(f"gradients d{d} {case} {causal=}", ("TFLOP/s", 1e-5 * heads * d * pairs), subjects)


def gradients(bench: Bench) -> None:
    for d, heads in (SIZES | {256: 8}).items():
        if not computes_gradients(d):
            continue
        for seq in (512, 1024, 4096, 16384):
            for causal in (False, True):
                sizes = (d, heads, heads, TOKENS // seq, seq)
                compare_gradients(bench, f"{TOKENS // seq}x{seq}", sizes, causal)
        for name, lengths in BATCHES.items():
            for causal, KV_heads in ((False, heads), (True, heads), (True, heads // 4)):
                sizes = (d, heads, KV_heads, 1, 1)
                compare_gradients(bench, f"varlen {name} {KV_heads=}", sizes, causal, lengths=lengths)
        for seq, left in ((4096, 512), (16384, 1024), (16384, 4096)):
            sizes = (d, heads, heads, TOKENS // seq, seq)
            compare_gradients(bench, f"window {TOKENS // seq}x{seq} {left=}", sizes, True, left=left)


def computes_gradients(d: int) -> bool:
    (q,) = tensors(1, 8, 1, d, count=1)
    try:
        _autograd.plan(q, q, q, _autograd.Asked())
    except NotImplementedError as error:
        print(error, file=sys.stderr)
        return False
    return True


def attend(q: Any, k: Any, v: Any, asked: Any, sinks: Any) -> Any:
    """O of a sequence [rows, heads, d_head]."""
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[2] ** -0.5
    if asked.softcap:
        scores = asked.softcap * torch.tanh(scores / asked.softcap)
    left, right = (side if side >= 0 else 1 << 30 for side in asked.window or (-1, -1))
    right = 0 if asked.causal else right
    own = torch.arange(len(q), device=GPU)[:, None] + len(k) - len(q)
    key = torch.arange(len(k), device=GPU)
    scores = scores.masked_fill((key > own + right) | (key < own - left), -torch.inf)
    of_sinks = [] if sinks is None else [sinks[:, None, None].expand(-1, len(q), 1)]
    return torch.einsum("hqk,khd->qhd", torch.cat([scores, *of_sinks], dim=-1).softmax(-1)[..., : len(k)], v)


def exact(bench: Bench) -> None:
    features: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "window": {"window": (100, 30)},
        "softcap": {"softcap": 3.0},
        "sinks": {"sinks": True},
        "packed": {"packed": True, "causal": True},
        "all": {"packed": True, "causal": True, "window": (200, 0), "softcap": 3.0, "sinks": True},
    }
    for d in (64, 128, 256):
        if not computes_gradients(d):
            continue
        for dtype in (torch.bfloat16, torch.float16):
            for name, feature in features.items():
                for ordered in (False, True):
                    check_gradients(bench, f"exact d{d} {str(dtype)[6:]} {name} {ordered=}", d, dtype, ordered, feature)


def check_gradients(bench: Bench, case: str, d: int, dtype: Any, ordered: bool, feature: dict[str, Any]) -> None:
    """Compare gradients with float64, and five results with each other if they are in order."""
    packed, heads, KV_heads = feature.get("packed", False), 4, 2
    rows, keys = ([700, 1, 64, 513], [900, 40, 64, 600]) if packed else ([1000], [1200])
    (q, dout), (k, v) = (
        tensors(sum(all_rows), count, d, count=2, dtype=dtype) for all_rows, count in ((rows, heads), (keys, KV_heads))
    )
    sinks = torch.randn(heads, device=GPU) if feature.get("sinks") else None
    most = (max(rows), max(keys)) if packed else (0, 0)
    options = {key: value for key, value in feature.items() if key not in ("packed", "sinks")}
    asked = _autograd.Asked(**options, most=most)
    arrays = {"cu_seqlens_q": starts_of(rows), "cu_seqlens_k": starts_of(keys)} if packed else {}
    arrays |= {} if sinks is None else {"sinks": sinks}
    given = (q, k, v, dout) if packed else tuple(one[None] for one in (q, k, v, dout))
    compute = mma_sync_gradients(*given, asked, ordered, arrays)
    found = compute()
    for _ in range(4 * ordered):
        if not all(torch.equal(*pair) for pair in zip(compute(), found, strict=True)):
            print(f"{case}: bits differ between runs", file=sys.stderr)
    twins = [one.double().requires_grad_() for one in (q, k, v, *([] if sinks is None else [sinks]))]
    of_q, of_k, of_v, of_dout = (
        one.split(lengths) for one, lengths in zip((*twins[:3], dout), (rows, keys, keys, rows), strict=True)
    )
    for i in range(len(rows)):
        out = attend(of_q[i], of_k[i], of_v[i], asked, None if sinks is None else twins[3])
        out.backward(of_dout[i].double())
    for name, one, twin in zip(("dq", "dk", "dv", "dsinks"), found, twins, strict=False):
        error = relative_error(one.reshape(twin.shape), twin.grad)
        bench.note_error(case, name, error, ROUNDING[dtype])


GROUPS = {
    "plain": plain, "varlen": varlen, "window": window, "decode": decode, "e4m3": e4m3, "gradients": gradients,
    "exact": exact,
}  # fmt: skip


def run_groups(description: str | None, groups: dict[str, Callable[[Bench], None]]) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=" ".join(groups))
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each subject [7]")
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    args = parser.parse_args()
    bench = Bench(args.rounds)
    torch.utils.deterministic.fill_uninitialized_memory = False  # time that FlashAttention-2 does not need
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    for name in args.groups or groups:
        groups[name](bench)
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(bench.rows[0]))
            writer.writeheader()
            writer.writerows(bench.rows)


def main() -> None:
    query = _launch.backward_problem
    # The package asks for the best kernel, which on an H100 is another one.
    _autograd._launch.backward_problem = lambda *asked: query(*asked[:6], GRADIENTS, *asked[7:])
    run_groups(__doc__, GROUPS)


if __name__ == "__main__":
    main()
