"""A baseline for files of anybody: what their kernels were when somebody accepted them, and what differs now.

    python3 -m analysis accept build/*.cubin --baseline kernels.json --why "first figures"
    python3 -m analysis gate build/*.cubin --baseline kernels.json --exit-code

The baseline holds, by the name of a file as it was typed, everything that the driver and the hardware read of it
(contents.py), and why that was accepted. Entries of files that are not named now are kept and not compared.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, write_if_changed
from analysis.machine_code.contents import changed_facts
from analysis.machine_code.library import Figures, named, pair_kernels, read_contents, read_folder
from analysis.machine_code.names import names_of
from analysis.table import Cell, Table, emit, json_text, print_table

SCHEMA = 1
LOCAL = "instructions with local memory"
WORSE_WHEN_MORE = ("registers", "stack frame", "stack", "shared memory", LOCAL)


@dataclass(frozen=True)
class Accepted:
    """A kernel, or something else of a file, as it was accepted."""

    figures: Figures
    why: str

    def facts(self) -> dict[str, str]:
        return facts_of(self.figures)


def facts_of(figures: Figures) -> dict[str, str]:
    return {**figures.facts, **({LOCAL: str(figures.local)} if figures.code_bytes else {})}


Baseline = Mapping[str, Sequence[Accepted]]  # by name of the file


def read_files(paths: Iterable[Path]) -> dict[str, list[Figures]]:
    """The kernels of each file; for a folder, of each file below it."""
    found: dict[str, list[Figures]] = {}
    for path in paths:
        libraries = {str(path / name): library for name, library in read_folder(path, None).items()} \
            if path.is_dir() else {str(path): read_contents(path, None)}  # fmt: skip
        for name, library in libraries.items():
            found[name] = [*library.kernels, *library.others]
    return found


def parse(text: str, name: str) -> dict[str, list[Accepted]]:
    try:
        record = json.loads(text)
        if record["schema"] != SCHEMA:
            raise AnalysisError(f"{name}: schema {record['schema']}, this program reads {SCHEMA}")
        return {
            file: [Accepted(Figures(**{key: value for key, value in one.items() if key != "why"}), one["why"])
                   for one in kernels]
            for file, kernels in record["files"].items()
        }  # fmt: skip
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise AnalysisError(f"{name}: not a baseline, as `accept` writes them: {error!r}") from error


def text_of(baseline: Baseline) -> str:
    files = {name: [asdict(one.figures) | {"why": one.why} for one in baseline[name]] for name in sorted(baseline)}
    return json.dumps({"schema": SCHEMA, "files": files}, indent=1) + "\n"


def findings(baseline: Baseline, fresh: Mapping[str, Sequence[Figures]]) -> list[Sequence[Cell]]:
    """(file, architecture, kernel, figure, before, after, note) of all that differs from what was accepted."""
    found: list[Sequence[Cell]] = []
    for name, figures in fresh.items():
        pairs = pair_kernels([one.figures for one in baseline.get(name, ())], figures)
        names = names_of(pair.figures.symbol for pair in pairs)
        for pair in pairs:
            who = (name, pair.figures.arch, named(pair.figures, names))
            if pair.before is None:
                found.append((*who, pair.figures.kind, "absent", "there", "not accepted yet"))
            elif pair.after is None:
                found.append((*who, pair.figures.kind, "there", "absent", "gone"))
            else:
                changes = changed_facts(facts_of(pair.before), facts_of(pair.after))
                found += [(*who, *change, judge(*change)) for change in changes]
    return found


def judge(figure: str, before: str | None, after: str | None) -> str:
    """The change of a metric."""
    numbers = [int(value) for value in (before, after) if value is not None and value.isdecimal()]
    if figure not in WORSE_WHEN_MORE or len(numbers) < 2:
        return "changed"
    return "worse" if numbers[1] > numbers[0] else "better"


def accepted_now(baseline: Baseline, fresh: Mapping[str, Sequence[Figures]], why: str) -> dict[str, list[Accepted]]:
    """The baseline with these files as they are. Unchanged entries keep the reason for which they were accepted."""
    after = {name: list(kernels) for name, kernels in baseline.items()}
    for name, figures in fresh.items():
        known = {
            id(pair.after): pair.before for pair in pair_kernels([o.figures for o in after.get(name, [])], figures)
        }
        reasons = {id(one.figures): one.why for one in after.get(name, [])}
        kept = []
        for each in figures:
            before = known.get(id(each))
            same = before is not None and facts_of(before) == facts_of(each)
            kept.append(Accepted(each, reasons[id(before)] if same else why))
        after[name] = kept
    return after


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="cubins, libraries, or folders of them")
    parser.add_argument("--baseline", type=Path, metavar="JSON", help="the accepted numbers of these files")


def _named(args: argparse.Namespace) -> Path:
    if not args.files or not args.baseline:
        raise AnalysisError(f"FILE, --baseline: missing, as in {args.command} build/*.cubin --baseline kernels.json")
    path: Path = args.baseline
    return path


def run_gate_of_files(args: argparse.Namespace) -> int:
    path = _named(args)
    found = findings(parse(read_text(path), str(path)), read_files(args.files))
    if found or args.json or args.csv:
        print_table(Table(("file", "arch", "kernel", "figure", "before", "after", "note"), found), args)
    else:
        print(f"all as accepted in {path}")
    return DIFFERENT if found and args.exit_code else DONE


def run_accept_of_files(args: argparse.Namespace, why: str) -> int:
    path = _named(args)
    before = parse(read_text(path), str(path)) if path.exists() else {}
    after = accepted_now(before, read_files(args.files), why)
    old, new = ({(name, i): one for name, kernels in each.items() for i, one in enumerate(kernels)}
                for each in (before, after))  # fmt: skip
    changed = sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())
    write_if_changed(path, text_of(after))
    said = json_text({"file": str(path), "changed": changed}) if args.json else f"{path}: {changed} entries changed\n"
    emit(said, None)
    return DONE
