"""Memory traffic of the versions as recorded in regs/traffic.csv, and what bank conflicts cost a pass of the KV loop.

    lost = conflicts_of(root(), config)  # wavefronts of a warp in a pass beyond the least; None: not recorded

`python3 -m analysis traffic` records it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.config import KernelConfig
from analysis.table import Cell, read_columns

TRAFFIC = ("executed", "wavefronts", "ideal", "sectors")
COLUMNS = ("version", "config", *TRAFFIC)
# Fills the emulator's 16 multiprocessors with CTAs of 256 rows, so that a split tail has nothing to split.
HEADS, SEQ = 8, 512


@dataclass(frozen=True)
class Traffic:
    """Totals over one batch of HEADS heads at SEQ. `ideal` is the wavefronts of the same accesses without conflicts."""

    version: str
    config: str
    executed: int  # PTX instructions, one a warp
    wavefronts: int
    ideal: int
    sectors: int  # of 32 bytes, global memory

    def cells(self) -> list[Cell]:
        return [self.version, self.config, self.executed, self.wavefronts, self.ideal, self.sectors]


def traffic_path(folder: Path) -> Path:
    return folder / "regs/traffic.csv"


def read_traffic(folder: Path) -> dict[str, Traffic]:
    """Version to traffic from the committed file; empty when there is none."""
    path = traffic_path(folder)
    if not path.exists():
        return {}
    found = {}
    for where, row in read_columns(read_text(path), COLUMNS, str(path)):
        for name in TRAFFIC:
            if not re.fullmatch(r"[0-9]+", row[name]):
                raise AnalysisError(f"{where}: {name} = {row[name]!r}: not a number")
        found[row["version"]] = Traffic(row["version"], row["config"], *(int(row[name]) for name in TRAFFIC))
    return found


def conflicts_of(folder: Path, config: KernelConfig | None) -> float | None:
    """Wavefronts that bank conflicts cost a warp in a pass; None where the config's are not recorded.

    The problem's are divided by its passes, those before and after the KV loop with them.
    """
    lost = [each.wavefronts - each.ideal for each in read_traffic(folder).values() if each.config == str(config)]
    if config is None or not lost:
        return None
    passes = HEADS * (SEQ // config.B_r) * config.n_warps * (SEQ // config.B_c)
    return max(lost) / passes
