"""Two threads serve requests side by side, each on a CUDA stream of its own: the results are those of one stream.

    python examples/two_streams.py                  # on a GPU; on the emulator the threads have no streams

The library may be called by any thread. It holds what a launch needs for each stream, so that two launches in flight
share nothing, and a call does not wait for the GPU: a thread waits once, when all its requests are in the stream.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from typing import Any

import torch

from flashladder.torch import attention


def requests(count: int, longest: int, device: str) -> list[tuple[torch.Tensor, ...]]:
    """Q, K and V of prompts of different lengths."""
    generator = torch.Generator(device).manual_seed(0)
    made = []
    for i in range(count):
        rows = longest - i * longest // (2 * count)
        make = {"device": device, "dtype": torch.bfloat16, "generator": generator}
        made.append(tuple(torch.randn(1, rows, heads, 64, **make) for heads in (4, 2, 2)))
    return made


def serve(work: list[tuple[torch.Tensor, ...]], results: list[Any], numbers: range, cuda: bool) -> None:
    """One thread: the requests of these numbers, in a stream of its own."""
    stream = torch.cuda.Stream() if cuda else None
    with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        for i in numbers:
            results[i] = attention(*work[i], causal=True)
    if stream:
        stream.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--requests", type=int, default=200 if cuda else 4)
    parser.add_argument("--longest", type=int, default=4096 if cuda else 96)
    arguments = parser.parse_args()
    work = requests(arguments.requests, arguments.longest, "cuda" if cuda else "cpu")
    if cuda:
        torch.cuda.synchronize()  # the requests were made in another stream
    results: list[Any] = [None] * len(work)
    threads = [
        threading.Thread(target=serve, args=(work, results, range(first, len(work), 2), cuda)) for first in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = 0
    for i, tensors in enumerate(work):
        if results[i] is None or not torch.equal(results[i], attention(*tensors, causal=True)):
            wrong += 1
    print(f"{len(work)} requests from 2 threads: {wrong} differ from those of one thread")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
