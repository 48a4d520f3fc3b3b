"""`python3 -m analysis COMMAND`: the table of commands, their arguments and the exit status of each outcome.

A command NAME of PACKAGE.MODULE is two functions of that module: `add_NAME_arguments(parser)` and `run_NAME(args)`,
which returns the exit status (errors.py). Dashes in a name are underscores there. Modules are imported when needed.
"""

import argparse
import importlib
import importlib.util
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from analysis.errors import DONE, FAILED, REFUSED, AnalysisError
from analysis.files import root

VENV = ".venv/bin/python"


class Command(NamedTuple):
    """One line of the table: what is typed, the module that does it, one line of help.

    `needs` is a package beside the standard library without which the command does nothing.
    """

    name: str
    module: str
    help: str
    needs: str = ""


COMMANDS = (
    Command("instances", "ladder.instances", "write the explicit instantiations and about.h of a version"),
    Command("configs", "ladder.configs", "list a set of configurations and what a version refuses; compare two"),
    Command("new", "ladder.new", "start a version: a copy of its parent with a header block to fill in"),
    Command("diff", "ladder.source_diff", "print the source changes between two versions and count their lines"),
    Command("sass", "machine_code.listings", "disassemble kernels with control codes; strip a listing to compare it"),
    Command("cfg", "machine_code.listings", "draw the control-flow graph as DOT or SVG"),
    Command("demangle", "machine_code.ptxas_log", "demangle the names in a log or any text"),
    Command("losses", "machine_code.losses", "say what ptxas could not do with wgmma and setmaxnreg as written"),
    Command("regs", "machine_code.regs", "write registers, spills and code hash of one build as CSV"),
    Command("registers", "machine_code.regs", "report registers and spills over versions, marked against the parent"),
    Command("capture", "machine_code.regs", "keep the ptxas logs of a whole build under a name, demangled and as CSV"),
    Command("captures", "machine_code.regs", "compare two kept captures"),
    Command("gate", "machine_code.gate", "compare a fresh build with the accepted figures and the committed files"),
    Command("accept", "machine_code.gate", "accept the figures of a fresh build, with the reason"),
    Command("traffic", "emulate.traffic", "count the memory traffic of versions on the emulator"),
    Command("lines", "emulate.lines", "count what each source line does on the emulator"),
    Command("pipeline", "emulate.pipeline", "say which copy, product or softmax of a Hopper version waits for which"),
    Command("layouts", "emulate.layouts", "say which elements of a matrix each lane holds, and where chunks lie"),
