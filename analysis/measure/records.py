"""Measured records: JSON lines that are whole, read with their schema checked, appended and merged safely.

    log = read(Path("logs/bench/h200.jsonl")); append(log.path, [record.raw]); merge([shard1, shard2])

A record is one problem measured by one executable or peer, as `bin/vNN --json` prints it; schema.py lists the fields.
bench adds the object `run` {id, round, …}, which ties records measured together. A file holds one GPU model. Appended
records are folded (folding.py): fields that many records share are stored once, in header lines. Whole records are read
as well.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import root, write_atomically
from analysis.measure.folding import Headers, fold, unfold
from analysis.measure.schema import SCHEMA, fault_of

EMULATOR = "emulator"
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # a half of a pair can't be written again


class RecordError(AnalysisError):
    """A record or a file of records that can't be used; the message begins with file and line where there are any."""


@dataclass(frozen=True, order=True)
class Served:
    """The fields of a problem that require serving_args. Empty lengths: those of the problem; -1: no end of the
    window."""

    seqlens_q: tuple[int, ...] = ()
    seqlens_k: tuple[int, ...] = ()
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: bool = False
    page_rows: int = 0
    split_keys: int = 0
    block_mask: str = ""
    visible_pairs: int = 0  # of all sequences and heads, with a block mask

    def __bool__(self) -> bool:
        return self != Served()

    def lengths(self, batch: int, seq: int, keys: int) -> list[tuple[int, int]]:
        """Queries and keys of each sequence."""
        return list(zip(self.seqlens_q or (seq,) * batch, self.seqlens_k or (keys,) * batch, strict=True))

    def pairs(self, queries: int, keys: int, causal: bool) -> int:
        """Pairs of a query and a key that it sees, of one head and sequence."""
        left, right = self.window[0], 0 if causal else self.window[1]
        found = 0
        for own in range(keys - queries, keys):  # the key that is aligned with the query
            first = max(0, own - left) if left >= 0 else 0
            end = min(keys, own + right + 1) if right >= 0 else keys
            found += max(0, end - first)
        return found

    def case(self) -> str:
        words = [f"{len(self.seqlens_q or self.seqlens_k)} lengths"] if self.seqlens_q or self.seqlens_k else []
        words += [f"window {self.window[0]}, {self.window[1]}"] if self.window != (-1, -1) else []
        words += [f"softcap {self.softcap:g}"] if self.softcap else []
        words += ["sinks"] if self.sinks else []
        words += [f"pages of {self.page_rows}"] if self.page_rows else []
        words += [f"block mask {self.block_mask}"] if self.block_mask else []
        return ", ".join(words + ([f"parts of {self.split_keys}"] if self.split_keys else []))


@dataclass(frozen=True, order=True)
class Problem:
    """The problem that was computed. `kind` is attention, or matmul (seq³, the cuBLAS yardstick, where batch and heads
    are 1)."""

    kind: str
    dtype: str
    batch: int
    heads: int
    seq: int
    d_head: int
    dist: str
    causal: bool = False
    kv_heads: int = 0  # 0: as many as heads
    seq_k: int = 0  # 0: as many keys as queries
    scale: float = 0.0  # of the scores; 0: 1 / sqrt(d_head)
    lse: bool = False  # log-sum-exp is computed too
    layout: str = "bshd"
    served: Served = Served()
    backward: bool = False  # the gradients
    output_dtype: str = ""  # where inputs are e4m3
    cache_dtype: str = ""  # where K and V have another type than Q
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0)  # likewise: what Q, K and V are multiplied by
    d_head_v: int = 0  # of V and O; 0: d_head

    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of one head. The last query sees every key."""
        keys = self.seq_k or self.seq
        if self.served:
            lengths = self.served.lengths(self.batch, self.seq, keys)
            return sum(self.served.pairs(*each, self.causal) for each in lengths) // self.batch
        if not self.causal:
            return self.seq * keys
        rows = min(self.seq, keys)  # those that see a key: the last one sees all, each one before it one less
        return rows * keys - rows * (rows - 1) // 2

    def flop(self) -> int:
        """2·(d + d of V)·batch·heads·pairs for attention, 10·d·… for its gradients, 2·seq³ for the matmul."""
        if self.kind == "matmul":
            return 2 * self.seq**3
        elements = 5 * self.d_head if self.backward else self.d_head + (self.d_head_v or self.d_head)
        return 2 * elements * (self.served.visible_pairs or self.batch * self.heads * self.pairs())

    def case(self) -> str:
        """The difference from plain attention with d_head 128; "" if there is none."""
        words = ["backward"] if self.backward else []
        words += [f"O in {self.output_dtype}"] if self.output_dtype else []
        words += [f"K and V in {self.cache_dtype}"] if self.cache_dtype else []
        words += (
            ["descaled by " + ", ".join(f"{factor:g}" for factor in self.descale)] if set(self.descale) != {1} else []
        )
        words += ["causal"] if self.causal else []
        words += [f"d_head {self.d_head}"] if self.d_head != 128 and self.kind == "attention" else []
        words += [f"d_head of V {self.d_head_v}"] if self.d_head_v else []
        words += [f"{self.kv_heads} KV heads"] if self.kv_heads else []
        words += [f"{self.seq_k} keys"] if self.seq_k else []
        words += [f"scale {self.scale:g}"] if self.scale else []
        words += (["log-sum-exp"] if self.lse else []) + ([self.layout] if self.layout != "bshd" else [])
        words += [self.served.case()] if self.served else []
        return ", ".join(words)

    def __str__(self) -> str:
        if self.kind == "matmul":
            return f"matmul {self.dtype} {self.seq}³"
        words = f"{self.dtype} batch {self.batch} heads {self.heads} seq {self.seq} {self.dist}"
        return f"{words}, {self.case()}" if self.case() else words


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
        """The fields that bench or autotune added; empty for a record as an executable printed it."""
        return self.raw.get("run") or {}

    def key(self) -> tuple[Any, ...]:
        """The key of a measurement that is made once in a run: two different records of one key contradict each
        other."""
        location = (self.run_id, self.round, str(self.run.get("stage")), str(self.run.get("label")))
        return (*location, self.subject, self.config, self.problem, self.device)


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
    fault = fault_of(raw)
    if fault:
        raise RecordError(f"{where}: {fault}")
    version, peer = raw.get("version"), raw.get("peer")
    subject = peer if version is None else version
    if subject is None:
        raise RecordError(f"{where}: neither 'version' nor 'peer' names what was measured")
    timing, check, run = (raw.get(name) or {} for name in ("timing", "check", "run"))
    samples, clocks = tuple(timing.get("samples_ns") or ()), tuple(timing.get("sm_clock_hz") or ())
    if clocks and len(clocks) != len(samples):
        raise RecordError(f"{where}: {len(samples)} samples but {len(clocks)} clocks")
    return Record(
        raw=raw,
        subject=subject,
        is_peer=version is None,
        config=raw.get("config") or "",
        problem=_problem(raw["problem"]),
        device=device_name(raw, where),
        samples_ns=samples,
        sm_clock_hz=clocks if all(clocks) else (),
        timed=(timing.get("kept_of") or len(samples)) * (timing.get("kept_every") or 1),
        discarded=timing.get("discarded") or 0,
        passed=None if not check else check["pass"] and check.get("pass_after") is not False,
        error_over_bound=check.get("max_error_over_bound"),
        run_id=run.get("id") or "",
        round=run.get("round") or 0,
    )


def _problem(raw: dict[str, Any]) -> Problem:
    numbers = {name: raw[name] for name in ("batch", "heads", "seq", "d_head")}
    kv_heads, seq_k = (raw.get(name) or same for name, same in (("kv_heads", raw["heads"]), ("seq_k", raw["seq"])))
    return Problem(
        kind=raw.get("kind") or "attention",
        dtype=raw["dtype"],
        dist=raw.get("dist") or "normal",
        causal=bool(raw.get("causal")),
        kv_heads=0 if kv_heads == raw["heads"] else kv_heads,
        seq_k=0 if seq_k == raw["seq"] else seq_k,
        scale=raw.get("scale") or 0.0,
        lse=bool(raw.get("lse")),
        layout=raw.get("layout") or "bshd",
        served=_served(raw),
        backward=raw.get("pass") == "backward",
        output_dtype=raw.get("output_dtype") or "",
        cache_dtype=raw.get("cache_dtype") or "",
        descale=(raw.get("descale_q") or 1.0, raw.get("descale_k") or 1.0, raw.get("descale_v") or 1.0),
        d_head_v=raw.get("d_head_v") or 0,
        **numbers,
    )


def _end_of_window(keys: int | None) -> int:
    return -1 if keys is None else keys


def _served(raw: dict[str, Any]) -> Served:
    return Served(
        seqlens_q=tuple(raw.get("seqlens_q") or ()),
        seqlens_k=tuple(raw.get("seqlens_k") or ()),
        window=(_end_of_window(raw.get("window_left")), _end_of_window(raw.get("window_right"))),
        softcap=raw.get("softcap") or 0.0,
        sinks=bool(raw.get("sinks")),
        page_rows=raw.get("page_rows") or 0,
        split_keys=raw.get("split_keys") or 0,
        block_mask=raw.get("block_mask") or "",
        visible_pairs=raw.get("visible_pairs") or 0,
    )


def device_name(raw: dict[str, Any], where: str = "record") -> str:
    """The device's name, or "emulator"."""
    if raw.get("backend") in ("emu", EMULATOR):
        return EMULATOR
    name = (raw.get("device") or {}).get("name")
    if not name:
        raise RecordError(f"{where}: device.name is missing")
    return str(name)


def gpu_slug(device: str) -> str:
    """The file name of a GPU model: "NVIDIA H200" is h200, "NVIDIA GeForce RTX 3090" is rtx-3090."""
    words = re.sub(r"\b(NVIDIA|GeForce|Tesla)\b", " ", device)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "gpu"


def bench_path(device: str) -> Path:
    """The file of a GPU's runs: logs/bench/GPU.jsonl."""
    return root() / "logs" / "bench" / f"{gpu_slug(device)}.jsonl"


# ---- files -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Log:
    """Every record of a file. An unfinished last line is set aside; any other line that is not a record is an error."""
    lines, torn = split_lines(path)
    return Log(path, _parsed(lines, path), torn)


def records_in(path: Path) -> tuple[Record, ...]:
    """The records of a file, not to be changed: kept, as reading them takes longer than what they are for."""
    lines, _ = split_lines(path)
    return _kept(_Lines(tuple(lines), path))


@dataclass(frozen=True)
class _Lines:
    """The contents of a file; equal contents are equal under any path."""

    texts: tuple[str, ...]
    path: Path = field(compare=False)


@lru_cache(16)
def _kept(lines: _Lines) -> tuple[Record, ...]:
    return _parsed(lines.texts, lines.path)


def _parsed(lines: Iterable[str], path: Path) -> tuple[Record, ...]:
    found = tuple(parse_lines(lines, str(path)))
    refuse_contradictions((record, str(path)) for record in found)
    return found


def parse_lines(lines: Iterable[str], name: str) -> Iterator[Record]:
    """The records of the lines of a file, whole or folded; RecordError names file and line of what is neither."""
    known: Headers = {}
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        if line.strip() and (raw := unfold(load_line(line, where), known, where)) is not None:
            yield parse(raw, where)


def refuse_contradictions(records: Iterable[tuple[Record, str]]) -> None:
    """RecordError for two records of one case in one run with different contents; each comes with its file's name."""
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
    return ([*lines, last], "") if _is_json(last) else (lines, last)


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def load_line(line: str, where: str) -> Any:
    """The JSON value of one line; NaN and Infinity are refused, since JSON has no such numbers."""
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
        if _ESCAPED_SURROGATE.search(line):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise RecordError(f"{where}: not a JSON line: nested too deeply") from None
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
    """Add records in one write under a lock, folded; of the headers only those that the file lacks.

    A torn last line is cut off first; a failed write leaves nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            there = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
            data = _folded(raws, _headers_in(there)).encode()
            start = _end_of_whole_lines(there)
            if start != os.fstat(file.fileno()).st_size:
                os.ftruncate(file.fileno(), start)
            if start and there[start - 1 : start] != b"\n":
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
        raise OSError(error.errno, f"the records were not kept: {error.strerror}", str(path)) from error


def _folded(raws: Iterable[dict[str, Any]], known: Headers) -> str:
    return "".join(to_line(line) + "\n" for line in fold(raws, known))


def _headers_in(data: bytes) -> Headers:
    """The headers of a file, by ID. Its readers report other errors in its lines."""
    found: Headers = {}
    for line in data.split(b"\n"):
        if line.startswith(b'{"header":') and _is_json(line):
            header = json.loads(line)
            found[str(header["header"])] = header
    return found


def _end_of_whole_lines(data: bytes) -> int:
    """Bytes up to the last newline, or all of them when what follows it is a whole JSON value."""
    newline = data.rfind(b"\n") + 1
    return len(data) if _is_json(data[newline:]) else newline


@dataclass(frozen=True)
class Merged:
    """The outcome of merging shards: the lines in order, and what was left out."""

    records: tuple[Record, ...]
    duplicates: int
    torn: tuple[Path, ...]


def merge(paths: Iterable[Path]) -> Merged:
    """All records of several files, each once, ordered by run, round and subject.

    Exact duplicates and torn last lines are dropped and counted. Records of different GPU models, and two records that
    claim the same case of the same run with different contents, are errors.
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
        raise RecordError("records of different devices cannot be compared or merged: " + ", ".join(names))
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
    """The id of the newest run in which all these subjects were measured. Ids begin with a time and sort by it.

    For named subjects, a run that measured energy counts only where no other run holds them: seconds of launches
    before each subject heats the GPU, so its speeds are lower.
    """
    wanted = set(subjects)
    by_run: dict[str, set[str]] = {}
    for record in records:
        by_run.setdefault(record.run_id, set()).add(record.subject)
    runs = [run for run, there in by_run.items() if run and wanted <= there]
    if not runs:
        raise RecordError("no run holds " + (" and ".join(sorted(wanted)) if wanted else "any record"))
    heated = runs_with_energy(records) if wanted else set()
    return max(runs, key=lambda run: (run not in heated, run))


def runs_with_energy(records: Iterable[Record]) -> set[str]:
    """The ids of the runs that measured energy of some subject."""
    return {record.run_id for record in records if record.raw.get("energy")}


def write_merged(merged: Merged, path: Path) -> None:
    """Write merged records as a new file."""
    write_atomically(path, _folded((record.raw for record in merged.records), {}))
