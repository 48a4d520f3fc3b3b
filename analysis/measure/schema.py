"""The schema of a record: every field with its type and meaning, checked here.

    fault = fault_of(raw)          # "" or "timing.discarded = -1: must be a whole number, 0 or more"

docs/measuring.md shows FIELDS as its table. A field that is not needed may be absent or null: not known, or not done. A
needed field has to be there where its object is. Fields that are not listed are kept and not read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from analysis.table import Table

SCHEMA = 1
SHOWN = 60  # characters of a value that a message shows


@dataclass(frozen=True)
class Kind:
    """A type as the documents and messages name it. A list has the kind of its elements."""

    words: str
    fits: Callable[[Any], bool]
    each: "Kind | None" = None


def _number(low: float, high: float) -> Callable[[Any], bool]:
    """Comparison refuses NaN too; a bool is not a number."""
    return lambda value: type(value) in (int, float) and low <= value <= high


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _text(value: Any) -> bool:
    """Half of a surrogate pair is not text: it can be neither printed nor written."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


def _list_of(kind: Kind, words: str) -> Kind:
    return Kind(words, lambda value: isinstance(value, list), kind)


TEXT = Kind("a text", _text)
NAME = Kind("a text that is not empty", lambda value: _text(value) and value != "")
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number, 0 or more", _whole(0, 2**63 - 1))
SIZE = Kind("a positive whole number", _whole(1, 2**31 - 1))
INTEGER = Kind("a whole number", _whole(-(2**63), 2**64 - 1))
COUNT_OR_FLAG = Kind("a whole number; of a peer true or false", lambda value: FLAG.fits(value) or COUNT.fits(value))
POSITIVE = Kind("a number, 0 or more", _number(0, 1e300))
TIME = Kind("a time from 1 ns to 1e15 ns", _number(1, 1e15))
CLOCK = Kind(
    "a clock from 1e6 Hz to 1e11 Hz, or 0 (not read)",
    lambda value: _number(0, 0)(value) or _number(1e6, 1e11)(value),
)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
VERSION = Kind("1", lambda value: type(value) is int and value == SCHEMA)
CACHE_DTYPE = Kind("e4m3 or int8", lambda value: value in ("e4m3", "int8"))
DTYPE = Kind("fp16, bf16 or e4m3", lambda value: value in ("fp16", "bf16", "e4m3"))
LAYOUT = Kind("bshd, bhsd, padded or packed", lambda value: value in ("bshd", "bhsd", "padded", "packed"))
PASS = Kind("backward", lambda value: value == "backward")
PROBLEM_KIND = Kind("attention or matmul", lambda value: value in ("attention", "matmul"))
LENGTHS = _list_of(COUNT, "a list of lengths")
WINDOW_END = Kind("a number of keys, or -1", _whole(-1, 2**31 - 1))
TEXTS = _list_of(TEXT, "a list of texts")
TIMES = _list_of(TIME, "a list of times in ns, each from 1 to 1e15")
CLOCKS = _list_of(CLOCK, "a list of clocks in Hz, each 0 or from 1e6 to 1e11")
ROWS = _list_of(OBJECT, "a list of objects")


@dataclass(frozen=True)
class Field:
    """One field, after the names of the objects that contain it, joined by dots."""

    path: str
    kind: Kind
    meaning: str
    needed: bool = False


FIELDS = (
    Field("schema", VERSION, "a reader refuses any other number", needed=True),
    Field("version", NAME, 'which kernel: "v07". A peer has `peer` instead'),
    Field("peer", NAME, 'which library: "fa2"'),
    Field("library", TEXT, "of a peer: package and version"),
    Field("name", TEXT, 'of the version: "autotune"'),
    Field("parent", TEXT, 'the version before: "v06"'),
    Field("revision", TEXT, "git revision at build time"),
    Field("dirty", FLAG, "changes were not committed at build time"),
    Field("toolkit", TEXT, "version of the CUDA toolkit at build time"),
    Field("argv", TEXTS, "the command line"),
    Field("utc", TEXT, "when the record was written"),
    Field("backend", TEXT, '"gpu" or "emu"'),
    Field("config", TEXT, "short form"),
    Field("symbol", TEXT, "of the kernel"),
    Field("code_hash", TEXT, "first 16 hexadecimal digits of the SHA-256 of the machine code; null on the emulator"),
    Field("registers", COUNT, "per thread; null on the emulator"),
    Field("device", OBJECT, "where it ran; needed but on the emulator"),
    Field("device.name", TEXT, '"NVIDIA H200", "emulator"'),
    Field("device.cc", TEXT, 'compute capability: "9.0"'),
    Field("device.sms", COUNT, "number of SMs"),
    Field("device.l2_bytes", COUNT, "size of the L2"),
    Field("device.memory_bytes", COUNT, "size of the memory"),
    Field("device.clock_hz", POSITIVE, "peak SM clock"),
    Field("device.driver", TEXT, "version of the driver"),
    Field("problem", OBJECT, "what was computed", needed=True),
    Field("problem.kind", PROBLEM_KIND, "attention without it; matmul (seq³) is the yardstick of cuBLAS"),
    Field("problem.batch", SIZE, "sequences", needed=True),
    Field("problem.heads", SIZE, "heads per sequence", needed=True),
    Field("problem.seq", SIZE, "length of a sequence: queries", needed=True),
    Field("problem.seq_k", SIZE, "keys of a sequence; as many as queries without it"),
    Field("problem.kv_heads", SIZE, "heads of K and V; as many as heads without it"),
    Field("problem.pass", PASS, "backward: the gradients dQ, dK and dV, 2.5 times the operations; forward without it"),
    Field("problem.causal", FLAG, "query i sees keys up to i + seq_k - seq; false without it"),
    Field("problem.d_head", SIZE, "elements of a head", needed=True),
    Field("problem.d_head_v", SIZE, "elements of a row of V and O; d_head without it"),
    Field("problem.dtype", DTYPE, "element type; e4m3: of Q, K and V", needed=True),
    Field("problem.output_dtype", DTYPE, "element type of O where inputs are e4m3"),
    Field("problem.cache_dtype", CACHE_DTYPE, "element type of K and V where it is not that of Q"),
    Field("problem.descale_q", POSITIVE, "e4m3: what an element of Q is multiplied by; 1 without it"),
    Field("problem.descale_k", POSITIVE, "the same of K"),
    Field("problem.descale_v", POSITIVE, "the same of V"),
    Field("problem.dist", TEXT, "distribution of the inputs, normal without it"),
    Field("problem.seed", INTEGER, "seed of the inputs"),
    Field("problem.scale", POSITIVE, "of the scores; 1 / sqrt(d_head) without it"),
    Field("problem.lse", FLAG, "log-sum-exp was computed and checked too; false without it"),
    Field("problem.layout", LAYOUT, "order in memory: batch, seq, heads, d_head; heads outside seq; with gaps; or the "
          "packed sequences; bshd without it"),
    Field("problem.seqlens_q", LENGTHS, "queries of each sequence; all `seq` without it"),
    Field("problem.seqlens_k", LENGTHS, "keys of each sequence; all `seq_k` without it"),
    Field("problem.window_left", WINDOW_END, "keys that a query sees before its own; -1: all"),
    Field("problem.window_right", WINDOW_END, "keys after its own that it attends to; -1: all"),
    Field("problem.softcap", POSITIVE, "scores are softcap·tanh(score / softcap); 0: they are not"),
    Field("problem.sinks", FLAG, "attention sinks: each head adds one score to the softmax sum that has no value"),
    Field("problem.page_rows", COUNT, "rows of a page of K and V; 0 or absent: not paged"),
    Field("problem.split_keys", COUNT, "keys of a part of a sequence; 0 or without it: CTAs have equal shares"),
    Field("problem.block_mask", TEXT, "blocks of 128 x 128 scores that are hidden: causal, document or random:SEED"),
    Field("problem.visible_pairs", COUNT, "with a block mask: queries and keys that they attend to, of all heads"),
    Field("check", OBJECT, "comparison with the reference; null with `--no-check`"),
    Field("check.rows", COUNT, "rows that were compared"),
    Field("check.mismatches", COUNT, "elements out of tolerance"),
    Field("check.max_error", POSITIVE, "largest absolute error"),
    Field("check.max_error_over_bound", POSITIVE, "largest error divided by its tolerance"),
    Field("check.lse_max_error", POSITIVE, "the same of log-sum-exp; null where it was not asked for"),
    Field("check.lse_max_error_over_bound", POSITIVE, "the same"),
    Field("check.dq_relative_error", POSITIVE, "backward: |dQ - ref| / |ref| over the compared rows, the "
          "lengths of the vectors"),
    Field("check.dk_relative_error", POSITIVE, "the same of dK"),
    Field("check.dv_relative_error", POSITIVE, "the same of dV"),
    Field("check.nan", COUNT_OR_FLAG, "NaN and infinities in the whole output"),
    Field("check.strays", COUNT, "elements that were written between the rows of O"),
    Field("check.pass", FLAG, "correct before timing", needed=True),
    Field("check.pass_after", FLAG, "correct after timing; null: not timed"),
    Field("timing", OBJECT, "single launches; null on the emulator"),
    Field("timing.mode", TEXT, '"cold" or "hot"'),
    Field("timing.samples_ns", TIMES, "time of each sample", needed=True),
    Field("timing.sm_clock_hz", CLOCKS, "SM clock of each sample, 0: not read; empty: none was"),
    Field("timing.discarded", COUNT, "samples thrown away because of a low clock"),
    Field("timing.stop_reason", TEXT, '"converged", "timeout" or "runs"'),
    Field("timing.median", POSITIVE, "of all samples, in ns; so are the next three"),
    Field("timing.q1", POSITIVE, "first quartile"),
    Field("timing.q3", POSITIVE, "third quartile"),
    Field("timing.min", POSITIVE, "shortest"),
    Field("timing.noise", POSITIVE, "relative standard error of the median"),
    Field("timing.converged", FLAG, "the noise reached its limit"),
    Field("timing.wall_s", POSITIVE, "seconds that the measurement took"),
    Field("timing.kept_of", COUNT, "samples that the ones in the record were chosen from"),
    Field("timing.kept_every", COUNT, "in records of earlier tools: N where one of N samples was kept"),
    Field("energy", OBJECT, "of launches that follow each other, without a flush; null without `--energy` or NVML"),
    Field("energy.first_ns", POSITIVE, "of a launch in a burst after a second of rest"),
    Field("energy.first_sm_clock_hz", CLOCK, "mean SM clock of that burst; 0: not read"),
    Field("energy.first_celsius", COUNT, "temperature of the GPU before it"),
    Field("energy.launch_ns", POSITIVE, "sustained: of a launch, after two seconds of others; the next ones too"),
    Field("energy.joules", POSITIVE, "per launch"),
    Field("energy.watts", POSITIVE, "of the whole board, mean"),
    Field("energy.launches", SIZE, "that the figures are of"),
    Field("energy.seconds", POSITIVE, "between the moves of the counter, in which the launches ended"),
    Field("energy.idle", POSITIVE, "share of the time in which no launch was queued: its joules count too"),
    Field("energy.sm_clock_hz", CLOCK, "mean SM clock; 0: not read"),
    Field("energy.celsius", COUNT, "temperature of the GPU at the end"),
    Field("derived", OBJECT, "null on the emulator"),
    Field("derived.tflops", POSITIVE, "4 · d_head for each query and key that it sees, divided by the median time"),
    Field("derived.attn_tflops", POSITIVE, "the same with the operations of the softmax"),
    Field("derived.share_of_peak", POSITIVE, "tflops divided by peak_tflops"),
    Field("derived.peak_tflops", POSITIVE, "measured peak of mma.sync, of wgmma for versions for sm_90a alone"),
    Field("counters", OBJECT, "counts of the emulator; null on a GPU"),
    Field("counters.total", OBJECT, "`executed` warp instructions, `mma`, `wgmma` by warps, `ldmatrix`, `wavefronts` "
          "modeled, `ideal` without bank conflicts, `sectors` of 32 bytes, `copied` bytes of the copy engine"),
    Field("counters.lines", ROWS, "the same counts and `bytes` by line of the CUDA source; null without `--counters`"),
    Field("counters.regions", ROWS, "the same by region"),
    Field("counters.groups", ROWS, "the same by group of instructions"),
    Field("counters.engines", ROWS, "the same by shape of `wgmma` and by kind of bulk copies"),
    Field("counters.findings", COUNT, "races, unset data and the like"),
    Field("run", OBJECT, "what `bench` and `autotune` add: it ties records that were measured together"),
    Field("run.id", TEXT, "time of its start and four random digits"),
    Field("run.plan", TEXT, "hash of what was to be measured; `--resume` continues a run of the same"),
    Field("run.round", COUNT, "records of one round were measured within seconds"),
    Field("run.stage", COUNT, "of `autotune`"),
    Field("run.refused", ROWS, "what was to be measured and cannot be, such as a peer that is not there"),
    Field("run.label", TEXT, "tells two series of one version apart"),
)  # fmt: skip


_PLACES = [(*field.path.rpartition(".")[::2], field) for field in FIELDS]  # object, name in it, field


def fault_of(raw: dict[str, Any]) -> str:
    """The first field that is missing or does not fit, in one sentence; "" when all do."""
    objects: dict[str, Any] = {"": raw}
    for parent, name, field in _PLACES:
        if parent not in objects:
            continue
        value = objects[parent].get(name)
        if value is None:
            if field.needed:
                return f"{field.path} is missing: must be {field.kind.words}"
        elif not field.kind.fits(value):
            return _sentence(field.path, value, field.kind)
        elif field.kind is OBJECT:
            objects[field.path] = value
        elif field.kind.each and not all(map(field.kind.each.fits, value)):
            for location, each in enumerate(value):
                if not field.kind.each.fits(each):
                    return _sentence(f"{field.path}[{location}]", each, field.kind.each)
    return ""


def _sentence(path: str, value: Any, kind: Kind) -> str:
    shown = ascii(value) if not isinstance(value, float) or math.isfinite(value) else "a number too large"
    return f"{path} = {shown[:SHOWN]}{'…' if len(shown) > SHOWN else ''}: must be {kind.words}"


def table() -> Table:
    """FIELDS as docs/measuring.md shows them."""
    return Table(
        ("field", "type", "meaning"),
        [(f"`{field.path}`", field.kind.words + (", needed" if field.needed else ""), field.meaning)
         for field in FIELDS],
    )  # fmt: skip
