# mypy: ignore-errors
"""CUTLASS's examples for sm_100a and sm_120a, which compare with a reference of their own.

python cutlass_programs.py FOLDER      FOLDER: their executables, as suite.mk builds them, in one folder an architecture
"""

import os
import subprocess
import sys
from pathlib import Path

# Executable to the arguments of a problem that takes seconds here, and what it prints if it is right.
RIGHT, PASSED, OK = "Execution is successful", "Disposition: Passed", "[OK]"
PROGRAMS = {
    "01_mma_sm100": ([], RIGHT),
    "02_mma_tma_sm100": ([], RIGHT),
    "03_mma_tma_multicast_sm100": ([], RIGHT),
    "04_mma_tma_2sm_sm100": ([], RIGHT),
    "05_mma_tma_epi_sm100": ([], RIGHT),
    "70_blackwell_fp16_gemm": (["--m=512", "--n=256", "--k=256", "--iterations=0"], PASSED),
    "72a_blackwell_nvfp4_bf16_gemm": (["--m=512", "--n=512", "--k=512", "--iterations=0"], PASSED),
    "77_blackwell_fmha": (["--b=1", "--h=2", "--q=256", "--k=256", "--d=128", "--verify"], OK),
    "76_blackwell_conv_fprop": (["--n=1", "--h=8", "--w=8", "--c=64", "--k=64", "--iterations=0"], PASSED),
    "79a_blackwell_geforce_nvfp4_bf16_gemm": (["--m=128", "--n=128", "--k=256", "--iterations=0"], PASSED),
    "79c_blackwell_geforce_mixed_mxfp8_mxfp6_bf16_gemm": (["--m=128", "--n=128", "--k=256", "--iterations=0"], PASSED),
    "80a_blackwell_geforce_mxfp8_bf16_sparse_gemm": (["--m=128", "--n=128", "--k=256", "--iterations=0"], PASSED),
    "80b_blackwell_geforce_nvfp4_nvfp4_sparse_gemm": (["--m=128", "--n=128", "--k=256", "--iterations=0"], PASSED),
    "89_sm103_fp4_ultra_gemm": (["--m=256", "--n=256", "--k=768", "--iterations=0"], PASSED),
}


def verdict_of(path):
    """The verdict of the suite on one example, and the last line that it printed."""
    arguments, right = PROGRAMS[path.name]
    done = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False)
    if "is refused" in done.stderr:
        return "refused", done.stderr.splitlines()[0]
    lines = done.stdout.splitlines() or ["nothing"]
    return ("failed" if done.returncode else "right" if right in done.stdout else "wrong"), lines[-1]


def main(folder):
    for path in sorted((folder / os.environ["EMULATED_GPU_ARCH"]).iterdir()):
        if path.name in PROGRAMS:
            print("SUITE", path.name, *verdict_of(path), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
