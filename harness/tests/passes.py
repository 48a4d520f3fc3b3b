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

from analysis.ladder.config import BackwardConfig, Dtype
from harness.tests.caches import AttentionArgs, _struct, rounded, tensor_map, widened

ROOT = Path(__file__).resolve().parents[2]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint16]
ROUNDOFF = {Dtype.FP16: 2.0**-11, Dtype.BF16: 2.0**-8}
BackwardArgs = _struct("backward_args", "backward.h", AttentionArgs)
assert ctypes.sizeof(BackwardArgs) == 256


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

    @property
    def group(self) -> int:
        return self.heads // (self.KV_heads or self.heads)

    @cached_property
    def tensors(self) -> dict[str, Floats]:
        """Of head size 128: columns of it are another one's."""
        rng = np.random.default_rng(self.seed)
        heads = {"Q": self.heads, "dO": self.heads, "K": self.heads // self.group, "V": self.heads // self.group}
        return {name: rng.standard_normal((self.batch, self.seq, heads[name], 128)) for name in ("Q", "K", "V", "dO")}

    def inputs(self, config: BackwardConfig) -> dict[str, Bits]:
        return {
            name: rounded(np.ascontiguousarray(tensor[..., : config.d_head]), Dtype(config.dtype))
            for name, tensor in self.tensors.items()
        }

    def scale_of(self, config: BackwardConfig) -> float:
        return self.scale or config.d_head**-0.5


@dataclass(frozen=True)
class Exact:
    """Forward and backward pass in float64, [batch, heads, seq, d_head] and [batch, heads, seq]."""

    output: Floats
    LSE: Floats
    gradients: tuple[Floats, Floats, Floats]


def exact(config: BackwardConfig, problem: Problem) -> Exact:
    """softmax(scale Q Kᵀ) V and its gradients for dO, as the formulas are written."""
    Q, K, V, dO = (widened(bits, Dtype(config.dtype)).transpose(0, 2, 1, 3) for bits in problem.inputs(config).values())
    K, V = (np.repeat(each, problem.group, axis=1) for each in (K, V))
    scale = problem.scale_of(config)
    S = scale * Q @ K.transpose(0, 1, 3, 2)
    if problem.causal:
        S = np.where(np.tri(problem.seq, dtype=bool), S, -np.inf)
    most = S.max(axis=-1, keepdims=True)
    LSE = most + np.log(np.exp(S - most).sum(axis=-1, keepdims=True))
    P = np.exp(S - LSE)
    output = P @ V
    dS = P * (dO @ V.transpose(0, 1, 3, 2) - (dO * output).sum(axis=-1, keepdims=True))
    dK, dV = scale * dS.transpose(0, 1, 3, 2) @ Q, P.transpose(0, 1, 3, 2) @ dO
    shape = (problem.batch, problem.heads // problem.group, problem.group, problem.seq, config.d_head)
    return Exact(output, LSE[..., 0], (scale * dS @ K, dK.reshape(shape).sum(axis=2), dV.reshape(shape).sum(axis=2)))


def run(
    module: emu.Module, config: BackwardConfig, problem: Problem, small: bool = True, **settings: Any
) -> tuple[Bits, Bits, Bits]:
    """dQ, dK and dV, [batch, seq, heads, d_head]; without `small` only flash_backward runs, on exact inputs."""
    inputs, right, d = problem.inputs(config), exact(config, problem), config.d_head
    kept: dict[str, emu.Buffer] = {}

    def on_device(name: str, array: npt.NDArray[Any]) -> int:
        kept[name] = module.buffer(np.ascontiguousarray(array), name)
        return kept[name].address

    args = BackwardArgs()
    front = args.front
    rows = problem.batch * problem.heads * problem.seq
    front.Q, front.K, front.V = (on_device(name, inputs[name]) for name in "QKV")
    front.O = on_device("O", rounded(right.output.transpose(0, 2, 1, 3), Dtype(config.dtype)))
    front.LSE = on_device("LSE", right.LSE.astype(np.float32))
    args.dO = on_device("dO", inputs["dO"])
    nan = {name: np.full_like(inputs[name[1:]], 0x7FFF) for name in ("dQ", "dK", "dV")}
    args.dQ, args.dK, args.dV = (on_device(name, array) for name, array in nan.items())
    args.delta = on_device("delta", np.full(rows, np.nan, np.float32))
    args.sums = on_device("sums", np.full(rows * d, np.nan, np.float32))
    args.turns = on_device("turns", np.zeros(rows // 16 + 1, np.int32))
    front.seq_q = front.seq_k = problem.seq
    front.heads, front.batch, front.KV_heads = problem.heads, problem.batch, problem.heads // problem.group
    front.softmax_scale, front.causal = problem.scale_of(config), problem.causal
    for name, heads in (("Q", problem.heads), ("K", front.KV_heads), ("V", front.KV_heads), ("O", problem.heads)):
        strides = type(front.Q_strides)(batch=problem.seq * heads * d, seq=heads * d, head=d)
        setattr(front, f"{name}_strides", strides)
    heads = front.KV_heads if config.grouped_heads else problem.heads
    grid = config.grid(problem.seq, heads, problem.batch, 0)
    own = config.symbol()
    before, *behind = config.small_kernels()
    _small(module, before, own, problem, config)(bytes(args), **settings)
    maps = [_maps(args, config, problem)] if config.tensor_copies else []
    module[own][grid, config.threads(), config.smem_bytes()](bytes(args), *maps, **settings)
    for name in behind:
        _small(module, name, own, problem, config)(bytes(args), **settings)
    assert not kept["turns"].array.any(), "turns are zero after a pass"
    dQ, dK, dV = (kept[name].array.copy() for name in ("dQ", "dK", "dV"))
    return dQ, dK, dV


def _small(module: emu.Module, name: str, own: str, problem: Problem, config: BackwardConfig) -> Any:
    """row_sums or round_dQ with its launch."""
    symbol = own.replace("_Z14flash_backward", f"_Z{len(name)}{name}").removesuffix("11tensor_maps")
    rows = 8 * 128 // config.d_head
    return module[symbol][(-(-problem.seq // rows), problem.heads, problem.batch), 128]


def _maps(args: Any, config: BackwardConfig, problem: Problem) -> bytes:
    """tensor_maps, O of which is dO: whole blocks of queries or of keys."""
    front, d, made = args.front, config.d_head, b""
    for address, heads, rows in (
        (front.Q, problem.heads, config.B_r),
        (front.K, front.KV_heads, config.B_c),
        (front.V, front.KV_heads, config.B_c),
        (args.dO, problem.heads, config.B_r),
    ):
        made += tensor_map(address, [problem.batch, problem.seq, heads], heads * d, d, rows)
    return made


def errors(config: BackwardConfig, problem: Problem, got: tuple[Bits, Bits, Bits]) -> float:
    """The largest |x - ref| / |ref| of the three, with the lengths of the vectors; NaN where a NaN is in one."""
    found = []
    for bits, right in zip(got, exact(config, problem).gradients, strict=True):
        x = widened(bits, Dtype(config.dtype)).transpose(0, 2, 1, 3)
        found.append(float(np.linalg.norm(x - right) / np.linalg.norm(right)))
    return float(np.max(found))
