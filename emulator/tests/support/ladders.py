"""The versions of fp8 and of the backward pass whose warps meet at mbarriers, and attention/backward, with problems.

version = ladders()[0]
launch = problems(version.entry("fp16"))[0]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod

from support.emulation import ROOT
from support.fp8 import Fp8, members_behind
from support.general import General
from support.versions import ORDERED, Launch, Version

from analysis.ladder.config import BACKWARD_COUNTERS, Dtype, KernelConfig
from analysis.ladder.headers import GRADIENTS, load_backward, load_fp8, stem_of

LARGE = 100.0  # of a scale: exponentials overflow in every row where they can


@dataclass(frozen=True)
class Rung(Version):
    """Of one of these ladders. flash_backward alone of a pass, whose other kernels have no mbarrier."""

    @property
    def config(self) -> KernelConfig:
        header = self.header.header
        return header.ordered[0] if self.name.endswith(ORDERED) else header.config

    @cache  # noqa: B019
    def entry(self, dtype: str) -> str:
        return self.config.replace(dtype=Dtype[dtype.upper()]).symbol()


@cache
def ladders() -> list[Version]:
    """Those with tensor copies; of attention/backward its configs for d_head 128."""
    headers = load_fp8(ROOT) | load_backward(ROOT)
    names = [name for name, of in headers.items() if of.is_fp8 or of.header.config.tensor_copies]
    return [
        Rung(name, ROOT / f"build/{stem}/{stem}.ptx")
        for name in [*names, GRADIENTS + ORDERED]
        for stem in [stem_of(name.removesuffix(ORDERED))]
    ]


@dataclass(frozen=True)
class Narrow(Fp8):
    """Of one head of a version in kernels/fp8/."""

    many: bool = False  # as of Backward

    def grid(self) -> tuple[int, int, int]:
        return self.config.grid(self.seq, self.heads, self.batch, self.ctas or 1, self.seq_k)

    def tensor_maps(self) -> str:
        """As runtime/tensor_maps.c describes them where the caller has V transposed or rows of K permuted."""
        config, keys = self.config, self.seq_k
        of = super().tensor_maps().removeprefix("struct:[").removesuffix("]").split(",")
        if getattr(config, "K_permuted", False):
            of[1] = f"tmap:128x2x4x2x{keys // 16}/128x512x256x2048:128x2x4x2x{config.B_c // 16}:128B:of:0.1"
        if getattr(config, "V_transposed", False):
            strides = f"{keys}x128x{128 * keys}x{128 * keys}"
            of[2] = f"tmap:{keys}x128x1x1x1/{strides}:{config.B_c}x128x1x1x1:128B:of:0.2"
        return f"struct:[{','.join(of)}]"


@dataclass(frozen=True)
class Backward(General):
    """flash_backward, with any statistics of the rows."""

    many: bool = False  # blocks, so that one arrival too many or too few in each makes a phase of its own

    @property
    def rows(self) -> int:
        """Of queries that a pass keeps something of."""
        rows = -(-self.seq // self.config.B_r) * self.config.B_r
        return self.batch * self.heads * rows

    def grid(self) -> tuple[int, int, int]:
        config = self.config
        heads = self.KV_heads if config.grouped_heads else self.heads
        return config.grid(self.seq, heads, self.batch, self.ctas or 1, self.seq_k)

    def members(self) -> list[tuple[str, str]]:
        return [*super().members(), *members_behind("backward_args", "common/backward.h")]

    def given(self) -> dict[str, str]:
        config, counts = self.config, [prod(self.shape(tensor)) for tensor in range(4)]
        tensors = [f"buf:f16:{count}:rand" for count in counts]
        rounds = config.any_rows and config.in_order
        return dict(zip(("Q", "K", "V", "dO"), tensors, strict=True)) | {
            "LSE": f"buf:f32:{self.rows}:rand",
            "delta": f"buf:f32:{2 * self.rows}:rand",
            "dQ": f"out:f16:{counts[0]}" if rounds else "u64:0",
            "dK": f"out:f16:{counts[1]}",
            "dV": f"out:f16:{counts[2]}",
            "sums": f"buf:f32:{self.rows * config.d_head}",
            "turns": f"buf:i32:{BACKWARD_COUNTERS + self.rows // config.B_r}",
        }

    def tensor_maps(self) -> str:
        """As runtime/tensor_maps.c describes them: O is dO."""
        maps, d, names = [], self.config.d_head, [name for _, name in self.members()]
        for tensor, name in enumerate(("Q", "K", "V", "dO")):
            batch, seq, heads, _ = self.shape(tensor)
            rows = self.config.B_r if tensor in (0, 3) else self.config.B_c
            sizes = f"64x{seq}x{d // 64}x{heads}x{batch}"
            strides = f"{2 * heads * d}x128x{2 * d}x{2 * seq * heads * d}"
            maps.append(f"tmap:{sizes}/{strides}:64x{rows}x{d // 64}x1x1:128B:of:0.{names.index(name)}")
        return f"struct:[{','.join(maps)}]"

    def dumps(self) -> tuple[str, ...]:
        names = [name for _, name in self.members()]
        given = self.given()
        return tuple(f"0.{names.index(name)}" for name in ("dQ", "dK", "dV", "sums") if given[name] != "u64:0")


def problems(symbol: str) -> list[Launch]:
    """Small problems that execute all of a version that can be executed, the cheapest first."""
    config = Launch(symbol).config
    return [*(of_backward(symbol, config) if config.backward_pass else of_fp8(symbol, config))]


def of_fp8(symbol: str, config: KernelConfig) -> list[Narrow]:
    """Blocks that go through the ring twice. Scores so large that there is a second turn, where a version has one. Of a
    CTA that stays, several Q blocks; in the second turn some that see a block at most, behind a longer one."""
    plain = Narrow(symbol, config.B_r, seq_k=4 * config.B_c, lse=True)
    if not config.causal:
        return [plain]
    large = replace(plain, seq_k=2 * config.B_c, scale=LARGE)
    if not config.persistent:
        return [large, plain, replace(plain, scale=LARGE)]
    several = replace(large, seq=5 * config.B_r, seq_k=3 * config.B_c, causal=True)
    return [large, several, replace(plain, seq=8 * config.B_r, seq_k=config.B_c, many=True)]


def of_backward(symbol: str, config: KernelConfig) -> list[Backward]:
    """As many blocks as go through the ring three times. In order several tiles of a CTA, and of CTAs that wait for
    each other."""
    keys = max(config.B_r, config.B_c)
    found = [Backward(symbol, 6 * config.B_r, seq_k=keys), Backward(symbol, 20 * config.B_r, seq_k=keys, many=True)]
    if config.in_order:
        tiles = Backward(symbol, 3 * config.B_r, seq_k=3 * keys, heads=2)
        found[1:1] = [tiles, replace(tiles, causal=True, ctas=2)]
        found.append(Backward(symbol, config.B_r, seq_k=14 * keys, many=True))
    return found
