"""Builds what a command reads of a version, where ./fl or make started the command: nothing stale is shown.

    built("cubins", VER="v07", ARCHS="90")

Programs that only import this package build nothing.
"""

import os
import subprocess
import sys

from analysis.errors import AnalysisError
from analysis.files import root

BUILDS = "FL_BUILDS"  # set by ./fl


def built(*goals: str, **variables: str) -> None:
    """Bring goals of make up to date. make's output goes to standard error, because the command prints its own
    result."""
    if not os.environ.get(BUILDS):
        return
    settings = [f"{name}={value}" for name, value in variables.items() if value]
    command = ["make", "--no-print-directory", *settings, *goals]
    try:
        # make finds the jobs that it shares with the make that started this command in open files
        done = subprocess.run(command, cwd=root(), stdout=sys.stderr, close_fds=False, check=False)
    except FileNotFoundError:
        raise AnalysisError("make is missing, which builds what this command reads") from None
    if done.returncode:
        raise AnalysisError(f"{' '.join(goals)} could not be built")
