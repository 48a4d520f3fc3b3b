"""Backward passes of kernels/backward/ on the emulator, and what they should compute in float64.

problem = Problem(seq=128, heads=2)
got = run(module, config, problem)       # dQ, dK and dV; raises what the emulator finds
assert errors(config, problem, got) < 2 * ROUNDOFF[config.dtype]
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import emu
import numpy as np
import numpy.typing as npt

from analysis.ladder.config import BACKWARD_COUNTERS, Dtype, KernelConfig
from analysis.ladder.instances import small_kernels
from harness.tests.caches import AttentionArgs, _struct, rounded, tensor_map, widened

ROOT = Path(__file__).resolve().parents[2]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint16]
MULTIPROCESSORS = 3  # fewer CTAs than KV blocks: some draw several
ROUNDOFF = {Dtype.FP16: 2.0**-11, Dtype.BF16: 2.0**-8}
BackwardArgs = _struct("backward_args", "backward.h", AttentionArgs)
BackwardServingArgs = _struct("backward_serving_args", "backward.h", BackwardArgs)
assert (ctypes.sizeof(BackwardArgs), ctypes.sizeof(BackwardServingArgs)) == (256, 320)


@dataclass(frozen=True)
class Problem:
    """A backward problem: Q, K, V and dO of N(0, 1), rounded to a type."""

    seq: int = 128
    heads: int = 1
    KV_heads: int = 0  # 0: as many as heads
    batch: int = 1
    causal: bool = False
    scale: float = 0.0  # 0: 1 / sqrt(d_head)
    seed: int = 0
    seq_k: int = 0  # 0: as many keys as queries
    longest: int = 0  # with serve: rows that a sequence might have; 0: those that it has

    @property
    def group(self) -> int:
        return self.heads // (self.KV_heads or self.heads)

    @cached_property
    def tensors(self) -> dict[str, Floats]:
        """Of head size 256: columns of it are another one's."""
        rng = np.random.default_rng(self.seed)
        of_Q, of_K = (self.seq, self.heads), (self.keys, self.heads // self.group)
        shapes = {"Q": of_Q, "K": of_K, "V": of_K, "dO": of_Q}
        halves = [
            {name: rng.standard_normal((self.batch, *shape, 128)) for name, shape in shapes.items()} for _ in "12"
        ]
        return {name: np.concatenate([half[name] for half in halves], axis=-1) for name in shapes}

    @property
    def keys(self) -> int:
        return self.seq_k or self.seq

    def inputs(self, config: KernelConfig) -> dict[str, Bits]:
        return {
            name: rounded(np.ascontiguousarray(tensor[..., : config.d_head]), Dtype(config.dtype))
            for name, tensor in self.tensors.items()
        }

    def scale_of(self, config: KernelConfig) -> float:
        return self.scale or config.d_head**-0.5


@dataclass(frozen=True)
class Exact:
    """Forward and backward pass in float64, [batch, heads, seq, d_head] and [batch, heads, seq]."""

    output: Floats
    LSE: Floats
    gradients: tuple[Floats, Floats, Floats]
    of_delta: tuple[float, float, float]  # lengths of what delta changes in each by a roundoff of every element of O


def exact(config: KernelConfig, problem: Problem) -> Exact:
    """softmax(scale Q Kᵀ) V and its gradients for dO, as the formulas are written."""
    Q, K, V, dO = (widened(bits, Dtype(config.dtype)).transpose(0, 2, 1, 3) for bits in problem.inputs(config).values())
    K, V = (np.repeat(each, problem.group, axis=1) for each in (K, V))
    scale = problem.scale_of(config)
    S = scale * Q @ K.transpose(0, 1, 3, 2)
    if problem.causal:
        S = np.where(np.tri(problem.seq, problem.keys, problem.keys - problem.seq, dtype=bool), S, -np.inf)
    most = S.max(axis=-1, keepdims=True)
    seen = np.isfinite(most)  # rows that see a key
    sums = np.exp(S - np.where(seen, most, 0)).sum(axis=-1, keepdims=True)
    LSE = np.where(seen, most + np.log(np.where(seen, sums, 1)), -np.inf)
    P = np.where(seen, np.exp(S - np.where(seen, LSE, 0)), 0)
    output = P @ V
    dS = P * (dO @ V.transpose(0, 1, 3, 2) - (dO * output).sum(axis=-1, keepdims=True))
    dK, dV = scale * dS.transpose(0, 1, 3, 2) @ Q, P.transpose(0, 1, 3, 2) @ dO
    shape = (problem.batch, problem.heads // problem.group, problem.group, problem.keys, config.d_head)
    gradients = scale * dS @ K, dK.reshape(shape).sum(axis=2), dV.reshape(shape).sum(axis=2)
    changed = scale * P * np.linalg.norm(dO * output, axis=-1, keepdims=True)
    of_dK = np.linalg.norm(changed * np.linalg.norm(Q, axis=-1, keepdims=True))
    return Exact(output, LSE[..., 0], gradients, (float(np.linalg.norm(changed @ K)), float(of_dK), 0.0))


def run(
    module: emu.Module, config: KernelConfig, problem: Problem, small: bool = True, **settings: Any
) -> tuple[Bits, Bits, Bits]:
    """dQ, dK and dV, [batch, seq, heads, d_head]; without `small` only flash_backward runs, on exact inputs."""
    inputs, right, d = problem.inputs(config), exact(config, problem), config.d_head
    kept: dict[str, emu.Buffer] = {}

    def on_device(name: str, array: npt.NDArray[Any]) -> int:
        kept[name] = module.buffer(np.ascontiguousarray(array), name)
        return kept[name].address

    serving = BackwardServingArgs()
    args = serving.front
    front = args.front
    kept_rows = kept_rows_of(config, problem)
    rows = (1 if config.serves else problem.batch) * problem.heads * kept_rows
    front.Q, front.K, front.V = (on_device(name, inputs[name]) for name in "QKV")
    front.O = on_device("O", rounded(right.output.transpose(0, 2, 1, 3), Dtype(config.dtype)))
    LSE = right.LSE.transpose(1, 0, 2) if config.serves else right.LSE
    front.LSE = on_device("LSE", LSE.astype(np.float32))
    args.dO = on_device("dO", inputs["dO"])
    nan = {name: np.full_like(inputs[name[1:]], 0x7FFF) for name in ("dQ", "dK", "dV")}
    args.dQ, args.dK, args.dV = (on_device(name, array) for name, array in nan.items())
    args.delta = on_device("delta", np.full(2 * rows, np.nan, np.float32))
    args.sums = on_device("sums", np.full(rows * d, np.nan, np.float32))
    args.turns = on_device("turns", np.full(BACKWARD_COUNTERS + rows // 16, 9 if config.any_rows else 0, np.int32))
    front.seq_q, front.seq_k = problem.longest or problem.seq, problem.longest or problem.keys
    front.heads, front.batch, front.KV_heads = problem.heads, problem.batch, problem.heads // problem.group
    front.softmax_scale, front.causal = problem.scale_of(config), problem.causal
    of_Q, of_K = (problem.seq, problem.heads), (problem.keys, front.KV_heads)
    for name, (seq, heads) in (("Q", of_Q), ("K", of_K), ("V", of_K), ("O", of_Q)):
        strides = type(front.Q_strides)(batch=seq * heads * d, seq=heads * d, head=d)
        setattr(front, f"{name}_strides", strides)
    if config.serves:
        starts = np.arange(problem.batch + 1, dtype=np.int32)
        front.all_Q_rows, front.all_KV_rows = problem.batch * problem.seq, problem.batch * problem.keys
        serving.Q_offsets = on_device("Q_offsets", starts * np.int32(problem.seq))
        serving.KV_offsets = on_device("KV_offsets", starts * np.int32(problem.keys))
    given = bytes(serving if config.serves else args)
    heads = front.KV_heads if config.grouped_heads else problem.heads
    grid = config.grid(problem.seq, heads, problem.batch, MULTIPROCESSORS, problem.keys)
    own = config.symbol()
    before, *behind = small_kernels(config)
    _small(module, before, own, problem, config)(given, **settings)
    maps = [_maps(args, config, problem)] if config.tensor_copies else []
    module[own][grid, config.threads(), config.smem_bytes()](given, *maps, **settings)
    for name in behind:
        _small(module, name, own, problem, config)(given, **settings)
    assert config.any_rows or not kept["turns"].array.any(), "turns are zero after a pass"
    dQ, dK, dV = (kept[name].array.copy() for name in ("dQ", "dK", "dV"))
    return dQ, dK, dV


def kept_rows_of(config: KernelConfig, problem: Problem) -> int:
    """Query rows of a head that a pass keeps something of, with serve of all sequences."""
    if config.serves:
        return (problem.batch * problem.seq // config.B_r + problem.batch) * config.B_r
    return -(-problem.seq // config.B_r) * config.B_r if config.any_rows else problem.seq


def _small(module: emu.Module, name: str, own: str, problem: Problem, config: KernelConfig) -> Any:
    """row_sums or round_dQ with its launch."""
    symbol = own.replace("_Z14flash_backward", f"_Z{len(name)}{name}").removesuffix("11tensor_maps")
    rows = 8 * 128 // config.d_head
    grid = (-(-kept_rows_of(config, problem) // rows), problem.heads, 1 if config.serves else problem.batch)
    return module[symbol][grid, 128]


def _maps(args: Any, config: KernelConfig, problem: Problem) -> bytes:
    """tensor_maps, O of which is dO: whole blocks of queries or of keys."""
    front, d, made = args.front, config.d_head, b""
    of_Q, of_K = (problem.seq, problem.heads, config.B_r), (problem.keys, front.KV_heads, config.B_c)
    for address, (seq, heads, rows) in ((front.Q, of_Q), (front.K, of_K), (front.V, of_K), (args.dO, of_Q)):
        samples = [1, problem.batch * seq] if config.serves else [problem.batch, seq]
        made += tensor_map(address, [*samples, heads], heads * d, d, rows)
    return made


def errors(config: KernelConfig, problem: Problem, got: tuple[Bits, Bits, Bits]) -> float:
    """The largest |x - ref| / |ref| of the three, with the lengths of the vectors; NaN where a NaN is in one.

    Where few keys are seen, dP - delta is a small difference, and the error is that of delta, from an O of 16 bits.
    """
    found, right = [], exact(config, problem)
    for bits, ref, of_delta in zip(got, right.gradients, right.of_delta, strict=True):
        x = widened(bits, Dtype(config.dtype)).transpose(0, 2, 1, 3)
        length = float(np.hypot(np.linalg.norm(ref), of_delta))
        found.append(float(np.linalg.norm(x - ref) / length) if length else float(np.abs(x).max()))
    return float(np.max(found))
