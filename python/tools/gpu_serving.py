"""Attention of servers on a GPU: times through the Python package next to cuDNN, FlashAttention-2 and -3, as CSV.

    PYTHONPATH=python python3 python/tools/gpu_serving.py [--out FILE.csv] [--fa3 libfa3.so] [GROUP …]

Groups: decode pages ragged rows e4m3 varlen window random, and those whose measurement is owed, in two minutes:
`causal plain mixed causes peers servers`; without one all. It needs lib/libflashladder.so, nvcc, PyTorch and a GPU of
compute capability 9.0. `random` compares random problems with float64, for RANDOM_S seconds, and `peers` those of
peer_cases.py, in any order, and `servers` those of vLLM and SGLang, for PEERS_S seconds: 600 for nearly all.

A subject is a CUDA graph of launches over buffers that together are several times as large as the L2 cache. All
subjects of a case take turns, ROUNDS times; the time is the median. "read" is a kernel that only loads the same bytes,
16 bytes a thread. Energy is of launches one after the other for half a second. Each result is compared with float64.

FlashAttention-3 is a library with fa3_decode(), fa3_prefill() and fa3_mixed(), which set its parameters as its
flash_api.cpp does: peers.mk peer-fa3-serving.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from peer_cases import Case, all_cases, servers
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashladder
from flashladder import _call, _launch

READ = r"""
#include <cstdint>
#include <cuda_runtime.h>
__global__ void __launch_bounds__(512) read_kernel(const uint4 *a, const uint4 *b, size_t n, uint32_t *out) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const size_t at = i + j / 2 * step;
            v[j] = make_uint4(0, 0, 0, 0);
            if (at < n)
                asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                             : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                             : "l"((j % 2 ? b : a) + at));
        }
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x12345678) *out = sum;
}
extern "C" void read_both(const void *a, const void *b, size_t bytes, void *out, int ctas, cudaStream_t stream) {
    read_kernel<<<ctas, 512, 0, stream>>>((const uint4 *)a, (const uint4 *)b, bytes / 16, (uint32_t *)out);
}
"""
GPU = torch.device("cuda:0")
ROUNDS, WARM_UP = 15, 3
CONFIGS: dict[int, list[str]] = {}  # instances of the library to try in addition to its own choice, by rows
PARTS = (1024,)  # in addition to those that deterministic="batch" uses
ROTATED = 700 << 20  # bytes of all buffers of a case, at least
ENERGY_S = 0.5
Launch = Callable[[int], Any]  # of buffer number i
P = ctypes.c_void_p


class Energy:
    """Millijoules that the GPU has used, by NVML."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = P()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
            raise OSError("no NVML")

    def read(self) -> int:
        value = ctypes.c_ulonglong()
        self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value))
        return value.value


def compiled_read() -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "read.cu").write_text(READ)
    command = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", "libread.so", "read.cu"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "libread.so"))


class Bench:
    def __init__(self, out: Path | None, fa3: Path | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.out = out
        self.sms = torch.cuda.get_device_properties(GPU).multi_processor_count
        self.library = compiled_read()
        self.fa3 = ctypes.CDLL(str(fa3)) if fa3 else None
        self.sink = torch.zeros(64, device=GPU, dtype=torch.int32)
        self.energy = Energy()

    def read(self, buffers: list[tuple[Any, Any]], used: int) -> Launch:
        def launch(i: int) -> None:
            k, v = buffers[i]
            stream = torch.cuda.current_stream().cuda_stream
            self.library.read_both(
                P(k.data_ptr()),
                P(v.data_ptr()),
                ctypes.c_size_t(used),
                P(self.sink.data_ptr()),
                4 * self.sms,
                P(stream),
            )

        return launch

    def run(
        self, case: str, work: tuple[str, float], subjects: dict[str, Launch], buffers: int, energy: bool = False
    ) -> None:
        """`work` is the unit and how much of it a launch does: bytes for GB/s, or FLOPs for TFLOP/s."""
        launches = max(4, buffers)
        graphs: dict[str, Any] = {}
        for name, launch in subjects.items():
            try:
                graphs[name] = graph_of(launch, buffers, launches)
            except Exception as error:  # what a peer refuses
                print(f"{case} | {name} | {type(error).__name__}: {str(error)[:160]}", flush=True)
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for turn in range(ROUNDS + WARM_UP):
            for name in list(graphs)[:: 1 if turn % 2 else -1]:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graphs[name].replay()
                end.record()
                end.synchronize()
                if turn >= WARM_UP:
                    times[name].append(begin.elapsed_time(end) * 1e3 / launches)
        base = statistics.median(next(iter(times.values())))
        for name, values in times.items():
            joules = self.joules(graphs[name], launches) if energy else math.nan
            us = statistics.median(values)
            rate = work[1] / us / (1e3 if work[0] == "GB/s" else 1e6)
            self.rows.append(
                {
                    "case": case,
                    "subject": name,
                    "us": f"{us:.2f}",
                    "us_least": f"{min(values):.2f}",
                    "us_most": f"{max(values):.2f}",
                    "rate": f"{rate:.0f}" if rate > 1000 else f"{rate:.1f}",
                    "unit": work[0],
                    "of_first": f"{base / us:.3f}",
                    "mJ": "" if math.isnan(joules) else f"{joules:.1f}",
                }
            )
            print(" | ".join(str(value) for value in self.rows[-1].values()), flush=True)
        if self.out:
            with self.out.open("w") as file:
                writer = csv.DictWriter(file, self.rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)

    def joules(self, graph: Any, launches: int) -> float:
        """Millijoules of a launch. The counter is new every tenth of a second: wait for it at both ends."""
        for _ in range(3):
            graph.replay()
        before, begin = self.energy.read(), self.energy.read()
        while before == begin:
            graph.replay()
            torch.cuda.synchronize()
            begin = self.energy.read()
        done, start, end = 0, time.perf_counter(), begin
        last = begin
        while time.perf_counter() - start < ENERGY_S or end == last:
            last = end
            graph.replay()
            torch.cuda.synchronize()
            done += launches
            end = self.energy.read()
        return (end - begin) / done


def graph_of(launch: Launch, buffers: int, launches: int) -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(min(2, buffers)):
            launch(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            kept.append(launch(i % buffers))
    graph.replay()
    torch.cuda.synchronize()
    del kept
    return graph


def normal(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.empty(shape, device=GPU, dtype=dtype).normal_()


# ---- few queries on many keys ----------------------------------------------------------------------------------------


class Cache:
    """Sequences of `lengths` keys in a cache, with pages if page > 0, in as many buffers as ROTATED asks for."""

    def __init__(
        self, lengths: list[int], seq_q: int = 1, heads: int = 32, kv_heads: int = 8, page: int = 0, d_head: int = 128,
        e4m3: bool = False,
    ) -> None:  # fmt: skip
        self.batch, most = len(lengths), max(lengths)
        self.ragged = min(lengths) < most
        self.heads, self.kv_heads, self.seq_q, self.page, self.d_head = heads, kv_heads, seq_q, page, d_head
        self.used = sum(lengths) * kv_heads * d_head * (1 if e4m3 else 2)  # bytes of K
        self.count = max(1, -(-ROTATED // (2 * self.used)))
        self.seqlens = torch.tensor(lengths, device=GPU, dtype=torch.int32)
        self.lengths = lengths
        self.table = None
        rows = (self.batch, most)
        if page:
            pages = [-(-n // page) for n in lengths]
            order = torch.randperm(sum(pages), dtype=torch.int32)
            table = torch.zeros(self.batch, max(pages), dtype=torch.int32)
            at = 0
            for b, n in enumerate(pages):
                table[b, :n] = order[at : at + n]
                at += n
            self.table, rows = table.to(GPU), (sum(pages), page)
        dtype = torch.bfloat16
        torch.cuda.empty_cache()
        self.q = [normal(self.batch, seq_q, heads, d_head) for _ in range(self.count)]
        self.kv = []
        for _ in range(self.count):
            k, v = (normal(*rows, kv_heads, d_head, dtype=dtype) for _ in range(2))
            if e4m3:
                k, v = (part.to(torch.float8_e4m3fn) for part in (k, v))
            self.kv.append((k, v))

    def ours(self, **more: Any) -> Launch:
        return lambda i: flashladder.attention_with_cache(self.q[i], *self.kv[i], self.seqlens, self.table, **more)

    def parts(self, keys: int, config: str = "") -> Launch:
        """With parts of another size, 0 for none, or another instance of the library."""

        def launch(i: int) -> Any:
            usual, _call.SPLIT_KEYS = _call.SPLIT_KEYS, (keys, keys)
            made_by = _launch.problem
            _call._plans.clear()
            if config:
                _launch.problem = lambda *a: made_by(*a[:6], "attention/decode", config, *a[8:])
            try:
                return self.ours(deterministic="batch")(i)
            finally:
                _call.SPLIT_KEYS = usual
                _launch.problem = made_by
                _call._plans.clear()

        return launch

    def whole(self, **more: Any) -> Launch:
        return lambda i: flashladder.attention(self.q[i], *self.kv[i], **more)

    def sdpa(self, backend: Any) -> Launch:
        def launch(i: int) -> Any:
            parts = (part.transpose(1, 2) for part in (self.q[i], *self.kv[i]))
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(*parts, enable_gqa=self.heads > self.kv_heads)

        return launch

    def fa3(self, library: Any, sms: int) -> Launch:
        b, most = self.batch, max(self.lengths)
        o, lse = torch.empty_like(self.q[0]), torch.empty(b, self.heads, self.seq_q, device=GPU)
        splits = 128 if b == 1 else 32
        parts = torch.empty(splits * lse.numel() * 128, device=GPU)
        part_lse, meta = (
            torch.empty(splits * lse.numel(), device=GPU),
            torch.zeros(8 * b + 64, device=GPU, dtype=torch.int32),
        )
        paged = self.table is not None
        varlen = paged or self.ragged

        def launch(i: int) -> Any:
            address = [P(a.data_ptr()) for a in (self.q[i], *self.kv[i], o, lse, parts, part_lse, meta)]
            rows = self.table.shape[1] * self.page if paged else most
            library.fa3_decode(
                *address, b, self.seq_q, rows, self.heads, self.kv_heads,
                P(self.seqlens.data_ptr() if varlen else 0), P(self.table.data_ptr() if paged else 0),
                self.table.shape[1] if paged else 0, self.page or 1, self.kv[i][0].shape[0] if paged else 0, sms, 0,
                P(torch.cuda.current_stream().cuda_stream),
            )  # fmt: skip
            return o, lse, parts, part_lse, meta

        return launch

    def check(self, what: str, result: Any, causal: bool = False) -> None:
        """The first and the shortest sequence, against float64."""
        worst = 0.0
        for b in {0, self.lengths.index(min(self.lengths))}:
            n = self.lengths[b]
            k, v = self.kv[0]
            if self.table is not None:
                taken = self.table[b, : -(-n // self.page)].long()
                k, v = (
                    part[taken].flatten(0, 1)[None]
                    for part in (
                        k.view(torch.int8) if k.element_size() == 1 else k,
                        v.view(torch.int8) if v.element_size() == 1 else v,
                    )
                )
                if self.kv[0][0].element_size() == 1:
                    k, v = (part.view(torch.float8_e4m3fn) for part in (k, v))
                b_of_kv = 0
            else:
                b_of_kv = b
            group = self.heads // self.kv_heads
            for head in (0, self.heads - 1):
                wide_q = self.q[0][b, :, head].double()
                wide_k, wide_v = (part[b_of_kv, :n, head // group].double() for part in (k, v))
                scores = wide_q @ wide_k.T / self.d_head**0.5
                if causal:
                    scores.masked_fill_(~torch.ones_like(scores, dtype=torch.bool).tril(n - self.seq_q), -torch.inf)
                wanted = scores.softmax(-1) @ wide_v
                error = (result[b, :, head].double() - wanted).abs().max().item() / wanted.abs().max().item()
                worst = max(worst, error)
        print(f"{'right' if worst < 0.02 else 'WRONG'}: {what}, error {worst:.2e}", flush=True)


def decode_case(bench: Bench, case: str, cache: Cache, peers: bool = True, energy: bool = False, **more: Any) -> None:
    subjects = {"read": bench.read(cache.kv, cache.used), "flashladder": cache.ours(**more)}
    cache.check(case, cache.ours(**more)(0))
    subjects['flashladder, "batch"'] = cache.ours(deterministic="batch", **more)
    for keys in PARTS:
        subjects[f"flashladder, parts of {keys}"] = cache.parts(keys)
    for config in (
        CONFIGS.get(cache.seq_q * cache.heads // cache.kv_heads, ())
        if cache.d_head == 128 and cache.kv[0][0].element_size() == 2
        else ()
    ):
        for keys in (0, 2048):
            subjects[f"{config}, {keys}"] = cache.parts(keys, config)
    if not cache.ragged and not cache.table is not None and cache.kv[0][0].element_size() == 2:
        subjects["flashladder.attention"] = cache.whole(**more)
        if peers:
            subjects["cuDNN"] = cache.sdpa(SDPBackend.CUDNN_ATTENTION)
            subjects["FlashAttention-2"] = cache.sdpa(SDPBackend.FLASH_ATTENTION)
    if bench.fa3 and cache.d_head == 128 and cache.kv[0][0].element_size() == 2:
        subjects["FlashAttention-3"] = cache.fa3(bench.fa3, bench.sms)
    bench.run(case, ("GB/s", 2 * cache.used), subjects, cache.count, energy)


def group_decode(bench: Bench) -> None:
    for batch, n, heads, kv_heads in (
        (16, 32768, 32, 8), (64, 4096, 32, 8), (128, 2048, 32, 8), (1, 32768, 32, 8), (1, 131072, 32, 8),
        (16, 8192, 16, 16),
    ):  # fmt: skip
        cache = Cache([n] * batch, heads=heads, kv_heads=kv_heads)
        decode_case(bench, f"{batch} x {n}, {heads} heads on {kv_heads}", cache, energy=n * batch == 1 << 19)


def ragged_lengths() -> list[int]:
    drawn = random.Random(5)
    return [int(math.exp(drawn.uniform(math.log(100), math.log(32768)))) for _ in range(64)]


def group_pages(bench: Bench) -> None:
    for page in (16, 64, 256):
        for batch, n in ((16, 32768), (128, 2048), (1, 32768)):
            cache = Cache([n] * batch, page=page)
            decode_case(bench, f"{batch} x {n}, 32 heads on 8, pages of {page}", cache)
            del cache
            torch.cuda.empty_cache()


def group_ragged(bench: Bench) -> None:
    for page in (0, 16, 64, 256):
        cache = Cache(ragged_lengths(), page=page)
        decode_case(bench, "64 of 101 to 29595, 32 heads on 8" + f", pages of {page}" * (page > 0), cache)


def group_rows(bench: Bench) -> None:
    for seq_q, page, d_head in (
        (4, 0, 128),
        (8, 0, 128),
        (16, 0, 128),
        (16, 64, 128),
        (32, 0, 128),
        (32, 64, 128),
        (16, 0, 64),
        (32, 0, 64),
    ):
        cache = Cache([32768] * 16, seq_q=seq_q, page=page, d_head=d_head)
        case = f"16 x 32768, 32 heads on 8, {seq_q * 4} rows" + f", pages of {page}" * (page > 0)
        decode_case(bench, case + f", d_head {d_head}" * (d_head != 128), cache, peers=False)


def group_e4m3(bench: Bench) -> None:
    for batch, n, seq_q, page in (
        (16, 32768, 1, 0),
        (128, 2048, 1, 0),
        (16, 32768, 1, 64),
        (16, 32768, 16, 0),
        (1, 32768, 1, 0),
    ):
        cache = Cache([n] * batch, seq_q=seq_q, page=page, e4m3=True)
        case = (
            f"{batch} x {n}, 32 heads on 8, e4m3"
            + f", {seq_q * 4} rows" * (seq_q > 1)
            + f", pages of {page}" * (page > 0)
        )
        decode_case(bench, case, cache)


# ---- whole sequences -------------------------------------------------------------------------------------------------

RAGGED = (509, 1031, 1543, 1787, 2293, 2557, 3079, 3585)  # 16384 in all


def pairs(lengths: Any, left: int = -1) -> int:
    """Pairs of a query and a key that it sees, with the causal mask."""
    total = 0
    for n in lengths:
        seen = n if left < 0 else min(n, left + 1)
        total += seen * (seen + 1) // 2 + (n - seen) * seen
    return total


def fa3_prefill(bench: Bench, kind: int, parts: list[Any], batch: int, seq: int, offsets: Any, left: int) -> Launch:
    heads = parts[0][0].shape[-2]
    o, lse = torch.empty_like(parts[0][0]), torch.empty(heads * parts[0][0].numel() // 128, device=GPU)
    meta = torch.zeros(8 * batch + 64, device=GPU, dtype=torch.int32)

    def launch(i: int) -> Any:
        address = [P(a.data_ptr()) for a in (*parts[i], o, lse, meta)]
        bench.fa3.fa3_prefill(
            kind, *address, batch, seq, batch * seq if offsets is None else int(parts[i][0].shape[0]), heads, heads,
            P(0 if offsets is None else offsets.data_ptr()), left, bench.sms,
            P(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip
        return o, lse, meta

    return launch


def close(what: str, first: Any, second: Any) -> None:
    error = (first.float() - second.float()).abs().max().item()
    print(f"{'right' if error < 0.05 else 'WRONG'}: {what}, apart by {error:.2e}", flush=True)


def group_varlen(bench: Bench) -> None:
    for heads, d_head in ((16, 128), (32, 64), (8, 256)):
        offsets = torch.tensor([sum(RAGGED[:i]) for i in range(9)], device=GPU, dtype=torch.int32)
        parts = [tuple(normal(16384, heads, d_head) for _ in range(3)) for _ in range(4)]
        most = max(RAGGED)
        ours = lambda i: flashladder.attention_varlen(*parts[i], offsets, offsets, most, most, causal=True)
        begin, end = sum(RAGGED[:2]), sum(RAGGED[:3])
        close(
            "varlen",
            ours(0)[begin:end],
            flashladder.attention(*(a[None, begin:end].contiguous() for a in parts[0]), causal=True)[0],
        )
        subjects: dict[str, Launch] = {"flashladder": ours}
        if d_head < 256:

            def fa2(i: int) -> Any:
                return torch.ops.aten._flash_attention_forward(
                    *parts[i], offsets, offsets, most, most, 0.0, True, False
                )  # fmt: skip

            subjects["FlashAttention-2"] = fa2
        if bench.fa3 and d_head == 128:
            subjects["FlashAttention-3"] = fa3_prefill(bench, 0, parts, 8, most, offsets, 0)
            close("FA3 varlen", subjects["FlashAttention-3"](0)[0], ours(0))
        flops = 4 * heads * d_head
        bench.run(
            f"8 ragged sequences, 16384 tokens, causal, d_head {d_head}",
            ("TFLOP/s", flops * pairs(RAGGED)),
            subjects,
            4,
            energy=d_head == 128,
        )
        one = [tuple(a.view(8, 2048, heads, d_head) for a in part) for part in parts]
        subjects = {"flashladder": lambda i: flashladder.attention(*one[i], causal=True, version="attention/wgmma")}
        if bench.fa3 and d_head == 128:
            subjects["FlashAttention-3"] = fa3_prefill(bench, 1, one, 8, 2048, None, 0)
        bench.run(f"8 x 2048, causal, d_head {d_head}", ("TFLOP/s", flops * pairs([2048] * 8)), subjects, 4)


def group_window(bench: Bench) -> None:
    for heads, d_head in ((16, 128), (32, 64), (8, 256)):
        for left in (1023, 4095):
            parts = [tuple(normal(1, 16384, heads, d_head) for _ in range(3)) for _ in range(4)]
            ours = lambda i: flashladder.attention(*parts[i], causal=True, window=(left, 0))
            subjects: dict[str, Launch] = {"flashladder": ours}

            def fa2(i: int) -> Any:
                return torch.ops.aten._flash_attention_forward(
                    *parts[i], None, None, 16384, 16384, 0.0, True, False, window_size_left=left, window_size_right=0
                )  # fmt: skip

            if d_head < 256:
                subjects["FlashAttention-2"] = fa2
                close("window", fa2(0)[0], ours(0))
            if bench.fa3 and d_head == 128:
                subjects["FlashAttention-3"] = fa3_prefill(bench, 2, parts, 1, 16384, None, left)
                close("FA3 window", subjects["FlashAttention-3"](0)[0], ours(0))
            flops = 4 * heads * d_head
            bench.run(
                f"window {left + 1} at 16384, causal, d_head {d_head}",
                ("TFLOP/s", flops * pairs([16384], left)),
                subjects,
                4,
                energy=left == 1023 and d_head == 128,
            )
        subjects = {"flashladder": lambda i: flashladder.attention(*parts[i], causal=True)}
        if bench.fa3 and d_head == 128:
            subjects["FlashAttention-3"] = fa3_prefill(bench, 1, parts, 1, 16384, None, 0)
        bench.run(f"16384, causal, d_head {d_head}", ("TFLOP/s", flops * pairs([16384])), subjects, 4)


# ---- what is owed ----------------------------------------------------------------------------------------------------


def group_causal(bench: Bench) -> None:
    """One length. FlashAttention-3 is wanted to take 1.07 times as long."""
    for seq in (512, 1024, 2048, 4096, 8192, 16384):
        parts = [tuple(normal(16384 // seq, seq, 16, 128) for _ in range(3)) for _ in range(4)]
        subjects: dict[str, Launch] = {"flashladder": lambda i: flashladder.attention(*parts[i], causal=True)}
        if bench.fa3:
            subjects["FlashAttention-3"] = fa3_prefill(bench, 1, parts, 16384 // seq, seq, None, 0)
        flops = 4 * 2048 * pairs([seq]) * (16384 // seq)
        case = f"{16384 // seq} x {seq}, one length, causal, d_head 128"
        bench.run(case, ("TFLOP/s", flops), subjects, 4, energy=seq == 4096)


def group_causes(bench: Bench) -> None:
    """Cost of a Q block in attention/wgmma with serve, without its KV blocks. Predicted, with 1.1 KV blocks for a Q
    block of the plain kernel and 1.7 to 1.95 where it serves (docs/general-attention.md): by offsets 0.92 to 0.94 of
    the plain kernel at 2048, 0.87 to 0.90 at 1024, 0.96 at 4096; a window of everything 0.99 at 16384; orders within
    1 %."""
    for seq in (512, 1024, 2048, 4096, 16384):
        parts = [tuple(normal(16384 // seq, seq, 16, 128) for _ in range(3)) for _ in range(4)]
        offsets = torch.arange(0, 16384 + seq, seq, device=GPU, dtype=torch.int32)
        rows = [tuple(part.flatten(0, 1) for part in of_one) for of_one in parts]
        subjects: dict[str, Launch] = {
            "flashladder": lambda i: flashladder.attention(*parts[i], causal=True, version="attention/wgmma"),
            "by offsets": lambda i: flashladder.attention_varlen(*rows[i], offsets, offsets, seq, seq, causal=True),
            "a window of everything": lambda i: flashladder.attention(*parts[i], causal=True, window=(seq - 1, 0)),
        }
        flops = 4 * 2048 * pairs([seq]) * (16384 // seq)
        bench.run(f"{16384 // seq} x {seq}, causal, served", ("TFLOP/s", flops), subjects, 4)
    rows = [tuple(normal(16384, 16, 128) for _ in range(3)) for _ in range(4)]
    subjects = {}
    for name, lengths in (("short first", RAGGED), ("long first", RAGGED[::-1])):
        offsets = torch.tensor([sum(lengths[:i]) for i in range(9)], device=GPU, dtype=torch.int32)
        subjects[name] = lambda i, offsets=offsets: flashladder.attention_varlen(
            *rows[i], offsets, offsets, max(RAGGED), max(RAGGED), causal=True
        )
    bench.run("8 ragged sequences, orders", ("TFLOP/s", 4 * 2048 * pairs(RAGGED)), subjects, 4)


def group_plain(bench: Bench) -> None:
    """Decoding by a plain call: wanted is what a call with a cache reads."""
    for seq_q in (8, 16, 32):
        cache = Cache([32768] * 16, seq_q=seq_q)
        subjects = {"read": bench.read(cache.kv, cache.used), "flashladder": cache.ours()}
        subjects["flashladder.attention"] = cache.whole()
        cache.check(f"a plain call of {4 * seq_q} rows", cache.whole()(0))
        case = f"16 x 32768, 32 heads on 8, {4 * seq_q} rows, a plain call"
        bench.run(case, ("GB/s", 2 * cache.used), subjects, cache.count)
        del cache, subjects
        torch.cuda.empty_cache()


def places_of(table: Any, keys: Any, page: int) -> Any:
    """Return the row of each key of packed sequences in a paged cache."""
    keys = torch.tensor(keys, device=GPU)
    sequence = torch.repeat_interleave(torch.arange(len(keys), device=GPU), keys)
    row = torch.arange(len(sequence), device=GPU) - (keys.cumsum(0) - keys)[sequence]
    return table[sequence, row // page].long() * page + row % page


class Mixed:
    """Sequences of `rows` queries at the end of `keys` keys, packed, and the same keys in pages."""

    def __init__(
        self, rows: list[int], keys: list[int], page: int, heads: int, kv_heads: int, d_head: int = 128
    ) -> None:
        self.rows, self.keys, self.page, self.heads, self.kv_heads = rows, keys, page, heads, kv_heads
        self.pairs = sum(q * (q + 1) // 2 + q * (k - q) for q, k in zip(rows, keys, strict=True))
        starts = lambda n: torch.tensor([sum(n[:i]) for i in range(len(n) + 1)], device=GPU, dtype=torch.int32)
        self.cu_q, self.cu_k, self.used = starts(rows), starts(keys), torch.tensor(keys, device=GPU, dtype=torch.int32)
        pages = [-(-n // page) for n in keys]
        order = torch.randperm(sum(pages))
        table = torch.zeros(len(keys), max(pages), dtype=torch.int32)
        self.q = [normal(sum(rows), heads, d_head) for _ in range(4)]
        self.packed = [tuple(normal(sum(keys), kv_heads, d_head) for _ in "kv") for _ in range(4)]
        self.caches = [tuple(normal(sum(pages), page, kv_heads, d_head) for _ in "kv") for _ in range(4)]
        at = 0
        for b, n in enumerate(pages):
            table[b, :n] = order[at : at + n]
            at += n
        self.table = table.to(GPU)
        places = places_of(self.table, keys, page)
        for cache, packed in zip(self.caches, self.packed, strict=True):
            for pool, part in zip(cache, packed, strict=True):
                pool.view(-1, kv_heads, d_head)[places] = part

    def ours(self, paged: bool) -> Launch:
        def launch(i: int) -> Any:
            if not paged:
                k, v = self.packed[i]
                return flashladder.attention_varlen(
                    self.q[i], k, v, self.cu_q, self.cu_k, max(self.rows), max(self.keys), causal=True
                )
            k, v = self.caches[i]
            more = {"seqlens_k": self.used, "block_table": self.table, "causal": True}
            return flashladder.attention_varlen(self.q[i], k, v, self.cu_q, None, max(self.rows), 0, **more)

        return launch

    def fa3(self, bench: Bench) -> Launch:
        batch, o = len(self.rows), torch.empty_like(self.q[0])
        lse = torch.empty(self.heads * sum(self.rows), device=GPU)
        meta = torch.zeros(8 * batch + 64, device=GPU, dtype=torch.int32)

        def launch(i: int) -> Any:
            address = [
                P(a.data_ptr()) for a in (self.q[i], *self.caches[i], o, lse, meta, self.cu_q, self.used, self.table)
            ]
            bench.fa3.fa3_mixed(
                *address, batch, max(self.rows), sum(self.rows), self.table.shape[1] * self.page, self.heads,
                self.kv_heads, self.table.shape[1], self.page, self.caches[0][0].shape[0], bench.sms,
                P(torch.cuda.current_stream().cuda_stream),
            )  # fmt: skip
            return o, lse, meta

        return launch


def group_mixed(bench: Bench) -> None:
    """Predicted: pages of 128 and 256 rows within 1 % of packed keys, of 64 within 2 %, of 16 within 5 %. Since heads
    of a group share Q blocks: sequences of 2048 and of 1 as fast as FlashAttention-3 or faster, but for pages of 16."""
    cases = {
        "8 ragged sequences, 16384 tokens": (list(RAGGED), list(RAGGED), 16, 16),
        "4 of 2048 queries on 8192 keys, 64 of 1 on 4096": ([2048] * 4 + [1] * 64, [8192] * 4 + [4096] * 64, 32, 8),
    }
    for name, (rows, keys, heads, kv_heads) in cases.items():
        for page in (16, 64, 128, 256):
            mixed = Mixed(rows, keys, page, heads, kv_heads)
            subjects = {"flashladder, packed keys": mixed.ours(False), "flashladder": mixed.ours(True)}
            same = torch.equal(mixed.ours(False)(0), mixed.ours(True)(0))
            print(f"{'right' if same else 'WRONG'}: {name}, pages of {page}: the bits of packed keys", flush=True)
            if hasattr(bench.fa3, "fa3_mixed"):
                subjects["FlashAttention-3"] = mixed.fa3(bench)
                close("FA3 over pages", mixed.fa3(bench)(0)[0], mixed.ours(True)(0))
            case = f"{name}, {heads} heads on {kv_heads}, pages of {page}, causal"
            bench.run(case, ("TFLOP/s", 4 * heads * 128 * mixed.pairs), subjects, 4)
    for seq_q in (64, 512):  # as many queries each: which kernel should best be?
        for page in (16, 256):
            cache = Cache([8192] * 8, seq_q=seq_q, page=page)
            subjects = {
                version: cache.ours(causal=True, version=version) for version in ("attention/decode", "attention/wgmma")
            }
            flops = 4 * 32 * 128 * 8 * (seq_q * (seq_q + 1) // 2 + seq_q * (8192 - seq_q))
            case = f"8 x {seq_q} queries behind 8192 keys, pages of {page}, causal"
            bench.run(case, ("TFLOP/s", flops), subjects, cache.count)


PEERS_S = float(os.environ.get("PEERS_S", 50))
MUCH_WORK = 1 << 27


def wrong_of(case: Case) -> str:
    """Describe the errors in the results of a problem: of a long one three sequences and two heads are looked at."""
    torch.manual_seed(case.work)
    dtype, d, kv_heads = getattr(torch, case.dtype), case.d_head, case.kv_heads
    ints = lambda values: torch.tensor(values, device=GPU, dtype=torch.int32)
    starts = lambda n: ints([sum(n[:i]) for i in range(len(n) + 1)])
    q = torch.randn(sum(case.rows), case.heads, d, device=GPU, dtype=dtype)
    k, v = (torch.randn(sum(case.keys), kv_heads, d, device=GPU, dtype=dtype) for _ in "kv")
    options, batch = case.options | {"return_lse": True}, len(case.rows)
    sinks = torch.randn(case.heads, device=GPU) if case.sinks else None
    cu_q, cu_k = starts(case.rows), starts(case.keys)
    at_k = cu_k.tolist()
    old, table, caches = [n - case.new for n in case.keys], None, [k, v]
    if case.page:
        page = case.page
        pages = [-(-n // page) for n in case.keys]
        table = torch.full((batch, max(pages)), 1 << 29, dtype=torch.int32)
        order, at = torch.randperm(sum(pages) + 2), 0
        for b, n in enumerate(pages):
            table[b, :n] = order[at : at + n]
            at += n
        table = table.to(GPU)
        places = places_of(table, case.keys, page)
        there = torch.cat([torch.arange(n, device=GPU) < n - case.new for n in case.keys])
        caches = []
        for part in (k, v):
            pool = torch.full((len(order) * page, kv_heads, d), torch.nan, device=GPU, dtype=dtype)
            pool[places[there]] = part[there]
            caches.append(pool.view(-1, page, kv_heads, d))
    elif case.cached:
        caches = [torch.full((batch, max(case.keys), kv_heads, d), torch.nan, device=GPU, dtype=dtype) for _ in "kv"]
        for cache, part in zip(caches, (k, v), strict=True):
            for b, n in enumerate(old):
                cache[b, :n] = part[at_k[b] : at_k[b] + n]
    if case.cached:
        more = {}
        if case.new:
            for name, part in (("k_new", k), ("v_new", v)):
                more[name] = torch.stack([part[end - case.new : end] for end in at_k[1:]])
        q_of = q.view(batch, case.rows[0], case.heads, d)
        o, lse = flashladder.attention_with_cache(q_of, *caches, ints(old), table, sinks=sinks, **more, **options)
        o, lse = o.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    elif case.packed:
        keys = {"seqlens_k": ints(case.keys), "block_table": table} if case.page else {}
        most = max(case.rows), max(case.keys)
        o, lse = flashladder.attention_varlen(
            q, *caches, cu_q, None if case.page else cu_k, *most, sinks=sinks, **keys, **options
        )
    else:
        whole = (q.view(batch, -1, case.heads, d), *(part.view(batch, -1, kv_heads, d) for part in (k, v)))
        o, lse = flashladder.attention(*whole, sinks=sinks, **options)
        o, lse = o.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    much, group, at_q = case.work > MUCH_WORK, case.heads // kv_heads, cu_q.tolist()
    heads = sorted({0, case.heads - 1}) if much else list(range(case.heads))
    of_heads = [head // group for head in heads]
    for b in sorted({0, batch // 2, batch - 1}) if much else range(batch):
        rows, keys_of = slice(at_q[b], at_q[b + 1]), slice(at_k[b], at_k[b + 1])
        wanted, wanted_lse = reference(
            q[rows][:, heads], k[keys_of][:, of_heads], v[keys_of][:, of_heads], case.causal, case.window, case.softcap,
            None if sinks is None else sinks[heads],
        )  # fmt: skip
        allowed = 2e-2 if dtype == torch.bfloat16 else 4e-3
        if not torch.allclose(o[rows][:, heads].double(), wanted, atol=allowed, rtol=allowed):
            return f"O of sequence {b}"
        if not torch.allclose(lse[heads, rows].double(), wanted_lse, atol=4e-3, rtol=1e-3):
            return f"log-sum-exp of sequence {b}"
    return ""


def compare(cases: list[Case], what: str) -> None:
    """Print the problems that are wrong, how many are not computed, by reason, and how many are right."""
    begin, right, wrong, rejected = time.perf_counter(), 0, 0, Counter[str]()
    for case in cases:
        if time.perf_counter() - begin > PEERS_S:
            break
        try:
            found = wrong_of(case)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            rejected["too little memory"] += 1
            continue
        except Exception as error:
            named = re.search(rf"(d_head {case.d_head}|page_rows {case.page}): ", str(error))
            if named and isinstance(error, (NotImplementedError, ValueError)):
                rejected[named[1]] += 1
                continue
            found = f"{type(error).__name__}: {error}"
        right += not found
        if found:
            wrong += 1
            print(f"WRONG: {found}: {case}"[:600], flush=True)
    print(f"{what}: {len(cases)}, right: {right}, wrong: {wrong}, not computed: {dict(rejected)}", flush=True)


def group_peers(bench: Bench) -> None:
    cases = all_cases()
    random.Random(1).shuffle(cases)
    compare(cases, "problems of FlashAttention-3's and FlashInfer's tests")


def group_servers(bench: Bench) -> None:
    compare(list(servers()), "problems of vLLM's and SGLang's tests")


# ---- random problems -------------------------------------------------------------------------------------------------

RANDOM_S = 15.0


def reference(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, sinks: Any) -> tuple[Any, Any]:
    """O [rows, heads, d_head] and log-sum-exp [heads, rows] of one sequence, in float64."""
    rows, heads, d_head = q.shape
    keys, group = k.shape[0], heads // k.shape[1]
    K, V = (part.double().repeat_interleave(group, dim=1) for part in (k, v))
    s = torch.einsum("ihd,jhd->hij", q.double(), K) / d_head**0.5
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    distance = torch.arange(keys, device=GPU)[None] - (torch.arange(rows, device=GPU)[:, None] + keys - rows)
    left, right = window or (-1, -1)
    seen = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    s = s.masked_fill(~seen, -torch.inf)
    extra = torch.full((heads, rows, 1), -torch.inf, device=GPU, dtype=torch.double)
    if sinks is not None:
        extra[:] = sinks.double()[:, None, None]
    s = torch.cat([s, extra], 2)
    lse = s.logsumexp(2)
    p = (s - torch.where(lse.isfinite(), lse, 0.0)[..., None]).exp()
    return torch.einsum("hij,jhd->ihd", p[..., :-1], V), lse


class Random:
    """Ragged sequences as packed rows, or as a cache with or without pages. Unused rows are NaN."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn
        self.cached = drawn.random() < 0.6
        kv_heads, group = drawn.choice([(1, 1), (2, 4), (1, 8), (8, 4), (3, 2), (2, 16)])
        heads, self.paged = kv_heads * group, self.cached and drawn.random() < 0.6
        d_head = drawn.choice([64, 128] if self.paged else [64, 128, 256])
        dtype = drawn.choice([torch.float16, torch.bfloat16])
        batch, most = drawn.randint(1, 9), drawn.choice([1, 20, 300, 3000])
        self.keys = [drawn.choice([0, drawn.randint(0, most), most]) for _ in range(batch)]
        seq_q = drawn.choice([1, 1, 2, 5, 16, 33, 130])
        self.rows = [seq_q if self.cached else drawn.choice([0, drawn.randint(0, 300)]) for _ in range(batch)]
        if not sum(self.keys):
            self.keys[0] = most
        if not sum(self.rows):
            self.rows[0] = seq_q
        self.options: dict[str, Any] = {"causal": drawn.random() < 0.5}
        if not self.paged and drawn.random() < 0.6:
            side = [-1, drawn.randint(0, 400)]
            self.options |= {
                "window": (drawn.choice(side), drawn.choice(side)),
                "softcap": drawn.choice([0.0, 0.0, 20.0]),
            }
            if drawn.random() < 0.5:
                self.options["sinks"] = torch.randn(heads, device=GPU)
        elif self.cached and drawn.random() < 0.4:
            self.options["deterministic"] = "batch"
        self.q = [torch.randn(n, heads, d_head, device=GPU).to(dtype) for n in self.rows]
        self.k, self.v = ([torch.randn(n, kv_heads, d_head, device=GPU).to(dtype) for n in self.keys] for _ in "kv")
        self.page = drawn.choice([16, 32, 64, 256]) if self.paged else 0
        self.most = max(self.keys) + drawn.choice([0, 5, 400])
        shape = f"{heads} on {kv_heads}, {d_head}, {dtype}, pages {self.page}"
        self.name = f"{self.rows} rows, {self.keys} keys, {shape}, {self.options}"

    def call(self, only: int | None = None) -> tuple[list[Any], list[Any]]:
        """O and log-sum-exp of each sequence, or of one sequence alone."""
        chosen = range(len(self.q)) if only is None else [only]
        ints = lambda values: torch.tensor(values, device=GPU, dtype=torch.int32)
        if not self.cached:
            starts = [ints([sum(n[:i]) for i in range(len(n) + 1)]) for n in (self.rows, self.keys)]
            q, k, v = (
                torch.cat(x + [torch.full_like(x[0][:1], torch.nan)] * 3 if len(x[0]) else x)
                for x in (self.q, self.k, self.v)
            )
            most = max(self.rows), max(self.keys)
            o, lse = flashladder.attention_varlen(q, k, v, *starts, *most, return_lse=True, **self.options)
            at = starts[0].tolist()
            return [o[a:e] for a, e in pairwise(at)], [lse[:, a:e] for a, e in pairwise(at)]
        caches, table = [], None
        generator = torch.Generator().manual_seed(1)
        for part in (self.k, self.v):
            if self.paged:
                used = [-(-self.keys[b] // self.page) for b in chosen]
                order = torch.randperm(sum(used) + 2, generator=generator.manual_seed(1)).tolist()
                cache = torch.full(
                    (len(order), self.page, *part[0].shape[1:]), torch.nan, device=GPU, dtype=part[0].dtype
                )
                numbers = [[order[sum(used[:i]) + j] for j in range(n)] for i, n in enumerate(used)]
                for b, of in zip(chosen, numbers, strict=True):
                    for j, number in enumerate(of):
                        rows = part[b][j * self.page : (j + 1) * self.page]
                        cache[number, : len(rows)] = rows
                width = -(-self.most // self.page)
                table = ints([of + [1 << 29] * (width - len(of)) for of in numbers])
            else:
                cache = torch.full(
                    (len(chosen), self.most, *part[0].shape[1:]), torch.nan, device=GPU, dtype=part[0].dtype
                )
                for i, b in enumerate(chosen):
                    cache[i, : self.keys[b]] = part[b]
            caches.append(cache)
        q = torch.stack([self.q[b] for b in chosen])
        o, lse = flashladder.attention_with_cache(
            q, *caches, ints([self.keys[b] for b in chosen]), table, return_lse=True, **self.options
        )
        return list(o), list(lse)

    def wrong(self) -> str:
        o, lse = self.call()
        options = {name: self.options.get(name) for name in ("causal", "window", "softcap", "sinks")}
        for b, (own, own_lse) in enumerate(zip(o, lse, strict=True)):
            wanted, wanted_lse = reference(self.q[b], self.k[b], self.v[b], **options)
            allowed = 2e-2 if own.dtype == torch.bfloat16 else 4e-3
            if not torch.allclose(own.double(), wanted, atol=allowed, rtol=allowed):
                return f"O of sequence {b}"
            if not torch.allclose(own_lse.double(), wanted_lse, atol=4e-3, rtol=1e-3):
                return f"log-sum-exp of sequence {b}"
            if self.options.get("deterministic") == "batch" and self.cached:
                alone = self.call(b)
                if not torch.equal(alone[0][0], own) or not torch.equal(alone[1][0], own_lse):
                    return f"bits of sequence {b} alone"
        return ""


def group_random(bench: Bench) -> None:
    begin, done, wrong = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < RANDOM_S:
        problem = Random(random.Random(done))
        found = problem.wrong()
        done += 1
        if found:
            wrong += 1
            print(f"WRONG: {found}: problem {done - 1}: {problem.name}"[:600], flush=True)
    print(f"random problems: {done}, wrong: {wrong}", flush=True)


def groups() -> Iterator[tuple[str, Callable[[Bench], None]]]:
    for name, function in globals().items():
        if name.startswith("group_"):
            yield name.removeprefix("group_"), function


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fa3", type=Path)
    arguments = parser.parse_args()
    bench = Bench(arguments.out, arguments.fa3)
    print(torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version(), flush=True)
    known = dict(groups())
    for name in arguments.groups or known:
        begin = time.perf_counter()
        try:
            known[name](bench)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        torch.cuda.empty_cache()
        print(f"-- {name}: {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
