from __future__ import annotations

import subprocess

import pytest
from made_up_gpu import ROOT


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a libcuda.so.1 that needs no GPU."""
    folder = tmp_path_factory.mktemp("driver")
    command = ["cc", "-shared", "-fPIC", "-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
    command += ["-o", str(folder / "libcuda.so.1"), str(ROOT / "harness/tests/fake_cuda.c"), "-lm", "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return str(folder)
