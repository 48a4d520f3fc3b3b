"""A version compiled to PTX with other configurations than those it is built with."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.emulation import ROOT

from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import Version
from analysis.ladder.instances import instances_text
from analysis.machine_code.toolkit import find_tool


def compiled(version: Version, configs: list[KernelConfig], folder: Path) -> tuple[Path, str]:
    """PTX with an entry for each configuration, and what nvcc says."""
    path = folder / f"{version.version}.ptx"
    (folder / "instances.cuh").write_text(instances_text(configs))
    arch = version.header.arch.replace("sm", "compute")
    flags = ["-std=c++20", "-O3", "--use_fast_math", "-ptx", f"-I{ROOT}", f"-I{folder}", f"-arch={arch}"]
    command = [str(find_tool("nvcc")), *flags, "-o", str(path), str(version.path)]
    return path, subprocess.run(command, capture_output=True, text=True, check=False).stderr
