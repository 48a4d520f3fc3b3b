"""Defects of programs for sm_90a by script: PTX text with one instruction removed, repeated, changed or moved.

for mutant in hopper_mutants(text): ...

The rules read instructions alone, so that they fit the small kernels of kernels/hopper and the versions alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from support.mutations import RACES, Mutant, lines_of

Change = Callable[[re.Match[str]], str]
UNSEEN = RACES | {"uninitialised-shared", "missing-proxy-fence", "missing-init-fence"}  # something is read too early
STUCK = frozenset({"deadlock", "livelock"})
COUNTS = STUCK | RACES | {"barrier-misuse"}  # of arrivals or bytes
ELSEWHERE = UNSEEN | {"out-of-bounds", "wgmma-misuse"}
EARLY = UNSEEN | COUNTS | {"phase-overrun"}  # a wait for the phase before
UNFINISHED = frozenset({"register-in-flight", "async-in-flight", "race"})


@dataclass(frozen=True)
class Rule:
    pattern: str  # of a line
    change: Change
    expected: frozenset[str]  # the classes of finding that may name it


@dataclass(frozen=True)
class HopperMutant(Mutant):
    changes: dict[int, str] = field(default_factory=dict)  # lines by index

    @property
    def text(self) -> str:
        return "\n".join(self.changes.get(i, line) for i, line in enumerate(lines_of(self.original)))

    def __str__(self) -> str:
        return f"{self.kind} {self.ordinal} (PTX line {self.line}: {self.was:.100})"


def nothing(match: re.Match[str]) -> str:
    return ""


def twice(match: re.Match[str]) -> str:
    return f"{match[0]}\n{match[0]}"


def plus(by: int) -> Change:
    """The number or register of the group `count` of a line, changed in place."""

    def change(match: re.Match[str]) -> str:
        head, tail = match[0][: match.start("count")], match[0][match.end("count") :]
        if match["count"].isdigit():
            return f"{head}{int(match['count']) + by}{tail}"
        return f"\t{{ .reg .b32 n; add.s32 n, {match['count']}, {by}; {head.strip()}n{tail} }}"

    return change


def other_parity(match: re.Match[str]) -> str:
    head, tail = match[0][: match.start("count")], match[0][match.end("count") :]
    return f"\t{{ .reg .b32 n; xor.b32 n, {match['count']}, 1; {head.strip()}n{tail} }}"


def always(match: re.Match[str]) -> str:
    """A flag that is true at once."""
    return f"\tmov.u32 {match['flag']}, 1;"


def true_predicate(match: re.Match[str]) -> str:
    return f"\tsetp.eq.u32 {match['flag']}, 0, 0;"


def far_descriptor(match: re.Match[str]) -> str:
    """B begins 128 KB further on."""
    head, tail = match[0][: match.start("b")], match[0][match.end("b") :]
    return f"\t{{ .reg .b64 n; add.s64 n, {match['b']}, 0x2000; {head.strip()} n{tail} }}"


def own_descriptor(match: re.Match[str]) -> str:
    """The last warp of a warpgroup has a descriptor of B of its own, 16 bytes further on."""
    head, tail = match[0][: match.start("b")], match[0][match.end("b") :]
    return (
        "\t{ .reg .b32 w; .reg .b64 n; .reg .pred last; mov.u32 w, %tid.x; and.b32 w, w, 96; setp.eq.u32 last, w, 96; "
        f"mov.b64 n, {match['b']}; @last add.s64 n, n, 1; {head.strip()} n{tail} }}"
    )


WAIT = r"mbarrier\.(?:try|test)_wait\.parity\S* +"
WGMMA = r".*\bwgmma\.mma_async\S+ +\{[^}]*\}, (?:\{[^}]*\}|%\w+),(?P<b> %\w+),.*;.*"
RULES = {
    "proxy fence": Rule(r"\tfence\.proxy\.async.*", nothing, frozenset({"missing-proxy-fence"})),
    "init fence": Rule(r"\tfence\.mbarrier_init.*", nothing, frozenset({"missing-init-fence"})),
    "wgmma fence": Rule(r"\twgmma\.fence.*", nothing, frozenset({"wgmma-misuse"})),
    "wgmma commit": Rule(r"\twgmma\.commit_group.*", nothing, UNFINISHED),
    "wgmma wait": Rule(r"\twgmma\.wait_group.*", nothing, UNFINISHED),
    "wgmma wait for less": Rule(r"\twgmma\.wait_group\S* +(?P<count>\d+);", plus(1), UNFINISHED),
    "descriptor": Rule(WGMMA, far_descriptor, ELSEWHERE),
    "descriptor of a warp": Rule(WGMMA, own_descriptor, frozenset({"wgmma-misuse"})),
    "copies wait": Rule(r"\tcp\.async\.wait_(group|all).*", nothing, UNSEEN),
    "copies commit": Rule(r"\tcp\.async\.commit_group.*", nothing, UNSEEN),
    "mbarrier wait": Rule(r".*" + WAIT + r".*; selp\.u32 (?P<flag>%\w+), 1, 0, p;.*", always, UNSEEN | COUNTS),
    "mbarrier wait in PTX": Rule(r"\s*" + WAIT + r"(?P<flag>\w+) *,[^;]*;", true_predicate, UNSEEN | COUNTS),
    "parity": Rule(r".*" + WAIT + r"[^;]*\], *(?P<count>%\w+|\d+);.*", other_parity, EARLY),
    "arrival": Rule(r"(?!.*(?:_wait|expect_tx)).*\bmbarrier\.arrive.*", nothing, STUCK),
    "second arrival": Rule(r"(?!.*(?:_wait|expect_tx)).*\bmbarrier\.arrive.*", twice, COUNTS | UNSEEN),
    "announcement": Rule(r".*\bmbarrier\.arrive\.expect_tx.*", nothing, COUNTS),
    "more bytes": Rule(r".*\bmbarrier\.arrive\.expect_tx[^;]*, (?P<count>%\w+|\d+);.*", plus(16), COUNTS),
    "fewer bytes": Rule(r".*\bmbarrier\.arrive\.expect_tx[^;]*, (?P<count>%\w+|\d+);.*", plus(-16), COUNTS),
    "more arrivals": Rule(r".*\bmbarrier\.init[^;]*, (?P<count>%\w+|\d+);.*", plus(1), STUCK),
    "fewer arrivals": Rule(r".*\bmbarrier\.init[^;]*, (?P<count>%\w+|\d+);.*", plus(-1), COUNTS | UNSEEN),
    "load": Rule(r".*\bcp\.async\.bulk\S*mbarrier.*", nothing, STUCK | UNSEEN),
    "second load": Rule(r".*\bcp\.async\.bulk\S*mbarrier.*", twice, COUNTS),
    "store": Rule(r".*\bcp\.async\.bulk\S*bulk_group.*", nothing, frozenset({"output-never-written"})),
    "second store": Rule(r".*\bcp\.async\.bulk\S*bulk_group.*", twice, frozenset({"output-written-twice"})),
    "stores commit": Rule(r"\tcp\.async\.bulk\.commit_group.*", nothing, RACES),
    "stores wait": Rule(r"\tcp\.async\.bulk\.wait_group.*", nothing, RACES),
    "stores wait for less": Rule(r"\tcp\.async\.bulk\.wait_group\S* +(?P<count>\d+);", plus(1), RACES),
    "barrier": Rule(r"\tbar\.sync .*", nothing, UNSEEN | COUNTS),
    "barrier arrival": Rule(r"\tbar\.arrive .*", nothing, STUCK),
    "warp barrier": Rule(r"\tbar\.warp\.sync .*", nothing, UNSEEN),
    "registers given": Rule(r"\tsetmaxnreg\.dec.*", nothing, STUCK),
    "registers taken": Rule(r"\tsetmaxnreg\.inc.*", nothing, STUCK),
    "election": Rule(r".*\belect\.sync\b.*selp\.u32 (?P<flag>%\w+), 1, 0, p;.*", always, COUNTS | UNSEEN),
    "result": Rule(r"\tst\.global\..*", nothing, frozenset({"output-never-written"})),
}


def early_releases(lines: Sequence[str]) -> Iterator[tuple[int, dict[int, str]]]:
    """A slot is released before the products that read it are waited for: the wait moves behind the arrival."""
    for i, line in enumerate(lines):
        if not line.startswith("\twgmma.wait_group"):
            continue
        rest = range(i + 1, len(lines))
        arrival = next((k for k in rest if re.search(r"\bmbarrier\.arrive\.sh|\bwgmma\.", lines[k])), i)
        label = next((k for k in range(arrival, len(lines)) if re.match(r"\$?\w+:$", lines[k])), 0)
        if label and "mbarrier" in lines[arrival]:
            yield i, {i: "", label: f"{lines[label]}\n{line}"}


def early_commits(lines: Sequence[str]) -> Iterator[tuple[int, dict[int, str]]]:
    """The last product before a commit is left out of its group: the commit moves ahead of it."""
    for i, line in enumerate(lines):
        if not line.startswith("\twgmma.commit_group"):
            continue
        product = next((k for k in range(i - 1, -1, -1) if "wgmma.mma_async" in lines[k]), i)
        yield i, {i: "", product: f"{line}\n{lines[product]}"}


MOVES = {"early release": early_releases, "early commit": early_commits}


def hopper_mutants(text: str) -> Iterator[HopperMutant]:
    """All mutants of a PTX text with one entry."""
    lines = lines_of(text)
    code = [(i, line) for i, line in enumerate(lines) if line and not line.startswith("\t.loc")]
    for kind, rule in RULES.items():
        fits = re.compile(rule.pattern).fullmatch
        found = [(i, match) for i, line in code if (match := fits(line))]
        for ordinal, (i, match) in enumerate(found):
            yield HopperMutant(kind, ordinal, i + 1, text, "", rule.expected, {i: rule.change(match)})
    for kind, move in MOVES.items():
        for ordinal, (i, changes) in enumerate(move(lines)):
            yield HopperMutant(kind, ordinal, i + 1, text, "", UNFINISHED, changes)
