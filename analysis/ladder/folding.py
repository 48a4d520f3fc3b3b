"""`make read VER=v29`: a kernel as its one configuration leaves it, without what serves other configurations.

    print(folded(load(root(), "v29")))

Sizes of the configuration become constants, branches that it decides are taken or dropped, and left out are asserts,
hooks that dump registers, and what nothing calls any more. The text is C++ that nvcc compiles to the machine code of
the version: a test compares them. Only v23 and v24 compile to slightly different code this way.
"""

import argparse
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

from analysis.errors import DONE, AnalysisError
from analysis.files import root
from analysis.ladder.c_source import STRING, c_value, closing_bracket, without_comments
from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import Version, load

FORMATTER = Path(".venv/bin/clang-format")
KNOWN = {"true": 1, "false": 0, "FP16": int(Dtype.FP16), "BF16": int(Dtype.BF16), "debug_dumps": 0}
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
LEFT_OUT = ('#include "common/debug.cuh"\n', '#include "instances.cuh"\n')


def folded(version: Version) -> str:
    """The source of a version with its configuration folded in, in the house style, below what the version is."""
    if version.is_attention:
        file = f"kernels/attention/{version.path.name}"
        raise AnalysisError(f"{version.version} has several files: read {file}, then the headers it includes")
    header = version.header
    words = f"{version.version} - {header.title}, for {header.config}. {header.idea[0].upper()}{header.idea[1:]} */"
    return "\n * ".join(wrap(f"/* {words}", 117)) + "\n" + folded_body(version)


def folded_body(version: Version) -> str:
    """The source without the comment at its head."""
    text = "\n".join(version.body()) + "\n"
    for line in LEFT_OUT:
        text = text.replace(line, "")
    text = _without_calls(
        _without_function(text, "check_config"), r"check_config<cfg>|static_assert|dump_\w+(?:<cfg>)?"
    )
    text = _with_numbers(text, version.header.config)
    text = _decided(text, version.file)
    text = _used(text)
    text = re.sub(r"^ *(?:const )?(?:int |debug_position )?\w*dumped\b[^;]*;\n", "", text, flags=re.MULTILINE)
    return _formatted(text)


# ---- positions in a source: comments and strings are blank in `bare`, which has the same length ----------------------


def _bare(text: str) -> str:
    """The text with comments and the contents of strings blanked out."""
    return re.sub(STRING, lambda found: '"' + " " * (len(found[0]) - 2) + '"', without_comments(text))


def _end_of_statement(bare: str, at: int) -> int:
    """Index just past the statement that begins at `at`."""
    at += len(bare[at:]) - len(bare[at:].lstrip())
    if bare[at] == "{":
        return closing_bracket(bare, at, "{", "}", "a block") + 1
    control = re.compile(r"(?:if(?: constexpr)?|for|while) \(").match(bare, at)
    if control:
        end = _end_of_statement(bare, closing_bracket(bare, control.end() - 1, "(", ")", "a condition") + 1)
        other = re.compile(r"\s*else\b").match(bare, end)
        return _end_of_statement(bare, other.end()) if control[0].startswith("if") and other else end
    return _stop(bare, at, ";") + 1


def _stop(bare: str, at: int, stops: str) -> int:
    """Index of the first of `stops` outside of brackets, or of the bracket that closes those around `at`."""
    while at < len(bare) and bare[at] not in stops + ")]}":
        at = closing_bracket(bare, at, bare[at], CLOSING[bare[at]], "a bracket") + 1 if bare[at] in "([{" else at + 1
    return at


def _begin(bare: str, at: int) -> int:
    """Start of the expression that ends at `at`: just past an opening bracket, comma, semicolon or assignment."""
    depth = 0
    for start in range(at, 0, -1):
        before = bare[start - 1]
        assigns = before == "=" and bare[start] != "=" and bare[start - 2] not in "=!<>"
        if depth == 0 and (assigns or before in "([{,;"):
            return start
        depth += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}.get(before, 0)
    return 0


def _cut(text: str, start: int, end: int) -> str:
    """The text without a part, the line that this leaves blank, and a comment directly above it."""
    before, after = text[:start], text[end:]
    if not before.rpartition("\n")[2].strip() and not after.partition("\n")[0].strip():
        before, after = before[: before.rfind("\n") + 1], after.partition("\n")[2]
        before = re.sub(r"(?:^|(?<=\n))[ ]*/\*(?:(?!\*/).)*\*/\n$", "", before, flags=re.DOTALL)
        after = after.lstrip("\n") if before.endswith("\n\n") or not before else after
    return before + after


# ---- steps -----------------------------------------------------------------------------------------------------------


def _without_function(text: str, name: str) -> str:
    found = re.search(rf"^template [^\n]*\n[^\n]*\b{name}\([^)]*\) {{", _bare(text), re.MULTILINE)
    if not found:
        return text
    return _cut(text, found.start(), closing_bracket(_bare(text), found.end() - 1, "{", "}", name) + 1)


def _without_calls(text: str, names: str) -> str:
    """Without statements that are calls of these, and without the calls between commas."""
    pattern = re.compile(rf"\b(?:{names})\(")
    while found := pattern.search(_bare(text)):
        bare = _bare(text)
        end = closing_bracket(bare, found.end() - 1, "(", ")", found[0]) + 1
        if bare[end] == ",":
            text = text[: found.start()] + text[end + 1 :].lstrip()
        elif bare[: found.start()].rstrip().endswith(","):
            text = text[: len(bare[: found.start()].rstrip()) - 1] + text[end:]
        else:
            text = _cut(text, found.start(), end + 1)
    return text


def _with_numbers(text: str, config: KernelConfig) -> str:
    """Without the template parameter of the configuration: sizes are constants of their names, other fields values."""
    text = re.sub(r"template <(?:KernelConfig|auto) cfg>\s*", "", text)
    text = re.sub(r"template <(?:KernelConfig|auto) cfg, ", "template <", text)
    text = re.sub(r"\b(\w+)<cfg>", r"\1", text)
    text = re.sub(r"\b(\w+)<cfg, ", r"\1<", text)

    sizes: dict[str, int] = {}

    def field(found: re.Match[str]) -> str:
        value = getattr(config, found[1])
        if isinstance(value, bool | Dtype):
            return value.name if isinstance(value, Dtype) else str(value).lower()
        sizes[found[1]] = value
        return found[1]

    row_bytes = config.d_head * 2 + (16 if config.padded_rows else 0)  # common/config.h
    text = re.sub(r"\bconfig_row_bytes\(&cfg\)", str(row_bytes), text)
    text = re.sub(r"\bcfg\.(\w+)\b", field, text)
    text = re.sub(r"\b(\w+) = \1, ", "", text)
    constants = "".join(f"constexpr int {name} = {value};\n" for name, value in sizes.items())
    includes = [found.end() for found in re.finditer(r"^#include .*\n", text, re.MULTILINE)]
    return text[: includes[-1]] + "\n" + constants + text[includes[-1] :]


def _decided(text: str, file: str) -> str:
    """With branches that constants decide taken or dropped."""
    before = ""
    while before != text:
        before = text
        known = dict(KNOWN)
        for found in re.finditer(r"^constexpr (?:int|bool) (.*?);", _bare(text), re.MULTILINE | re.DOTALL):
            for name, expression in re.findall(r"(\w+) = ([^,;]*)", found[1]):
                value = _value(expression, known, file)
                if value is not None:
                    known[name] = value
        text = _branched(text, known, file)
        text = _chosen(text, known, file)
    return text


def _value(expression: str, known: Mapping[str, int], file: str) -> int | None:
    """The value of an expression of known constants and numbers, None of any other."""
    names = set(re.findall(r"\b[A-Za-z_]\w*", expression))
    if not expression.strip() or not names <= set(known) or re.search(r"[\d.]+[fF]\b|\.", expression):
        return None
    try:
        return c_value(expression, known, file)
    except AnalysisError:
        return None


def _branched(text: str, known: Mapping[str, int], file: str) -> str:
    """With `if` statements that constants decide replaced by what they leave."""
    at = 0
    while found := re.compile(r"\bif(?: constexpr)? \(").search(_bare(text), at):
        bare, at = _bare(text), found.end()
        closing = closing_bracket(bare, found.end() - 1, "(", ")", file)
        holds = _value(bare[found.end() : closing], known, file)
        if holds is None:
            continue
        end = _end_of_statement(bare, closing + 1)
        other = re.compile(r"\s*else\b").match(bare, end)
        last = _end_of_statement(bare, other.end()) if other else end
        start = closing + 1 if holds else other.end() if other else last
        kept = text[start : end if holds else last].strip()
        if kept.startswith("{") and not re.search(r"^\s*(?:const|constexpr|int|float|uint)", kept[1:]):
            kept = kept[1:-1].strip()
        text = text[: found.start()] + kept + text[last:] if kept else _cut(text, found.start(), last)
        at = found.start()
    return text


def _chosen(text: str, known: Mapping[str, int], file: str) -> str:
    """With `A ? B : C` that constants decide replaced by B or C."""
    at = 0
    while (mark := _bare(text).find("?", at)) >= 0:
        bare, at = _bare(text), mark + 1
        condition = re.sub(r"^\s*return\b", "", bare[_begin(bare, mark) : mark])
        start = mark - len(condition.lstrip())
        holds = _value(condition, known, file)
        if holds is None:
            continue
        colon = _stop(bare, mark + 1, ":")
        end = _stop(bare, colon + 1, ",;")
        text = text[:start] + (text[mark + 1 : colon] if holds else text[colon + 1 : end]).strip() + text[end:]
        at = start
    return text


# ---- what is used ----------------------------------------------------------------------------------------------------


def _items(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and name of each function, constant and type at the outermost level."""
    bare, at = _bare(text), 0
    while at < len(bare):
        if bare[at].isspace():
            at += 1
            continue
        if bare[at] == "#":
            at = bare.index("\n", at) + 1
            continue
        end = _stop(bare, at, ";{")
        while bare[end] == "{":
            end = closing_bracket(bare, end, "{", "}", "a body") + 1
            rest = re.compile(r"\s*;").match(bare, end)
            end = rest.end() - 1 if rest else end - 1
        head = bare[at : _stop(bare, at, "({=;")]
        if head.startswith("struct"):
            name = head.split()[1]
        else:
            name = re.findall(r"\w+", re.sub(r"__launch_bounds__|__maxnreg__", "", head))[-1]
        yield at, end + 1, "" if "__global__" in head else name
        at = end + 1


def _used(text: str) -> str:
    """Without functions, constants and types that nothing names any more."""
    while True:
        bare = _bare(text)
        for start, end, name in _items(text):
            several = "," in bare[start:end] and "constexpr" in bare[start : start + 20]
            if name and not several and not re.search(rf"\b{name}\b", bare[:start] + bare[end:]):
                text = _cut(text, start, end)
                break
        else:
            return text


def _formatted(text: str) -> str:
    """In the house style, where the formatter is installed; blank lines only where they divide."""
    text = re.sub(r"\n{3,}", "\n\n", text)
    tool = root() / FORMATTER
    if not tool.exists():
        return text
    command = [str(tool), "--assume-filename=kernels/read.cu"]
    return subprocess.run(command, cwd=root(), input=text, capture_output=True, text=True, check=True).stdout


# ---- command ---------------------------------------------------------------------------------------------------------


def add_read_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", help="a version such as v29")


def run_read(args: argparse.Namespace) -> int:
    print(folded(load(root(), args.version)), end="")
    return DONE
