"""Host time of calls from PyTorch: from the call until the kernel is enqueued, in microseconds.

    PYTHONPATH=python python python/tools/host_times.py --write

Each time is the least of many batches of calls, between which the GPU is waited for, so that no call waits for it.
It needs a GPU. The peer is PyTorch's scaled_dot_product_attention.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import flashladder
import flashladder.torch as fl
from flashladder.flash_attn_interface import flash_attn_func, flash_attn_with_kvcache

RECORD = Path(__file__).resolve().parents[2] / "logs/library/host_times.md"


def measure(call: Callable[[], Any], batches: int = 50, calls: int = 20) -> float:
    """Microseconds of a call."""
    least = float("inf")
    for _ in range(batches + 3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - begun) / calls)
    torch.cuda.synchronize()
    return 1e6 * least


def random(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").bfloat16()


def cases() -> dict[str, Callable[[], Any]]:
    q, k, v = random(1, 1, 32, 128), random(1, 1024, 8, 128), random(1, 1024, 8, 128)
    pages = [x.view(64, 16, 8, 128) for x in (k, v)]
    table = torch.arange(64, dtype=torch.int32, device="cuda")[None]
    lengths = torch.tensor([1024], dtype=torch.int32, device="cuda")
    eight = [
        x.to(torch.float8_e4m3fn) for x in (random(1, 128, 8, 128), random(1, 128, 8, 128), random(1, 128, 8, 128))
    ]
    scales = torch.ones(8, device="cuda")
    leaves = [random(1, 64, 4, 64).requires_grad_() for _ in "qkv"]
    rows = [random(64, 4, 64).requires_grad_() for _ in "qkv"]
    starts, dout = torch.tensor([0, 64], dtype=torch.int32, device="cuda"), random(1, 64, 4, 64)

    def packed() -> Any:
        return fl.attention_varlen(*rows, starts, starts, 64, 64, causal=True)

    def sdpa() -> Any:
        heads_first = (x.transpose(1, 2) for x in leaves)
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

    return {
        "attention": lambda: flashladder.attention(q, k, v),
        "attention_with_cache": lambda: flashladder.attention_with_cache(q, k, v, lengths),
        "attention_with_cache, pages": lambda: flashladder.attention_with_cache(q, *pages, lengths, table),
        "flashladder.torch.attention_with_cache": lambda: fl.attention_with_cache(q, k, v, lengths),
        "flash_attn_with_kvcache": lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths),
        "attention_e4m3": lambda: flashladder.attention_e4m3(*eight),
        "attention_e4m3, scales": lambda: flashladder.attention_e4m3(*eight, k_scale=scales, v_scale=scales),
        "forward and backward": lambda: torch.autograd.grad(fl.attention(*leaves, causal=True), leaves, dout),
        "forward and backward, packed": lambda: torch.autograd.grad(packed(), rows, dout[0]),
        "forward and backward, flash_attn_func": lambda: torch.autograd.grad(flash_attn_func(*leaves), leaves, dout),
        "forward and backward, PyTorch": lambda: torch.autograd.grad(sdpa(), leaves, dout),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"the table into {RECORD.name}")
    asked = parser.parse_args()
    lines = [
        f"{datetime.date.today()}, flashladder {flashladder.backend().release}, {torch.cuda.get_device_name()}.",
        "",
    ]
    lines += ["| call | host time, µs |", "|---|---|"]
    lines += [f"| {name} | {measure(call):.1f} |" for name, call in cases().items()]
    print("\n".join(lines))
    if asked.write:
        RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
