"""Kernels of the ladder and of kernels/attention/ as PTX, and how ptxrun launches one.

launch = Launch("v16", seq=512)
done = launch.run("--orders")
"""

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.emulation import ROOT, ptxrun

sys.path.insert(0, str(ROOT))
from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import Version, load_all, load_attention
from analysis.machine_code.loops import argument_fields, tensor_maps_argument


@cache
def headers() -> dict[str, Version]:
    return load_all(ROOT) | load_attention(ROOT)


@dataclass(frozen=True)
class Launch:
    """A square problem in fp16, packed as [seq, heads, d_head]. `ctas`: of a persistent kernel."""

    name: str  # "v07" or "attention/wgmma"
    seq: int = 256
    heads: int = 1
    ctas: int = 2

    @property
    def ptx(self) -> Path:
        stem = headers()[self.name].stem
        path = ROOT / f"build/{stem}/{stem}.ptx"
        assert path.exists(), f"{path.relative_to(ROOT)} is missing: run `make {stem}`"
        return path

    @property
    def config(self) -> KernelConfig:
        return headers()[self.name].header.config.replace(dtype=Dtype.FP16)

    def options(self) -> list[object]:
        config, row = self.config, self.heads * self.config.d_head
        count = self.seq * row
        tensors = [f"buf:f16:{count}:rand"] * 3 + [f"out:f16:{count}"]
        strides = (self.seq * row, row, config.d_head)
        parameters = [argument_fields(config, tensors, self.seq, self.heads, 1, strides)]
        if config.tensor_copies:
            parameters.append(tensor_maps_argument(config, self.seq, self.heads))
        grid = config.grid(self.seq, self.heads, 1, self.ctas)
        shape = ["--grid", ",".join(map(str, grid)), "--block", config.threads(), "--smem", config.smem_bytes()]
        return ["--entry", config.symbol(), *shape, *(word for each in parameters for word in ("--arg", each))]

    def run(self, *options: object, ptx: Path | None = None) -> subprocess.CompletedProcess[str]:
        return ptxrun(ptx or self.ptx, *self.options(), *options)
