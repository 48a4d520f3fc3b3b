"""Verdicts: what the judge found, as JSON, as text and as an exit status.

SCHEMA describes the JSON. `accepted` is the only verdict that scores. `reserved` means that nothing was found wrong and
something could not be decided, which a person must look at.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

ACCEPTED, REJECTED, RESERVED = "accepted", "rejected", "reserved"
SCHEMA = "flashladder-judge/1"

# Mechanisms of a rejection, in the order in which they are explained to a person.
REJECTIONS = {
    "timeout": "the submission still ran at the limit of time",
    "memory": "the submission used more memory than it may",
    "processes": "the submission started more processes than it may",
    "files": "the submission wrote more to files than it may",
    "signal": "the submission ended by a signal before it returned",
    "attack": "the submission tried to end the process that watches it",
    "contract": "the submission did not return what the problem asks for",
    "host function": "a function of the host ran inside the call",
    "host computed": "nothing on the GPU computes the result from the inputs",
    "values": "the result differs from the float64 reference by more than the bound",
    "stopped": "a kernel faulted, did not end or waits for ever",
    "race": "two threads access memory and nothing orders them",
    "order": "another order of the same atomic operations gives a wrong result",
    "out of bounds": "a kernel accesses memory outside of every buffer",
    "uninitialized": "a kernel uses memory or registers that nothing wrote",
    "finding": "the emulator reports another error of the program",
    "input changed": "the call changes its inputs",
    "unread input": "the call never reads elements of an input that the result depends on",
    "precision": "the call computes with a lower precision than the problem states",
    "below the floor": "the call moves fewer bytes or computes less than any correct program",
    "impossible time": "the call takes less time than the GPU needs for the least work of the problem",
}
RESERVATIONS = {
    "not recordable": "the judge cannot replay the program: machine code without PTX, library calls, textures",
    "state": "a call reads memory that an earlier call left and leaves it changed",
    "unreached store": "no input reached a store that the data can reach, so nothing is known of what it writes",
    "one-sided test": "a test of the data had the same outcome for every input, so one of its sides was never judged",
    "special register": "the code reads a register that tells time, place or machine",
    "address bits": "the code takes the address of a buffer apart, which tells where it runs",
    "host read": "the host looked at memory of the GPU inside the call, so it may have chosen the kernels by the data",
    "another program": "the program depends on the values of the inputs, so only one choice was judged",
    "sample": "a sample of CTAs wrote less than its share of the outputs, so the sample proves little",
    "clocks": "the clocks that time a call on the GPU contradict each other",
    "unsteady time": "the GPU slowed down, or the same program took another time",
    "races unseen": "some accesses to global memory were not checked for races",
}
# Exit statuses. Those from 11 on are of the jail (emulator/judge/README.md).
STATUS = {ACCEPTED: 0, REJECTED: 1, RESERVED: 4}
STATUS_OF_MECHANISM = {
    "contract": 5,
    "signal": 11,
    "timeout": 12,
    "memory": 13,
    "processes": 14,
    "files": 15,
    "attack": 16,
}


@dataclass(frozen=True)
class Point:
    """A reason or a reservation: the mechanism, where it was seen, and the evidence."""

    mechanism: str
    evidence: str
    case: str = ""
    inputs: str = ""


@dataclass
class CaseReport:
    """Measurements of one case."""

    case: str
    replays: int = 0
    launches: int = 0
    kernels: list[str] = field(default_factory=list)
    warp_instructions: int = 0
    bytes_moved: int = 0
    bytes_floor: int = 0
    operations: float | None = 0  # None: products of a shape that their opcodes do not tell
    operations_floor: int = 0
    worst_error: float = 0.0
    same_bits: bool = True


@dataclass(frozen=True)
class TimeRow:
    """Times of one program on a GPU. The hash is that of its machine code."""

    program: str
    case: str
    gpu: str
    processes: int
    samples: int
    median_ns: float
    least_ns: float  # of the medians of the processes
    most_ns: float
    floor_ns: float
    least_MHz: int
    most_MHz: int
    watts: float
    celsius: int
    sass: str


@dataclass
class Verdict:
    """All that the judge says of a submission."""

    problem: str
    problem_sha256: str
    submission: str
    submission_sha256: str
    device: str
    seed: int
    reasons: list[Point] = field(default_factory=list)
    reservations: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cases: list[CaseReport] = field(default_factory=list)
    times: list[TimeRow] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        return REJECTED if self.reasons else RESERVED if self.reservations else ACCEPTED

    @property
    def status(self) -> int:
        """The exit status of the command."""
        if self.reasons:
            return STATUS_OF_MECHANISM.get(self.reasons[0].mechanism, STATUS[REJECTED])
        return STATUS[self.verdict]

    def reject(self, point: Point) -> None:
        _add(self.reasons, point, REJECTIONS)

    def reserve(self, point: Point) -> None:
        _add(self.reservations, point, RESERVATIONS)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def as_json(self) -> dict[str, Any]:
        own = {"schema": SCHEMA, "verdict": self.verdict, "status": self.status}
        return own | {name: value for name, value in asdict(self).items()}

    def as_text(self) -> str:
        """The verdict, each reason and reservation on two lines, and what was measured."""
        lines = [f"{self.verdict.upper()}: {self.submission} as {self.problem}, on {self.device}"]
        for points, meanings in ((self.reasons, REJECTIONS), (self.reservations, RESERVATIONS)):
            for point in points:
                where = ", ".join(word for word in (point.case, point.inputs and f"{point.inputs} inputs") if word)
                lines.append(f"  {point.mechanism}: {meanings[point.mechanism]}" + (f" ({where})" if where else ""))
                lines.append(f"      {point.evidence}")
        lines += [f"  note: {note}" for note in self.notes]
        for each in (case for case in self.cases if case.replays):
            work = (
                f"{each.warp_instructions} warp instructions, {each.bytes_moved} bytes moved (floor {each.bytes_floor})"
            )
            lines.append(
                f"  {each.case}: {each.replays} replays, {each.launches} launches, "
                f"{work if each.bytes_floor else 'a sample of CTAs'}, largest error {each.worst_error:.2f} of the bound"
            )
        lines += [f"  {_time_text(each)}" for each in self.times]
        return "\n".join([*lines, f"  {self.seconds:.1f} s, seed {self.seed}"]) + "\n"


def _time_text(row: TimeRow) -> str:
    return (
        f"{row.program}, {row.case}, {row.gpu}: {row.median_ns:.0f} ns ({row.least_ns:.0f} to {row.most_ns:.0f} in "
        f"{row.processes} processes, {row.samples} samples; floor {row.floor_ns:.0f}), {row.least_MHz} to "
        f"{row.most_MHz} MHz, {row.watts:.0f} W, {row.celsius} C, SASS {row.sass}"
    )


MOST_POINTS = 12


def _add(points: list[Point], point: Point, known: dict[str, str]) -> None:
    """One point for each mechanism and case, and no more than a page of them."""
    if point.mechanism not in known:
        raise ValueError(f"mechanism {point.mechanism!r} is not in the table")
    if not any((p.mechanism, p.case) == (point.mechanism, point.case) for p in points) and len(points) < MOST_POINTS:
        points.append(point)
