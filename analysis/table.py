"""Tables that commands print: text, Markdown, CSV or JSON, sorted, to standard output or a file.

table = Table(("version", "registers"), [("v01", 202), ("v02", 232)])
print_table(table, args)      # args from a parser that add_table_arguments() was called on
"""

import argparse
import csv
import io
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import write_atomically

Cell = str | int | float | bool | None
JSON_SCHEMA = 1  # one more when a name of docs/tools-json.md goes or means something else; names may be added


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; None prints as nothing."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def sorted_by(self, order: str) -> "Table":
        """Sorted by a column, descending with a leading '-'. Rows without a value come last."""
        name = order.removeprefix("-")
        if name not in self.columns:
            raise AnalysisError(f"--sort {order}: no such column; there are: {', '.join(self.columns)}")
        index = list(self.columns).index(name)
        known = [row for row in self.rows if row[index] is not None]
        numeric = all(isinstance(row[index], (int, float)) for row in known)
        known.sort(key=lambda row: row[index] if numeric else str(row[index]), reverse=order.startswith("-"))  # type: ignore[arg-type,return-value]
        return Table(self.columns, known + [row for row in self.rows if row[index] is None])

    def without(self, names: Collection[str]) -> "Table":
        """Without these columns; names of others are ignored."""
        kept = [i for i, name in enumerate(self.columns) if name not in names]
        return Table([self.columns[i] for i in kept], [[row[i] for i in kept] for row in self.rows])

    def text(self) -> str:
        """Aligned columns, numbers to the right."""
        return "\n".join(line.rstrip() for line in self._aligned("  ", rule=False)) + "\n"

    def markdown(self) -> str:
        """A Markdown table."""
        return "\n".join(f"| {line} |" for line in self._aligned(" | ", rule=True)) + "\n"

    def csv(self) -> str:
        """Comma-separated values with a header line."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in self.rows])
        return out.getvalue()

    def json(self) -> str:
        """JSON, under "rows" one object per row."""
        return json_text([dict(zip(self.columns, row, strict=True)) for row in self.rows])

    def _aligned(self, gap: str, rule: bool) -> list[str]:
        cells = [[_shown(cell) for cell in row] for row in self.rows]
        names = list(self.columns)
        if rule:
            names, *cells = [[cell.replace("|", "\\|") for cell in row] for row in [names, *cells]]
        right = [
            any(isinstance(row[i], (int, float)) for row in self.rows)
            and all(isinstance(row[i], (int, float, type(None))) for row in self.rows)
            for i in range(len(self.columns))
        ]
        widths = [max([len(name), 2 * rule, *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
        lines = [gap.join(_pad(name, widths[i], right[i]) for i, name in enumerate(names))]
        if rule:
            lines.append(gap.join("-" * (w - 1) + (":" if right[i] else "-") for i, w in enumerate(widths)))
        return lines + [gap.join(_pad(cell, widths[i], right[i]) for i, cell in enumerate(row)) for row in cells]


def json_text(content: dict[str, Any] | list[Any]) -> str:
    """The JSON that commands print: an object with the number of its schema; a list is stored in it as "rows"."""
    record = content if isinstance(content, dict) else {"rows": content}
    return json.dumps({"schema": JSON_SCHEMA, **record}, indent=1) + "\n"


def read_columns(text: str, columns: Sequence[str], name: str) -> list[tuple[str, dict[str, str]]]:
    """The rows of comma-separated text with exactly these columns, each with its position "name:line" for messages."""
    reader = csv.reader(io.StringIO(text, newline=""))
    rows = []
    try:
        header = next(reader, [])
        if header != list(columns):
            raise AnalysisError(f"{name}:1: expected the columns {','.join(columns)}, found {','.join(header)}")
        for values in reader:
            where = f"{name}:{reader.line_num}"
            if len(values) != len(columns):
                raise AnalysisError(f"{where}: {len(values)} values for {len(columns)} columns")
            rows.append((where, dict(zip(columns, values, strict=True))))
    except csv.Error as error:
        raise AnalysisError(f"{name}:{reader.line_num}: {error}") from error
    return rows


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """--json and -o, which every command has."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of commands that print a table."""
    add_output_arguments(parser)
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--sort", metavar="COLUMN", help="sort by a column; --sort=-COLUMN sorts in descending order")


def render(table: Table, args: argparse.Namespace) -> str:
    """The table in the form that the options ask for."""
    table = table.sorted_by(args.sort) if args.sort else table
    if args.json:
        return table.json()
    if args.csv:
        return table.csv()
    return table.markdown() if args.markdown else table.text()


def print_table(table: Table, args: argparse.Namespace) -> None:
    """Print the table as asked, to standard output or the -o file."""
    emit(render(table, args), args.output)


def emit(text: str, output: Path | None) -> None:
    """Write text to a file, or to standard output without one."""
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
