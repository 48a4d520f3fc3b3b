"""Reads what `ptxas -v` and `nvlink -v` print, in every form of ptxas 9 to 13, and demangles whole logs.

    log = parse_log(text, "logs/ptxas/v07.sm_80.log")
    for usage in log.entries: print(usage.name, usage.registers, usage.spill_stores)

ptxas may have another name (ptxas-blackwell of Triton); colors, and whatever a build system puts before each line,
such as a time stamp, play no part. Lines of projects that Visual Studio builds at once ("1>", "2>") may alternate.
Figures that nvlink prints for a kernel replace those that ptxas printed before it was linked. Other lines, of make or
of nvcc's front end, are skipped. A line of ptxas that is not understood is an error that names it, and so is an
entry function without its figures: nothing is ever read as 0 or left out.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import read_text
from analysis.table import add_output_arguments, emit, json_text


@dataclass(frozen=True)
class Usage:
    """Resources of one function. None: ptxas says nothing of it (of a device function, or of an older ptxas)."""

    name: str  # as in the log: mangled or demangled
    arch: str  # "sm_80"; of the entry function before it for a device function, "" when there is none
    entry: bool
    line: int  # of the log, where the function begins
    stack: int | None = None  # bytes, as all sizes below
    spill_stores: int | None = None
    spill_loads: int | None = None
    registers: int | None = None
    barriers: int | None = None
    cumulative_stack: int | None = None
    static_smem: int | None = None
    lmem: int | None = None
    cmem: tuple[tuple[int, int], ...] = ()  # (bank, bytes)
    textures: int | None = None
    surfaces: int | None = None
    samplers: int | None = None
    compile_ms: float | None = None

    def sentence(self) -> str:
        """Registers and stack in words, without what is not known."""
        known = ((self.registers, "registers"), (self.stack, "bytes stack"))
        said = [f"{figure} {what}" for figure, what in known if figure is not None]
        return ", ".join(said) or "no figures"


@dataclass(frozen=True)
class Note:
    """A warning or an advisory of ptxas, such as C7510."""

    line: int
    text: str
    code: str = ""  # "C7510", "" for a warning without one
    function: str = ""  # the function it names, as in the log


@dataclass(frozen=True)
class Log:
    """Everything that ptxas said, in order."""

    functions: list[Usage] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def entries(self) -> list[Usage]:
        """The kernels, without device functions."""
        return [usage for usage in self.functions if usage.entry]


# Items of the comma list after "Used N registers". Pattern, then the field it fills.
USED_ITEMS = (
    (r"used ([0-9]{1,18}) barriers", "barriers"),
    (r"([0-9]{1,18}) bytes cumulative stack size", "cumulative_stack"),
    (r"([0-9]{1,18}) stack", "stack"),  # of nvlink
    (r"([0-9]{1,18}) bytes smem", "static_smem"),
    (r"([0-9]{1,18}) bytes lmem", "lmem"),
    (r"([0-9]{1,18}) textures?", "textures"),
    (r"([0-9]{1,18}) surfaces?", "surfaces"),
    (r"([0-9]{1,18}) samplers?", "samplers"),
)
CMEM_ITEM = r"([0-9]{1,18}) bytes cmem\[([0-9]{1,18})\]"

COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PROJECT = re.compile(r"\s*([0-9]+)>")
TOOL = r"(?:^|.*?\s)(ptxas|nvlink)(?:-[\w.-]+)?"  # after what a build system puts before each line
TOOL_LINE = re.compile(rf"{TOOL}\s*:?\s*(info|warning|error|fatal)\s*:\s*(.*)")
ENTRY = re.compile(r"Compiling entry function '(.*)' for '([^']+)'")
PROPERTIES = re.compile(r"Function properties for '?(.*?)'?")
LINKED = re.compile(r"Function properties for '(.*)':")
LINK_TARGET = re.compile(r" \(target: (sm_\w+)\)$")  # where nvlink links for several architectures
PROPERTY_SIZES = re.compile(
    r"(?:|.*\s)([0-9]{1,18}) bytes stack frame, ([0-9]{1,18}) bytes spill stores, ([0-9]{1,18}) bytes spill loads\s*"
)
USED = re.compile(r"[Uu]sed ([0-9]{1,18}) registers((?:, .*)?)")
COMPILE_TIME = re.compile(r"Compile time = ([0-9]{1,18}(?:\.[0-9]{1,18})?) ms")
GLOBAL_MEMORY = re.compile(r"[0-9]+ bytes gmem(?:, [0-9]+ bytes cmem\[[0-9]+\])*")
ADVISORY = re.compile(r"\((C[0-9]+)\) (.*)")
OVERRIDE = re.compile(r"Overriding (global )?(maximum register limit|maxrregcount) .*")
FUNCTION_NAMED = re.compile(r"(?:in(?: the)? function|for function|for entry) (?:'([^']+)'|(\S+))")


def parse_log(text: str, name: str = "log") -> Log:
    """The functions and notes of a log; `name` is the file's, for messages. A log without a kernel is an error."""
    log = Log()
    readers: dict[str, _Reader] = {}
    for number, text_line in enumerate(text.splitlines(), start=1):
        project, line = _split_project(text_line)
        readers.setdefault(project, _Reader(name, log)).read(number, line)
    for reader in readers.values():
        reader.finish()
    if not log.entries:
        raise AnalysisError(f"{name}: no kernel in this log: is it the output of ptxas -v?")
    return log


def _split_project(line: str) -> tuple[str, str]:
    """The number of a project that Visual Studio puts before each of its lines ("1>"), and the line without colors."""
    line = COLOR.sub("", line).rstrip()
    project = PROJECT.match(line)
    return (project[1], line[project.end() :]) if project else ("", line)


class _Reader:
    """One line of a project after the other; what is open is the function that figures belong to."""

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self.log = log
        self.current: Usage | None = None
        self.expects_sizes = 0  # the line that a line of sizes must follow
        self.arch = ""

    def error(self, number: int, problem: str) -> AnalysisError:
        return AnalysisError(f"{self.name}:{number}: {problem}")

    def read(self, number: int, line: str) -> None:
        if self.expects_sizes:
            sizes = PROPERTY_SIZES.fullmatch(line)
            if not sizes:
                raise self.error(number, f"expected the stack frame and spills of the function above, found {line!r}")
            self.expects_sizes = 0
            self.set(number, stack=int(sizes[1]), spill_stores=int(sizes[2]), spill_loads=int(sizes[3]))
            return
        said = TOOL_LINE.match(line)
        if said:
            tool, kind, message = said.groups()
            if kind in ("error", "fatal"):
                raise self.error(number, f"the log of a build that failed: {line.strip()}")
            if kind == "warning":
                self.note(number, message)
            else:
                self.info(number, message, tool)
        elif PROPERTY_SIZES.fullmatch(line):
            raise self.error(number, "sizes of a function that was not named")
        elif re.match(r"\s*(ptxas|nvlink)\b", line):
            raise self.error(number, f"not understood: {line.strip()!r}")

    def info(self, number: int, message: str, tool: str) -> None:
        if tool == "nvlink":
            target = LINK_TARGET.search(message)
            self.arch = target[1] if target else ""
            message = LINK_TARGET.sub("", message)
        handlers: tuple[tuple[re.Pattern[str], Callable[[int, re.Match[str]], None]], ...] = (
            (ENTRY, self.entry),
            (LINKED, self.linked) if tool == "nvlink" else (PROPERTIES, self.properties),
            (USED, self.used),
            (COMPILE_TIME, lambda at, found: self.compile_time(float(found[1]))),
            (ADVISORY, lambda at, found: self.note(at, found[2], found[1])),
            (OVERRIDE, lambda at, found: self.note(at, found[0])),
            (GLOBAL_MEMORY, lambda at, found: None),
        )
        for pattern, handle in handlers:
            found = pattern.fullmatch(message)
            if found:
                handle(number, found)
                return
        raise self.error(number, f"not understood: {message!r}")

    def entry(self, number: int, found: re.Match[str]) -> None:
        self.close()
        self.arch = found[2]
        self.current = Usage(found[1], found[2], True, number)

    def properties(self, number: int, found: re.Match[str]) -> None:
        if self.current is None or self.current.name != found[1] or self.current.stack is not None:
            self.close()
            self.current = Usage(found[1], self.arch, False, number)
        self.expects_sizes = number

    def linked(self, number: int, found: re.Match[str]) -> None:
        """A kernel as nvlink leaves it: the one that ptxas compiled, with figures that follow."""
        self.close()
        same = [
            each for each in self.log.functions if each.name == found[1] and each.entry and self.arch in ("", each.arch)
        ]
        if same:
            self.log.functions.remove(same[-1])
        before = same[-1] if same else Usage(found[1], self.arch, True, number)
        self.current = replace(before, registers=None, barriers=None, cmem=())

    def used(self, number: int, found: re.Match[str]) -> None:
        values: dict[str, int] = {"registers": int(found[1])}
        banks = []
        for item in found[2].split(", ")[1:]:
            bank = re.fullmatch(CMEM_ITEM, item.strip())
            if bank:
                banks.append((int(bank[2]), int(bank[1])))
                continue
            for pattern, target in USED_ITEMS:
                figure = re.fullmatch(pattern, item.strip())
                if figure and target not in values:
                    values[target] = int(figure[1])
                    break
            else:
                raise self.error(number, f"not understood: {item.strip()!r} in the list after 'Used'")
        if len({bank for bank, _ in banks}) != len(banks):
            raise self.error(number, "a bank of constant memory is named twice")
        if self.current is None:
            raise self.error(number, "registers of a function that was not named")
        if self.current.registers is not None:
            raise self.error(number, f"registers of {self.current.name!r} are given twice")
        # ptxas leaves sizes of zero out, but leaves barriers out only where it does not count them
        figures = {"static_smem": 0, "lmem": 0, "cumulative_stack": 0} | values
        self.current = replace(self.current, **figures, cmem=tuple(sorted(banks)))  # type: ignore[arg-type]

    def compile_time(self, ms: float) -> None:
        """The time of the open function; the log also has that of a device function, and without one that of a file."""
        if self.current is not None and self.current.compile_ms is None:
            self.current = replace(self.current, compile_ms=ms)

    def set(self, number: int, **sizes: int) -> None:
        if self.current is None:
            raise self.error(number, "sizes of a function that was not named")
        self.current = replace(self.current, **sizes)  # type: ignore[arg-type]

    def note(self, number: int, text: str, code: str = "") -> None:
        function = FUNCTION_NAMED.search(text)
        self.log.notes.append(Note(number, text, code, (function[1] or function[2]) if function else ""))

    def close(self) -> None:
        """The open function is complete, or the log is not."""
        usage = self.current
        if usage is None:
            return
        if usage.entry and usage.registers is None:
            raise self.error(usage.line, f"no 'Used ... registers' line for {usage.name!r}")
        if usage.stack is None and usage.entry:
            raise self.error(usage.line, f"no stack frame and spills for {usage.name!r}")
        self.log.functions.append(usage)
        self.current = None

    def finish(self) -> None:
        if self.expects_sizes:
            raise self.error(self.expects_sizes, "the log ends before the stack frame and spills of this function")
        self.close()


def looks_like_log(text: str) -> bool:
    return any(TOOL_LINE.match(_split_project(line)[1]) for line in text.splitlines())


def read_log(path: Path) -> Log:
    """The log in a file."""
    return parse_log(read_text(path), str(path))


# ---- demangling ------------------------------------------------------------------------------------------------------


MANGLED = re.compile(r"\b_Z\w+")


def demangle(text: str) -> str:
    """The text with every mangled name in it demangled."""
    names = demangled_names(text)
    return MANGLED.sub(lambda found: names[found[0]], text)


def demangled_names(text: str) -> dict[str, str]:
    """Each mangled name in a text and what it means, by cu++filt where it is on the PATH, else by c++filt."""
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if tool is None:
        raise AnalysisError("neither cu++filt nor c++filt is on the PATH: install binutils")
    names = list(dict.fromkeys(MANGLED.findall(text)))
    if not names:
        return {}
    command = [tool] if Path(tool).name.startswith("cu++") else [tool, "--no-recurse-limit"]  # templates nest deeply
    done = subprocess.run(command, input="\n".join(names) + "\n", capture_output=True, text=True, check=False)
    plain = done.stdout.splitlines()
    if done.returncode or len(plain) != len(names):
        raise AnalysisError(f"{tool}: exit status {done.returncode} and {len(plain)} names for {len(names)} asked")
    return dict(zip(names, plain, strict=True))


def add_demangle_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="any text with mangled names, such as a ptxas log")
    add_output_arguments(parser)


def run_demangle(args: argparse.Namespace) -> int:
    text = read_text(args.log)
    emit(json_text({"names": demangled_names(text)}) if args.json else demangle(text), args.output)
    return DONE
