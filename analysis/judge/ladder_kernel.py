"""Kernels of the ladder, and those that a reader writes after the course, as submissions.

    flashladder-judge attention_forward kernels/wgmma/v53_mine.cu --arch sm_90a

Such a file defines flash_forward<KernelConfig> and names its configuration in its header block. It becomes a
submission with a host program (inside/ladder.py) that compiles it in the jail, fills in the parameters of common/abi.h
and launches it for contiguous Q, K, V and O.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import in_checkout, read_text, root
from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import parse_header
from analysis.ladder.instances import instances_text
from analysis.machine_code.loops import MOST_CTAS, parameter_members

FLAGS = ("-ptx", "--use_fast_math")
PROGRAM = "ladder.py"


def is_ladder_kernel(path: Path) -> bool:
    """True if the file defines flash_forward, as the versions do."""
    return "flash_forward(" in read_text(path)


def write_host_program(path: Path, folder: Path, cases: Sequence[Mapping[str, int]]) -> str:
    """Write the host program with the file, its configuration and its launches; return the name of the program.

    `cases` are those of the problem, whose lengths the kernel must be able to process.
    """
    if not in_checkout():
        raise AnalysisError(f"{path}: a kernel of the ladder includes common/: judge it in a checkout, by `./fl judge`")
    header = parse_header(read_text(path), path.name)
    config = header.config
    if config.family.name not in ("ladder", "attention") or config.dtype is not Dtype.FP16:
        raise AnalysisError(f"{path}: its configuration, {config}, is none of attention_forward in fp16")
    lengths = sorted({case["seq"] for case in cases})
    if any(length % config.B_r or length % config.B_c for length in lengths):
        said = ", ".join(map(str, lengths))
        raise AnalysisError(
            f"{path}: B_r {config.B_r} and B_c {config.B_c} must divide the lengths of the problem: {said}"
        )
    shutil.copy(path, folder / path.name)
    (folder / "instances.cuh").write_text(instances_text([config]), encoding="utf-8")
    arch = "90a" if config.tensor_copies or header.arch == "sm_90a" else header.arch.removeprefix("sm_")
    spec: dict[str, Any] = {
        "source": path.name,
        "flags": [*FLAGS, f"-arch=compute_{arch}", f"-I{root()}", f"-I{root() / path.parent}", "-I."],
        "symbol": config.symbol(),
        "threads": config.threads(),
        "smem": config.smem_bytes(),
        "tickets": config.tickets_bytes(MOST_CTAS) if config.tickets else 0,
        "members": parameter_members(config.family.name == "attention"),
        "boxes": list(config.box_rows()) if config.tensor_copies else [],
        "grids": _grids(config),
    }
    (folder / "ladder.json").write_text(json.dumps(spec), encoding="utf-8")
    shutil.copy(Path(__file__).parent / "inside" / PROGRAM, folder / PROGRAM)
    return PROGRAM


def _grids(config: KernelConfig) -> dict[str, list[int]]:
    """The launch for each shape up to 4 sequences of 1,024 rows and 4 heads, by "batch seq heads"."""
    shapes = [(b, s, h) for b in range(1, 5) for s in range(64, 1025, 64) for h in range(1, 5)]
    return {f"{b} {s} {h}": list(config.grid(s, h, b, MOST_CTAS)) for b, s, h in shapes}
