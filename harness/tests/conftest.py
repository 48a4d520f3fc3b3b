import subprocess

import pytest
from made_up_gpu import ROOT


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a libcuda.so.1 and a libnvidia-ml.so.1 that need no GPU."""
    folder = tmp_path_factory.mktemp("driver")
    command = ["cc", "-shared", "-fPIC", "-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
    for library, source in (("libcuda.so.1", "faulty_cuda.c"), ("libnvidia-ml.so.1", "fake_nvml.c")):
        files = ["-o", str(folder / library), str(ROOT / "harness/tests" / source)]
        subprocess.run([*command, *files, "-lm", "-ldl"], check=True, timeout=600)
    return str(folder)
