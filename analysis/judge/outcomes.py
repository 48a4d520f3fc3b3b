"""Make tests of data in PTX leave a trace, so that a replay shows the outcomes that they had.

    follow_tests(recording.path, target)      # a copy of the recording whose tests leave a trace
    tests = marked(ptx)[1]                    # {("softmax", 31, 0): "setp.eq.f32 %p1, %f3, 0f3DFCD6EA"}
    outcomes_of(launch)                       # {(31, 0, True), ...} from the counters of a replay of the copy

A kernel that is wrong for one secret input most often compares the data with the secret. So each comparison of data
gets marker instructions on its own line, which run where it holds and where it does not. They change no result and no
line number, and judge-replay counts them like any other instruction.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.judge.dataflow import REGISTER, Flow

MARKERS = (("brev.b32", "bfind.u32"), ("popc.b32", "clz.b32"))  # where a test holds and fails: hardly used by compilers
DECLARED = ".reg .pred %judge_t, %judge_f; .reg .b32 %judge_n;"
TEST = re.compile(
    r"(?P<guard>@!?%[\w$]+\s+)?(?P<opcode>(?:setp|set)\.[\w.]+|(?:and|or|xor)\.pred|shr\.[bsu](?:32|64)|min\.[su](?:32|64)"
    r"|cnot\.b(?:32|64))\s+(?P<operands>[^;]+);"
)
COMBINED = {"and", "or", "xor"}
ORDERED = ("f16", "bf16", "f32", "f64")  # comparisons by size that are followed for any operand
RECORD = re.compile(rb"([a-z-]+)((?: \d+)*) (\d+)\n")

# ---- PTX -------------------------------------------------------------------------------------------------------------


def marked(ptx: str) -> tuple[str, dict[tuple[str, int, int], str]]:
    """PTX whose tests of data leave a trace, and these tests by kernel, line and number in the line."""
    lines, tests = ptx.splitlines(), dict[tuple[str, int, int], str]()
    for kernel, first, last in _bodies(lines):
        flow = Flow({i + 1: lines[i] for i in range(first, last + 1)})
        data = flow.data if kernel else None  # a function may be given data
        found = {i: test for i in range(first + 1, last) if (test := _marked_line(lines[i], data))}
        if found:
            lines[first] = lines[first].replace("{", "{ " + DECLARED, 1)
        for i, (line, texts) in found.items():
            lines[i] = line
            tests |= {(kernel, i + 1, number): text for number, text in enumerate(texts)}
    return "\n".join(lines) + "\n", tests


def _bodies(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name and lines of the body of each kernel; functions have the name ""."""
    i = 0
    while i < len(lines):
        found = re.match(r"\s*(?:\.\w+\s+)*\.(entry|func)\b", lines[i])
        if not found:
            i += 1
            continue
        named = re.search(r"\.entry\s+([\w$]+)", lines[i])
        while i < len(lines) and not lines[i].startswith("{") and not lines[i].rstrip().endswith(";"):
            i += 1
        if i < len(lines) and lines[i].startswith("{"):  # else a declaration
            last = next((k for k in range(i, len(lines)) if lines[k].startswith("}")), len(lines) - 1)
            yield (named[1] if named and found[1] == "entry" else ""), i, last
            i = last
        i += 1


def _marked_line(line: str, data: set[str] | None) -> tuple[str, list[str]] | None:
    """The line with markers, and its tests; None if it has no test of data, or several: compilers write one a line."""
    code = line.partition("//")[0]
    found = list(TEST.finditer(code))
    if len(found) != 1 or any(marker in code for pair in MARKERS for marker in pair):
        return None
    match = found[0]
    operands = [each.strip() for each in match["operands"].split(",")]
    if data is not None and not data.intersection(REGISTER.findall(",".join(operands[1:]))):
        return None
    traces = list(_traces(match["opcode"].split("."), operands, (match["guard"] or "").strip().lstrip("@")))
    if not traces:
        return None
    marks = " ".join(
        f"{trace} @%judge_t {holds} %judge_n, 1; @%judge_f {fails} %judge_n, 1;"
        for trace, (holds, fails) in zip(traces, MARKERS, strict=False)
    )
    text = f"{match['opcode']} {match['operands'].strip()}"
    return f"{code[: match.end()]} {marks}{code[match.end() :]}", [text] * len(traces)


def _traces(opcode: list[str], operands: list[str], guard: str) -> Iterator[str]:
    """Instructions that set %judge_t where a test holds, and %judge_f where it fails, of those that ran."""
    combine, tail = (".and", f", {guard}") if guard else ("", "")
    if opcode[0] in COMBINED:
        yield _trace_of_predicate(operands[0], guard)
    elif opcode[0] in ("setp", "set") and len(operands) >= 3 and opcode[-1] not in ("f16x2", "bf16x2"):
        if _is_followed(opcode, operands):
            ftz = ".ftz" if "ftz" in opcode else ""
            compared = f"setp.{opcode[1]}{combine}{ftz}.{opcode[-1]}"
            yield f"{compared} %judge_t|%judge_f, {operands[1]}, {operands[2]}{tail};"
        if COMBINED.intersection(opcode[2:]) and opcode[0] == "setp":
            yield _trace_of_predicate(operands[0].partition("|")[0].strip(), guard)
    elif opcode[0] == "cnot" or operands[-1] == {"shr": str(int(opcode[-1][1:]) - 1), "min": "1"}.get(opcode[0]):
        yield f"setp.ne{combine}.b{opcode[-1][1:]} %judge_t|%judge_f, {operands[0]}, 0{tail};"


def _is_followed(opcode: list[str], operands: list[str]) -> bool:
    """Return True if a missing outcome is suspicious. Comparing two integers by < usually bounds a loop."""
    if opcode[1] in ("eq", "ne", "equ", "neu") or opcode[-1] in ORDERED:
        return True
    constants = [each for each in operands[1:3] if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", each)]
    return bool(constants) and not (opcode[-1].startswith("s") and constants[0] in ("0", "1"))


def _trace_of_predicate(predicate: str, guard: str) -> str:
    """A predicate that a guarded instruction may not have set is looked at where the guard holds."""
    if not guard:
        return f"mov.pred %judge_t, {predicate}; not.pred %judge_f, {predicate};"
    holds = f"not.pred %judge_f, {guard[1:]};" if guard.startswith("!") else f"mov.pred %judge_f, {guard};"
    return f"{holds} and.pred %judge_t, %judge_f, {predicate}; xor.pred %judge_f, %judge_f, %judge_t;"


# ---- recordings ------------------------------------------------------------------------------------------------------


def follow_tests(recording: Path, target: Path) -> None:
    """Write a copy of a recording whose modules leave a trace of their tests."""
    parts = []
    for kind, numbers, data in _records(recording.read_bytes()):
        if kind == b"module":
            data = marked(data.decode(errors="surrogateescape"))[0].encode(errors="surrogateescape")
        parts.append(b"%s%s %d\n%s\n" % (kind, numbers, len(data), data))
    target.write_bytes(b"".join(parts))


def outcomes_of(launch: Mapping[str, Any]) -> set[tuple[int, int, bool]]:
    """The lines, and the numbers in them, of tests that held or failed, by the counters of a launch."""
    names = [name.rpartition("@") for name in launch["executed"]]
    return {
        (int(line), number, opcode == pair[0])
        for number, pair in enumerate(MARKERS)
        for opcode, _, line in names
        if opcode in pair
    }


def _records(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The kind, the numbers and the data of each record."""
    at = 0
    while at < len(text):
        head = RECORD.match(text, at)
        if not head:
            raise AnalysisError(f"byte {at} begins no record of a recording")
        end = head.end() + int(head[3])
        yield head[1], head[2], text[head.end() : end]
        at = end + 1
