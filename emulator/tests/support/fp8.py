"""Problems of attention/fp8, whose Q, K and V are e4m3: as those of general.py, with bytes and factors. run() alone.

launch = Fp8(symbol, seq=35, seq_k=135, heads=4, KV_heads=2, causal=True, lse=True)
done = launch.run(ptx)
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np
from support.emulation import ROOT
from support.general import General
from support.versions import Launch

from analysis.ladder.c_source import struct_members

MANY_HEADS = 60  # on one CTA: 15 turns of each of 4 places, at whose empty mbarriers 15 warps arrive
FOLDER = tempfile.TemporaryDirectory()  # of inputs; it goes with the process


@cache
def bytes_of_e4m3(tensor: int, count: int) -> Path:
    """Between 1/8 and 2, of either sign: random bytes would hold NaN."""
    rng = np.random.default_rng(tensor)
    path = Path(FOLDER.name) / f"{tensor}-{count}.bin"
    path.write_bytes((rng.integers(0x20, 0x40, count) | rng.choice([0, 0x80], count)).astype(np.uint8).tobytes())
    return path


@cache
def offsets(lengths: tuple[int, ...]) -> str:
    """A buffer with where each sequence begins, and the end of the last."""
    path = Path(FOLDER.name) / f"offsets-{'-'.join(map(str, lengths))}.bin"
    path.write_bytes(np.array([0, *accumulate(lengths)], np.int32).tobytes())
    return f"buf:i32:{len(lengths) + 1}:@{path}"


@cache
def members_behind(name: str, header: str) -> list[tuple[str, str]]:
    """Of a struct that begins as attention_args: what follows."""
    source = re.sub(r"^#.*$", "", (ROOT / header).read_text(), flags=re.MULTILINE)
    return struct_members(source, name, header)[1:]


@dataclass(frozen=True)
class Fp8(General):
    """With `queries` and `keys`, of each sequence, these lie one behind the other; for a kernel that serves."""

    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    O_e4m3: bool = False

    def shape(self, tensor: int) -> tuple[int, int, int, int]:
        batch, rows, heads, d_head = super().shape(tensor)
        packed = self.queries if tensor in (0, 3) else self.keys
        return (1, sum(packed), heads, d_head) if packed else (batch, rows, heads, d_head)

    def members(self) -> list[tuple[str, str]]:
        serving = ("serving_args", "common/serving.h")
        behind = members_behind(*serving) if self.config.serves else members_behind("fp8_args", "common/fp8.h")
        return [*super().members(), *behind]

    def given(self) -> dict[str, str]:
        given = super().given()
        for t, tensor in enumerate("QKV"):
            count = prod(self.shape(t))
            given[tensor] = f"buf:u8:{count}:@{bytes_of_e4m3(t, count)}"
        if self.O_e4m3:
            given["O"] = f"out:u8:{prod(self.shape(3))}"
        if self.queries:
            given |= {"Q_offsets": offsets(self.queries), "KV_offsets": offsets(self.keys)}
        return given

    def values(self) -> dict[str, float]:
        values = super().values()
        if not self.config.serves:
            return values | dict.fromkeys(("Q_descale", "K_descale", "V_descale"), 1)
        if self.queries:
            values |= {"Q_rows": sum(self.queries), "KV_rows": sum(self.keys)}
        return values | {"window_left": -1, "window_right": -1, "O_e4m3": int(self.O_e4m3)}

    def tensor_maps(self) -> str:
        """As runtime/tensor_maps.c describes them: rows of bytes, swizzled over their whole length."""
        maps = []
        for tensor, rows in enumerate(self.config.box_rows()[:3]):
            batch, seq, heads, d_head = self.shape(tensor)
            sizes = f"{d_head}x{seq}x1x{heads}x{batch}"
            strides = f"{heads * d_head}x128x{d_head}x{seq * heads * d_head}"
            maps.append(f"tmap:{sizes}/{strides}:{d_head}x{rows}x1x1x1:{d_head}B:of:0.{tensor}")
        of_O = "tmap:" + super().tensor_maps().removesuffix("]").rpartition("tmap:")[2]
        if self.O_e4m3:  # the kernel has no use for it
            of_O = of_O.replace("of:0.3", f"buf:f16:{prod(self.shape(3))}")
        return f"struct:[{','.join([*maps, of_O])}]"


def problems(symbol: str) -> list[Fp8]:
    """Small problems that execute all of a kernel that can be executed, the cheapest first.

    A few rows leave most warps without any. One block of keys and a part of one; more Q blocks of one block than a CTA
    has places; several Q blocks whose last block overflows. With the mask, Q blocks of which the first warpgroup skips
    a block, behind others and as the first of the CTA. O that is added up in shared memory, ahead of the last block and
    of another one, while the copy of the O before may be at work. At the end so many Q blocks that one arrival too many
    in each makes a phase of its own.
    """
    config = Launch(symbol).config
    few, block = 19, config.B_c
    plain = Fp8(symbol, few, KV_heads=1, lse=True)
    masked = replace(plain, seq=config.B_r + few, seq_k=config.B_r + few, heads=2, causal=True)
    found = [
        replace(plain, seq_k=block + 5),
        replace(plain, seq_k=5, heads=10),
        replace(plain, seq_k=2 * block, heads=5, scale=100.0),
        masked,
        replace(masked, seq=config.B_r - 5, seq_k=config.B_r - 5, heads=4),
    ]
    if config.flush_blocks:
        blocks = config.flush_blocks
        found += [replace(plain, seq_k=(blocks + n) * block, heads=4 - n) for n in (1, 2)]
    if config.serves:
        queries, keys = (few, 16, 0, 1), (block + 5, 5, 7, 0)
        several = replace(plain, seq_k=max(keys), batch=len(keys), queries=queries, keys=keys)
        found += [several, replace(several, O_e4m3=True)]
    return [*found, replace(plain, seq_k=5, heads=MANY_HEADS, lse=False)]
