"""Figures of docs/general-attention.md: speeds of logs/general/, targets, variants; `ladder --part` prints the rest.

text = general_text(root())

The runs are kept apart from logs/bench/, which holds the one case that all versions compute. The targets and the
predictions are for the H200; a file of another GPU adds the tables of its runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, median

from analysis.files import read_text, root
from analysis.ladder.claims import CASES, Claim, Setting
from analysis.ladder.headers import FOLDERS, Version, kernel_files, load_all
from analysis.machine_code.regs import read_registers
from analysis.measure.records import Problem, Record, records_in
from analysis.measure.summary import series, subjects_of
from analysis.publish.overview import LENGTHS, TOKENS
from analysis.table import Cell, Table, read_columns

FOLDER = "logs/general"
GPU = "h200"  # whose speeds the targets and the predictions are for
TRIED = f"{FOLDER}/tried.{GPU}.csv"
COLUMNS = ("run", "case", "dtype", "seq", "variant", "tflops", "samples")
DTYPES = ("fp16", "bf16")
NAMES = {"fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}
REFERENCES = ("fa2", "fa3")
NOT_MEASURED = "not measured"


# ---- speeds by run ---------------------------------------------------------------------------------------------------

Side = tuple[str, Problem]  # a subject and what it computes


class Speeds:
    """Speeds by run, subject and problem. summary.py gives intervals too; they take a hundred times as long."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._times: dict[tuple[str, Side], dict[int, float]] = {}  # median of the samples by round, in ns
        for side, rounds in series(records).items():
            for (run, number), found in rounds.items():
                self._times.setdefault((run, side), {})[number] = found.median_ns()

    def newest(self, *sides: Side) -> str | None:
        """The newest run that holds all of them; ids begin with the time."""
        held = [{run for run, held in self._times if held == side} for side in sides]
        return max(set.intersection(*held), default=None)

    def tflops(self, run: str, side: Side) -> float | None:
        times = self._times.get((run, side))
        return side[1].flop() / median(list(times.values())) / 1e3 if times else None

    def ratio(self, run: str, over: Side, under: Side) -> float | None:
        """Geometric mean over the rounds that hold both."""
        a, b = (self._times.get((run, side), {}) for side in (over, under))
        ratios = [b[number] / a[number] for number in a if number in b]
        return geometric_mean(ratios) * over[1].flop() / under[1].flop() if ratios else None


# ---- one table per run -----------------------------------------------------------------------------------------------


def gpus(folder: Path) -> list[str]:
    """The GPUs of the records, the one that the targets are for first."""
    return sorted((path.stem for path in (folder / FOLDER).glob("*.jsonl")), key=lambda name: (name != GPU, name))


def records_of(folder: Path, gpu: str = GPU) -> Sequence[Record]:
    return records_in(folder / FOLDER / f"{gpu}.jsonl")


def runs(folder: Path, gpu: str = GPU) -> list[list[Record]]:
    """The records of each run, without a run of which a newer one holds every subject at every problem."""
    found: dict[str, list[Record]] = {}
    for record in records_of(folder, gpu):
        found.setdefault(record.run_id, []).append(record)
    held = {run: {(record.subject, record.problem) for record in records} for run, records in found.items()}
    return [records for run, records in found.items() if not any(held[run] <= held[new] for new in held if new > run)]


def run_table(records: Sequence[Record]) -> Table:
    """A row for each subject and type: TFLOP/s by length, in brackets divided by FlashAttention-2's and -3's."""
    speeds = Speeds(records)
    references = [name for name in REFERENCES if name in subjects_of(records)]
    problems = sorted({record.problem for record in records})
    lengths = sorted({problem.seq for problem in problems})
    run = records[0].run_id
    lines: list[Sequence[Cell]] = []
    for dtype in DTYPES:
        for subject in subjects_of(records):
            cells: list[Cell] = []
            for length in lengths:
                mine = [one for one in problems if (one.dtype, one.seq) == (dtype, length)]
                cells.append(_cell(speeds, run, (subject, mine[0]), references) if mine else None)
            if any(cells):
                lines.append((NAMES.get(subject, subject), dtype, *cells))
    return Table(("", "type", *map(str, lengths)), lines)


def _cell(speeds: Speeds, run: str, side: Side, references: Sequence[str]) -> str | None:
    speed = speeds.tflops(run, side)
    if speed is None:
        return None
    ratios = [None if name == side[0] else speeds.ratio(run, side, (name, side[1])) for name in references]
    shown = ", ".join("–" if ratio is None else f"{ratio:.3f}" for ratio in ratios)
    return f"{speed:.0f}" + (f" ({shown})" if ratios else "")


def title(records: Sequence[Record], hashes: Mapping[str, set[str]]) -> str:
    """What the run computes: "d_head 64, causal, 32 heads, 2 rounds; in brackets: divided by ..."."""
    problem = records[0].problem
    case = f"d_head {problem.d_head}, {'causal' if problem.causal else 'non-causal'}"
    heads = f"{problem.heads} heads" + (f" on {problem.kv_heads}" if problem.kv_heads not in (0, problem.heads) else "")
    batches = {record.problem.batch for record in records}
    heads += f", batch {problem.batch}" if len(batches) == 1 else ""
    rounds = len({record.round for record in records})
    text = f"**{case}**, {heads}, {rounds} round{'s' if rounds > 1 else ''}"
    text += "".join(f", {note}" for note in code_notes(records, hashes))
    names = " and of ".join(NAMES[name] for name in REFERENCES if name in subjects_of(records))
    return text + (f"; in brackets: divided by the speed of {names}" if names else "")


def code_hashes(folder: Path) -> dict[str, set[str]]:
    """The machine code of each version as committed: code hashes of all its configurations."""
    return {name: {str(row.code_hash) for row in found} for name, found in read_registers(folder).items()}


def code_notes(records: Sequence[Record], hashes: Mapping[str, set[str]]) -> list[str]:
    """What to know of versions that were measured with other machine code, or built from a changed checkout."""
    versions = [record for record in records if not record.is_peer]
    other = {one.subject for one in versions if one.raw.get("code_hash") not in hashes.get(one.subject, ())}
    changed = {one.subject for one in versions if one.raw.get("dirty")} - other
    notes = {
        "with machine code that the repository no longer holds": other,
        "built from a changed checkout, with the machine code of the repository": changed,
    }
    return [f"{' and '.join(sorted(names))} {note}" for note, names in notes.items() if names]


def newest_table(folder: Path, dtypes: Sequence[str] = DTYPES) -> Table:
    """A row for each case, library and type: the speed of the newest version that was measured beside it, by length.

    Of a version beside two libraries the row of the newer library stands for both.
    """
    lines: list[Sequence[Cell]] = []
    for gpu in gpus(folder):
        cases: dict[tuple[int, bool, str], list[Record]] = {}  # of the newest run
        for records in runs(folder, gpu):
            problem = records[0].problem
            usual = not problem.kv_heads and {record.problem.seq for record in records} >= set(LENGTHS)
            usual = usual and not all(record.is_peer for record in records)
            for reference in REFERENCES if usual else ():
                if reference in subjects_of(records):
                    cases[problem.d_head, problem.causal, reference] = records
        newest = {case: [name for name in subjects_of(one) if name not in NAMES][-1] for case, one in cases.items()}
        for (d_head, causal, reference), records in sorted(cases.items()):
            subject = newest[d_head, causal, reference]
            if newest.get((d_head, causal, REFERENCES[-1])) == subject and reference != REFERENCES[-1]:
                continue
            speeds = Speeds(records)
            case = f"{gpu.upper()}, d_head {d_head}{', causal' if causal else ''}"
            for dtype in dtypes:
                problems = {one.problem.seq: one.problem for one in records if one.problem.dtype == dtype}
                cells = [
                    _cell(speeds, records[0].run_id, (subject, problems[seq]), [reference]) if seq in problems else None
                    for seq in LENGTHS
                ]
                lines.append((case, f"{subject} / {NAMES[reference]}", dtype, *cells))
    return Table(("", "", "type", *map(str, LENGTHS)), lines)


def general_text(folder: Path) -> str:
    """All runs of each GPU, each table below its title."""
    parts = []
    hashes = code_hashes(folder)
    for gpu in gpus(folder):
        tables = "\n".join(
            f"{title(records, hashes)}:\n\n{run_table(records).markdown()}" for records in runs(folder, gpu)
        )
        parts.append(f"### {gpu.upper()}, TFLOP/s\n\n{tables}")
    return "\n".join(parts)


# ---- targets and predictions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A problem without its length and type. `batch` 0: as many as make 16384 rows; `heads` 0: 2048 / d_head."""

    d_head: int = 128
    causal: bool = False
    heads: int = 0
    kv_heads: int = 0
    batch: int = 0

    def problem(self, dtype: str, seq: int) -> Problem:
        heads, batch = self.heads or 2048 // self.d_head, self.batch or TOKENS // seq
        return Problem("attention", dtype, batch, heads, seq, self.d_head, "normal", self.causal, self.kv_heads)


@dataclass(frozen=True)
class Quotient:
    """The speed of a subject at a case divided by another's, or at another length; without a divisor, TFLOP/s."""

    text: str
    subject: str
    case: Case
    wanted: Mapping[int, float]  # by length
    divisor: str = ""
    divisor_case: Case | None = None  # None: the same case
    divisor_seq: int = 0  # 0: the same length
    at_most: bool = False  # `wanted` is a limit

    def sides(self, dtype: str, seq: int) -> tuple[Side, Side]:
        """What is divided by what."""
        under = (self.divisor_case or self.case).problem(dtype, self.divisor_seq or seq)
        return (self.subject, self.case.problem(dtype, seq)), (self.divisor, under)

    def measured(self, speeds: Speeds, dtype: str, seq: int) -> float | None:
        """From the newest run that holds both sides, else each from its own newest run; None: not measured."""
        over, under = self.sides(dtype, seq)
        if not self.divisor:
            return _newest_tflops(speeds, over)
        if run := speeds.newest(over, under):
            return speeds.ratio(run, over, under)
        apart = _newest_tflops(speeds, over), _newest_tflops(speeds, under)
        return apart[0] / apart[1] if apart[0] and apart[1] else None

    def named(self, speeds: Speeds) -> str:
        """The text; it says where no run holds both sides, as speeds of two runs differ by the state of the GPU."""
        places = [(dtype, seq) for dtype in DTYPES for seq in self.wanted if self.measured(speeds, dtype, seq)]
        apart = self.divisor and any(speeds.newest(*self.sides(*place)) is None for place in places)
        return f"{self.text} (two runs)" if apart else self.text


def _newest_tflops(speeds: Speeds, side: Side) -> float | None:
    run = speeds.newest(side)
    return speeds.tflops(run, side) if run else None


def by_length(*wanted: float) -> dict[int, float]:
    """By the usual lengths; fewer figures: the last one counts for all further lengths."""
    return dict(zip(LENGTHS, [*wanted, *[wanted[-1]] * (len(LENGTHS) - len(wanted))], strict=True))


CAUSAL = Case(causal=True)


def target(subject: str, case: Case, divisor: str, *wanted: float) -> Quotient:
    """Of the usual lengths: "d_head 64, causal: v52 / FlashAttention-3"."""
    text = f"d_head {case.d_head}{', causal' if case.causal else ''}: {subject} / {NAMES.get(divisor, divisor)}"
    return Quotient(text, subject, case, by_length(*wanted), divisor)


def newest_of_lines(folder: Path) -> tuple[str, str]:
    """The newest measured version with mma.sync, and the newest with wgmma: the targets are theirs."""
    measured = {record.subject for record in records_of(folder)}
    newest = {path.parent.name: name for name, path in kernel_files(root()).items() if name in measured}
    mma, hopper = (newest[line] for line in FOLDERS)
    return mma, hopper


def targets(mma: str, hopper: str) -> tuple[Quotient, ...]:
    return (
        target(hopper, CAUSAL, "fa3", 1.10, 1.07),
        target(hopper, Case(64), "fa3", 1.45, 1.40, 1.18, 1.15, 1.10, 1.07),
        target(hopper, Case(64, True), "fa3", 1.40, 1.40, 1.20, 1.18, 1.12, 1.10),
        target(hopper, Case(256), "fa3", 1.03),
        target(hopper, Case(256, True), "fa3", 1.03),
        target("v38", Case(), "v25", 0.98),
        target(mma, CAUSAL, "fa2", 1.10, 1.10, 1.20),
        target(mma, Case(64), "fa2", 1.15),
        target(mma, Case(64, True), "fa2", 1.15),
    )


def odd_lengths(*names: str) -> tuple[Quotient, ...]:
    wanted = {4095: 0.95, 4097: 0.95}
    return tuple(
        Quotient(f"{name}{', causal' * causal}", name, Case(128, causal, 32, batch=2), wanted, name, divisor_seq=4096)
        for name in names
        for causal in (False, True)
    )


# What was measured in place of a version: v46 has v45's source for d_head 64, and v49 differs with the mask alone.
MEASURED_AS = {("v45", 64): "v46", ("v49", 256): "v48"}


def predicted(versions: Mapping[str, Version]) -> list[Quotient]:
    """The speeds that the header blocks claim: those with mma.sync, then those with wgmma."""
    found = []
    for version in sorted(versions.values(), key=lambda version: version.one_arch):
        groups: dict[tuple[str, Setting, Setting], list[Claim]] = {}
        for claim in version.header.claims if version.header.config.any_length else ():
            if claim.quantity in CASES:
                against = claim.against or Setting()
                other = replace(against, version=against.version or version.header.parent)
                groups.setdefault((claim.quantity, claim.case or Setting(), other), []).append(claim)
        found += [_claimed(version.version, *group, claims) for group, claims in groups.items()]
    return found


def _claimed(name: str, quantity: str, case: Setting, against: Setting, claims: Sequence[Claim]) -> Quotient:
    wanted = {int(claim.place): (claim.low + claim.high) / 2 for claim in claims}
    at_most = not any(claim.low for claim in claims)
    if at_most:
        wanted = {int(claim.place): claim.high for claim in claims}
    of, under = Case(case.d_head, case.causal), Case(against.d_head, against.causal)
    words = [f"d_head {case.d_head}"] * (case.d_head != Setting.d_head) + ["causal"] * case.causal
    same = "".join(f", {word}" for word in words)
    subject, shown = _measured_as(name, case.d_head)
    if quantity == "tflops":
        return Quotient(f"{shown}{same}, TFLOP/s", subject, of, wanted, at_most=at_most)
    if quantity == "fa3":
        return Quotient(f"{shown} / {NAMES['fa3']}{same}", subject, of, wanted, "fa3")
    divisor, other = _measured_as(against.version, against.d_head)
    if of == under:
        return Quotient(f"{shown} / {other}{same}", subject, of, wanted, divisor)
    left, right = [], []  # what they differ in
    if of.d_head != under.d_head:
        left.append(f"d_head {of.d_head}")
        right.append(f"{under.d_head}" if name == against.version else f"d_head {under.d_head}")
    if of.causal != under.causal:
        names = {True: "causal", False: "non-causal"}
        left.append(names[of.causal])
        right.append(names[under.causal])
    text = ", ".join([shown, *left]) + " / " + ", ".join([other] * (name != against.version) + right)
    return Quotient(text, subject, of, wanted, divisor, under)


def _measured_as(version: str, d_head: int) -> tuple[str, str]:
    """The version whose records count, and how the table names the two."""
    other = MEASURED_AS.get((version, d_head), version)
    return other, version if other == version else f"{version} (measured: {other})"


def figure(value: float) -> str:
    """Three decimals for a quotient, none for TFLOP/s."""
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def shortfall(measured: float | None, wanted: float | None) -> float:
    """By how many percent the figure, rounded as the table shows it, is less than wanted; 0 where it is not."""
    if measured is None or wanted is None:
        return 0.0
    return max(0.0, 100 * (1 - float(figure(measured)) / wanted))


def targets_table(speeds: Speeds, quotients: Sequence[Quotient]) -> Table:
    """What was wanted and what is measured, by length; bold where it is missed."""
    lengths = sorted({length for one in quotients for length in one.wanted})
    lines: list[Sequence[Cell]] = []
    for one in quotients:
        lines.append((one.named(speeds), "at least", *(_wanted(one, length) for length in lengths), None))
        for dtype in DTYPES:
            measured = [one.measured(speeds, dtype, length) for length in lengths]
            missed = [shortfall(value, one.wanted.get(at)) for value, at in zip(measured, lengths, strict=True)]
            cells = [
                NOT_MEASURED if value is None else f"**{figure(value)}**" if short else figure(value)
                for value, short in zip(measured, missed, strict=True)
            ]
            lines.append(("", dtype, *cells, f"{max(missed):.1f} %" if any(missed) else "–"))
    return Table(("", "", *map(str, lengths), "most missed by"), lines)


def _wanted(one: Quotient, length: int) -> str | None:
    value = one.wanted.get(length)
    return None if value is None else f"≤ {value:g}" if one.at_most else f"{value:.2f}" if value < 10 else f"{value:g}"


def grouped_table(speeds: Speeds, hopper: str) -> Table:
    """Its lead over FlashAttention-3 with shared heads and without; bold where shared heads do worse."""
    lines: list[Sequence[Cell]] = []
    for causal in (False, True):
        for dtype in DTYPES:
            alone, shared = (
                Quotient("", hopper, Case(128, causal, 32, kv_heads, 4), {}, "fa3").measured(speeds, dtype, 4096)
                for kv_heads in (0, 8)
            )
            short = shortfall(shared, float(figure(alone)) if alone else None)
            cells = [NOT_MEASURED if value is None else figure(value) for value in (alone, shared)]
            name = f"{'causal' if causal else 'non-causal'}, {dtype}"
            lines.append((name, cells[0], f"**{cells[1]}**" if short else cells[1], f"{short:.1f} %" if short else "–"))
    return Table(("", "32 heads", "32 heads on 8", "missed by"), lines)


def is_missed(speeds: Speeds, one: Quotient) -> bool:
    return any(
        shortfall(one.measured(speeds, dtype, length), wanted)
        for dtype in DTYPES
        for length, wanted in one.wanted.items()
    )


def missed_text(folder: Path) -> str:
    """The targets that are missed."""
    speeds = Speeds(records_of(folder))
    lines = newest_of_lines(folder)
    usual, odd = (
        [one for one in wanted if is_missed(speeds, one)] for wanted in (targets(*lines), odd_lengths(*lines))
    )
    return "\n".join(
        [
            targets_table(speeds, usual).markdown(),
            "Rows around 4096, speed for each FLOP divided by that at 4096 rows:\n",
            targets_table(speeds, odd).markdown(),
        ]
    )


def targets_text(folder: Path) -> str:
    """The tables of targets, and which GPUs are measured."""
    speeds = Speeds(records_of(folder))
    mma, hopper = newest_of_lines(folder)
    measured = " and ".join(gpu.upper() for gpu in gpus(folder))
    return "\n".join(
        [
            targets_table(speeds, targets(mma, hopper)).markdown(),
            "Rows around 4096, speed for each FLOP divided by that at 4096 rows:\n",
            targets_table(speeds, odd_lengths(mma, hopper)).markdown(),
            "Shared heads of K and V: the lead over FlashAttention-3 at 4096 rows should be that without them:\n",
            grouped_table(speeds, hopper).markdown(),
            f"These targets are for the {GPU.upper()}. Measured so far: {measured}.\n",
        ]
    )


def predictions_table(speeds: Speeds) -> Table:
    """What the header blocks predict, and what is measured, by length."""
    lines: list[Sequence[Cell]] = []
    for one in predicted(load_all(root())):
        lines.append((one.named(speeds), "predicted", *(_wanted(one, length) for length in LENGTHS)))
        by_type = {dtype: [one.measured(speeds, dtype, length) for length in LENGTHS] for dtype in DTYPES}
        for dtype, measured in by_type.items():
            if any(measured):
                lines.append(("", dtype, *(None if value is None else figure(value) for value in measured)))
        if not any(value for measured in by_type.values() for value in measured):
            lines.append(("", NOT_MEASURED, *[None] * len(LENGTHS)))
    return Table(("", "", *map(str, LENGTHS)), lines)


def predictions_text(folder: Path) -> str:
    return predictions_table(Speeds(records_of(folder))).markdown()


# ---- variants that no version became ---------------------------------------------------------------------------------

# Each variant with the one that it was to replace, in the same run.
REPLACED = (
    ("v43 without warp_uniform", "v42"),
    ("v44", "v42"),
    ("v44 with two places", "v44"),
    ("v44 whose scheduler sleeps", "v44"),
    ("drawn two Q blocks ahead", "drawn by the producer"),
    ("sections of one Q block per CTA", "v37"),
    ("sections of 32 MB", "sections of one Q block per CTA"),
    ("80 keys", "64 keys"),
    ("80 keys and turns", "64 keys and turns"),
    ("64 keys and turns", "64 keys"),
    ("two places for parts of Q", "v48"),
    ("three places for parts of Q", "v48"),
    ("and half of Q in registers", "three places for parts of Q"),
    ("and O stored during the next S", "three places for parts of Q"),
    ("two adjacent Q blocks", "v46"),
    ("four adjacent Q blocks", "v46"),
    ("eight adjacent Q blocks", "v46"),
    ("longest first at the end alone", "v46"),
    ("attention/wgmma in v42's order", "attention/wgmma"),
)


def tried_speeds(folder: Path) -> dict[tuple[str, str, str, int], dict[str, float]]:
    """Variant to TFLOP/s by run, case, type and length."""
    found: dict[tuple[str, str, str, int], dict[str, float]] = {}
    for _, row in read_columns(read_text(folder / TRIED), COLUMNS, TRIED):
        where = (row["run"], row["case"], row["dtype"], int(row["seq"]))
        found.setdefault(where, {})[row["variant"]] = float(row["tflops"])
    return found


def tried_table(folder: Path) -> Table:
    """By how many percent each variant is faster (+) or slower (−) than the one that it was to replace."""
    speeds = tried_speeds(folder)
    lengths = sorted({seq for *_, seq in speeds})
    lines: list[Sequence[Cell]] = []
    for variant, base in REPLACED:
        for case, dtype in dict.fromkeys((case, dtype) for _, case, dtype, _ in speeds):
            cells: dict[int, str] = {}
            for (_, of_case, of_dtype, seq), found in speeds.items():
                if (of_case, of_dtype) == (case, dtype) and variant in found and base in found:
                    change = round(100 * (found[variant] / found[base] - 1), 1) + 0.0  # no −0.0
                    cells[seq] = f"{change:+.1f} %".replace("-", "−").replace("+0.0", "0.0")
            if cells:
                case_text = case.replace("d", "d_head ", 1).replace(" causal", ", causal") + f", {dtype}"
                lines.append((variant, base, case_text, *(cells.get(length) for length in lengths)))
    return Table(("variant", "compared with", "case", *map(str, lengths)), lines)


# ---- checked on a GPU ------------------------------------------------------------------------------------------------

CHECKED = ("version", "group", "problems", "wrong", "error_over_tolerance", "lse_over_tolerance")
GROUPS = {
    "general": "random problems, compared with float64",
    "sdpa": "the shapes of PyTorch's own test, compared with float64",
    "shapes": "every configuration: whole and partial blocks, kinds of inputs, compared with float64",
    "short": "few queries on many keys, up to 131072, compared with float64",
    "emulator": "the same bits as the emulator's",
    **{tool: f"compute-sanitizer, {tool}" for tool in ("memcheck", "initcheck", "synccheck", "racecheck")},
}


def checked_table(folder: Path) -> Table:
    """What was checked on which GPU: a row for each version and group of problems."""
    lines: list[Sequence[Cell]] = []
    for path in sorted((folder / FOLDER).glob("checked.*.csv")):
        for _, row in read_columns(read_text(path), CHECKED, str(path)):
            errors = [f"{100 * float(row[name]):.0f} %" if row[name] else None for name in CHECKED[-2:]]
            gpu = path.name.split(".")[1].upper()
            lines.append((gpu, row["version"], GROUPS[row["group"]], int(row["problems"]), int(row["wrong"]), *errors))
    columns = ("GPU", "version", "what", "problems", "wrong or reported", "largest error / tolerance", "of log-sum-exp")
    return Table(columns, lines)


def checked_sums(folder: Path) -> Table:
    """The same in a row for each GPU and group of problems, all versions together."""
    sums: dict[tuple[str, str], list[tuple[str, int, int, str]]] = {}
    for gpu, version, what, problems, wrong, error, _ in checked_table(folder).rows:
        sums.setdefault((str(gpu), str(what)), []).append(
            (str(version), int(str(problems)), int(str(wrong)), str(error or ""))
        )
    lines: list[Sequence[Cell]] = []
    for (gpu, what), found in sums.items():
        worst = max(found, key=lambda one: float(one[3].rstrip(" %") or 0))[3]
        versions = (
            f"{len(found)}: {found[0][0]} to {found[-1][0]}" if len(found) > 2 else ", ".join(one[0] for one in found)
        )
        lines.append((gpu, what, versions, sum(one[1] for one in found), sum(one[2] for one in found), worst or None))
    return Table(("GPU", "what", "versions", "problems", "wrong or reported", "largest error / tolerance"), lines)
