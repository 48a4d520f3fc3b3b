"""The programs of the package: commands of analysis/, each under its own name, and two that are no Python."""

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
REFUSED = 2


def analysis() -> int:
    """The command that this program is named after; as flashladder-tools the one that its first argument names."""
    sys.path.insert(0, str(PACKAGE))  # its modules import each other as analysis.NAME
    from analysis.__main__ import main

    return main(sys.argv[1:], program=Path(sys.argv[0]).name)


def ptxrun() -> int:
    """Runs CUDA or PTX on the emulator. CUDA is compiled by the nvcc that is found as other tools are."""
    sys.path.insert(0, str(PACKAGE))
    from analysis.errors import AnalysisError
    from analysis.machine_code.toolkit import find_tool

    try:
        if not os.environ.get("CUDA"):
            os.environ["CUDA"] = str(find_tool("nvcc").parent.parent)
    except AnalysisError as error:
        if any(word.endswith(".cu") for word in sys.argv[1:]):
            print(f"ptxrun: {error}", file=sys.stderr)
            return REFUSED
    return _become("ptxrun")


def emulated_gpu() -> int:
    """Runs a program that needs a GPU on the emulator."""
    return _become("emulated-gpu")


def _become(name: str) -> int:
    os.execv(PACKAGE / "bin" / name, [name, *sys.argv[1:]])
