"""Launches of kernels/fp8/ on the emulator with any inputs, and what they should compute in float64.

problem = Problem(seq_q=128, seq_k=256, V_mean=1)
got = run(module, config, problem)       # O as float64; raises what the emulator finds
assert error(got, exact(problem)) < 0.05
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import emu
import numpy as np
import numpy.typing as npt

from analysis.ladder.config import Dtype, KernelConfig
from harness.tests.caches import SWIZZLE_128B, AttentionArgs, _struct, tensor_map, widened
from harness.tests.e4m3 import NAN, VALUES, bytes_of

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Fp8Args = _struct("fp8_args", "fp8.h", AttentionArgs)
assert ctypes.sizeof(Fp8Args) == 256


@dataclass(frozen=True)
class Problem:
    """One head of d_head 128: Q and K of N(0, size²), V of N(V_mean, 1), rounded to e4m3."""

    seq_q: int = 128
    seq_k: int = 256
    size: float = 1.0
    V_mean: float = 0.0
    causal: bool = False
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    seed: int = 0

    @cached_property
    def bytes(self) -> tuple[Bytes, Bytes, Bytes]:
        rng = np.random.default_rng(self.seed)
        Q, K, V = (rng.standard_normal((rows, 128)) for rows in (self.seq_q, self.seq_k, self.seq_k))
        return bytes_of(self.size * Q), bytes_of(self.size * K), bytes_of(V + self.V_mean)

    @cached_property
    def exact(self) -> tuple[Floats, Floats]:
        """O and log-sum-exp of the rounded inputs, as the formula is written."""
        Q, K, V = (VALUES[each] * factor for each, factor in zip(self.bytes, self.descale, strict=True))
        S = Q @ K.T / np.sqrt(128)
        if self.causal:
            S = np.where(np.tri(self.seq_q, self.seq_k, self.seq_k - self.seq_q, dtype=bool), S, -np.inf)
        most = S.max(axis=1, keepdims=True)
        P = np.exp(S - most)
        total = P.sum(axis=1, keepdims=True)
        return P @ V / total, (most + np.log(total))[:, 0]


def run(module: emu.Module, config: KernelConfig, problem: Problem, **settings: Any) -> tuple[Floats, Floats]:
    """O and log-sum-exp; behind Q, K and V lie bytes of NaN."""
    kept: list[emu.Buffer] = []

    def on_device(name: str, array: npt.NDArray[Any]) -> int:
        kept.append(module.buffer(np.ascontiguousarray(array), name))
        return int(kept[-1].address)

    Q, K, V = problem.bytes
    args = Fp8Args()
    front = args.front
    front.Q, front.K = on_device("Q", _with_NaN(Q)), on_device("K", _with_NaN(K))
    front.V = on_device("V", _with_NaN(V.T if config.V_transposed else V))
    front.O = on_device("O", np.full((problem.seq_q, 128), 0xFFFF, np.uint16))
    front.LSE = on_device("LSE", np.full(problem.seq_q, np.nan, np.float32))
    front.seq_q, front.seq_k, front.causal = problem.seq_q, problem.seq_k, problem.causal
    front.heads = front.batch = front.KV_heads = 1
    front.softmax_scale = 128**-0.5
    if config.tickets:
        front.tickets = on_device("tickets", np.zeros(2, np.int32))
    args.Q_descale, args.K_descale, args.V_descale = problem.descale
    for name, rows in (("Q", problem.seq_q), ("K", problem.seq_k), ("V", problem.seq_k), ("O", problem.seq_q)):
        setattr(front, f"{name}_strides", type(front.Q_strides)(batch=rows * 128, seq=128, head=128))
    grid = config.grid(problem.seq_q, 1, 1, 1, problem.seq_k)
    maps = _maps(front, config, problem)
    module[config.symbol()][grid, config.threads(), config.smem_bytes()](bytes(args), maps, **settings)
    return widened(kept[3].array.copy(), Dtype(config.dtype)), kept[4].array.astype(np.float64)


def _with_NaN(rows: Bytes) -> Bytes:
    return np.concatenate([rows, np.full((128, rows.shape[1]), NAN, np.uint8)])


def _maps(front: Any, config: KernelConfig, problem: Problem) -> bytes:
    """tensor_maps, as runtime/tensor_maps.c makes them for one head."""
    queries, keys = problem.seq_q, problem.seq_k
    K = byte_map(front.K, (128, keys, 1, 1, 1), (128, 128, 128, 128 * keys), (128, config.B_c, 1, 1, 1))
    V = byte_map(front.V, (128, keys, 1, 1, 1), (128, 128, 128, 128 * keys), (128, config.B_c, 1, 1, 1))
    if config.K_permuted:
        K = byte_map(front.K, (128, 2, 4, 2, keys // 16), (128, 512, 256, 2048), (128, 2, 4, 2, config.B_c // 16))
    if config.V_transposed:
        V = byte_map(front.V, (keys, 128, 1, 1, 1), (keys, 128, 128 * keys, 128 * keys), (config.B_c, 128, 1, 1, 1))
    Q = byte_map(front.Q, (128, queries, 1, 1, 1), (128, 128, 128, 128 * queries), (128, 64, 1, 1, 1))
    return Q + K + V + tensor_map(front.O, [1, queries, 1], 128, 128, 16)


def byte_map(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    """A 5-D map of bytes, whose rows of 128 are swizzled."""
    info = emu._library.structs["emu_tensor_info"](address=address, rank=5, element_bytes=1, swizzle=SWIZZLE_128B)
    info.sizes[:], info.strides[:], info.box[:] = sizes, strides, box
    text, message = ctypes.create_string_buffer(128), emu._library.error()
    make = emu._library.c.emu_make_tensor_map
    make.restype = ctypes.c_bool
    assert make(ctypes.byref(info), text, ctypes.byref(message)), message.text
    return text.raw


def error(got: Floats, right: Floats) -> float:
    """|x - ref| / |ref| with the lengths of the vectors; NaN where a NaN is in it."""
    return float(np.linalg.norm(got - right) / np.linalg.norm(right))


def gain(got: Floats, right: Floats) -> float:
    """By how much the output is larger on the whole: -0.05 where it is 5 % too small."""
    return float((got * right).sum() / (right * right).sum() - 1)
