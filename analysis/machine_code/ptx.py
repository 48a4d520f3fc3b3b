"""PTX text: where to find it, and its one grammar in Python.

    module = parse_ptx(text, "v07.ptx")
    for at in module.functions[0].statements: print(at.line, at.opcode, at.defines, at.uses)

The grammar covers what compilers write and what inline assembly adds: nested scopes with registers of their own, vector
operands, several statements on a line. A statement knows the registers it defines and uses; a store defines none.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.ladder.c_source import without_comments
from analysis.ladder.headers import VERSION
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.images import Image, has_images, is_cubin, read_bytes, read_images
from analysis.machine_code.names import config_of
from analysis.machine_code.subjects import A_VERSION, add_arch_argument, built_cubins, cubins_for
from analysis.table import add_output_arguments, emit, json_text

EMBEDDED = ".nv_debug_ptx_txt"


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction of a function. Registers of an inner scope carry the scope's number: `p#3`."""

    line: int  # 1-based, of its first character
    label: tuple[str, ...]  # labels before it
    predicate: str  # register of the guard, "" without
    negated: bool
    opcode: str  # with modifiers
    operands: tuple[str, ...]
    defines: tuple[str, ...]
    uses: tuple[str, ...]  # guard included
    target: str  # label of a branch, else ""
    location: str  # "file:line" of the last .loc, "" without

    @property
    def text(self) -> str:
        guard = f"@{'!' if self.negated else ''}{self.predicate.split('#')[0]} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip() + ";"


@dataclass(frozen=True)
class Function:
    name: str
    entry: bool  # a kernel
    line: int
    statements: tuple[Statement, ...]

    @property
    def symbol(self) -> str:
        return self.name


@dataclass(frozen=True)
class Module:
    version: str
    target: str
    functions: tuple[Function, ...]

    def function_at(self, line: int) -> Function | None:
        """The function whose body holds a line."""
        found = None
        for function in self.functions:
            if function.statements and function.line <= line <= function.statements[-1].line:
                found = function
        return found


# Opcodes without a destination, by their first word or words.
_NO_RESULT = re.compile(
    r"(st|stmatrix|red|prefetch|prefetchu|membar|fence|bar|barrier|bra|brx|ret|exit|trap|brkpt|pmevent|nanosleep|"
    r"cp\.async|cp\.reduce|discard|applypriority|setmaxnreg|griddepcontrol|wgmma\.(fence|commit_group|wait_group)|"
    r"mbarrier\.(init|inval|expect_tx|complete_tx)|sust|sured|multimem\.(st|red)|tcgen05\.(st|cp|commit|dealloc|fence|"
    r"wait|mma|shift|relinquish_alloc_permit|alloc)|st_async|clusterlaunchcontrol\.try_cancel|createpolicy_none)"
    r"(?=\.|$)"
)
# These read their destination too: the accumulator of warp-group matrix instructions.
_READS_RESULT = re.compile(r"wgmma\.mma_async")
_BRANCH = re.compile(r"bra(\.|$)")
_NAME = re.compile(r"[%$A-Za-z_][\w$]*")
_NUMBER_AT_END = re.compile(r"\d+$")
_PART_OF_VECTOR = re.compile(r"%\w+\.[xyzw]\b")
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([%$A-Za-z_][\w$]*)\s*:(?!:)")
_CHUNK_MARK = re.compile(r'["{};]')
_OPERAND_MARK = re.compile(r"[][{}(),]")
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_BRACE = re.compile(r"[{}]")
_INNER_LABEL = re.compile(r"[;{\n]\s*([%$A-Za-z_][\w$]*)\s*:(?!:)")
_REG = re.compile(r"\.reg\s+(?:\.\w+\s*)+\s*(.*)", re.DOTALL)
_LINE_DIRECTIVES = re.compile(r"\.(loc|file|version|target|address_size)\b")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')


def parse_ptx(text: str, name: str = "PTX") -> Module:
    """The functions of a PTX text; AnalysisError with file and line where the text is not understood."""
    return _Parser(text, name).module()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.text = without_comments(text)
        self.line = 1
        self.at = 0
        self.files: dict[str, str] = {}
        self.location = ""

    def error(self, problem: str, line: int | None = None) -> AnalysisError:
        return AnalysisError(f"{self.name}:{line or self.line}: {problem}")

    def module(self) -> Module:
        version = re.search(r"\.version\s+(\d+\.\d+)", self.text)
        target = re.search(r"\.target\s+(\w+)", self.text)
        if not version or not target:
            raise self.error("not PTX: .version or .target is missing", 1)
        functions = []
        while self._skip_space():
            line = self.line
            head = self._chunk()
            declared = re.search(r"(?:^|\s)\.(entry|func)\b", head)
            if declared and self._here() == "{":
                named = re.search(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", head)
                if not named:
                    raise self.error("a function without a name", line)
                functions.append(Function(named[1], declared[1] == "entry", line, tuple(self._body())))
            elif self._here() == "{":
                self._braces()
            elif self._here() == "}":
                raise self.error("a '}' without its '{'")
        if not functions:
            raise self.error("no function", 1)
        return Module(version[1], target[1], tuple(functions))

    # Reading characters; self.line follows self.at.

    def _here(self) -> str:
        return self.text[self.at : self.at + 1]

    def _move(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to

    def _skip_space(self) -> bool:
        found = _SPACE.match(self.text, self.at)
        self._move(found.end() if found else self.at)
        return self.at < len(self.text)

    def _chunk(self) -> str:
        """Text up to ';' (taken) or up to a scope's '{' or '}' (left), or a directive that ends with its line."""
        start = self.at
        if _LINE_DIRECTIVES.match(self.text, start):
            end = self.text.find("\n", start)
            self._move(len(self.text) if end < 0 else end)
            return self.text[start : self.at]
        depth, quoted = 0, False
        directive = self._here() == "."
        for found in _CHUNK_MARK.finditer(self.text, start):
            mark, position = found[0], found.start()
            if mark == '"':
                quoted = not quoted
            elif quoted:
                continue
            elif mark == ";" and depth == 0:
                self._move(position + 1)
                return self.text[start:position]
            elif mark == "{":
                opens_scope = directive and "=" not in self.text[start:position]
                if depth == 0 and (opens_scope or position == start):
                    self._move(position)
                    return self.text[start:position]
                depth += 1
            elif mark == "}":
                if depth == 0:
                    self._move(position)
                    return self.text[start:position]
                depth -= 1
        if self.text[start:].strip():
            raise self.error(f"the text ends inside {self.text[start:].strip()[:60]!r}")
        self._move(len(self.text))
        return ""

    def _braces(self) -> None:
        """Skip a section's block."""
        end = self._closing_brace(self.at + 1)
        if end is None:
            self._move(len(self.text))
            raise self.error("a '{' is never closed")
        self._move(end + 1)

    def _closing_brace(self, start: int) -> int | None:
        """The end of the scope whose first character is at `start`."""
        depth = 1
        for brace in _BRACE.finditer(self.text, start):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return brace.start()
        return None

    def _body(self) -> Iterator[Statement]:
        """Statements of a function, from its '{' to the matching '}'."""
        scopes = _Scopes()
        number = 0
        labels: list[str] = []
        while True:
            if not self._skip_space():
                raise self.error("the text ends inside a function")
            mark = self._here()
            if mark == "{":
                number += 1
                scopes.open(number)
                self._move(self.at + 1)
                if scopes.depth > 1:
                    self._forward_labels(scopes)
                continue
            if mark == "}":
                scopes.close()
                self._move(self.at + 1)
                if not scopes.depth:
                    if labels:
                        yield Statement(self.line, tuple(labels), "", False, "ret", (), (), (), "", self.location)
                    return
                continue
            label = _LABEL.match(self.text, self.at)
            if label:
                scopes.declare(label[1])
                labels.append(scopes.resolve(label[1]))
                self._move(label.end())
                continue
            line = self.line
            chunk = self._chunk().strip()
            if chunk.startswith("."):
                self._directive(chunk, scopes)
            elif chunk:
                yield self._instruction(chunk, line, tuple(labels), scopes)
                labels = []

    def _forward_labels(self, scopes: "_Scopes") -> None:
        """The labels of an inner scope, which begins here, so that a branch forward to them resolves."""
        end = self._closing_brace(self.at)
        if end is not None:
            for found in _INNER_LABEL.finditer(self.text, self.at - 1, end):
                scopes.declare(found[1])

    def _directive(self, chunk: str, scopes: "_Scopes") -> None:
        if registers := _REG.match(chunk):
            for part in registers[1].split(","):
                scopes.declare(part.strip())
        elif loc := _LOC.match(chunk):
            self.location = f"{self._file(loc[1])}:{loc[2]}"
        elif file := _FILE.match(chunk):
            self.files[file[1]] = file[2]

    def _file(self, number: str) -> str:
        if not self.files:
            self.files = dict(_FILE.findall(self.text))
        return self.files.get(number, f"file {number}")

    def _instruction(self, chunk: str, line: int, labels: tuple[str, ...], scopes: "_Scopes") -> Statement:
        found = _INSTRUCTION.fullmatch(chunk)
        if not found:
            raise self.error(f"not an instruction: {' '.join(chunk.split())[:80]!r}", line)
        negated, guard, opcode, rest = found.groups()
        operands = _split_operands(rest)
        if operands is None:
            raise self.error(f"unbalanced operands: {' '.join(chunk.split())[:80]!r}", line)
        branch, has_result, reads_result = _kind_of(opcode)
        target = scopes.resolve(operands[-1]) if branch and operands else ""
        results = operands[:1] if has_result else []
        if opcode.startswith("call"):
            results = [operands[0]] if operands and operands[0].startswith("(") and len(operands) > 1 else []
        if results and results[0].startswith("["):
            results = []
        sources = operands[len(results) :] if not branch else operands[:-1]
        if results and reads_result:
            sources = operands
        guard_name = scopes.resolve(guard) if guard else ""
        return Statement(
            line=line,
            label=labels,
            predicate=guard_name,
            negated=bool(negated),
            opcode=opcode,
            operands=tuple(operands),
            defines=tuple(dict.fromkeys(register for text in results for register in scopes.registers(text))),
            uses=tuple(
                dict.fromkeys(
                    [*([guard_name] if guard else []), *(r for text in sources for r in scopes.registers(text))]
                )
            ),
            target=target,
            location=self.location,
        )


class _Scopes:
    """The names that are declared at the parser's position, the innermost scope last.

    The meaning of an operand is cached until a scope is opened or closed or a name is declared, because most occur many
    times.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.names: list[dict[str, str]] = []  # of a register or label, to its name in the whole function
        self.stems: list[set[str]] = []  # "%r" of `.reg .b32 %r<100>`
        self.kept: dict[str, tuple[str, ...]] = {}

    @property
    def depth(self) -> int:
        return len(self.names)

    def open(self, number: int) -> None:
        self.numbers.append(number)
        self.names.append({})
        self.stems.append(set())
        self.kept.clear()

    def close(self) -> None:
        self.numbers.pop()
        self.names.pop()
        self.stems.pop()
        self.kept.clear()

    def declare(self, name: str) -> None:
        if name in self.names[-1]:
            return
        self.names[-1][name] = name if self.depth == 1 else f"{name}#{self.numbers[-1]}"
        if "<" in name:
            self.stems[-1].add(name.partition("<")[0])
        self.kept.clear()

    def resolve(self, name: str) -> str:
        for scope in reversed(self.names):
            if name in scope:
                return scope[name]
        return name

    def registers(self, operand: str) -> tuple[str, ...]:
        """The registers that an operand names."""
        found = self.kept.get(operand)
        if found is None:
            names = _NAME.findall(_PART_OF_VECTOR.sub(" ", operand))
            found = self.kept[operand] = tuple(self.resolve(name) for name in names if self._is_register(name))
        return found

    def _is_register(self, name: str) -> bool:
        stem = _NUMBER_AT_END.sub("", name)
        return any(name in scope for scope in self.names) or any(stem in stems for stems in self.stems)


@cache
def _kind_of(opcode: str) -> tuple[bool, bool, bool]:
    """True if it is a branch, whether its first operand is a result, and whether it reads that result too."""
    branch = _BRANCH.match(opcode) is not None
    return branch, not branch and not _NO_RESULT.match(opcode), _READS_RESULT.match(opcode) is not None


def _split_operands(text: str) -> list[str] | None:
    """Operands separated by commas outside brackets; None when brackets do not balance."""
    operands, depth, start = [], 0, 0
    for found in _OPERAND_MARK.finditer(text):
        mark = found[0]
        if mark != ",":
            depth += 1 if mark in "{[(" else -1
            if depth < 0:
                return None
        elif depth == 0:
            operands.append(" ".join(text[start : found.start()].split()))
            start = found.end()
    if depth:
        return None
    last = " ".join(text[start:].split())
    return [*operands, last] if last else operands


# ---- where PTX is found ----------------------------------------------------------------------------------------------


def embedded_ptx(cubin: Cubin) -> str:
    """The PTX that ptxas keeps in a cubin with line information: the lines of its input, without .loc and comments."""
    section = cubin.section(EMBEDDED)
    if section is None:
        raise AnalysisError(f"{cubin.name}: no {EMBEDDED}: ptxas needs --generate-line-info to keep it")
    return section.data.decode("utf-8", "replace").replace("\0", "\n")


def section_text(cubin: Cubin, name: str) -> str:
    """Any section: the PTX as text, strings one a line, others as hexadecimal lines of 16 bytes."""
    if name == EMBEDDED:
        return embedded_ptx(cubin)
    section = cubin.section(name)
    if section is None:
        raise AnalysisError(
            f"{cubin.name}: no section {name}; there are {', '.join(s.name for s in cubin.sections[1:])}"
        )
    if name.endswith("strtab"):
        return section.data.decode("utf-8", "replace").strip("\0").replace("\0", "\n") + "\n"
    rows = (section.data[at : at + 16].hex(" ", 4) for at in range(0, len(section.data), 16))
    return "".join(f"{16 * index:06x}  {row}\n" for index, row in enumerate(rows))


def find_ptx(name: str, arch: str | None = None, number: int | None = None) -> str:
    """The PTX of a version, cubin, executable or PTX file; of an executable, image `number` of its list if given."""
    path = Path(name)
    if VERSION.fullmatch(name):
        return embedded_ptx(_cubin_of(name, arch))
    data = read_bytes(path)
    if is_cubin(data):
        return embedded_ptx(_cubin_of(name, arch))
    if has_images(data) or b"\0" in data[:4096]:
        return _choose_ptx(read_images(path), name, arch, number).data.decode("utf-8", "replace")
    return data.decode("utf-8", "replace")


def _choose_ptx(images: list[Image], name: str, arch: str | None, number: int | None) -> Image:
    """The PTX asked for; else that with kernels of ours, as the harness has helper kernels too; else the only one."""
    texts = {index: image for index, image in enumerate(images) if image.kind == "ptx"}
    if not texts:
        raise AnalysisError(f"{name}: holds machine code but no PTX")
    if number is not None:
        if number not in texts:
            raise AnalysisError(f"{name}: image {number} is not PTX; PTX: {', '.join(map(str, texts))}")
        return texts[number]
    if arch is not None:
        texts = {index: image for index, image in texts.items() if image.arch == arch} or texts
    ours = [image for image in texts.values() if any(config_of(kernel) for kernel in image.entries())]
    chosen = ours or list(texts.values())
    if len(chosen) > 1:
        there = ", ".join(f"{index} ({image.arch})" for index, image in texts.items())
        raise AnalysisError(f"{name}: {len(chosen)} PTX texts, choose one with --image: {there}")
    return chosen[0]


# ---- command ---------------------------------------------------------------------------------------------------------


def add_ptx_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help=f"{A_VERSION}cubin, executable or PTX file")
    add_arch_argument(parser)
    parser.add_argument("--image", type=int, metavar="N", help="number of the image, from `images list`")
    parser.add_argument("--section", metavar="NAME", help="print this section of the cubin instead")
    parser.add_argument("--sections", action="store_true", help="list the sections of the cubin")
    add_output_arguments(parser)


def run_ptx(args: argparse.Namespace) -> int:
    if args.section or args.sections:
        cubin = _cubin_of(args.subject, args.arch, args.image)
        if args.sections:
            names = [section.name for section in cubin.sections if section.name]
            emit(json_text({"sections": names}) if args.json else "\n".join(names) + "\n", args.output)
        else:
            text = section_text(cubin, args.section)
            emit(json_text({"section": args.section, "text": text}) if args.json else text, args.output)
        return DONE
    text = find_ptx(args.subject, args.arch, args.image)
    module = parse_ptx(text, args.subject)
    record = {
        "version": module.version,
        "target": module.target,
        "functions": [{"name": f.name, "entry": f.entry, "statements": len(f.statements)} for f in module.functions],
        "text": text,
    }
    emit(json_text(record) if args.json else text, args.output)
    return DONE


def _cubin_of(name: str, arch: str | None, number: int | None = None) -> Cubin:
    """The cubin of a version or file: image `number` of its list, else the only one of the architecture."""
    if VERSION.fullmatch(name):
        return Cubin.read(built_cubins(name, arch)[0])
    images = read_images(Path(name))
    if number is not None:
        if not 0 <= number < len(images) or images[number].kind != "cubin":
            raise AnalysisError(f"{name}: image {number} is not a cubin; there are {len(images)} images")
        return images[number].cubin(name)
    fitting = cubins_for(images, arch, name)
    ours = [each for each in fitting.values() if any(config_of(k.symbol) for k in each.cubin(name).entries)]
    chosen = ours or list(fitting.values())
    if len(chosen) > 1:
        there = ", ".join(map(str, fitting))
        raise AnalysisError(f"{name}: {len(chosen)} cubins for {chosen[0].arch}, choose one with --image: {there}")
    return chosen[0].cubin(name)
