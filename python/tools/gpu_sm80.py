"""The kernels for every GPU since Ampere next to PyTorch's FlashAttention-2 on a GPU, as CSV.

    PYTHONPATH=python python3 python/tools/gpu_sm80.py [--rounds 7] [--out FILE.csv] [GROUP …]    # needs a GPU

Groups: plain varlen window decode; without one all. Subjects of a case are CUDA graphs of launches, and take turns;
the time is the median. The first subject, FlashAttention-2 or a kernel that only reads the same bytes, is what the
others are divided by. Results that differ from the first one's by more than 0.03 are printed.
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

GPU = torch.device("cuda:0")
MMA_SYNC, DECODE, CP_ASYNC = (f"attention/{name}" for name in ("mma_sync", "decode", "decode_mma_sync"))
SIZES = {128: 16, 64: 32}  # heads by d_head
TOKENS, GRAPH_MS, MOST_ERROR = 16384, 12, 0.03
Call = Callable[[], Any]


def fa2(q: Any, k: Any, v: Any, causal: bool = False, **more: Any) -> Any:
    starts, longest = more.pop("starts", None), more.pop("longest", q.shape[1])
    forward = torch.ops.aten._flash_attention_forward
    return forward(q, k, v, starts, starts, longest, longest, 0.0, causal, False, **more)[0]


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

    def compare(self, case: str, work: tuple[str, float], subjects: dict[str, Call]) -> None:
        """`work` is the unit and how much of it, in millions, a launch does."""
        results = {name: call() for name, call in subjects.items()}
        first = next(iter(results))
        for name in results:
            if torch.is_tensor(results[first]) and (results[name] - results[first]).abs().max().item() > MOST_ERROR:
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


def tensors(*shape: int, count: int = 3) -> list[Any]:
    return [torch.randn(*shape, device=GPU, dtype=torch.bfloat16) for _ in range(count)]


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


def varlen(bench: Bench) -> None:
    batches: dict[str, Sequence[int]] = {
        "8 equal": [2048] * 8,
        "8 mixed": [4096, 512, 3000, 1024, 2500, 1800, 2428, 1024],
        "32 short": [64 + 28 * i for i in range(32)],
        "2 long": [8192, 8192],
    }
    for d, heads in SIZES.items():
        for name, lengths in batches.items():
            for causal, KV_heads in ((False, heads), (True, heads), (True, heads // 4)):
                starts = torch.tensor([0, *lengths], device=GPU).cumsum(0).to(torch.int32)
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


def decode(bench: Bench) -> None:
    library, sink = compiled_read(), torch.zeros(64, device=GPU, dtype=torch.int32)
    blocks, address = 4 * torch.cuda.get_device_properties(GPU).multi_processor_count, ctypes.c_void_p
    for d, kind in ((128, "bf16"), (128, "e4m3"), (64, "bf16")):
        for batch, seq, page in ((16, 32768, 0), (128, 2048, 0), (16, 8192, 64), (16, 8192, 16), (1, 32768, 0)):
            (q,) = tensors(batch, 1, 32, d, count=1)
            k, v = tensors(*((batch * seq // page, page) if page else (batch, seq)), 8, d, count=2)
            scales = {}
            if kind == "e4m3":
                (k, k_scale), (v, v_scale) = flashladder.quantize_e4m3(k), flashladder.quantize_e4m3(v)
                scales = {"k_scale": k_scale, "v_scale": v_scale}
            pages = torch.randperm(batch * seq // page, device=GPU).to(torch.int32).view(batch, -1) if page else None
            given = (q, k, v, torch.full((batch,), seq, device=GPU, dtype=torch.int32), pages)
            used = k.numel() * k.element_size()

            def read(k: Any = k, v: Any = v, used: int = used) -> None:
                stream = address(torch.cuda.current_stream().cuda_stream)
                places = (address(tensor.data_ptr()) for tensor in (k, v))
                library.read_both(*places, ctypes.c_size_t(used), address(sink.data_ptr()), blocks, stream)

            subjects: dict[str, Call] = {"read": read}
            for name in (DECODE, CP_ASYNC):
                subjects[name] = lambda given=given, scales=scales, name=name: flashladder.attention_with_cache(
                    *given, version=name, **scales
                )
            bench.compare(f"decode d{d} {kind} {batch}x{seq} {page=}", ("GB/s", 2e-3 * used), subjects)


GROUPS = {"plain": plain, "varlen": varlen, "window": window, "decode": decode}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=" ".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each subject [7]")
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    args = parser.parse_args()
    bench = Bench(args.rounds)
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    for name in args.groups or GROUPS:
        GROUPS[name](bench)
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(bench.rows[0]))
            writer.writeheader()
            writer.writerows(bench.rows)


if __name__ == "__main__":
    main()
