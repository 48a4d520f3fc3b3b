"""Errors of attention/fp8, FlashAttention-3 and cuDNN against float64, from the same bytes of e4m3, at d_head 128.

    PYTHONPATH=python python3 python/tools/gpu_fp8_errors.py bin/peers/libfa3_serving.so >errors.json

It needs lib/libflashladder.so, PyTorch, cudnn-frontend, a GPU of compute capability 9.0, and what `make
peer-fa3-serving` makes. For each kind of inputs and number of keys an entry has the norm of the error by the norm of
the output, and by how much the output is too large (negative: too small) on the whole.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import cudnn
import torch

import flashladder

KINDS = {  # factor of Q and K, mean of V
    "N(0, 1)": (1.0, 0.0),
    "scores of N(0, 256)": (4.0, 0.0),
    "V of N(1, 1)": (1.0, 1.0),
}
LENGTHS = (512, 4096, 16384)
HEADS, D_HEAD = 4, 128
QUERIES = 256  # of as many queries as keys, which cuDNN's kernels want, these are compared
FACTORS = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
MOST_P = 256.0  # cuDNN's factor of P, to use more of the range of e4m3


def inputs(size: float, mean: float, keys: int) -> list[Any]:
    """Q, K and V of e4m3, [1, keys, heads, d_head]."""
    made = torch.Generator(device="cuda").manual_seed(1)
    normal = [torch.randn((1, keys, HEADS, D_HEAD), generator=made, device="cuda") for _ in range(3)]
    return [tensor.to(torch.float8_e4m3fn) for tensor in (size * normal[0], size * normal[1], normal[2] + mean)]


def exact(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """The first queries in float64; with the mask they see as many keys."""
    q, k, v = (tensor.to(torch.float64).transpose(1, 2) for tensor in (q[:, :QUERIES], k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).tril(), -torch.inf)
    return (torch.softmax(scores, 3) @ v).transpose(1, 2)


def launch_of_cudnn(q: Any, k: Any, v: Any, causal: bool = False) -> tuple[Callable[[], None], Any]:
    """A launch, and O in e4m3, as cuDNN 9.19 refuses 16 bits on Hopper."""
    e4m3, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    batch, keys, heads, d_head = q.shape
    sizes, order = [batch, heads, keys, d_head], (0, 2, 1, 3)
    graph = cudnn.pygraph(io_data_type=e4m3, intermediate_data_type=fp32, compute_data_type=fp32)

    def tensor(name: str, of: Any) -> Any:
        return graph.tensor(name=name, dim=sizes, stride=[of.stride(i) for i in order], data_type=e4m3)

    one = {name: graph.tensor(name=name, dim=[1] * 4, stride=[1] * 4, data_type=fp32) for name in FACTORS}
    q_, k_, v_ = tensor("q", q), tensor("k", k), tensor("v", v)
    o, _, *largest = graph.sdpa_fp8(
        q=q_, k=k_, v=v_, **one, is_inference=True, attn_scale=d_head**-0.5, use_causal_mask=causal
    )
    o.set_output(True).set_dim(sizes).set_stride([q.stride(i) for i in order]).set_data_type(e4m3)
    for value in largest:
        value.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(fp32)
    graph.build([cudnn.heur_mode.A])
    out, number = torch.empty_like(q), torch.ones(1, 1, 1, 1, device="cuda")
    factors = {"scale_s": MOST_P, "descale_s": 1 / MOST_P}
    given = {one[name]: number * factors.get(name, 1.0) for name in FACTORS}
    given |= {q_: q, k_: k, v_: v, o: out} | {value: number.clone() for value in largest}
    workspace = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)
    return lambda: graph.execute(given, workspace), out


def launch_of_fa3(library: ctypes.CDLL, q: Any, k: Any, v: Any) -> tuple[Callable[[], None], Any]:
    """A launch, and O in bf16; without the mask alone."""
    batch, keys, heads, _ = q.shape
    out = torch.empty_like(q, dtype=torch.bfloat16)
    lse = torch.empty((batch, heads, keys), device="cuda")
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (q, k, v, out, lse)]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return lambda: library.fa3_full_e4m3(*pointers, batch, keys, heads, sms, ctypes.c_void_p(0)), out


def library_of_fa3() -> ctypes.CDLL:
    """The one that the command line names."""
    if len(sys.argv) != 2:
        raise SystemExit(f"{sys.argv[0]}: give the library that `peers.mk peer-fa3-serving` makes")
    return ctypes.CDLL(sys.argv[1])


def launched(launch: Callable[[], None], out: Any) -> Any:
    launch()
    torch.cuda.synchronize()
    return out


SUBJECTS: dict[str, Callable[..., Any]] = {
    "attention/fp8": flashladder.attention_e4m3,
    "attention/fp8, accurate": lambda q, k, v: flashladder.attention_e4m3(q, k, v, accurate=True),
    "cuDNN, O in e4m3": lambda q, k, v: launched(*launch_of_cudnn(q, k, v)),
}


def errors(compute: Callable[..., Any], size: float, mean: float, keys: int) -> list[float]:
    q, k, v = inputs(size, mean, keys)
    right = exact(q, k, v)
    got = compute(q, k, v)[:, :QUERIES].to(torch.float64)
    return [float((got - right).norm() / right.norm()), float((got * right).sum() / (right * right).sum() - 1)]


def main() -> None:
    library = library_of_fa3()
    subjects = SUBJECTS | {"FlashAttention-3": lambda q, k, v: launched(*launch_of_fa3(library, q, k, v))}
    found = {
        kind: {
            name: {str(keys): errors(compute, *of_kind, keys) for keys in LENGTHS} for name, compute in subjects.items()
        }
        for kind, of_kind in KINDS.items()
    }
    about = {"gpu": torch.cuda.get_device_name(), "d_head": D_HEAD, "torch": torch.__version__}
    json.dump({**about, "cudnn": cudnn.backend_version(), "errors": found}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
