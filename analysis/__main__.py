"""`python3 -m analysis COMMAND`: the table of commands, their arguments and the exit status of each outcome.

A command NAME of PACKAGE.MODULE is two functions of that module: `add_NAME_arguments(parser)` and `run_NAME(args)`,
which returns the exit status (errors.py). Dashes in a name are underscores there. Modules are imported when needed.
"""

import argparse
import contextlib
import difflib
import errno
import importlib
import importlib.util
import io
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from analysis.building import BUILDS
from analysis.errors import FAILED, LEFT, REFUSED, AnalysisError
from analysis.files import in_checkout, root

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

VENV = ".venv/bin/python"


class Command(NamedTuple):
    """One line of the table: what is typed, the module that does it, one line of help.

    `needs` is a package that the command requires in addition to the standard library.
    """

    name: str
    module: str
    help: str
    needs: str = ""


COMMANDS = (
    Command("instances", "ladder.instances", "write the explicit instantiations and about.h of a version"),
    Command("configs", "ladder.configs", "list a set of configurations and those that a version rejects; compare two"),
    Command("new", "ladder.new", "start a version: a copy of its parent with a header block to fill in"),
    Command("read", "ladder.folding", "print a kernel with its configuration folded in, without asserts and dumps"),
    Command("diff", "ladder.source_diff", "print the source changes between two versions and count their lines"),
    Command("sass", "machine_code.listings", "disassemble kernels with control codes; strip a listing to compare it"),
    Command("cfg", "machine_code.listings", "draw the control-flow graph as DOT or SVG"),
    Command("demangle", "machine_code.ptxas_log", "demangle the names in a log or any text"),
    Command("strip", "machine_code.strip", "write a cubin without its debug sections"),
    Command("losses", "machine_code.losses", "list wgmma and setmaxnreg that ptxas serialized or dropped"),
    Command("regs", "machine_code.regs", "write registers, spills and code hash of one build as CSV"),
    Command(
        "registers",
        "machine_code.regs",
        "list registers and spills of all versions, and mark changes against the parent",
    ),
    Command("capture", "machine_code.regs", "save the ptxas logs of a build under a name, demangled and as CSV"),
    Command("captures", "machine_code.regs", "compare two saved captures"),
    Command("gate", "machine_code.gate", "compare a fresh build with the accepted numbers"),
    Command("accept", "machine_code.gate", "accept the numbers of a fresh build, with the reason"),
    Command("traffic", "emulate.traffic", "count the memory traffic of versions on the emulator"),
    Command("lines", "emulate.lines", "count what each source line does on the emulator"),
    Command("pipeline", "emulate.pipeline", "show which copy, product or softmax of a Hopper version waits for which"),
    Command("ring", "emulate.ring", "show when a warp copies, reads and releases the stages of its ring of KV blocks"),
    Command(
        "layouts",
        "emulate.layouts",
        "show which elements of a matrix each lane holds, and where chunks are stored",
        "numpy",
    ),
    Command("corpus", "emulate.corpus", "run the emulator on all kernels in a folder, and tabulate what it accepts"),
    Command("redundant", "emulate.redundant", "list the barriers, fences and waits that no run of a kernel needs"),
    Command("ladder", "publish.documents", "print the table of all versions, or write it into the documents"),
    Command("report", "publish.report", "write one page about all versions, as Markdown and HTML"),
    Command("site", "site.stage", "write the sources of the static site, or find broken links in its pages"),
    Command("counts", "machine_code.counts", "count opcodes by family, in total and by region"),
    Command(
        "loop",
        "machine_code.counts",
        "count the opcodes of the main loop (the KV loop of our kernels); --nest shows all loops",
    ),
    Command(
        "sass-diff", "machine_code.sass_diff", "compare the machine code of two builds, kernel by kernel, loop first"
    ),
    Command(
        "bound", "machine_code.bounds", "compute lower bounds of the main loop by pipe; --scoreboard shows its waits"
    ),
    Command("predict", "measure.predicted", "predict cycles of a KV loop and of a launch, without a GPU"),
    Command("live", "machine_code.live", "show live registers over the loop and the occupancy that they allow"),
    Command("ptx", "machine_code.ptx", "extract the PTX text or another section of a cubin or executable"),
    Command("map", "inspect.code_map", "show CUDA source, PTX and SASS side by side, as a table or an HTML page"),
    Command("slice", "machine_code.maps", "trace a PTX line back to the kernel's entry through data flow"),
    Command("why", "inspect.why", "summarize what a version changed and the effect"),
    Command(
        "check-tools", "tools.check_tools", "show what the parsers recognize in a log, listing, cubin or executable"
    ),
    Command("images", "machine_code.images", "list or extract kernels of an executable, library, fatbinary or cubin"),
    Command("records", "measure.summary", "show, list, check or merge files of records"),
    Command("peak", "measure.peak", "measure how fast wgmma runs, on a GPU; bounds of sm_90a code use it"),
    Command("pipes", "measure.pipes", "measure what single instructions, copies and launches cost, on a GPU"),
    Command("bench", "measure.bench", "measure versions and peers in rounds, on a GPU"),
    Command("compare", "measure.compare", "decide which of two sides is faster, from times measured in rounds"),
    Command("autotune", "measure.autotune", "find the fastest configuration, timing each distinct kernel once"),
    Command("profile", "measure.profile", "read hardware counters with ncu, or from a file it saved"),
    Command("gpu-check", "measure.gpu_check", "run the checks that need a GPU"),
    Command("race", "measure.sanitize", "find races: racecheck on a GPU, else the emulator"),
    Command("sanitize", "measure.sanitize", "run all four tools of compute-sanitizer on a GPU, else the emulator"),
    Command("debug", "emulate.debug", "compare what a kernel holds after every KV block with NumPy", "numpy"),
    Command("judge", "judge.command", "judge a submitted kernel: record it, then replay it on fresh inputs", "numpy"),
    Command("judge-corpus", "judge.corpus", "judge the corpus of attacks and honest kernels; write its table", "numpy"),
    Command("exercises", "learn.exercises", "list the exercises, and which are solved", "numpy"),
    Command("exercise", "learn.exercises", "set up an exercise at the first call, then grade it", "numpy"),
    Command("notebooks", "tools.notebooks", "run the notebooks; --write keeps their outputs", "nbclient"),
    Command("peers", "measure.bench", "measure PyTorch's attention back ends and cuBLAS next to ours, on a GPU"),
)

# Commands that read files of any project: programs of the wheel flashladder-tools (python/tools).
INSTALLED = (
    *("sass-diff", "regs", "counts", "images", "loop", "live", "map", "gate", "accept", "compare"),
    *("bound", "sass", "cfg", "ptx", "slice", "demangle", "judge"),
)


class _Parser(argparse.ArgumentParser):
    """Tells when its help cannot be written, which argparse keeps for itself."""

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        (file or sys.stderr).write(message)


def _parser(chosen: str | None, program: str = "", alone: bool = False) -> argparse.ArgumentParser:
    """The parser of all commands, or only of the chosen one, which saves most of the others' time."""
    parser = _Parser(
        prog=program or ("./fl" if os.environ.get(BUILDS) else "python3 -m analysis"),
        description="Commands that read machine code, logs and records of kernels, build pages and measure.",
        epilog="Exit status: 0 done, 1 a regression or difference (with --exit-code), 2 wrong usage, unreadable input "
        "or missing tool, 3 failure of the system or of this program, 4 unknown architecture, 5 damaged file, 6 no "
        "device code in a file, 7 none in a folder, 8 no kernel in common.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    known = [command for command in COMMANDS if not program or command.name in INSTALLED]
    for command in [each for each in known if alone and each.name == chosen] or known:
        needs = f" (needs {command.needs}{'' if program else f': {VENV}'})" if command.needs else ""
        about = command.help[0].upper() + command.help[1:] + "."
        sub = commands.add_parser(command.name, help=command.help + needs, description=about)
        if command.name == chosen:
            if _own(program) == chosen:
                sub.prog = program  # a program of its own
            getattr(importlib.import_module(f".{command.module}", __package__), f"add_{_word(command)}_arguments")(sub)
    return parser


def _own(program: str) -> str:
    """The command that a program of the wheel is: that of its name, flashladder-judge is `judge`; "" if it is none."""
    name = program.removeprefix("flashladder-")
    return name if name in INSTALLED else ""


def _lacking(package: str, arguments: Sequence[str]) -> str:
    """The message if this interpreter lacks a package: what to type instead."""
    if not in_checkout():
        return f"needs {package}, which {sys.executable} does not have: run `pip install {package}`"
    first = "" if (root() / ".venv/tests.installed").exists() else "`make setup`, then "
    return (
        f"needs {package}, which {sys.executable} does not have: run {first}"
        f"`{shlex.join([*(['./fl'] if os.environ.get(BUILDS) else [VENV, '-m', 'analysis']), *arguments])}`"
    )


def _run_where_it_is(arguments: Sequence[str]) -> None:
    """Replace this interpreter by that of `make setup` if that is another one and has its packages."""
    there = root() / VENV
    if there != Path(sys.executable) and (root() / ".venv/tests.installed").exists():
        os.execv(there, [str(there), "-m", "analysis", *arguments])


def _word(command: Command) -> str:
    return command.name.replace("-", "_")


def _open_streams() -> None:
    """If a standard stream is closed, no file may get its number, so that writes to it still fail.

    Python has None for such a stream. A message that nobody can read goes nowhere.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _drop_output() -> None:
    """Discard what standard output still holds: the interpreter would otherwise try to write it again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unnamed(error: OSError) -> str:
    """The subject of an error without a file: no other file is written without its name."""
    of_output = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return "standard output" if error.errno in of_output else "system"


def main(arguments: Sequence[str] | None = None, program: str = "") -> int:
    """Run one command and return its exit status. `program` is what the wheel's user typed: a command, or its own name.

    A program that is a command takes the arguments of that command.
    """
    _open_streams()
    typed = arguments is None and not program
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if _own(program):
        arguments.insert(0, _own(program))
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    front = program or ("fl" if os.environ.get(BUILDS) else "analysis")
    name = program if _own(program) else " ".join(word for word in (front, chosen) if word)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        if chosen and chosen not in (names := [one.name for one in COMMANDS if not program or one.name in INSTALLED]):
            name = front
            near = difflib.get_close_matches(chosen, names, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise AnalysisError(f"{chosen}: no such command; {meant}`{front} --help` lists all")
        needs = next((command.needs for command in COMMANDS if command.name == chosen), "")
        if needs and importlib.util.find_spec(needs) is None:
            if typed:
                _run_where_it_is(arguments)
            raise AnalysisError(_lacking(needs, arguments))
        try:
            args = _parser(chosen, program, arguments[:1] == [chosen]).parse_args(arguments)
        except SystemExit:
            sys.stdout.flush()  # help that cannot be written is a failure
            raise
        command = next(command for command in COMMANDS if command.name == args.command)
        module = importlib.import_module(f".{command.module}", __package__)
        status: int = getattr(module, f"run_{_word(command)}")(args)
        sys.stdout.flush()
        return status
    except AnalysisError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        _drop_output()  # nothing more to say
        return LEFT
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _drop_output()
        print(f"{name}: {error.filename or _unnamed(error)}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("analysis"):
            print(f"{name}: {_lacking(error.name or 'a package', arguments)}", file=sys.stderr)
            return REFUSED
        traceback.print_exc()
        print(f"{name}: this is a fault of the program, not of its input", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
