"""Problems of attention/fp8, whose Q, K and V are e4m3: as those of general.py, with bytes and factors. run() alone.

launch = Fp8(symbol, seq=35, seq_k=135, heads=4, KV_heads=2, causal=True, lse=True)
done = launch.run(ptx)
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
from support.general import General

FOLDER = tempfile.TemporaryDirectory()  # of inputs; it goes with the process
FACTORS = "f32:1,f32:1,f32:1,i32:0,u64:0,u64:0,u64:0," + ",".join(["i32:0"] * 6)  # of fp8_args behind attention_args


@cache
def inputs(tensor: int, count: int) -> Path:
    """Bytes of e4m3 between 1/8 and 2, of either sign: random ones would hold NaN."""
    rng = np.random.default_rng(tensor)
    path = Path(FOLDER.name) / f"{tensor}-{count}.bin"
    path.write_bytes((rng.integers(0x20, 0x40, count) | rng.choice([0, 0x80], count)).astype(np.uint8).tobytes())
    return path


@dataclass(frozen=True)
class Fp8(General):
    def arguments(self) -> str:
        text = super().arguments()
        kind = "f16" if "L5dtype5E" in self.symbol else "bf16"
        for tensor in range(3):
            count = prod(self.shape(tensor))
            given = f"buf:u8:{count}:@{inputs(tensor, count)}"
            text = text.replace(f"buf:{kind}:{count}:{self.inputs}", given, 1)
        return f"{text.removesuffix(']')},{FACTORS}]"

    def tensor_maps(self) -> str:
        """As runtime/tensor_maps.c describes them: rows of bytes, swizzled over their whole length."""
        maps = []
        for tensor, rows in enumerate(self.config.box_rows()[:3]):
            batch, seq, heads, d_head = self.shape(tensor)
            sizes = f"{d_head}x{seq}x1x{heads}x{batch}"
            strides = f"{heads * d_head}x128x{d_head}x{seq * heads * d_head}"
            maps.append(f"tmap:{sizes}/{strides}:{d_head}x{rows}x1x1x1:{d_head}B:of:0.{tensor}")
        of_O = "tmap:" + super().tensor_maps().removesuffix("]").rpartition("tmap:")[2]
        return f"struct:[{','.join([*maps, of_O])}]"
