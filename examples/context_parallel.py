"""Causal attention of one long sequence on several GPUs: every rank holds an early and a late part of it.

    torchrun --nproc-per-node 4 examples/context_parallel.py --seq 65536 --record context_parallel.jsonl

These methods get K and V to the queries that see them, or all to the heads that a rank computes:

    gather   K and V of a few heads come from all ranks while those of the heads before are computed; no partial results
    ring     K and V of one rank after the other; two partial results become one by their log-sum-exp
    heads    all rows of heads / ranks heads come to a rank, and O goes back (all-to-all); nothing overlaps
    torch    PyTorch's own context_parallel over flashladder.torch.register(): on GPUs only
    training gather with the gradients, whose parts for other ranks' rows go back while the next heads are computed

All messages with K and V of `ring` are queued before the first kernel, those of `gather` and `training` a few heads
ahead of it: queuing takes the host longer than sending. The engine is torch.distributed: point-to-point messages over
NCCL between GPUs, over gloo without them (then the kernels run on the emulator, so take a small --seq). zigzag.py says
who holds and who needs which rows. All results are compared with those of one GPU. NCCL's own settings come from the
environment (NCCL_MAX_CTAS=8) and are recorded. One call is timed, which begins on idle GPUs, and some in a row, as the
layers of a model make them: the host queues a call while the GPUs work on the one before.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import record
import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental import context_parallel
from zigzag import combine, needed, rows_of, visible

import flashladder
from flashladder.torch import attention, register

IN_A_ROW = 4  # calls without a wait for the GPU between them
HEADS_AT_A_TIME = 2  # KV heads of a message of `gather`, or 1: few, so that the first kernel begins early


class Messages:
    """Messages between this rank and others, queued at once. A tensor is contiguous, and received in its own memory."""

    def __init__(self, sent: Sequence[tuple[Any, int]], received: Sequence[tuple[Any, int]]) -> None:
        # As bytes, because not every back end of torch.distributed knows 16-bit floats.
        both = ((dist.isend, sent), (dist.irecv, received))
        queued = [dist.P2POp(way, tensor.view(torch.uint8), other) for way, some in both for tensor, other in some]
        self.requests = dist.batch_isend_irecv(queued) if queued else []

    def wait(self) -> None:
        """With NCCL it is the stream that waits, not this thread, and limit() that ends the process."""
        try:
            for request in self.requests:
                request.wait()
        except RuntimeError as error:
            sys.exit(f"rank {dist.get_rank()}: no message from another rank: it has ended, or hangs: {error}")


def others(rank: int, ranks: int) -> list[tuple[int, int]]:
    """Whom to send to and whom to receive from, one pair a step: in a step each rank sends once and receives once."""
    return [((rank + step) % ranks, (rank - step) % ranks) for step in range(1, ranks)]


def gathered(k: Any, v: Any, rank: int, ranks: int) -> Iterator[tuple[slice, Any, Messages]]:
    """Some KV heads at a time: K and V of all rows that a rank sees, [seq, 2, heads, d_head], and what still comes.
    While a caller uses those of some heads, the messages of the next are on their way."""
    seq, kv_heads, d_head = k.shape[1] * ranks, k.shape[2], k.shape[3]
    heads = HEADS_AT_A_TIME if kv_heads % HEADS_AT_A_TIME == 0 else 1
    whole = k.new_empty((kv_heads // heads, seq, 2, heads, d_head))  # what no row here sees stays undefined
    for here, rows in zip(rows_of(0, 1, k.shape[1]), rows_of(rank, ranks, seq), strict=True):
        for i, tensor in enumerate((k, v)):
            whole[:, rows, i] = tensor[0, here].unflatten(1, (-1, heads)).movedim(1, 0)

    def queue(group: Any) -> Messages:
        sent, received = [], []
        for there, source in others(rank, ranks):
            sent += [(group[rows], there) for rows in needed(there, rank, ranks, seq)]
            received += [(group[rows], source) for rows in needed(rank, source, ranks, seq)]
        return Messages(sent, received)

    coming = queue(whole[0])
    for i, group in enumerate(whole):
        ready, coming = coming, queue(whole[i + 1]) if i + 1 < len(whole) else coming
        yield slice(i * heads, (i + 1) * heads), group, ready


def gather(q: Any, k: Any, v: Any, rank: int, ranks: int) -> Any:
    """Causal attention of a rank's rows [1, 2 chunks, heads, d_head] to the whole sequence, some KV heads at a time."""
    seq, shared = q.shape[1] * ranks, q.shape[2] // k.shape[2]
    mine, out = rows_of(0, 1, q.shape[1]), torch.empty_like(q)
    for heads, whole, messages in gathered(k, v, rank, ranks):
        messages.wait()
        of_q = slice(heads.start * shared, heads.stop * shared)
        for here, rows in zip(mine, rows_of(rank, ranks, seq), strict=True):
            keys, values = whole[None, : rows.stop, 0], whole[None, : rows.stop, 1]
            flashladder.attention(q[:, here, of_q], keys, values, causal=True, out=out[:, here, of_q])
    return out


def training(q: Any, k: Any, v: Any, dout: Any, rank: int, ranks: int) -> tuple[Any, ...]:
    """`gather` with the gradients of q, k and v: out, dq, dk, dv of a rank's rows.

    Contributions of a rank's queries to dk and dv of other ranks' rows are sent back in 16 bits per element and added
    up in fp32.
    """
    seq, shared = q.shape[1] * ranks, q.shape[2] // k.shape[2]
    mine, chunks = rows_of(0, 1, q.shape[1]), rows_of(rank, ranks, seq)
    out, dq, going = torch.empty_like(q), torch.empty_like(q), []
    for heads, whole, messages in gathered(k, v, rank, ranks):
        messages.wait()
        of_q, added = slice(heads.start * shared, heads.stop * shared), torch.zeros_like(whole)
        for here, rows in zip(mine, chunks, strict=True):
            seen = (q[:, here, of_q], whole[None, : rows.stop, 0], whole[None, : rows.stop, 1])
            leaves = [tensor.detach().requires_grad_() for tensor in seen]
            part = attention(*leaves, causal=True)
            out[:, here, of_q] = part.detach()
            dq[:, here, of_q], dk, dv = torch.autograd.grad(part, leaves, dout[:, here, of_q])
            added[: rows.stop, 0] += dk[0]
            added[: rows.stop, 1] += dv[0]
        sent, received = [], []
        parts = [(here, added[rows]) for here, rows in zip(mine, chunks, strict=True)]
        for there, source in others(rank, ranks):
            sent += [(added[rows], source) for rows in needed(rank, source, ranks, seq)]
            for here, _ in zip(mine, needed(there, rank, ranks, seq), strict=False):  # the early chunk, or both
                parts.append((here, torch.empty_like(added[: q.shape[1] // 2])))
                received.append((parts[-1][1], there))
        going.append((heads, parts, Messages(sent, received)))
    total = k.new_zeros((2, *k.shape[1:]), dtype=torch.float32)
    for heads, parts, messages in going:
        messages.wait()
        for here, part in parts:
            total[:, here, heads] += part.transpose(0, 1)
    return out, dq, *total.to(k.dtype).unsqueeze(1)


def ring(q: Any, k: Any, v: Any, rank: int, ranks: int) -> Any:
    """Attention of a rank's rows, one rank's keys after the other."""
    rows = q.shape[1]
    held = torch.stack([k[0], v[0]], dim=1)
    coming = []
    for there, source in others(rank, ranks):
        keys = torch.empty_like(held[visible(rank, source, rows)[1]])
        coming.append((source, keys, Messages([(held[visible(there, rank, rows)[1]], there)], [(keys, source)])))
    out, lse = attention(q, k, v, causal=True, return_lse=True)
    out = out.float()
    for source, keys, messages in coming:
        messages.wait()
        here = visible(rank, source, rows)[0]
        part, part_lse = attention(q[:, here], keys[None, :, 0], keys[None, :, 1], return_lse=True)
        combine(torch, out[:, here], lse[:, :, here], part, part_lse)
    return out.to(q.dtype)


def by_heads(q: Any, k: Any, v: Any, rank: int, ranks: int) -> Any:
    """Attention of a rank's rows: each rank computes entire sequences of some heads."""
    seq, n, n_kv = q.shape[1] * ranks, q.shape[2] // ranks, k.shape[2] // ranks
    mine, chunks = rows_of(0, 1, q.shape[1]), [rows_of(one, ranks, seq) for one in range(ranks)]

    def share(one: int) -> Any:
        parts = (q[0, :, one * n : one * n + n], k[0, :, one * n_kv : one * n_kv + n_kv])
        return torch.cat([*parts, v[0, :, one * n_kv : one * n_kv + n_kv]], dim=1)

    whole = q.new_empty((seq, n + 2 * n_kv, q.shape[3]))
    sent, received = [], []
    for here, rows in zip(mine, chunks[rank], strict=True):
        whole[rows] = share(rank)[here]
    for there, source in others(rank, ranks):
        shared = share(there)
        sent += [(shared[here], there) for here in mine]
        received += [(whole[rows], source) for rows in chunks[source]]
    Messages(sent, received).wait()
    of_q, of_k, of_v = whole[None].split([n, n_kv, n_kv], dim=2)
    full = attention(of_q, of_k, of_v, causal=True)[0]

    parts = [torch.empty_like(q[0, :, :n]) for _ in range(ranks)]
    parts[rank] = torch.cat([full[rows] for rows in chunks[rank]])
    sent = [(full[rows], there) for there, _ in others(rank, ranks) for rows in chunks[there]]
    received = [(parts[source][here], source) for _, source in others(rank, ranks) for here in mine]
    Messages(sent, received).wait()
    return torch.cat(parts, dim=1)[None]


def by_torch(q: Any, k: Any, v: Any, rank: int, ranks: int) -> Any:
    """Attention of a rank's rows by PyTorch, whose load balancing gives the ranks the same chunks."""
    mesh = dist.device_mesh.init_device_mesh("cuda", (ranks,))
    there = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    positions = torch.arange(q.shape[1] * ranks, device=q.device)  # it wants something that it can share out itself
    with context_parallel(mesh, buffers=[positions], buffer_seq_dims=[0]):
        out = torch.nn.functional.scaled_dot_product_attention(*there, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2)


METHODS: dict[str, Callable[..., Any]] = {
    "gather": gather,
    "ring": ring,
    "heads": by_heads,
    "torch": by_torch,
    "training": training,
}


def take(whole: Any, rank: int, ranks: int) -> Any:
    """The rows of a rank, the late chunk after the early one."""
    return torch.cat([whole[:, rows] for rows in rows_of(rank, ranks, whole.shape[1])], dim=1)


def check(out: Any, whole: Any, rank: int, ranks: int) -> float:
    """The largest error against `whole`, of one GPU, in units of what is allowed. NaN is an error, too.

    Each partial result and the whole one are rounded to 16 bits, so an element may differ by a few of these roundings
    of the largest element in its row. Or of a mean element: dq of the first row is 0, as its only weight stays 1.
    """
    expected = take(whole, rank, ranks).float()
    largest = expected.abs().amax(dim=-1, keepdim=True).clamp(min=float(expected.abs().mean()))
    allowed = 4 * torch.finfo(out.dtype).eps * largest
    error = ((out - expected).abs() / allowed).max()
    return float("inf") if error.isnan() else float(error)


def train(q: Any, k: Any, v: Any, dout: Any) -> tuple[Any, ...]:
    """out, dq, dk, dv on one GPU."""
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    out = attention(*leaves, causal=True)
    return out.detach(), *torch.autograd.grad(out, leaves, dout)


@contextlib.contextmanager
def limit(seconds: float, rank: int) -> Iterator[None]:
    """Ends this process, and with it all ranks, where what is inside takes longer: NCCL's watchdog was seen to wait on
    for a rank that had stopped."""

    def end() -> None:
        said = f"rank {rank}: no answer in {seconds} s: another rank has ended, or hangs; more time: --timeout"
        print(said, file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def in_turns(calls: Sequence[Callable[[], Any]], in_a_row: int, repeat: int, timeout: int, rank: int) -> list[float]:
    """The median seconds of each call, of so many in a row, which all ranks make at once. They take turns: a GPU that
    has worked for some seconds is slower than one that has not."""
    cuda = torch.cuda.is_available()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat + 1):
        for call, found in zip(calls, times, strict=True):
            with limit(timeout, rank) if cuda else contextlib.nullcontext():
                dist.barrier()
                if cuda:
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(in_a_row):
                    call()
                if cuda:
                    torch.cuda.synchronize()
                found.append((time.perf_counter() - begin) / in_a_row)
    return [statistics.median(found[1:]) for found in times]  # the first one loads machine code


def save_trace(call: Callable[[], Any], path: Path) -> None:
    """Copies and kernels of one call on a time line, for Perfetto."""
    with torch.profiler.profile() as profile:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    profile.export_chrome_trace(str(path))


def start(rank: int, seconds_to_wait: int) -> Any:
    """Join the other ranks: a message that does not come in time is an error on all. Returns the device of this one."""
    limit = datetime.timedelta(seconds=seconds_to_wait)
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=limit)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    # Messages go before kernels that are ready at the same time: these fill the GPU until they end.
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    dist.init_process_group("nccl", device_id=device, pg_options=options, timeout=limit)
    return device


def measure(method: str, inputs: list[Any], rank: int, ranks: int, arguments: argparse.Namespace) -> tuple[float, ...]:
    """Error in units of the tolerance; seconds of the method and of one GPU, by themselves and for each of some in a
    row: each of the slowest rank."""
    taken = inputs if method == "training" else inputs[:3]
    mine = [take(tensor, rank, ranks) for tensor in taken]

    def call() -> Any:
        return METHODS[method](*mine, rank, ranks)

    def alone() -> Any:
        return train(*taken) if method == "training" else attention(*taken, causal=True)

    result = torch.zeros(5, dtype=torch.float64, device=inputs[0].device)
    with limit(arguments.timeout, rank) if inputs[0].is_cuda else contextlib.nullcontext():
        both = (call(), alone()) if method == "training" else ((call(),), (alone(),))
        result[0] = max(check(out, whole, rank, ranks) for out, whole in zip(*both, strict=True))
    if arguments.repeat:
        counts = (1, IN_A_ROW)
        times = [in_turns((call, alone), count, arguments.repeat, arguments.timeout, rank) for count in counts]
        result[1:] = torch.tensor(times).flatten()
    if arguments.trace and rank == 0:
        save_trace(call, arguments.trace.with_suffix(f".{method}.json"))
    elif arguments.trace:
        call()
    dist.all_reduce(result, dist.ReduceOp.MAX)
    return tuple(result.tolist())


def tell(method: str, ranks: int, figures: tuple[float, ...], arguments: argparse.Namespace) -> None:
    error, *times = figures
    verdict = "right" if error <= 1.0 else "WRONG"
    print(f"{method}: {ranks} ranks, {arguments.seq} rows: error {error:.0%} of the tolerance: {verdict}", flush=True)
    for calls, parallel, one in zip((1, IN_A_ROW), times[::2], times[1::2], strict=True):
        if not parallel:
            return
        efficiency, what = one / (ranks * parallel), "one call" if calls == 1 else f"each of {calls} calls in a row"
        print(f"{what}: one GPU {one * 1e3:.2f} ms, {method} {parallel * 1e3:.2f} ms, efficiency {efficiency:.3f}")
        if arguments.record:
            problem = {name: getattr(arguments, name) for name in ("seq", "heads", "kv_heads", "d_head", "dtype")}
            record.append(
                arguments.record,
                "context_parallel",
                method=method,
                ranks=ranks,
                problem={**problem, "batch": 1, "causal": True},
                calls_in_a_row=calls,
                ms_one_gpu=one * 1e3,
                ms_parallel=parallel * 1e3,
                efficiency=efficiency,
                error_of_tolerance=error,
                rounds=arguments.repeat,
                nccl={name: value for name, value in os.environ.items() if name.startswith("NCCL_")},
            )


def refuse(parser: argparse.ArgumentParser, arguments: argparse.Namespace, ranks: int) -> None:
    """Ends the program where the arguments do not fit each other or the ranks."""
    if arguments.seq % (2 * ranks):
        parser.error(f"--seq {arguments.seq} is no multiple of 2 x {ranks} ranks")
    if arguments.heads % arguments.kv_heads:
        parser.error(f"--heads {arguments.heads} is no multiple of --kv-heads {arguments.kv_heads}")
    if "heads" in arguments.method and arguments.kv_heads % ranks:
        parser.error(f"--method heads: --kv-heads {arguments.kv_heads} is no multiple of {ranks} ranks")
    if "torch" in arguments.method and not torch.cuda.is_available():
        parser.error("--method torch: PyTorch's context_parallel replaces flash attention only on a GPU")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=65536, help="a multiple of 2 x ranks")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--d-head", type=int, default=128)
    parser.add_argument("--dtype", choices=["fp16", "bf16"], default="bf16")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["gather"], help="one after the other")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls; 0: only check")
    parser.add_argument("--timeout", type=int, default=60, help="seconds after which a missing message is an error")
    parser.add_argument("--record", type=record.file, help="append a line of JSON for each method to this file")
    parser.add_argument("--trace", type=Path, help="copies and kernels of rank 0 for Perfetto: TRACE.METHOD.json")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("RANK is not set: start it by torchrun --nproc-per-node GPUS examples/context_parallel.py")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    refuse(parser, arguments, ranks)
    device = start(rank, arguments.timeout)
    if "torch" in arguments.method:
        register()
        torch.nn.attention.activate_flash_attention_impl("flashladder")
    generator = torch.Generator(device).manual_seed(0)  # the same whole sequence on every rank
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float16
    inputs = [
        torch.randn((1, arguments.seq, heads, arguments.d_head), device=device, dtype=dtype, generator=generator)
        for heads in (arguments.heads, arguments.kv_heads, arguments.kv_heads, arguments.heads)  # q, k, v, dout
    ]
    right = True
    for method in arguments.method:
        figures = measure(method, inputs, rank, ranks, arguments)
        right = right and figures[0] <= 1.0
        if rank == 0:
            tell(method, ranks, figures, arguments)
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
