# mypy: ignore-errors
"""The matmuls of gau-nernst/learn-cuda for sm_100a, each against sums of whole numbers (learn_cuda.cu).

python learn_cuda_programs.py PROGRAM      PROGRAM: as suite.mk builds it
"""

import subprocess
import sys

NAMES = ("v0", "v1a", "v1b", "v2a", "v2b", "v3", "v4", "v5", "v6", "v7a", "v7b", "v7c")


def main(program):
    for name in NAMES:
        done = subprocess.run([program, name], capture_output=True, text=True, check=False)
        verdict = {0: "right", 1: "wrong"}.get(done.returncode, "failed")
        if "is refused" in done.stderr:
            verdict = "refused"
        print("SUITE", name, verdict, (done.stdout + done.stderr).split("\n")[0] or "-", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
