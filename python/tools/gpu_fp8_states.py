"""Speed of attention/fp8, FlashAttention-3 and cuDNN in both states of the GPU, in turn, from the same bytes of e4m3.

    PYTHONPATH=python python3 python/tools/gpu_fp8_states.py bin/peers/libfa3_serving.so >states.json

It needs what gpu_fp8_errors.py needs. `first` is a burst of 50 ms after a second of rest, `sustained` a second of
launches after two, both in TFLOP/s, as of harness/energy.h; batch * keys = 16384, 16 heads, d_head 128. The first
queries of each result are compared with float64 first.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import cudnn
import torch
from gpu_fp8_errors import QUERIES, exact, launch_of_cudnn, launch_of_fa3, library_of_fa3

import flashladder

TOKENS, HEADS, D_HEAD = 16384, 16, 128
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
MOST_ERROR = 0.1  # of the norm of the output; cuDNN rounds O to e4m3, too
BURST, REST, WARM, HELD = 0.05, 1.0, 2.0, 1.0  # seconds


def launch_of_ours(q: Any, k: Any, v: Any, causal: bool, accurate: bool) -> tuple[Callable[[], Any], Any]:
    def launch() -> Any:
        return flashladder.attention_e4m3(q, k, v, causal=causal, accurate=accurate)

    return launch, launch()


def seconds_of(launch: Callable[[], Any], launches: int) -> float:
    """Share of a launch among so many."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(launches):
        launch()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / launches


def states(launch: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a launch in a cool burst, and at the power limit."""
    about = seconds_of(launch, 20)
    time.sleep(REST)
    first = seconds_of(launch, max(1, round(BURST / about)))
    seconds_of(launch, round(WARM / about))
    return first, seconds_of(launch, round(HELD / about))


def measured(library: ctypes.CDLL, keys: int, causal: bool) -> dict[str, dict[str, float]]:
    made = torch.Generator(device="cuda").manual_seed(1)
    shape = (TOKENS // keys, keys, HEADS, D_HEAD)
    q, k, v = (torch.randn(shape, generator=made, device="cuda").to(torch.float8_e4m3fn) for _ in range(3))
    subjects = {
        "attention/fp8": launch_of_ours(q, k, v, causal, accurate=False),
        "attention/fp8, accurate": launch_of_ours(q, k, v, causal, accurate=True),
        "cuDNN, O in e4m3": launch_of_cudnn(q, k, v, causal),
    }
    if not causal:
        subjects["FlashAttention-3"] = launch_of_fa3(library, q, k, v)
    right = exact(q[:1], k[:1], v[:1], causal) if not causal else exact(q[:1], k[:1, :QUERIES], v[:1, :QUERIES], True)
    flop = 4 * TOKENS * keys * HEADS * D_HEAD / (2 if causal else 1)
    found = {}
    for name, (launch, out) in subjects.items():
        launch()
        error = float((out[:1, :QUERIES].to(torch.float64) - right).norm() / right.norm())
        if not error < MOST_ERROR:
            raise SystemExit(f"{name}, {keys} keys: an error of {error} of the output")
        first, sustained = states(launch)
        found[name] = {"first": flop / first / 1e12, "sustained": flop / sustained / 1e12, "error": error}
    return found


def main() -> None:
    library = library_of_fa3()
    found = {
        "causal" if causal else "full": {str(keys): measured(library, keys, causal) for keys in LENGTHS}
        for causal in (False, True)
    }
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": cudnn.backend_version()}
    json.dump({**about, "library": flashladder.backend().release, "TFLOP/s": found}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
