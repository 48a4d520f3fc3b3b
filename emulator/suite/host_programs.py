# mypy: ignore-errors
"""Kernels of other projects for sm_100a, which a host program of ours launches and compares.

python host_programs.py PROGRAM      PROGRAM: as suite.mk builds it; names its problems, or runs one and returns 1 if
                                     the result is wrong, 0 if it is right
"""

import subprocess
import sys

SECONDS = 600  # for what hangs


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def main(program):
    for name in run(program).stdout.splitlines():
        done = run(program, name)
        verdict = {0: "right", 1: "wrong"}.get(done.returncode, "failed")
        if "is refused" in done.stderr:
            verdict = "refused"
        said = (done.stdout + done.stderr).split("\n")[0] or "-"
        print("SUITE", name.replace(" ", "-"), verdict, said, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
