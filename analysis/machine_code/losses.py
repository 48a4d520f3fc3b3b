"""wgmma and setmaxnreg that ptxas could not compile as written: its advisories C75xx, in words.

    for note in losses(read_log(path)): print(loss_sentence(note))

The build of a version with one of them fails.
"""

import argparse
import re
from dataclasses import asdict
from pathlib import Path

from analysis.errors import DIFFERENT, DONE
from analysis.machine_code.names import name_of
from analysis.machine_code.ptxas_log import Log, Note, read_log
from analysis.table import add_output_arguments, emit, json_text

LOSS = "C75"  # how the codes of these advisories begin
SERIAL = "each wgmma waits for the one before it, which can halve the speed"
# Words of an advisory, what it costs, and what to look at; the first row that fits.
LOSSES = (
    ("setmaxnreg", "no register moves between warpgroups: the consumers keep the few of the entry",
     "__launch_bounds__ must give the threads of the launch, and each count must hold what its warps need"),
    ("wait_group is injected", "ptxas waits where the source does not, and what should overlap does not",
     "an instruction uses registers of a wgmma before its group is waited for"),
    ("function boundary", SERIAL, "a call between wgmma.fence and wgmma.wait_group: inline the function"),
    ("extern calls", SERIAL, "a call between wgmma.fence and wgmma.wait_group: inline the function"),
    ("insufficient register", SERIAL, "accumulators and A of all wgmma in flight need more registers than there are"),
    ("input registers", SERIAL, "registers of A are written while a wgmma is in flight: put wgmma.fence after them"),
    ("reading accumulator", SERIAL, "an accumulator is read before wgmma.wait_group"),
    ("defining accumulator", SERIAL, "an accumulator is written after wgmma.fence, or before wgmma.wait_group"),
    ("ill formed", SERIAL, "every path needs wgmma.fence, wgmma, commit_group and wait_group in this order"),
    ("divergent", SERIAL, "a wgmma is in a branch that some warps of the warpgroup may not take"),
    ("", "a loss that this table does not know", "what ptxas says"),
)  # fmt: skip


def losses(log: Log) -> list[Note]:
    """The advisories on wgmma and setmaxnreg. Each is a mistake: the machine code is not what the source says."""
    return [note for note in log.notes if note.code.startswith(LOSS)]


def loss_sentence(note: Note) -> str:
    """The cost of an advisory, where to look, and the text of ptxas, in two lines."""
    said = note.text.casefold()
    cost, look = next((cost, look) for words, cost, look in LOSSES if words in said)
    kernel = name_of(note.function) if note.function else "a kernel"
    words = re.sub(r" in(?: the)? function '[^']*'", "", note.text)
    return f"{note.code} in {kernel}: {cost}; look at this: {look}\n    {words}"


def add_losses_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="output of ptxas")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if there is one")
    add_output_arguments(parser)


def run_losses(args: argparse.Namespace) -> int:
    found = losses(read_log(args.log))
    lines = [f"{args.log}:{note.line}: {loss_sentence(note)}\n" for note in found] or [f"{args.log}: nothing is lost\n"]
    emit(json_text([asdict(note) for note in found]) if args.json else "".join(lines), args.output)
    return DIFFERENT if found and args.exit_code else DONE
