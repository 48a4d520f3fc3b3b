"""Defects by script: PTX text with one line removed or changed, and the classes of finding that must name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from support.versions import KernelConfig


@cache
def lines_of(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n"))


@dataclass(frozen=True)
class Mutant:
    kind: str
    ordinal: int  # among the places of its kind
    line: int  # of the PTX, from 1
    original: str  # the whole PTX
    instead: str  # of the line
    expected: frozenset[str]

    @property
    def was(self) -> str:
        return lines_of(self.original)[self.line - 1].strip()

    @property
    def text(self) -> str:
        """The whole changed PTX."""
        lines = lines_of(self.original)
        return "\n".join((*lines[: self.line - 1], self.instead, *lines[self.line :]))

    def __str__(self) -> str:
        return f"{self.kind} {self.ordinal} (PTX line {self.line}: {self.was})"


RACES = frozenset({"race", "async-in-flight"})
WRONG_PLACE = RACES | {"uninitialised-shared", "out-of-bounds"}
ADDRESS = r"[^[]*\[%\w+)(?P<offset>\+-?\d+)?(?P<tail>\].*)"
# kind -> the line it is about, by how much its address moves (None: the line is removed), the classes that may name it
RULES: dict[str, tuple[str, str | None, frozenset[str]]] = {
    "barrier": (r"\tbar\.sync .*", None, RACES),
    "warp barrier": (r"\tbar\.warp\.sync .*", None, RACES),
    "wait": (r"\tcp\.async\.wait_(group|all).*", None, RACES),
    "commit": (r"\tcp\.async\.commit_group.*", None, RACES),
    "mbarrier wait": (
        r".*mbarrier\.(?:test|try)_wait.*; selp\.u32 (?P<flag>%\w+), 1, 0, p;.*",
        "done",
        WRONG_PLACE,
    ),
    "mbarrier arrival": (r"(?!.*_wait).*\bmbarrier\.arrive.*", None, RACES | {"deadlock"}),
    "copy": (r"\tcp\.async\.c[ag]\.shared.*", None, RACES | {"uninitialised-shared"}),
    "shifted fragment": (r"(?P<head>\tldmatrix" + ADDRESS, "two blocks", WRONG_PLACE),
    "shifted store": (r"(?P<head>\tst\.shared" + ADDRESS, "one element", WRONG_PLACE),
    "shifted load": (r"(?P<head>\tld\.shared" + ADDRESS, "past the end", WRONG_PLACE),
    "misaligned": (r"(?P<head>\t(?:ldmatrix|ld\.shared\.v4|cp\.async\.cg)" + ADDRESS, "4", frozenset({"misaligned"})),
    "overrun": (
        r"(?P<head>\tcp\.async\.c[ag]\.shared[^,]*, \[%\w+)(?P<offset>\+-?\d+)?(?P<tail>\].*)",
        "far",
        frozenset({"out-of-bounds"}),
    ),
    "initialisation": (
        r"\tmov\.(f32|b32) *\t%\w+, 0f(00000000|FF800000);",
        None,
        frozenset({"uninitialised-register"}),
    ),
    "output": (r"\tst\.(?:relaxed\.sys\.)?global\..*", None, frozenset({"output-never-written"})),
}


def mutants(text: str, config: KernelConfig) -> Iterator[Mutant]:
    """All mutants of a PTX text with one entry, of a configuration."""
    row = config.d_head * 2 + 16 * config.padded_rows
    shifts = {"two blocks": (config.B_r + config.B_c) * row, "past the end": 1 << 18, "4": 4, "far": 1 << 30}
    code = [(i, line) for i, line in enumerate(lines_of(text)) if line and not line.startswith("\t.loc")]
    for kind, (pattern, shift, expected) in RULES.items():
        fits = re.compile(pattern).fullmatch
        found = [(i, match) for i, line in code if (match := fits(line))]
        for ordinal, (i, match) in enumerate(found):
            changed = ""
            if shift == "done":
                changed = f"\tmov.u32 {match['flag']}, 1;"
            elif shift is not None:
                element = 16 if ".v4." in match["head"] else 8 if re.search(r"shared\.[bu]64", match["head"]) else 4
                by = shifts.get(shift) or element
                offset = int((match["offset"] or "0").removeprefix("+")) + by
                changed = f"{match['head']}+{offset}{match['tail']}"
            yield Mutant(kind, ordinal, i + 1, text, changed, expected)


SHARED_READ = re.compile(r"\t(?:ldmatrix|ld\.shared)")
WAIT = re.compile(r"\tcp\.async\.wait_group\s+(\d+)")


def equivalent(mutant: Mutant, text: str) -> str:
    """Why a mutant is the same program as the original text, where the lines around it show it; else ""."""
    lines = lines_of(text)
    at = mutant.line - 1
    if mutant.kind == "wait" and _nothing_pending(lines, at):
        return "no copy was issued since a wait for all groups"
    if mutant.kind == "wait" and (match := WAIT.match(lines[at])) and _followed_by_wait(lines, at, int(match[1])):
        return "a wait for as much follows before shared memory is read"
    if mutant.kind == "commit" and _joins_a_group(lines, at):
        return "its copies join the next group, and a wait for that follows before shared memory is read"
    barrier = mutant.kind in ("barrier", "warp barrier")
    frees_nothing = not barrier or _nothing_read_since_barrier(lines, at)
    if (barrier or mutant.kind in ("wait", "commit")) and frees_nothing and _arrives_at_mbarrier(lines, at):
        return (
            "a copy's arrival at an mbarrier comes after all copies of its thread, and that is waited for before a read"
        )
    if mutant.kind == "warp barrier" and _followed_by_barrier(lines, at):
        return "a barrier of the CTA follows before shared memory is read"
    if mutant.kind == "mbarrier wait" and _first_after_set_up(lines, at):
        return "it waits for the phase before the first, which counts as complete"
    if mutant.kind == "initialisation" and _before_the_loop_guard(lines, at):
        return "it is the result of a launch without a KV block, and set again where there is one"
    if mutant.kind == "initialisation" and _set_already(lines, at):
        return "its register has that value already"
    return ""


def _straight(lines: Sequence[str], at: int) -> Iterator[str]:
    """The lines that follow, up to a jump to before them: a guard that skips a loop is not taken, a jump that is always
    taken leads on, and a loop that lies in them adds nothing to its first round."""
    i = at + 1
    while i < len(lines):
        jump = re.search(r"\bbra(?:\.uni)?\s+(\$?\w+);", lines[i])
        if jump and f"{jump[1]}:" in lines[:at]:
            return
        yield lines[i]
        if jump and not lines[i].lstrip().startswith("@"):
            if f"{jump[1]}:" not in lines[i:]:
                return
            i = lines.index(f"{jump[1]}:", i)
        i += 1


def _followed_by_wait(lines: Sequence[str], at: int, groups: int) -> bool:
    for line in _straight(lines, at):
        if SHARED_READ.match(line):
            return False
        if (match := WAIT.match(line)) and int(match[1]) <= groups:
            return True
    return False


def _joins_a_group(lines: Sequence[str], at: int) -> bool:
    commits = 0
    for line in _straight(lines, at):
        if SHARED_READ.match(line):
            return False
        commits += line.startswith("\tcp.async.commit_group")
        if (match := WAIT.match(line)) and commits > int(match[1]):
            return True
    return False


def _arrives_at_mbarrier(lines: Sequence[str], at: int) -> bool:
    last_commit = max((i for i, line in enumerate(lines[: at + 1]) if "commit_group" in line), default=at)
    arrives = any("cp.async.mbarrier.arrive" in line for line in lines[last_commit:at])
    for line in _straight(lines, at):
        if SHARED_READ.match(line):
            return False
        arrives = arrives or "cp.async.mbarrier.arrive" in line
        if arrives and re.search(r"\bmbarrier\.(try|test)_wait", line):
            return True
    return False


def _nothing_read_since_barrier(lines: Sequence[str], at: int) -> bool:
    """Whether no shared memory is read between the barrier above and this one, which would free it for copies."""
    for line in reversed(lines[:at]):
        if SHARED_READ.match(line):
            return False
        if line.startswith("\tbar."):
            return True
    return True


def _followed_by_barrier(lines: Sequence[str], at: int) -> bool:
    for line in _straight(lines, at):
        if SHARED_READ.match(line) or line.startswith("\tst.shared"):
            return False
        if line.startswith("\tbar.sync"):
            return True
    return False


def _nothing_pending(lines: Sequence[str], at: int) -> bool:
    for line in reversed(lines[:at]):
        if (match := WAIT.match(line)) and int(match[1]) == 0:
            return True
        if "cp.async" in line or re.match(r"\$?\w+:", line) or "\tbra" in line:
            return False
    return False


def _first_after_set_up(lines: Sequence[str], at: int) -> bool:
    """Whether an mbarrier wait is the first one after the mbarriers were set up: that of the stages' first filling."""
    for line in reversed(lines[:at]):
        if re.search(r"\bmbarrier\.(init|(try|test)_wait)", line):
            return "mbarrier.init" in line
    return False


def _before_the_loop_guard(lines: Sequence[str], at: int) -> bool:
    """Whether the block that holds the line ends in a conditional branch forwards."""
    for i, line in enumerate(lines[at:], at):
        if jump := re.search(r"@!?%\w+ bra\s+(\$?\w+);", line):
            return f"{jump[1]}:" in lines[i:]
        if re.match(r"\$?\w+:", line):
            return False
    return False


def _set_already(lines: Sequence[str], at: int) -> bool:
    """Whether the same line stands before it, with no other write of its register and no label between the two; or
    its register is moved from one that such a line sets."""
    line = lines[at]
    for place in reversed(range(at)):
        if lines[place] == line:
            return True
        if re.match(r"\$?\w+:", lines[place]):
            return False
        if _destinations(line) & _destinations(lines[place]):
            moved = re.fullmatch(r"(\tmov\.\w+ \t%\w+, )(%\w+);", lines[place])
            if not moved or not lines[at].startswith(moved[1]):
                return False
            (old,) = _destinations(line)
            line = line.replace(f"{old},", f"{moved[2]},")
    return False


def _destinations(line: str) -> set[str]:
    """The registers of an instruction's first operand."""
    operand = re.match(r"\s*(?:@!?%\w+\s+)?[a-z][\w.:]*\s+(\{[^}]*\}|[^,;]*)", line)
    return set(re.findall(r"%\w+", operand[1])) if operand else set()


# Accesses by an address that is wrong: each is reported at its own line, however many there are, and disturbs no other.
TOGETHER = ("misaligned", "overrun", "shifted load", "shifted fragment")


def together(found: Sequence[Mutant]) -> str:
    """One text with the changes of several mutants. Without .loc: findings of one line of the source count as one."""
    lines = ["" if line.startswith("\t.loc") else line for line in lines_of(found[0].original)]
    for mutant in found:
        lines[mutant.line - 1] = mutant.instead
    return "\n".join(lines)


SYNCHRONISATION = ("barrier", "warp barrier", "wait", "commit", "mbarrier wait", "mbarrier arrival")
