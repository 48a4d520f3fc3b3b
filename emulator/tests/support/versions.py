"""The landed versions as PTX, and how one is launched on the emulator.

version = versions()[0]
launch = Launch(version.entry("fp16"), seq=256)
done = launch.run(version.ptx, "--counters-csv", path)
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ROOT, Array, ptxrun

sys.path.insert(0, str(ROOT))
from analysis.emulate.online_softmax import output_bound
from analysis.ladder.config import Dtype, KernelConfig, parse_symbol
from analysis.ladder.headers import Version as Header
from analysis.ladder.headers import load_all, load_attention, load_beside
from analysis.machine_code.loops import argument_fields, tensor_maps_argument

D_HEAD = 128
DTYPES = {"fp16": 5, "bf16": 15}
# Behind the name of attention/fp8: its configs whose sums are accurate, and those that take serving_args. Behind that
# of attention/backward: those that add in order.
ACCURATE, SERVING, ORDERED = " accurate", " serving", " ordered"


@dataclass(frozen=True)
class Version:
    name: str  # "v07", or "attention/wgmma"
    ptx: Path

    def text(self) -> str:
        assert self.ptx.exists(), f"{self.ptx.relative_to(ROOT)} is missing: run `make {self.ptx.stem}`"
        return self.ptx.read_text()

    @property
    def header(self) -> Header:
        return headers()[self.name.partition(" ")[0]]

    @property
    def for_sm_90a(self) -> bool:
        """Whether sm_90a alone runs it."""
        return self.header.one_arch

    @property
    def config(self) -> KernelConfig:
        """Its own one, in fp16, from the header block: a checkout that has built one version can ask for all."""
        return self.header.header.config.replace(dtype=Dtype.FP16)

    @functools.cache  # noqa: B019
    def entry(self, dtype: str) -> str:
        """The symbol of the version's own configuration in an element type."""
        names = [name for name in re.findall(r"\.entry (\w+)\(", self.text()) if f"L5dtype{DTYPES[dtype]}E" in name]
        header, of = self.header.header, Dtype[dtype.upper()]
        smaller, serving, accurate = (
            {config.replace(dtype=of) for config in configs}
            for configs in (header.smaller, header.serving, header.accurate)
        )
        words = (SERVING in self.name, ACCURATE in self.name)
        found = []
        for name in names:
            config = parse_symbol(name)
            sums = config in accurate or bool(config in serving and getattr(config, "flush_blocks", 0))
            if config.d_head == D_HEAD and config not in smaller and (config in serving, sums) == words:
                found.append(name)
        assert len(found) == 1, f"{self.ptx}: {len(found)} entries for {dtype}"
        return str(found[0])

    def entry_text(self, dtype: str) -> str:
        """The PTX with only that entry, on the same lines: the others are blanked."""
        keep, lines, inside = self.entry(dtype), self.text().split("\n"), False
        for i, line in enumerate(lines):
            if ".entry " in line:
                inside = keep not in line
            if inside:
                lines[i] = ""
            inside = inside and line != "}"
        return "\n".join(lines)


def drawn(symbol: str) -> list[Launch]:
    """Of a kernel that draws Q blocks and decides itself what is cut into slices (groups_of() in slices.cuh).

    One CTA has a slice of each head, and then more Q blocks than places, so that it uses the first place again. One has
    partly filled Q blocks, with warps that have no rows, ahead of others. One has fewer keys than are copied ahead. And
    there is a CTA for each slice, of which some have no rows.
    """
    config = Launch(symbol).config
    if not (config.tickets and config.split_tail):
        return []
    warp_rows = config.B_r // config.n_warps
    seq = next(
        seq
        for seq in range(2 * config.B_r + warp_rows, 1 << 16, config.B_r)
        for KV_blocks in [-(-seq // config.B_c)]
        if 4 * (KV_blocks + config.n_warps) < config.n_warps * KV_blocks
    )
    partly = config.B_r + 2 * warp_rows
    return [
        Launch(symbol, seq, heads=3, ctas=1),
        Launch(symbol, partly, heads=2, ctas=1),
        Launch(symbol, 2 * warp_rows, heads=6, ctas=1),
        Launch(symbol, partly, ctas=2 * config.n_warps),
    ]


def versions() -> list[Version]:
    names = list(load_all(ROOT))
    assert names, "kernels/ has no version"
    return [Version(name, ROOT / f"build/{name}/{name}.ptx") for name in names]


def kernels() -> list[Version]:
    """The versions, and the kernels of kernels/attention/ but that of e4m3, whose results test_attention_fp8.py has."""
    living = {name: of for name, of in load_attention(ROOT).items() if not of.header.config.e4m3_inputs}
    return [*versions(), *(Version(name, ROOT / f"build/{of.stem}/{of.stem}.ptx") for name, of in living.items())]


def with_fp8() -> list[Version]:
    """These, and attention/fp8 with fast sums and with accurate ones. Its inputs: fp8.py."""
    return [*kernels(), *of_fp8()[:2]]


def of_fp8() -> list[Version]:
    """attention/fp8 with configs for d_head 128; the one that serves with accurate sums has no code of its own."""
    ptx = ROOT / "build/attention.fp8/attention.fp8.ptx"
    return [Version(f"attention/fp8{which}", ptx) for which in ("", ACCURATE, SERVING)]


@functools.cache
def headers() -> dict[str, Header]:
    """Of the versions of all ladders and of the kernels of kernels/attention/, by name."""
    return load_all(ROOT) | load_beside(ROOT)


@functools.cache
def hopper_versions() -> list[str]:
    """Names of the versions that sm_90a alone runs, in order."""
    return [name for name, version in load_all(ROOT).items() if version.one_arch]


def first_in_check(found: list[Version], and_last: bool = False) -> list[object]:
    """Parameters of a test: the first version, and on demand the last one, in every check; the others in check-long."""
    always = {found[0].name, found[-1].name if and_last else ""}
    others = (pytest.mark.long, pytest.mark.each_version)
    marks = {version.name: () if version.name in always else others for version in found}
    return [pytest.param(version, id=version.name, marks=marks[version.name]) for version in found]


@dataclass(frozen=True)
class Launch:
    """One problem of an entry. The launch shape follows from the configuration in the symbol (common/config.h)."""

    symbol: str
    seq: int = 256
    heads: int = 1
    batch: int = 1
    inputs: str = "rand"
    row_heads: int = 0  # of the tensors in memory, where `heads` are only the first of them
    ctas: int = 0  # of a kernel with tickets; 0: two or three of a persistent one

    @property
    def config(self) -> KernelConfig:
        return parse_symbol(self.symbol)

    def grid(self) -> tuple[int, int, int]:
        """As config_launch_shape() has it; of a split tail, with one Q block in slices, or for two persistent CTAs."""
        blocks = self.seq // self.config.B_r
        if self.ctas:
            return (self.ctas, 1, 1)
        if self.config.persistent:  # two CTAs and the block that is left of an odd number, or three
            total = blocks * self.heads * self.batch
            ctas = 2 if total % 2 else 3
            if self.config.tickets or not self.config.split_tail:
                return (min(ctas, total), 1, 1)
            return (ctas, 1 - total % ctas * self.config.n_warps // -ctas, 1)
        if self.config.split_tail:
            return (blocks * self.heads * self.batch + self.config.n_warps - 1, 1, 1)
        return (blocks, self.heads, self.batch)

    def options(self) -> list[str]:
        config = self.config
        kind = "f16" if config.dtype == DTYPES["fp16"] else "bf16"
        row = (self.row_heads or self.heads) * config.d_head
        count = self.batch * self.seq * row
        output = f"buf:{kind}:{count}:poison" if self.row_heads else f"out:{kind}:{count}"
        tensors = [f"buf:{kind}:{count}:{self.inputs}"] * 3
        strides = (self.seq * row, row, config.d_head)
        arguments = argument_fields(config, [*tensors, output], self.seq, self.heads, self.batch, strides)
        parameters = [arguments, *([self.tensor_maps()] if config.tensor_copies else [])]
        shape = ["--grid", ",".join(map(str, self.grid())), "--block", config.threads(), "--smem", config.smem_bytes()]
        return ["--entry", self.symbol, *map(str, shape), *(word for one in parameters for word in ("--arg", one))]

    def tensor_maps(self) -> str:
        return tensor_maps_argument(self.config, self.seq, self.heads, self.batch, self.row_heads)

    def dumps(self) -> tuple[str, ...]:
        """The members of the first parameter that the kernel writes, as ptxrun numbers them."""
        return ("0.3",)

    def run(self, ptx: Path, *options: object) -> subprocess.CompletedProcess[str]:
        return ptxrun(ptx, *self.options(), *options)

    def worst(self, ptx: Path, folder: Path, *options: object) -> tuple[float, str]:
        """Largest error over bound against float64 (the bound of the harness: design of its check), and findings."""
        dumps = [word for i in range(4) for word in ("--dump", f"0.{i}={folder / f'{i}.bin'}")]
        done = self.run(ptx, *dumps, *options)
        if done.returncode != 0:
            return float("inf"), f"status {done.returncode}\n{done.stderr}"
        dtype = int(self.config.dtype)
        shape = (self.batch, self.seq, self.row_heads or self.heads, self.config.d_head)
        tensors = (widen(np.fromfile(folder / f"{i}.bin", np.uint16), dtype).reshape(shape) for i in range(4))
        q, k, v, o = (tensor[:, :, : self.heads].swapaxes(1, 2) for tensor in tensors)  # [batch, head, row, column]
        scores = q @ k.swapaxes(2, 3) / np.sqrt(self.config.d_head)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        want = p @ v
        name = "fp16" if dtype == DTYPES["fp16"] else "bf16"
        ratio = np.abs(o - want) / output_bound(want, p @ np.abs(v), name)
        return float(np.where(np.isnan(ratio), np.inf, ratio).max()), done.stderr


def widen(bits: Array, dtype: int) -> Array:
    """float64 from fp16 or bf16 bits."""
    if dtype == DTYPES["fp16"]:
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
