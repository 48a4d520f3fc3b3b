# mypy: ignore-errors
"""CUTLASS's examples for sm_100a, sm_103a and sm_120a, which compare with a reference of their own.

python cutlass_programs.py FOLDER      FOLDER: their executables, as suite.mk builds them, in one folder an architecture
"""

import os
import subprocess
import sys
from pathlib import Path

# Executable to the arguments of a problem that takes seconds here, and what it prints if it is right.
RIGHT, PASSED, OK = "Execution is successful", "Disposition: Passed", "[OK]"
SMALL = ["--m=256", "--n=256", "--k=256", "--iterations=0"]
SMALLER = ["--m=128", "--n=128", "--k=256", "--iterations=0"]
GROUPS = ["--m=256", "--n=256", "--groups=2", "--iterations=0"]
PIXELS = ["--n=1", "--h=8", "--w=8", "--c=64", "--k=64", "--iterations=0"]
PROGRAMS = {
    "01_mma_sm100": ([], RIGHT),
    "02_mma_tma_sm100": ([], RIGHT),
    "03_mma_tma_multicast_sm100": ([], RIGHT),
    "04_mma_tma_2sm_sm100": ([], RIGHT),
    "05_mma_tma_epi_sm100": ([], RIGHT),
    "70_blackwell_fp16_gemm": (["--m=512", "--n=256", "--k=256", "--iterations=0"], PASSED),
    "70_blackwell_fp8_gemm": (SMALL, PASSED),
    "71_blackwell_gemm_with_collective_builder": (["--m=256", "--n=256", "--k=128"], "Passed"),
    "72a_blackwell_nvfp4_bf16_gemm": (["--m=512", "--n=512", "--k=512", "--iterations=0"], PASSED),
    "72b_blackwell_nvfp4_nvfp4_gemm": (SMALL, PASSED),
    "72c_blackwell_mixed_mxfp8_bf16_gemm": (SMALL, PASSED),
    "blackwell_gemm_preferred_cluster": (["--m=512", "--n=512", "--k=256", "--iterations=0"], PASSED),
    "blackwell_gemm_streamk": (SMALL, PASSED),
    "75_blackwell_grouped_gemm": ([*GROUPS, "--k=128"], PASSED),
    "75_blackwell_grouped_gemm_block_scaled": ([*GROUPS, "--k=256"], PASSED),
    "76_blackwell_conv_fprop": (PIXELS, PASSED),
    "76_blackwell_conv_dgrad": (PIXELS, PASSED),
    "76_blackwell_conv_wgrad": (PIXELS, PASSED),
    "77_blackwell_fmha": (["--b=1", "--h=2", "--q=256", "--k=256", "--d=128", "--verify"], OK),
    "77_blackwell_fmha_gen": (["--b=1", "--h=2", "--h_k=1", "--k=256", "--d=128", "--verify"], OK),
    "77_blackwell_mla_fwd": (
        ["--b=1", "--h=2", "--h_k=2", "--q=128", "--k=128", "--verify", "--iterations=1", "--warmup_iterations=1"], OK,
    ),
    "78_blackwell_emulated_bf16x9_gemm": (SMALL, PASSED),
    "79a_blackwell_geforce_nvfp4_bf16_gemm": (SMALLER, PASSED),
    "79c_blackwell_geforce_mixed_mxfp8_mxfp6_bf16_gemm": (SMALLER, PASSED),
    "80a_blackwell_geforce_mxfp8_bf16_sparse_gemm": (SMALLER, PASSED),
    "80b_blackwell_geforce_nvfp4_nvfp4_sparse_gemm": (SMALLER, PASSED),
    "81_blackwell_gemm_blockwise": (SMALL, PASSED),
    "83_blackwell_sparse_gemm": (SMALL, PASSED),
    "84a_blackwell_nvfp4_bf16_sparse_gemm": (SMALL, PASSED),
    "87a_blackwell_geforce_fp8_bf16_gemm_blockwise": (SMALLER, PASSED),
    "89_sm103_fp4_ultra_gemm": (["--m=256", "--n=256", "--k=768", "--iterations=0"], PASSED),
    "90_sm103_fp4_ultra_grouped_gemm": ([*GROUPS, "--k=768"], "Verification result: PASSED"),
    "91_fp4_gemv": (["--m=512", "--k=4096", "--batch=1", "--profiling=false", "--iterations=0"], "test pass"),
    "92_blackwell_moe_gemm_regular": (SMALL, PASSED),
    "tgv_gqa": (["--kvL", "128", "--qH", "8", "--kvH", "1", "--qL", "1", "--BS", "1"], "PASSED"),
}  # fmt: skip
WRONG = ("Disposition: Failed", "[FAIL]", "FAILED")  # of what runs several kernels
SECONDS = 120  # 93 times a thousand launches after its test


def verdict_of(path):
    """The verdict of the suite on one example, and the last line that it printed."""
    arguments, right = PROGRAMS[path.name]
    try:
        done = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False, timeout=SECONDS)
        code, out, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, error = 0, (late.stdout or b"").decode(errors="replace"), ""
    if "is refused" in error:
        return "refused", error.splitlines()[0]
    verdict = "right" if right in out and not any(word in out for word in WRONG) else "wrong"
    return ("failed" if code and right not in out else verdict), (out.splitlines() or ["nothing"])[-1]


def main(folder):
    for path in sorted((folder / os.environ["EMULATED_GPU_ARCH"]).iterdir()):
        if path.name in PROGRAMS:
            print("SUITE", path.name, *verdict_of(path), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
