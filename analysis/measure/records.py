"""Measured records: JSON lines that are whole, read with their schema checked, appended and merged safely.

    log = read(Path("logs/bench/h200.jsonl")); append(log.path, [record.raw]); merge([shard1, shard2])

One line is one problem measured by one executable or peer, as `bin/vNN --json` prints it (docs/measuring.md lists the
fields). bench adds the object `run` {id, round, …}, which ties lines measured together. A file holds one GPU model.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import root, write_atomically

SCHEMA = 1
EMULATOR = "emulator"


class RecordError(AnalysisError):
    """A record or a file of records that can't be used; the message begins with file and line where there are any."""


@dataclass(frozen=True, order=True)
class Problem:
    """What was computed. `kind` is attention, or matmul (seq³, the cuBLAS yardstick, where batch and heads are 1)."""

    kind: str
    dtype: str
    batch: int
    heads: int
    seq: int
    d_head: int
    dist: str

    def flop(self) -> int:
        """4·batch·heads·seq²·d for attention, 2·seq³ for the matmul."""
        if self.kind == "matmul":
            return 2 * self.seq**3
        return 4 * self.batch * self.heads * self.seq**2 * self.d_head

    def __str__(self) -> str:
        if self.kind == "matmul":
            return f"matmul {self.dtype} {self.seq}³"
        return f"{self.dtype} batch {self.batch} heads {self.heads} seq {self.seq} {self.dist}"


@dataclass(frozen=True)
class Record:
    """One line, with what the tools need taken out and checked. Times are of single launches, in nanoseconds."""

    raw: dict[str, Any]
    subject: str  # a version such as v07, or the name of a peer such as fa2
    is_peer: bool
    config: str  # short form; "" for a peer
    problem: Problem
    device: str
    samples_ns: tuple[float, ...]  # empty when nothing was timed, as on the emulator
    sm_clock_hz: tuple[float, ...]  # one a sample, or empty where it can't be read
    timed: int  # samples that were timed and not discarded; a file may keep only some of them
    discarded: int  # samples thrown away because the clock was too low
    passed: bool | None  # None when nothing was checked
    error_over_bound: float | None
    run_id: str  # "" for a record that no run ties to others
    round: int

    @property
    def run(self) -> dict[str, Any]:
        """What bench or autotune added; empty for a record as an executable printed it."""
        return self.raw.get("run") or {}

    def key(self) -> tuple[Any, ...]:
        """What is measured once in a run: two different records of one key contradict each other."""
        place = (self.run_id, self.round, str(self.run.get("stage")), str(self.run.get("label")))
        return (*place, self.subject, self.config, self.problem, self.device)


@dataclass(frozen=True)
class Log:
    """A file of records. `torn` is the unfinished last line of a run that was cut off, "" where there is none."""

    path: Path
    records: tuple[Record, ...]
    torn: str


# ---- one record ------------------------------------------------------------------------------------------------------


def parse(raw: Any, where: str = "record") -> Record:
    """A record from its JSON value; RecordError names the field that is missing or of the wrong kind."""
    if not isinstance(raw, dict):
        raise RecordError(f"{where}: a record is a JSON object, not {type(raw).__name__}")
    schema = raw.get("schema")
    if schema != SCHEMA:
        raise RecordError(f"{where}: schema {schema!r}, but this version of the tools reads schema {SCHEMA}")
    version, peer = raw.get("version"), raw.get("peer")
    if not isinstance(peer if version is None else version, str):
        raise RecordError(f"{where}: neither 'version' nor 'peer' names what was measured")
    timing = _object(raw, "timing", where) if raw.get("timing") is not None else {"samples_ns": []}
    check, run = (_object(raw, name, where) if raw.get(name) is not None else {} for name in ("check", "run"))
    samples = _numbers(timing, "samples_ns", f"{where}: timing")
    clocks = _clocks(timing)
    if any(sample <= 0 for sample in samples):
        raise RecordError(f"{where}: timing.samples_ns holds a time that is not positive")
    if clocks and len(clocks) != len(samples):
        raise RecordError(f"{where}: {len(samples)} samples but {len(clocks)} clocks")
    if not isinstance(run.get("id", ""), str):
        raise RecordError(f"{where}: run.id = {run['id']!r}: must be a text")
    error = check.get("max_error_over_bound")
    if error is not None and type(error) not in (int, float):
        raise RecordError(f"{where}: check.max_error_over_bound = {error!r}: must be a number")
    return Record(
        raw=raw,
        subject=str(version if version is not None else peer),
        is_peer=version is None,
        config=str(raw.get("config") or ""),
        problem=parse_problem(_object(raw, "problem", where), f"{where}: problem"),
        device=device_name(raw, where),
        samples_ns=samples,
        sm_clock_hz=clocks,
        timed=_timed(timing, len(samples), where),
        discarded=_count(timing, "discarded", f"{where}: timing"),
        passed=_verdict(check),
        error_over_bound=error,
        run_id=str(run.get("id", "")),
        round=_count(run, "round", f"{where}: run"),
    )


def parse_problem(raw: dict[str, Any], where: str = "problem") -> Problem:
    """A problem from its JSON object."""
    numbers = {}
    for name in ("batch", "heads", "seq", "d_head"):
        value = raw.get(name)
        if type(value) is not int or value <= 0:
            raise RecordError(f"{where}.{name} = {value!r}: must be a positive whole number")
        numbers[name] = value
    dtype = str(raw.get("dtype", "")).lower()
    if dtype not in ("fp16", "bf16"):
        raise RecordError(f"{where}.dtype = {raw.get('dtype')!r}: must be fp16 or bf16")
    kind = str(raw.get("kind", "attention"))
    return Problem(kind=kind, dtype=dtype, dist=str(raw.get("dist", "normal")), **numbers)


def device_name(raw: dict[str, Any], where: str = "record") -> str:
    """The device's name, or "emulator"."""
    if raw.get("backend") in ("emu", EMULATOR):
        return EMULATOR
    name = _object(raw, "device", where).get("name")
    if not isinstance(name, str) or not name:
        raise RecordError(f"{where}: device.name is missing")
    return name


def gpu_slug(device: str) -> str:
    """The file name of a GPU model: "NVIDIA H200" is h200, "NVIDIA GeForce RTX 3090" is rtx-3090."""
    words = re.sub(r"\b(NVIDIA|GeForce|Tesla)\b", " ", device)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "gpu"


def bench_path(device: str) -> Path:
    """Where a GPU's runs are kept: logs/bench/GPU.jsonl."""
    return root() / "logs" / "bench" / f"{gpu_slug(device)}.jsonl"


def _verdict(check: dict[str, Any]) -> bool | None:
    if "pass" not in check:
        return None
    return check["pass"] is True and check.get("pass_after") is not False


def _clocks(timing: dict[str, Any]) -> tuple[float, ...]:
    """The SM clock of each sample; none when one of them could not be read."""
    clocks = timing.get("sm_clock_hz") or []
    known = isinstance(clocks, list) and all(type(clock) in (int, float) and clock > 0 for clock in clocks)
    return tuple(clocks) if known else ()


def _timed(timing: dict[str, Any], kept: int, where: str) -> int:
    """Samples that the kept ones were chosen from. Earlier tools wrote `kept_every`: one in so many was kept."""
    chosen_from, every = (_count(timing, name, f"{where}: timing") for name in ("kept_of", "kept_every"))
    return (chosen_from or kept) * (every or 1)


def _count(raw: dict[str, Any], name: str, where: str) -> int:
    """A whole number, 0 where there is none."""
    value = raw.get(name, 0)
    if type(value) is not int or value < 0:
        raise RecordError(f"{where}.{name} = {value!r}: must be a whole number, 0 or more")
    return value


def _object(raw: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    value = raw.get(name)
    if not isinstance(value, dict):
        raise RecordError(f"{where}: the object {name!r} is missing")
    return value


def _numbers(raw: dict[str, Any], name: str, where: str) -> tuple[float, ...]:
    values = raw.get(name)
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise RecordError(f"{where}.{name} is missing or not a list of numbers")
    return tuple(values)


# ---- files -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Log:
    """Every record of a file. An unfinished last line is set aside; any other line that is not a record is an error."""
    lines, torn = split_lines(path)
    records = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            records.append(parse(load_line(line, f"{path}:{number}"), f"{path}:{number}"))
    refuse_contradictions((record, str(path)) for record in records)
    return Log(path, tuple(records), torn)


def refuse_contradictions(records: Iterable[tuple[Record, str]]) -> None:
    """RecordError for two records of one place in one run with different contents; each comes with its file's name."""
    claimed: dict[tuple[Any, ...], tuple[Record, str]] = {}
    for record, name in records:
        other, there = claimed.setdefault(record.key(), (record, name))
        if record.run_id and record.raw != other.raw:
            raise RecordError(
                f"{name}: run {record.run_id} round {record.round} of {record.subject} on {record.problem} "
                f"differs from the one in {there}: one of the two was edited or is of another run"
            )


def split_lines(path: Path) -> tuple[list[str], str]:
    """The whole lines of a file and what follows the last newline when it is no JSON value by itself."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    whole, newline, last = text.rpartition("\n")
    lines = whole.split("\n") if newline else []
    try:
        json.loads(last)
    except ValueError:
        return lines, last
    return [*lines, last], ""


def load_line(line: str, where: str) -> Any:
    """The JSON value of one line; NaN and Infinity are refused, since JSON has no such numbers."""
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise RecordError(f"{where}: not a JSON line: {error}") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def to_line(raw: dict[str, Any]) -> str:
    """One compact line without its newline."""
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Twelve hexadecimal digits that are equal for equal plans."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def append(path: Path, raws: Sequence[dict[str, Any]]) -> None:
    """Add records in one write under a lock. A torn last line is cut off first; a failed write leaves nothing."""
    data = "".join(to_line(raw) + "\n" for raw in raws).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start = _end_of_whole_lines(file.fileno())
            if start != os.fstat(file.fileno()).st_size:
                os.ftruncate(file.fileno(), start)
            if start and os.pread(file.fileno(), 1, start - 1) != b"\n":
                data = b"\n" + data
            try:
                written = os.write(file.fileno(), data)
                if written != len(data):
                    raise OSError(0, f"only {written} of {len(data)} bytes were written")
            except OSError:
                if start != os.fstat(file.fileno()).st_size:
                    os.ftruncate(file.fileno(), start)
                raise
    except OSError as error:
        raise RecordError(f"{path}: the records were not kept: {error.strerror}") from error


def _end_of_whole_lines(handle: int) -> int:
    """Bytes up to the last newline, or all of them when what follows it is a whole JSON value."""
    data = os.pread(handle, os.fstat(handle).st_size, 0)
    newline = data.rfind(b"\n") + 1
    try:
        json.loads(data[newline:])
    except ValueError:
        return newline
    return len(data)


@dataclass(frozen=True)
class Merged:
    """The outcome of merging shards: the lines in order, and what was left out."""

    records: tuple[Record, ...]
    duplicates: int
    torn: tuple[Path, ...]


def merge(paths: Iterable[Path]) -> Merged:
    """All records of several files, each once, ordered by run, round and subject.

    Exact duplicates and torn last lines are dropped and counted. Records of different GPU models, and two records that
    claim the same place of the same run with different contents, are errors.
    """
    logs = [read(path) for path in paths]
    refuse_contradictions((record, str(log.path)) for log in logs for record in log.records)
    every = [record for log in logs for record in log.records]
    kept = {json.dumps(record.raw, sort_keys=True): record for record in every}
    records = sorted(kept.values(), key=lambda r: (r.run_id, r.round, r.subject, r.config, r.problem))
    one_device(records)
    return Merged(tuple(records), len(every) - len(kept), tuple(log.path for log in logs if log.torn))


def one_device(records: Iterable[Record]) -> str:
    """The device that all records share; records of two are refused, since their times can't be compared."""
    names = sorted({record.device for record in records})
    if not names:
        raise RecordError("no records")
    if len(names) > 1:
        raise RecordError("records of different devices are not compared or mixed: " + ", ".join(names))
    return names[0]


def for_gpu(name: str) -> Path:
    """The record file of a GPU given by its slug, by part of it when that is unique, or by a path."""
    if name.endswith(".jsonl") or "/" in name:
        return Path(name)
    folder = root() / "logs" / "bench"
    there = sorted(path.stem for path in folder.glob("*.jsonl")) if folder.is_dir() else []
    found = [stem for stem in there if stem == name] or [stem for stem in there if name.lower() in stem]
    if len(found) != 1:
        raise RecordError(f"no one record file for {name!r} in {folder}: there are {', '.join(there) or 'none'}")
    return folder / f"{found[0]}.jsonl"


def latest_run(records: Sequence[Record], subjects: Iterable[str] = ()) -> str:
    """The id of the newest run in which all these subjects were measured. Ids begin with a time and sort by it."""
    wanted = set(subjects)
    by_run: dict[str, set[str]] = {}
    for record in records:
        by_run.setdefault(record.run_id, set()).add(record.subject)
    runs = [run for run, there in by_run.items() if run and wanted <= there]
    if not runs:
        raise RecordError("no run holds " + (" and ".join(sorted(wanted)) if wanted else "any record"))
    return max(runs)


def write_merged(merged: Merged, path: Path) -> None:
    """Write merged records as a new file."""
    write_atomically(path, "".join(to_line(record.raw) + "\n" for record in merged.records))
