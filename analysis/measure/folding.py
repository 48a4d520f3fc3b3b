"""Records as a file keeps them: values that many records share are stored once, in header lines; readers see complete
records.

    known: Headers = {}
    lines = fold([record, …], known)            # each a JSON value for one line, the headers that are new among them
    raws = [unfold(line, known) for line in …]  # of a header line None

A header line is {"header": ID, "same": {field: value}}; one of them also has {"columns": [field, …]}, the fields that
differ. A record line is {"of": [ID, …], "values": [value of each column, …]}. Fields are named with the object that
contains them: "timing.samples_ns"; values of a column "timing.sm_clock_hz*100000" are in that unit. A line of
another form is a whole record: executables write those. IDs are hashes of what a header says, so files can be joined
with cat, and a header that was cut out is noticed.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from analysis.errors import AnalysisError

Headers = dict[str, dict[str, Any]]  # ID to its line

# Fields by how often they change in a file; those that no group has differ from record to record.
_RUN = ("schema", "revision", "dirty", "toolkit", "backend", "device", "run.id", "run.plan", "run.label", "run.refused")
_KERNEL = ("version", "peer", "library", "name", "parent", "config", "symbol", "code_hash", "registers")
_VERDICT = ("check.rows", "check.mismatches", "check.lse_max_error", "check.lse_max_error_over_bound", "check.nan",
            "check.strays", "check.pass", "check.pass_after", "timing.mode", "timing.discarded", "timing.stop_reason",
            "timing.converged", "timing.kept_every", "check", "timing", "energy", "derived", "counters")  # fmt: skip
_GROUPS = (_RUN, _KERNEL, ("argv",), ("problem",), _VERDICT)
_APART = ("check", "timing", "energy", "derived", "run")  # objects of which every field is one of its own
_UNITS = {"timing.samples_ns": 32, "timing.sm_clock_hz": 100_000}  # lists that are written so where all are multiples


def fold(raws: Iterable[dict[str, Any]], known: Headers) -> list[dict[str, Any]]:
    """The lines of these records, each after the headers that it names and `known` lacks; `known` receives them.

    A record that the form cannot hold stays whole: one with a dot or a star in a field's name, or with this form's
    names.
    """
    lines: list[dict[str, Any]] = []
    for raw in raws:
        if not _fits(raw):
            lines.append(raw)
            continue
        fields = dict(_in_units(name, value) for name, value in _fields(raw).items())
        shares = [{name: fields.pop(name) for name in group if name in fields} for group in _GROUPS]
        headers = [_header({"same": share}, known) for share in shares[:-1] if share]
        headers.append(_header({"same": shares[-1], "columns": list(fields)}, known))
        lines += [header for header in headers if header["header"] not in known]
        known |= {header["header"]: header for header in headers}
        lines.append({"of": [header["header"] for header in headers], "values": list(fields.values())})
    return lines


def unfold(line: Any, known: Headers, where: str) -> Any:
    """The record that a line holds; None for a header, which is kept in `known`. AnalysisError begins with `where`."""
    if not isinstance(line, dict) or not {"header", "of"} & line.keys():
        return line
    if "header" in line:
        name = line["header"]
        same, columns = line.get("same"), line.get("columns", [])
        if not isinstance(name, str) or not isinstance(same, dict) or not _are_texts(columns):
            raise AnalysisError(f"{where}: a header needs 'header', an ID, and 'same', an object")
        if known.setdefault(name, line) != line:
            raise AnalysisError(f"{where}: header {name} says something else than the one of the same ID above it")
        return None
    names, values = line["of"], line.get("values")
    if not _are_texts(names) or not isinstance(values, list):
        raise AnalysisError(f"{where}: a record of headers needs 'of', their IDs, and 'values', a list")
    if lacking := [name for name in names if name not in known]:
        raise AnalysisError(f"{where}: no line above has the header {lacking[0]}, which this record is of")
    fields = {name: value for each in names for name, value in known[each]["same"].items()}
    columns = [column for each in names for column in known[each].get("columns", [])]
    if len(columns) != len(values):
        raise AnalysisError(f"{where}: {len(values)} values, but the headers name {len(columns)} columns")
    columns_of = [_in_ones(*each, where) for each in zip(columns, values, strict=True)]
    return _record(fields | dict(columns_of), where)


def _in_units(name: str, value: Any) -> tuple[str, Any]:
    unit = _UNITS.get(name)
    if not unit or not isinstance(value, list) or not all(type(each) is int and each % unit == 0 for each in value):
        return name, value
    return f"{name}*{unit}", [each // unit for each in value]


def _in_ones(column: str, value: Any, where: str) -> tuple[str, Any]:
    name, star, unit = column.partition("*")
    if not star or name not in _UNITS:
        return column, value
    if not unit.isdecimal() or not isinstance(value, list) or not all(type(each) is int for each in value):
        raise AnalysisError(f"{where}: {column} needs a list of whole numbers")
    return name, [each * int(unit) for each in value]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _header(body: dict[str, Any], known: Headers) -> dict[str, Any]:
    """The header line of a body, its ID as short as no other known header allows."""
    digits = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    lines = ({"header": digits[:length], **body} for length in range(8, len(digits) + 1))
    return next(line for line in lines if known.get(line["header"], line) == line)


def _fits(raw: dict[str, Any]) -> bool:
    inner = (name for apart in _APART if isinstance(raw.get(apart), dict) for name in raw[apart])
    return not {"header", "of"} & raw.keys() and not any({".", "*"} & set(name) for name in (*raw, *inner))


def _fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Name to value; the members of a nested object become entries of their own; an empty object stays."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        if name in _APART and isinstance(value, dict) and value:
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def _record(fields: dict[str, Any], where: str) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for name, value in fields.items():
        outer, dot, inner = name.partition(".")
        if not dot:
            raw[outer] = value
        elif isinstance(there := raw.setdefault(outer, {}), dict):
            there[inner] = value
        else:
            raise AnalysisError(f"{where}: {name} cannot be a field of {outer}, which is not an object")
    return raw
