"""The table of docs/hopper.md: the terms of the versions for sm_90a, the functions that hold them, and who is first.

    print(vocabulary_table(root()).markdown())

A function stands in common/ptx_sm90a.cuh; the link leads to its line.
"""

import re
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import load_all
from analysis.table import Cell, Table

HEADER = "common/ptx_sm90a.cuh"
TERMS = {
    "wgmma": ("wgmma_m64n64k16_f16", "wgmma_m64n64k16_bf16", "wgmma_m64n128k16_f16", "wgmma_m64n128k16_bf16"),
    "wgmma, transposed": tuple(f"wgmma_m64n{n}k16_{dtype}_trans" for n in (64, 128, 256) for dtype in ("f16", "bf16")),
    "group of wgmma": ("wgmma_fence", "wgmma_commit_group", "wgmma_wait_group"),
    "descriptor, swizzle": ("wgmma_descriptor",),
    "proxy fence": ("fence_proxy_async",),
    "tensor map, copy engine": ("copy_tensor_to_smem", "copy_smem_to_tensor"),
    "group of copies": ("bulk_commit_group", "bulk_wait_group_read"),
    "mbarrier that counts bytes": ("fence_mbarrier_init", "mbarrier_arrive_expect_tx", "mbarrier_try_wait_parity"),
    "stmatrix": ("stmatrix_x4",),
    "setmaxnreg": ("setmaxnreg_dec", "setmaxnreg_inc"),
    "named barrier": ("bar_sync", "bar_arrive"),
    "work told in shared memory": ("store_shared", "load_shared", "store_shared_v4", "load_shared_v4"),
    "value that a warp shares": ("warp_uniform",),
}


def functions(text: str) -> dict[str, int]:
    """Every function of the header and the line where it stands; those of wgmma are made by macros."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if made := re.match(r"FL_WGMMA(_TRANS)?\((\d+), \d+, (b?f16),", line):
            found[f"wgmma_m64n{made[2]}k16_{made[3]}{'_trans' if made[1] else ''}"] = number
        elif defined := re.match(r"__device__ __forceinline__ \w+ (\w+)\(", line):
            found.setdefault(defined[1], number)
    return found


def vocabulary_table(folder: Path) -> Table:
    """One row per term: its functions, and the first version that calls one of them."""
    there, versions = functions(read_text(folder / HEADER)), load_all(folder)
    rows: list[list[Cell]] = []
    for term, names in TERMS.items():
        if lacking := set(names) - there.keys():
            raise AnalysisError(f"{HEADER} has no function {min(lacking)}, which the term '{term}' names")
        called = re.compile(rf"\b(?:{'|'.join(names)})\b *[(<]")
        first = next((version for version in versions.values() if called.search(version.source)), None)
        links = [f"[`{name}`](../{HEADER}#L{there[name]})" for name in names]
        link = f"[{first.version}](../kernels/{first.file})" if first else "–"
        rows.append([term, link, ", ".join(links)])
    return Table(("term", "first in", "functions"), rows)
