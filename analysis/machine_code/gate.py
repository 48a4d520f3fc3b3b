"""The gate: figures of a fresh build against those accepted, and committed files against fresh ones.

    python3 -m analysis gate --exit-code
    python3 -m analysis accept --version v09 --why "two registers more buy the second stage"

regs/registers.csv and sass/ hold the figures and the code, as `make regs sass` wrote them: a stale or missing one is a
difference, reported figure by figure as worse, better or changed. Next to its figures a line of registers.csv holds the
hash of the figures that were accepted, and the reason: a figure that nobody accepted is a difference, even once `make
regs` has recorded it. regs/loops.csv holds the accepted figures of every KV loop and of the rest of the kernel, so what
grew is named even after the listings were made again. A new advisory of ptxas is a difference as well. Figures of
another toolkit are skipped, never passed. Files given on the command line are compared with a baseline of their own
(baseline.py).
"""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from analysis.building import built
from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import in_checkout, read_text, root, write_if_changed
from analysis.ladder.headers import (
    TO_FILL_IN,
    Version,
    changed_lines,
    load_all,
    load_chosen,
    load_off_ladder,
    name_of_stem,
    stem_of,
)
from analysis.machine_code.baseline import add_file_arguments, run_accept_of_files, run_gate_of_files
from analysis.machine_code.contents import code_summary
from analysis.machine_code.loops import (
    PART_FIGURES,
    REST,
    Part,
    loops_path,
    loops_text,
    measure_loops,
    parts_with_figures,
    read_loops,
)
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regions import Graph
from analysis.machine_code.regs import (
    FIGURES,
    Accepted,
    Key,
    Row,
    cells,
    merge_registers,
    read_accepted,
    read_registers,
    registers_path,
    rows_of_code,
)
from analysis.machine_code.sass import Listing, disassemble, format_listing
from analysis.machine_code.subjects import subject_of_cubin
from analysis.machine_code.toolkit import run as run_tool
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table

DEFAULT_ARCHS = "80 90"
WORSE_WHEN_MORE = (
    *("registers", "stack", "spill_stores", "spill_loads", "static_smem", "ldl", "stl"),
    *(name for name in PART_FIGURES if name != "matrix"),
)


@dataclass(frozen=True)
class Fresh:
    """One version built for one architecture."""

    version: str
    arch: str
    rows: list[Row]
    listing: Listing  # of the version's own config
    advisories: str  # codes joined by "+", "" for none
    sass_text: str  # what the committed listing should hold


@dataclass(frozen=True)
class Finding:
    """One difference that needs a change or an `accept`."""

    version: str
    arch: str
    config: str
    figure: str
    before: str | int | None
    after: str | int | None
    note: str


# ---- fresh figures ---------------------------------------------------------------------------------------------------


def cubin_of(folder: Path, version: Version, arch: str) -> Path:
    return folder / "build" / version.stem / f"{arch}.cubin"


def measure(folder: Path, version: Version, arch: str) -> Fresh:
    """Read the build of a version below `folder`: its ptxas log, its cubin and the listing of its own config."""
    cubin = cubin_of(folder, version, arch)
    log_path = folder / "logs/ptxas" / f"{version.stem}.{arch}.log"
    for path in (cubin, log_path):
        if not path.exists():
            raise AnalysisError(f"{path} is missing: run `make {version.stem} ARCHS={arch.removeprefix('sm_')}`")
    log = read_log(log_path)
    listing = disassemble(cubin, version.header.config)
    advisories = "+".join(sorted({note.code for note in log.notes if note.code}))
    rows = rows_of_code(log, code_summary(cubin))
    return Fresh(version.version, arch, rows, listing, advisories, format_listing(listing))


def figures_hash(row: Row) -> str:
    """A hash of a row of registers.csv: of every figure, the hash of the machine code among them."""
    return hashlib.sha256(repr(cells(row)).encode()).hexdigest()[:16]


def source_hash(version: Version) -> str:
    """A hash of the source below the header block, whose predictions and records may change freely.

    For kernels of kernels/attention/, kernels/backward/ and kernels/fp8/ it includes the headers next to them.
    """
    off_ladder = not version.is_of_ladder
    headers = sorted(version.path.parent.glob("*.cuh")) if off_ladder else []
    texts = ["\n".join(version.body()), *map(read_text, headers)]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


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
    """The toolkit that requirements.lock pins: the only one that a baseline may be of."""
    path = folder / "requirements.lock"
    found = re.search(r"^nvidia-cuda-nvcc==([0-9.]+)", read_text(path), re.MULTILINE)
    if not found:
        raise AnalysisError(f"{path}: pins no nvidia-cuda-nvcc")
    return found[1]


# ---- judging ---------------------------------------------------------------------------------------------------------


def compare_rows(version: str, fresh: Sequence[Row], recorded: Sequence[Row]) -> list[Finding]:
    """The differences between fresh rows of one architecture and those of registers.csv."""
    old, new = ({row.config: row for row in rows} for rows in (recorded, fresh))
    found = []
    for config in sorted(old.keys() | new.keys()):
        before, after = old.get(config), new.get(config)
        arch = (after or recorded[0]).arch
        if before is None or after is None:
            there = "absent" if before is None else "there"
            found.append(Finding(version, arch, config, "regs/registers.csv", there, "built" if after else "not built",
                                 f"run `make regs VER={stem_of(version)}`"))  # fmt: skip
            continue
        found += [
            Finding(version, arch, config, name, getattr(before, name), getattr(after, name), note)
            for name in (*FIGURES, "cmem", "code_hash", "attributes")
            if (note := change(name, getattr(before, name), getattr(after, name)))
        ]
    return found


def change(figure: str, before: Cell, after: Cell) -> str:
    """The change of a metric; "" if it did not change."""
    if before == after:
        return ""
    if figure not in WORSE_WHEN_MORE or not isinstance(before, int) or not isinstance(after, int):
        return "changed"
    return "worse" if after > before else "better"


def compare_listings(folder: Path, fresh: Fresh) -> list[Finding]:
    """The difference if the committed listing is not the fresh one. Only Hopper's has to be there: `make sass` writes
    others to sass/ where they are committed."""
    name = f"sass/{stem_of(fresh.version)}.{fresh.arch}.sass"
    path = folder / name
    text = read_text(path) if path.exists() else None
    if text == fresh.sass_text or (text is None and not fresh.arch.startswith("sm_90")):
        return []
    there = "missing" if text is None else "stale"
    return [
        Finding(fresh.version, fresh.arch, "", name, there, "fresh", f"run `make sass VER={stem_of(fresh.version)}`")
    ]


def compare_loops(fresh: Fresh, accepted: Sequence[Part]) -> list[Finding]:
    """The differences between the metrics of the fresh KV loops, and of the rest of the kernel, and the accepted
    ones."""

    def finding(figure: str, before: str | int | None, after: str | int | None, note: str) -> Finding:
        return Finding(fresh.version, fresh.arch, str(fresh.listing.config or ""), figure, before, after, note)

    found = parts_with_figures(Graph(fresh.listing))
    if not accepted:
        return [finding("regs/loops.csv", "absent", f"{len(found) - 1} KV loops", "not accepted yet")]
    old = [part for part in accepted if part.part != REST]
    if len(old) != len(found) - 1:
        return [finding("KV loops", len(old), len(found) - 1, "changed")]
    ordered = [*old, *(part for part in accepted if part.part == REST)]
    findings = []
    for part, (loop, figures) in zip(ordered, found, strict=True):
        before, after = asdict(part.figures), asdict(figures)
        findings += [
            finding(f"{part.name}: {name}", before[name], after[name], note)
            for name in PART_FIGURES
            if (note := change(name, before[name], after[name]))
        ]
        first = f"{loop.header:04x}" if loop else part.first
        if first != part.first:
            findings.append(finding(f"{part.name}: first", part.first, first, "changed"))
    return findings


def judge(row: Row, advisories: str, accepted: Accepted | None, key: Key, source: str) -> list[Finding]:
    """True if one kernel is as accepted; `source` is the hash of the source that it comes from."""
    if accepted is None:
        return [Finding(*key, "accepted", "nothing", f"{row.registers} registers", "not accepted yet")]
    found = []
    new = set(advisories.split("+")) - set(accepted.advisories.split("+")) - {""}
    if new:
        note = f"new: {'+'.join(sorted(new))}"
        found.append(Finding(*key, "advisories", accepted.advisories, advisories, note))
    if accepted.figures_hash != figures_hash(row):
        same = accepted.source_hash == source
        note = "the figures changed though the source did not" if same else "the source changed: accept its figures"
        found.append(Finding(*key, "accepted", accepted.figures_hash, figures_hash(row), note))
    return found


def judge_version(
    folder: Path,
    version: Version,
    fresh: Fresh,
    recorded: Sequence[Row],
    accepted: Mapping[Key, Accepted],
    loops: Sequence[Part],
) -> list[Finding]:
    """All findings on one version and architecture: its committed figures, listing and loops, and what is accepted."""
    recorded = [row for row in recorded if row.arch == fresh.arch]
    found = compare_rows(version.version, fresh.rows, recorded) + compare_listings(folder, fresh)
    found += compare_loops(fresh, loops)
    source = source_hash(version)
    for row in fresh.rows:
        key = (version.version, fresh.arch, row.config)
        found += judge(row, fresh.advisories, accepted.get(key), key, source)
    return found


def leftover_files(folder: Path, versions: Iterable[str]) -> list[Finding]:
    """Find listings, and lines of registers.csv and loops.csv, that belong to versions that no longer exist."""
    known = set(versions)

    def gone(version: str, what: str, remedy: str) -> Finding:
        return Finding(version, "", "", what, "there", "no such version", remedy)

    found = [
        gone(name, f"sass/{path.name}", "remove it")
        for path in sorted((folder / "sass").glob("*.sass"))
        for name in [name_of_stem(path.name.rpartition(".sm_")[0])]
        if name not in known
    ]
    remedy = {"regs/registers.csv": "run `make regs`", "regs/loops.csv": "remove its lines"}
    recorded = [read_registers(folder).keys(), {key[0] for key in read_loops(folder)}]
    for (name, what), versions_there in zip(remedy.items(), recorded, strict=True):
        found += [gone(version, name, what) for version in sorted(versions_there - known)]
    return found


def skip_reason(folder: Path) -> str | None:
    """Why the accepted figures say nothing about this build, or None when they do."""
    ours = toolkit_version(folder)
    others = sorted({one.toolkit for one in read_accepted(folder).values()} - {ours})
    return f"skipped: the accepted figures are of {', '.join(others)}, this build is of {ours}" if others else None


def check(folder: Path, versions: dict[str, Version], archs: list[str]) -> list[Finding]:
    """Every finding on the versions. The caller asks skip_reason() first."""
    accepted, recorded, loops = read_accepted(folder), read_registers(folder), read_loops(folder)
    found = []
    for name, version in versions.items():
        for arch in version.archs(archs):
            fresh = measure(folder, version, arch)
            found += judge_version(
                folder, version, fresh, recorded.get(name, []), accepted, loops.get((name, arch), [])
            )
    return found


def accept_line(versions: Iterable[str]) -> str:
    """The command that accepts the metrics of these versions."""
    return f'make accept VER="{" ".join(map(stem_of, sorted(set(versions))))}" WHY="..."'


def refuse_unfinished(folder: Path, versions: dict[str, Version]) -> None:
    """Reject a version whose header block has lines to fill in, or whose source is that of its parent."""
    everything = load_all(folder)
    for version in versions.values():
        if version.header.to_fill_in:
            keys = ", ".join(version.header.to_fill_in)
            raise AnalysisError(f"{version.path}: its header block still has {TO_FILL_IN!r} for {keys}; fill them in")
        parent = everything.get(version.header.parent)
        if parent and not changed_lines(parent, version):
            raise AnalysisError(f"{version.path}: no line differs from {parent.version}: make its change first")


def accept(folder: Path, versions: dict[str, Version], archs: list[str], why: str) -> int:
    """Record the figures of these versions as accepted; return how many kernels were accepted anew.

    The figures of their loops go to regs/loops.csv, with what the emulator counts in each.
    """
    toolkit, pinned = toolkit_version(folder), pinned_toolkit(folder)
    if toolkit != pinned:
        raise AnalysisError(f"toolkit {toolkit}: accepted numbers must come from the pinned one, {pinned}")
    refuse_unfinished(folder, versions)
    before, loops = read_accepted(folder), read_loops(folder)
    after: dict[Key, Accepted] = {}
    builds = []
    for version in versions.values():
        for arch in version.archs(archs):
            fresh = measure(folder, version, arch)
            own = subject_of_cubin(cubin_of(folder, version, arch), version.header.config)
            loops[version.version, arch] = measure_loops(own, version.version)
            builds.append((version.version, fresh.rows))
            for row in fresh.rows:
                key = (version.version, arch, row.config)
                one = Accepted(figures_hash(row), fresh.advisories, source_hash(version), toolkit, why)
                old = before.get(key)
                # figures that have not changed keep the reason that they were accepted for
                after[key] = old if old and replace(one, why=old.why) == old else one
    merge_registers(folder, builds, after)
    write_if_changed(loops_path(folder), loops_text(part for parts in loops.values() for part in parts))
    return sum(before.get(key) != one for key, one in after.items())


def differences(found: Sequence[Finding]) -> Table:
    """One row a finding: what it is of, the figure before and after, and what it means."""
    columns = [field.name for field in fields(Finding)]
    return Table(columns, [list(asdict(finding).values()) for finding in found])


# ---- commands --------------------------------------------------------------------------------------------------------


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help='versions, such as "v09 v10"')
    parser.add_argument("--archs", metavar="ARCHS", default=os.environ.get("ARCHS") or DEFAULT_ARCHS,
                        help=f'architectures, such as "{DEFAULT_ARCHS}"; default: $ARCHS, else these')  # fmt: skip


def _archs(text: str) -> list[str]:
    archs = [f"sm_{arch.removeprefix('sm_')}" for arch in text.replace(",", " ").split()]
    if not archs:
        raise AnalysisError("--archs: must name an architecture, such as sm_90a")
    return archs


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_arguments(parser)
    if in_checkout():
        _add_common_arguments(parser)
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if there is a difference")
    add_table_arguments(parser)


def run_gate(args: argparse.Namespace) -> int:
    if args.files or args.baseline or not in_checkout():
        return run_gate_of_files(args)
    folder, archs = root(), _archs(args.archs)
    reason = skip_reason(folder)
    if reason:
        print(reason)
        return DONE
    versions = load_chosen(folder, args.version) if args.version else load_all(folder) | load_off_ladder(folder)
    built("cubins", VER=" ".join(version.stem for version in versions.values()))
    found = check(folder, versions, archs)
    if not args.version:
        found += leftover_files(folder, versions)
    if found or args.json or args.csv:
        print_table(differences(found), args)
    if found:
        print(f"{len(found)} differences; to accept the figures: {accept_line(one.version for one in found)}",
              file=sys.stderr)  # fmt: skip
    elif not (args.json or args.csv):
        print("the build is as accepted")
    return DIFFERENT if found and args.exit_code else DONE


def add_accept_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_arguments(parser)
    if in_checkout():
        _add_common_arguments(parser)
        parser.add_argument("--check", action="store_true", help="only check that the version is finished")
    parser.add_argument(
        "--why", metavar="WHY", required=True, help="the reason, which is stored with the accepted numbers"
    )
    parser.add_argument("--json", action="store_true", help="print the number of changed lines as JSON")


def run_accept(args: argparse.Namespace) -> int:
    why = " ".join(args.why.split())
    if not why:
        raise AnalysisError("--why: must not be empty; state why these numbers are correct")
    if args.files or args.baseline or not in_checkout():
        return run_accept_of_files(args, why)
    if not args.version:
        raise AnalysisError("--version: missing; name the versions to accept, such as VER=v09")
    versions = load_chosen(root(), args.version)
    if args.check:
        refuse_unfinished(root(), versions)
        return DONE
    changed = accept(root(), versions, _archs(args.archs), why)
    path = registers_path(root()).relative_to(root())
    emit(
        json_text({"file": str(path), "changed": changed}) if args.json else f"{path}: {changed} kernels accepted\n",
        None,
    )
    return DONE
