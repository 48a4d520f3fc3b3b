# mypy: ignore-errors
"""Gluon's tutorials and examples for Blackwell, from a checkout of Triton: small cases of their own tests.

python gluon_tutorials.py FOLDER            or gluon_examples.py: those in python/examples/gluon of the checkout
"""

import os
import sys
from pathlib import Path

import torch
import torch_on_host  # noqa: F401  before Triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper

# File to the cases that take seconds here, as pytest selects them by -k.
TUTORIALS = {
    "14-multicta.py": "",
    "13-conv-im2col.py": "",
    "12-cluster-launch-control.py": "1000",
    "11-tcgen05-mma-scaled.py": "mma_scaled_pipelined and 128-128-128",
    "10-tcgen05-copy.py": "dtype0-128-16",
    "06-tcgen05.py": "",
}


class Verdicts:
    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            verdict = {"passed": "right", "failed": "failed", "skipped": "skipped"}[report.outcome]
            said = str(report.longrepr).splitlines()[-1:] if report.failed else []
            if "not close" in str(report.longrepr):
                verdict = "wrong"
            print("\nSUITE", report.nodeid.replace(" ", ""), verdict, *(said or ["-"]), flush=True)


def main(folder, below, cases):
    """Run cases of the files in a folder of the checkout."""
    import pytest

    GPUTarget.is_cuda_backend = lambda self: self.backend == "cuda"  # of the fork's Triton
    for module in (hopper.tma, blackwell.tma):  # names of the fork's Triton
        module.async_copy_shared_to_global = module.async_store
        module.async_copy_global_to_shared = module.async_load
    for each in (gl.shared_memory_descriptor, blackwell.tensor_memory_descriptor):
        each._reinterpret = each.reinterpret
    torch.manual_seed(0)
    os.chdir(Path(folder) / below)
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "--tb=line"]
    for name, selected in cases.items():
        pytest.main([*options, name, "-k", selected], plugins=[Verdicts()])


if __name__ == "__main__":
    main(sys.argv[1], "python/tutorials/gluon", TUTORIALS)
