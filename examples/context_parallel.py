"""Causal attention of one long sequence on several GPUs: every rank holds a part of it, K and V go round in a ring.

    torchrun --nproc-per-node 4 examples/context_parallel.py --seq 65536 --record context_parallel.jsonl

The engine is torch.distributed: point-to-point messages over NCCL between GPUs, over gloo without them (then the kernel
runs on the emulator, so take a small --seq). In each of N steps a rank computes attention of its queries to the keys
that it holds, while the keys of the next step are on their way. zigzag.py says who holds which rows and how two partial
results become one. Only the forward pass exists. The result is compared with attention on one GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import record
import torch
import torch.distributed as dist
from zigzag import combine, rows_of, visible

from flashladder.torch import attention


class Exchange:
    """K and V on their way: to the next rank of the ring, and from the one before."""

    def __init__(self, held: Any, rank: int, ranks: int) -> None:
        self.received = torch.empty_like(held)
        # As bytes, because not every back end of torch.distributed knows 16-bit floats.
        send, receive = (tensor.view(torch.uint8) for tensor in (held, self.received))
        there, here = (rank + 1) % ranks, (rank - 1) % ranks
        self.requests = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, send, there), dist.P2POp(dist.irecv, receive, here)]
        )

    def wait(self) -> Any:
        """[2, batch, rows, KV heads, d_head]. With NCCL it is the stream that waits, not this thread."""
        for request in self.requests:
            request.wait()
        return self.received


def ring_attention(q: Any, k: Any, v: Any, rank: int, ranks: int) -> tuple[Any, Any]:
    """Causal attention of a rank's rows [batch, 2 chunks, heads, d_head] to the whole sequence: O in fp32, and LSE."""
    held = torch.stack([k, v])
    out = lse = None
    for step in range(ranks):
        coming = Exchange(held, rank, ranks) if step + 1 < ranks else None
        if step == 0:
            out, lse = attention(q, k, v, causal=True, return_lse=True)
            out = out.float()
        else:
            rows, keys = visible(rank, (rank - step) % ranks, q.shape[1])
            part, part_lse = attention(q[:, rows], held[0][:, keys], held[1][:, keys], return_lse=True)
            combine(torch, out[:, rows], lse[:, :, rows], part, part_lse)
        if coming:
            held = coming.wait()
    return out, lse


def take(whole: Any, rank: int, ranks: int) -> Any:
    """The rows of a rank, the late chunk behind the early one."""
    return torch.cat([whole[:, rows] for rows in rows_of(rank, ranks, whole.shape[1])], dim=1)


def check(out: Any, lse: Any, inputs: list[Any], rank: int, ranks: int) -> float:
    """The largest error against attention on one GPU, in units of what is allowed. NaN is an error, too.

    Each partial result and the whole one are rounded to 16 bits, so an element may differ by a few of these roundings
    of the largest element in its row.
    """
    whole, whole_lse = attention(*inputs, causal=True, return_lse=True)
    expected = take(whole, rank, ranks).float()
    allowed = 4 * torch.finfo(whole.dtype).eps * expected.abs().amax(dim=-1, keepdim=True)
    errors = [((out - expected).abs() / allowed).max()]
    rows = torch.cat([whole_lse[:, :, rows] for rows in rows_of(rank, ranks, whole_lse.shape[2])], dim=2)
    errors.append((lse - rows).abs().max() / 1e-3)
    return max(float("inf") if error.isnan() else error.item() for error in errors)


def seconds(call: Callable[[], Any], cuda: bool, repeat: int) -> float:
    """The median time of a call that all ranks make at once."""
    times = []
    for _ in range(repeat + 1):
        dist.barrier()
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])  # the first one loads machine code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=65536, help="a multiple of 2 x ranks")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--d-head", type=int, default=128)
    parser.add_argument("--dtype", choices=["fp16", "bf16"], default="bf16")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls; 0: only check")
    parser.add_argument("--record", type=record.file, help="append one line of JSON to this file")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ:
        parser.error("RANK is not set: start it by torchrun --nproc-per-node GPUS examples/context_parallel.py")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.seq % (2 * ranks):
        parser.error(f"--seq {arguments.seq} is no multiple of 2 x {ranks} ranks")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        # Messages go before kernels that are ready at the same time: these fill the GPU until they end.
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        dist.init_process_group("nccl", device_id=device, pg_options=options)
    else:
        dist.init_process_group("gloo")

    generator = torch.Generator(device).manual_seed(0)  # the same whole sequence on every rank
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float16
    inputs = [
        torch.randn((1, arguments.seq, heads, arguments.d_head), device=device, dtype=dtype, generator=generator)
        for heads in (arguments.heads, arguments.kv_heads, arguments.kv_heads)
    ]
    mine = [take(tensor, rank, ranks) for tensor in inputs]
    out, lse = ring_attention(*mine, rank, ranks)
    result = torch.tensor([check(out, lse, inputs, rank, ranks), 0.0, 0.0], dtype=torch.float64, device=device)
    if arguments.repeat:
        result[1] = seconds(lambda: ring_attention(*mine, rank, ranks), cuda, arguments.repeat)
        result[2] = seconds(lambda: attention(*inputs, causal=True), cuda, arguments.repeat)
    dist.all_reduce(result, dist.ReduceOp.MAX)  # the slowest rank's
    error, ring, one = result.tolist()
    right = error <= 1.0
    if rank == 0:
        verdict = "right" if right else "WRONG"
        print(f"{ranks} ranks, {arguments.seq} rows: error {error:.0%} of the tolerance: {verdict}")
        if ring:
            efficiency = one / (ranks * ring)
            print(f"one GPU {one * 1e3:.2f} ms, ring {ring * 1e3:.2f} ms, efficiency {efficiency:.3f}")
            if arguments.record:
                problem = {name: getattr(arguments, name) for name in ("seq", "heads", "kv_heads", "d_head", "dtype")}
                record.append(
                    arguments.record,
                    "context_parallel",
                    ranks=ranks,
                    problem={**problem, "batch": 1, "causal": True},
                    ms_one_gpu=one * 1e3,
                    ms_ring=ring * 1e3,
                    efficiency=efficiency,
                    error_of_tolerance=error,
                    rounds=arguments.repeat,
                )
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
