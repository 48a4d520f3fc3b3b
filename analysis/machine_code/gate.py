"""The gate: figures of a fresh build against those accepted, and committed files against fresh ones.

    python3 -m analysis gate --exit-code
    python3 -m analysis accept --version v09 --why "two registers more buy the second stage"

regs/baseline.csv holds what has been accepted. More registers, stack, spills, LDL, STL or static shared memory, a
longer KV loop, changed code of an unchanged source and a new advisory fail, with the line that accepts them. Figures
that got better are reported and accepted in the same way. A baseline of another toolkit is skipped, never passed.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import Version, load_all, load_chosen
from analysis.machine_code.cubin import code_summary
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regions import split
from analysis.machine_code.regs import rows_of, to_csv
from analysis.machine_code.sass import disassemble, format_listing
from analysis.machine_code.toolkit import run as run_tool
from analysis.table import Table, add_table_arguments, print_table, read_columns

DEFAULT_ARCHS = "80 90"
NOT_COUNTED = "n/a"


@dataclass(frozen=True)
class Figures:
    """What the gate compares of one kernel. Loop figures exist for the version's own config only."""

    version: str
    arch: str
    config: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    static_smem: int
    ldl: int
    stl: int
    loop: int | None  # instructions of the KV loop
    loop_ldl: int | None
    loop_stl: int | None
    advisories: str  # codes joined by "+", "" for none
    code_hash: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.version, self.arch, self.config)


@dataclass(frozen=True)
class Accepted:
    """One line of the baseline: figures, what they were built from, and why they were accepted."""

    figures: Figures
    source_hash: str  # of the kernel's source below its header block
    toolkit: str
    why: str


@dataclass(frozen=True)
class Finding:
    """One difference. A failing one needs a change or an `accept`."""

    version: str
    arch: str
    config: str
    figure: str
    before: str | int | None
    after: str | int | None
    fails: bool
    note: str


WORSE_WHEN_MORE = (
    "registers",
    "stack",
    "spill_stores",
    "spill_loads",
    "static_smem",
    "ldl",
    "stl",
    "loop",
    "loop_ldl",
    "loop_stl",
)
COLUMNS = (*(field.name for field in fields(Figures)), "source_hash", "toolkit", "why")


# ---- fresh figures ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fresh:
    """One version built for one architecture: its figures and the texts that its committed files should hold."""

    figures: list[Figures]
    regs_text: str
    sass_text: str


def measure(folder: Path, version: Version, arch: str) -> Fresh:
    """Read the build of a version below `folder`: its ptxas log, its cubin and the listing of its own config."""
    cubin = folder / "build" / version.version / f"{arch}.cubin"
    log_path = folder / "logs/ptxas" / f"{version.version}.{arch}.log"
    for path in (cubin, log_path):
        if not path.exists():
            raise AnalysisError(f"{path} is missing: run `make {version.version}`")
    log = read_log(log_path)
    rows = rows_of(log, code_summary(cubin))
    listing = disassemble(cubin, version.header.config)
    loop = split(listing).loop
    own = str(version.header.config)
    codes = "+".join(sorted({note.code for note in log.notes if note.code}))
    figures = [
        Figures(
            version=version.version,
            arch=arch,
            config=row.config,
            registers=row.registers,
            stack=row.stack,
            spill_stores=row.spill_stores,
            spill_loads=row.spill_loads,
            static_smem=row.static_smem,
            ldl=row.ldl or 0,
            stl=row.stl or 0,
            loop=len(loop) if row.config == own else None,
            loop_ldl=sum(at.base == "LDL" for at in loop) if row.config == own else None,
            loop_stl=sum(at.base == "STL" for at in loop) if row.config == own else None,
            advisories=codes,
            code_hash=row.code_hash or "",
        )
        for row in rows
    ]
    return Fresh(figures, to_csv(rows), format_listing(listing))


def source_hash(version: Version) -> str:
    """A hash of the source below the header block, whose predictions and records may change freely."""
    return hashlib.sha256("\n".join(version.body()).encode()).hexdigest()[:16]


def toolkit_version(folder: Path) -> str:
    """The toolkit that the build below `folder` was made with."""
    stamp = folder / "build/toolkit.h"
    if stamp.exists():
        found = re.search(r'FL_TOOLKIT "([0-9.]+)"', read_text(stamp))
        if not found:
            raise AnalysisError(f"{stamp}: holds no FL_TOOLKIT")
        return found[1]
    found = re.search(r"\bV([0-9.]+)", run_tool("ptxas", ["--version"]))
    if not found:
        raise AnalysisError("ptxas --version prints no version")
    return found[1]


def pinned_toolkit(folder: Path) -> str:
    """The toolkit that requirements.txt pins: the only one that a baseline may be of."""
    path = folder / "requirements.txt"
    found = re.search(r"^nvidia-cuda-nvcc==([0-9.]+)", read_text(path), re.MULTILINE)
    if not found:
        raise AnalysisError(f"{path}: pins no nvidia-cuda-nvcc")
    return found[1]


# ---- the baseline ----------------------------------------------------------------------------------------------------


def baseline_path(folder: Path) -> Path:
    return folder / "regs/baseline.csv"


def baseline_text(lines: Iterable[Accepted]) -> str:
    """The text of baseline.csv, sorted."""
    rows = []
    for line in sorted(lines, key=lambda line: line.figures.key):
        values = [NOT_COUNTED if value is None else value for value in asdict(line.figures).values()]
        rows.append([*values, line.source_hash, line.toolkit, line.why])
    return Table(COLUMNS, rows).csv()


def parse_baseline(text: str, name: str) -> dict[tuple[str, str, str], Accepted]:
    """The accepted figures by version, architecture and config."""
    baseline: dict[tuple[str, str, str], Accepted] = {}
    for where, values in read_columns(text, COLUMNS, name):

        def number(column: str, where: str = where, values: dict[str, str] = values) -> int:
            if not re.fullmatch(r"[0-9]{1,9}", values[column]):
                raise AnalysisError(f"{where}: {column} = {values[column]!r}: not a number")
            return int(values[column])

        def counted(column: str, values: dict[str, str] = values) -> int | None:
            return None if values[column] == NOT_COUNTED else number(column, values=values)

        figures = Figures(
            version=values["version"],
            arch=values["arch"],
            config=values["config"],
            registers=number("registers"),
            stack=number("stack"),
            spill_stores=number("spill_stores"),
            spill_loads=number("spill_loads"),
            static_smem=number("static_smem"),
            ldl=number("ldl"),
            stl=number("stl"),
            loop=counted("loop"),
            loop_ldl=counted("loop_ldl"),
            loop_stl=counted("loop_stl"),
            advisories=values["advisories"],
            code_hash=values["code_hash"],
        )
        if figures.key in baseline:
            raise AnalysisError(f"{where}: {' '.join(figures.key)} is there twice")
        baseline[figures.key] = Accepted(figures, values["source_hash"], values["toolkit"], values["why"])
    return baseline


def read_baseline(folder: Path) -> dict[tuple[str, str, str], Accepted]:
    """The baseline below `folder`; empty when there is none yet."""
    path = baseline_path(folder)
    return parse_baseline(read_text(path), str(path)) if path.exists() else {}


# ---- judging ---------------------------------------------------------------------------------------------------------


def judge(fresh: Figures, accepted: Accepted | None, source: str) -> list[Finding]:
    """Compare one kernel's fresh figures with the accepted ones; `source` is the hash of the source they come from."""

    def finding(figure: str, before: str | int | None, after: str | int | None, fails: bool, note: str) -> Finding:
        return Finding(*fresh.key, figure, before, after, fails, note)

    if accepted is None:
        return [finding("baseline", "absent", f"{fresh.registers} registers", True, "not accepted yet")]
    old = accepted.figures
    found = []
    for name in WORSE_WHEN_MORE:
        before, after = getattr(old, name), getattr(fresh, name)
        if before != after:
            worse = before is None or after is None or after > before
            found.append(finding(name, before, after, worse, "worse" if worse else "better: accept it"))
    new = set(fresh.advisories.split("+")) - set(old.advisories.split("+")) - {""}
    if new:
        found.append(finding("advisories", old.advisories, fresh.advisories, True, f"new: {'+'.join(sorted(new))}"))
    if old.code_hash != fresh.code_hash:
        same_source = accepted.source_hash == source
        note = "the code changed though the source did not" if same_source else "the source changed: accept it"
        found.append(finding("code_hash", old.code_hash, fresh.code_hash, same_source, note))
    return found


def judge_version(
    folder: Path, version: Version, arch: str, fresh: Fresh, baseline: dict[tuple[str, str, str], Accepted]
) -> list[Finding]:
    """All findings on one version and architecture: its figures, its baseline lines, its committed files."""
    source = source_hash(version)
    found = []
    for figures in fresh.figures:
        found += judge(figures, baseline.get(figures.key), source)
    built = {figures.key for figures in fresh.figures}
    for key in sorted(baseline):
        if key[:2] == (version.version, arch) and key not in built:
            found.append(Finding(*key, "baseline", "accepted", "not built", True, "the version's config changed"))
    for name, text in ((f"regs/{version.version}.{arch}.csv", fresh.regs_text),
                       (f"sass/{version.version}.{arch}.sass", fresh.sass_text)):  # fmt: skip
        path = folder / name
        state = "fresh" if path.exists() and read_text(path) == text else "stale" if path.exists() else "missing"
        if state != "fresh":
            remedy = f"run `make {name.split('/')[0]} VER={version.version}`"
            found.append(Finding(version.version, arch, "", name, state, "fresh", True, remedy))
    return found


def leftover_files(folder: Path, versions: Iterable[str]) -> list[Finding]:
    """Committed files and baseline lines of versions that are no longer there."""
    known = set(versions)
    found = []
    for path in [*sorted((folder / "regs").glob("v*.csv")), *sorted((folder / "sass").glob("v*.sass"))]:
        if path.name[:3] not in known:
            name = f"{path.parent.name}/{path.name}"
            found.append(Finding(path.name[:3], "", "", name, "there", "no such version", True, "remove it"))
    for version in sorted({key[0] for key in read_baseline(folder)} - known):
        found.append(Finding(version, "", "", "baseline", "accepted", "no such version", True, "remove its lines"))
    return found


def skip_reason(folder: Path, baseline: dict[tuple[str, str, str], Accepted]) -> str | None:
    """Why the baseline says nothing about this build, or None when it does."""
    ours = toolkit_version(folder)
    others = sorted({line.toolkit for line in baseline.values()} - {ours})
    return f"skipped: baseline is for {', '.join(others)}, this build is of {ours}" if others else None


def check(folder: Path, versions: dict[str, Version], archs: list[str]) -> list[Finding]:
    """Every finding on the versions. The caller asks skip_reason() first."""
    baseline = read_baseline(folder)
    found = []
    for version in versions.values():
        for arch in archs:
            found += judge_version(folder, version, arch, measure(folder, version, arch), baseline)
    return found


def accept_line(versions: Iterable[str]) -> str:
    """What to type to accept the figures of these versions."""
    return f'make accept VER="{" ".join(sorted(set(versions)))}" WHY="..."'


def accept(folder: Path, versions: dict[str, Version], archs: list[str], why: str) -> int:
    """Move the figures of these versions into the baseline; the number of lines that changed."""
    toolkit, pinned = toolkit_version(folder), pinned_toolkit(folder)
    if toolkit != pinned:
        raise AnalysisError(f"this build is of toolkit {toolkit}; a baseline is of the pinned one, {pinned}")
    before = read_baseline(folder)
    after = {key: line for key, line in before.items() if not (key[0] in versions and key[1] in archs)}
    for version in versions.values():
        for arch in archs:
            for figures in measure(folder, version, arch).figures:
                line = Accepted(figures, source_hash(version), toolkit, why)
                old = before.get(figures.key)
                # a line whose figures stay keeps the reason that it was accepted for
                after[figures.key] = old if old and replace(line, why=old.why) == old else line
    write_if_changed(baseline_path(folder), baseline_text(after.values()))
    return sum(before.get(key) != after.get(key) for key in before.keys() | after.keys())


# ---- commands --------------------------------------------------------------------------------------------------------


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help='versions, such as "v09 v10"')
    parser.add_argument("--archs", metavar="ARCHS", default=os.environ.get("ARCHS") or DEFAULT_ARCHS,
                        help=f'architectures, such as "{DEFAULT_ARCHS}"; without it $ARCHS, else these')  # fmt: skip


def _archs(text: str) -> list[str]:
    archs = [f"sm_{arch.removeprefix('sm_')}" for arch in text.replace(",", " ").split()]
    if not archs:
        raise AnalysisError("--archs names no architecture")
    return archs


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common_arguments(parser)
    parser.add_argument("--exit-code", action="store_true", help="status 1 when a finding fails")
    add_table_arguments(parser)


def run_gate(args: argparse.Namespace) -> int:
    folder, archs = root(), _archs(args.archs)
    reason = skip_reason(folder, read_baseline(folder))
    if reason:
        print(reason)
        return DONE
    found = check(folder, load_chosen(folder, args.version), archs)
    if not args.version:
        found += leftover_files(folder, load_all(folder))
    failing = [finding for finding in found if finding.fails]
    columns = [field.name for field in fields(Finding)]
    if found or args.json or args.csv:
        print_table(Table(columns, [list(asdict(finding).values()) for finding in found]), args)
    if failing:
        print(f"{len(failing)} findings fail; to accept figures: {accept_line(f.version for f in failing)}",
              file=sys.stderr)  # fmt: skip
    elif not (args.json or args.csv):
        print("the build is as accepted" if not found else "nothing got worse")
    return DIFFERENT if failing and args.exit_code else DONE


def add_accept_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common_arguments(parser)
    parser.add_argument("--why", metavar="WHY", required=True, help="the reason, kept in the baseline")
    parser.add_argument("--json", action="store_true", help="print the number of changed lines as JSON")


def run_accept(args: argparse.Namespace) -> int:
    if not args.version:
        raise AnalysisError("--version is missing: name the versions to accept, such as VER=v09")
    why = " ".join(args.why.split())
    if not why:
        raise AnalysisError("--why is empty: say why these figures are right")
    changed = accept(root(), load_chosen(root(), args.version), _archs(args.archs), why)
    path = baseline_path(root()).relative_to(root())
    print(
        json.dumps({"file": str(path), "changed_lines": changed}) if args.json else f"{path}: {changed} lines changed"
    )
    return DONE
