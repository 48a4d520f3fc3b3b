"""Judges a submission: record it on decoys, draw fresh inputs, replay the recording on them, and look at everything.

    verdict = judge(load_problem("softmax"), Path("submission.py"), Options())
    print(verdict.as_text()); sys.exit(verdict.status)

The submission's processes have ended before the inputs are drawn, and the replay runs none of its host code. What the
host computed, measured, cached or patched is therefore not there: only its program for the GPU is.
"""

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.judge import work
from analysis.judge.compare import wrong_values
from analysis.judge.coverage import Coverage
from analysis.judge.dataflow import Flow, kernel_lines
from analysis.judge.machine import WEAK
from analysis.judge.problem import Case, Problem, case_text
from analysis.judge.record import (
    Options,
    Recorder,
    Recording,
    SavedRecordings,
    difference,
    holds_recordings,
    ptx_of_call,
    recording_name,
    special_registers,
)
from analysis.judge.replay import Replayed, Setting, replay
from analysis.judge.timing import BASELINE, SUBMISSION, time_submission
from analysis.judge.verdict import CaseReport, Point, Verdict

AT_ONCE = min(8, os.cpu_count() or 1)  # replays
POISONS = ("00", "3c")  # in addition to NaN
SCHEDULES = (1, 2)  # in addition to the emulator's own
NOISES = 2
ORDERS = 24  # of a launch, where its warps access flags and counters at most so often:
FLAG_ACCESSES = 64
SAMPLE = 8  # CTAs of a launch at the sizes that are timed
SAMPLED_STEPS = 20_000_000  # warp instructions of all replays of such a size after the first
MECHANISM_OF_FINDING = {"race": "race", "out-of-bounds": "out of bounds"}
UNINITIALIZED = "uninitiali"  # findings of several classes begin so
CANNOT_BE_RECORDED = "not recordable"


def judge(problem: Problem, submission: Path, options: Options, seed: int | None = None) -> Verdict:
    """The verdict on a submission. Cases are judged until one gives a reason to reject it."""
    if not submission.exists():
        raise AnalysisError(f"{submission}: no such file")
    began = time.monotonic()
    seed = secrets.randbits(63) if seed is None else seed
    device = f"emulated {options.gpu or 'GPU'} ({options.arch})"
    verdict = Verdict(problem.name, problem.sha256, submission.name, sha256_of(submission), device, seed)
    with tempfile.TemporaryDirectory(prefix="flashladder.judge.") as folder:
        judging = Judging(problem, submission, options, verdict, Path(folder), np.random.default_rng(seed))
        if options.limits.weak:
            verdict.note(f"a weak jail: {WEAK}")
        for index, case in enumerate(problem.cases):
            judging.judge_case(index, case)
            if verdict.reasons:
                break
        for index, case in enumerate(problem.timed if options.timed_shapes else ()):
            if not verdict.reasons:
                judging.judge_sample(100 * (index + 1), case)
        for point in judging.coverage.points():
            verdict.reserve(point)
        if options.time:
            judging.time_case(problem.timed[0])
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


def sha256_of(submission: Path) -> str:
    """Hash of a file, or of the names and contents of a folder's files."""
    found = hashlib.sha256()
    files = [submission] if submission.is_file() else sorted(path for path in submission.rglob("*") if path.is_file())
    for path in files:
        if submission.is_dir():
            found.update(str(path.relative_to(submission)).encode() + b"\0")
        found.update(path.read_bytes())
    return found.hexdigest()


def recorder_of(problem: Problem, submission: Path, folder: Path, options: Options) -> Recorder | SavedRecordings:
    """Runs the submission, or reads the recordings that it holds."""
    if holds_recordings(submission):
        return SavedRecordings(problem, submission)
    return Recorder(problem, submission, folder, options)


class Judging:
    """One judgment, and the verdict that grows."""

    def __init__(
        self,
        problem: Problem,
        submission: Path,
        options: Options,
        verdict: Verdict,
        folder: Path,
        rng: np.random.Generator,
    ) -> None:
        self.problem, self.options, self.verdict, self.folder, self.rng = problem, options, verdict, folder, rng
        self.recorder = recorder_of(problem, submission, folder / "submission", options)
        self.coverage = Coverage()

    def judge_case(self, index: int, case: Case) -> None:
        """Record, replay and compare one case."""
        recording = self._record(case)
        report = CaseReport(case_text(case))
        self.verdict.cases.append(report)
        if not self._is_judged(recording, report.case):
            return
        if index == 0:
            self._compare_decoys(recording, case)
        self._look_at_host(recording, report.case)
        results = self._replay_all(recording, case, index, self._settings(case))
        report.replays = len(results)
        for each in results:
            self._look_at(each, case, report)
        self._compare_runs(results, report)
        if index == 0:
            self._look_at_orders(results[0], recording, case, report)
        self._look_at_inputs(results, case, report)
        self._look_at_work(results[0], recording, case, report)
        self._look_at_code(recording, results, report.case)

    def judge_sample(self, index: int, case: Case) -> None:
        """Record and replay a case of the sizes that are timed: what a sample of its CTAs writes must be right.

        All CTAs run if the call has several launches, since a later one may read what any CTA of an earlier one wrote.
        """
        recording = self._record(case, runs=False)
        report = CaseReport(case_text(case))
        self.verdict.cases.append(report)
        if recording.mechanism == "timeout":
            self.verdict.reserve(Point("sample", recording.fault, report.case))
            return
        if not self._is_judged(recording, report.case):
            return
        self._look_at_host(recording, report.case)
        launches = [prod(launch.numbers[1:4]) for launch in recording.of_call("launch")]  # CTAs of each
        ctas = SAMPLE if len(launches) == 1 and launches[0] > SAMPLE else 0
        schedules = self.rng.integers(1, 1 << 31, size=len(self.problem.kinds))  # which CTAs run
        settings = [
            Setting(
                kind, kind, self.problem.generate(case, kind, self.rng), schedule=int(each), ctas=ctas, follows=True
            )
            for kind, each in zip(self.problem.kinds, schedules, strict=True)
        ]
        results = self._replay_all(recording, case, index, settings[:1])
        steps = sum(launch["steps"] for launch in results[0].launches)
        left = 0 if results[0].error else SAMPLED_STEPS // max(1, steps)
        results += self._replay_all(recording, case, index + 1, settings[1 : 1 + left])
        report.replays, report.launches = len(results), len(launches)
        for each in results:
            self._look_at(each, case, report)
            for name, written in each.written.items() if ctas else ():
                if written.mean() < ctas / launches[0]:
                    said = (
                        f"{ctas} of {launches[0]} CTAs wrote {int(written.sum())} of {written.size} elements of {name}"
                    )
                    self.verdict.reserve(Point("sample", said, report.case))
        self._look_at_code(recording, results, report.case)

    def time_case(self, case: Case) -> None:
        """Time a submission that is not rejected on a GPU."""
        if self.verdict.reasons:
            self.verdict.note("the submission was not timed, because it is rejected")
            return
        recording, text = self._record(case, runs=False), case_text(case)
        if not self._is_judged(recording, text):
            return
        self._look_at_host(recording, text)
        self._look_at_code(recording, (), text)
        recordings = {SUBMISSION: recording}
        if self.options.baseline:
            recordings[BASELINE] = self._record_baseline(self.options.baseline, case)
        time_submission(self.problem, recordings, self.rng, self.folder / "times", self.verdict)

    # ---- the recording -----------------------------------------------------------------------------------------------

    def _record(self, case: Case, runs: bool = True) -> Recording:
        """Record a case, and keep the recording if that is asked for."""
        recording = self.recorder.record(case, self.rng, runs)
        if self.options.save:
            self.options.save.mkdir(parents=True, exist_ok=True)
            shutil.copy(recording.path, self.options.save / recording_name(self.problem, case))
        return recording

    def _record_baseline(self, path: Path, case: Case) -> Recording:
        """A recording of the baseline, whose results are compared on the GPU alone."""
        beside = self.folder / "baseline"
        beside.mkdir()
        recording = recorder_of(self.problem, path, beside / "submission", self.options).record(
            case, self.rng, runs=False
        )
        if recording.fault:
            raise AnalysisError(f"--baseline {path}: {recording.fault}")
        return recording

    def _is_judged(self, recording: Recording, case: str) -> bool:
        if recording.mechanism == CANNOT_BE_RECORDED:
            self.verdict.reserve(Point(CANNOT_BE_RECORDED, recording.fault, case))
        elif recording.fault:
            self.verdict.reject(Point(recording.mechanism, recording.fault, case))
        return not recording.fault

    def _compare_decoys(self, recording: Recording, case: Case) -> None:
        """Record again, with other decoys: what differs is what the host derives from the values."""
        other = self.recorder.record(case, self.rng)
        if other.fault:
            self.verdict.note(f"a second recording failed: {other.fault}")
            return
        differs = difference(recording, other, self.problem.inputs(case))
        if differs:
            self.verdict.reserve(Point("another program", differs, case_text(case)))

    def _look_at_host(self, recording: Recording, case: str) -> None:
        for race in recording.of_call("race"):  # of two streams; a replay has one
            said = ": ".join(line.strip() for line in race.text.splitlines()[:2])
            self.verdict.reject(Point("race", said[:300], case))
        if recording.of_call("host"):
            self.verdict.reject(Point("host function", "a callback in a stream", case))
        if not recording.of_call("launch"):
            copies = sum(each.bytes for each in recording.of_call("write"))
            self.verdict.reject(
                Point("host computed", f"no kernel runs in the call; {copies} bytes are copied to the GPU", case)
            )
        looked = sum(each.numbers[1] for each in recording.of_call("read"))
        if looked:
            self.verdict.reserve(Point("host read", f"{looked} bytes", case))

    def _look_at_code(self, recording: Recording, results: Sequence[Replayed], case: str) -> None:
        """Points that only the code shows: special registers, tests of address bits, and what no replay reached."""
        kernels = ptx_of_call(recording)
        registers = special_registers(ptx for _, ptx in kernels)
        if registers:
            self.verdict.reserve(Point("special register", ", ".join(registers), case))
        for kernel, ptx in kernels:
            tests = Flow(kernel_lines(ptx, kernel)).tests_of_addresses()
            if tests:
                self.verdict.reserve(Point("address bits", f"{tests[0]} of {kernel}", case))
        self.coverage.add(kernels, results)

    # ---- the replays -------------------------------------------------------------------------------------------------

    def _settings(self, case: Case) -> list[Setting]:
        """Every replay of a case; the first is the base that others must equal."""
        normal = self.problem.generate(case, "normal", self.rng)
        settings = [Setting("normal", "normal", normal)]
        settings += [Setting(f"poison {each}", "normal", normal, poison=each) for each in POISONS]
        settings += [Setting(f"schedule {each}", "normal", normal, schedule=each) for each in SCHEDULES]
        settings += [Setting("second call", "normal", normal, calls=2)]
        settings += [Setting("noise", "normal", normal, noise=each) for each in self._noises(NOISES)]
        kinds = self.problem.kinds[1:]
        return settings + [
            Setting(kind, kind, self.problem.generate(case, kind, self.rng), noise=noise, follows=True)
            for kind, noise in zip(kinds, self._noises(len(kinds)), strict=True)
        ]

    def _noises(self, count: int) -> list[int]:
        return [int(each) for each in self.rng.integers(1, 1 << 31, size=count)]

    def _replay_all(self, recording: Recording, case: Case, index: int, settings: Sequence[Setting]) -> list[Replayed]:
        inputs, outputs = self.problem.inputs(case), self.problem.outputs(case)

        def run(numbered: tuple[int, Setting]) -> Replayed:
            number, setting = numbered
            return replay(recording, inputs, outputs, setting, self.folder / f"replay.{index}.{number}", self.options)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(run, enumerate(settings)))

    def _look_at(self, replayed: Replayed, case: Case, report: CaseReport, wrong: str = "values") -> None:
        """One replay by itself: findings, the result, memory that it used."""
        where = {"case": report.case, "inputs": replayed.setting.kind}
        for finding in replayed.findings:
            self.verdict.reject(Point(mechanism_of(finding["finding"]), first_sentence(finding), **where))
        if replayed.error:
            self.verdict.reject(Point("stopped", replayed.error, **where))
            return
        said, worst = wrong_values(
            self.problem,
            case,
            replayed.setting.inputs,
            replayed.outputs,
            replayed.written if replayed.setting.ctas else None,
        )
        report.worst_error = max(report.worst_error, min(worst, 1e9))
        if said:
            self.verdict.reject(Point(wrong, f"{replayed.setting.name}: {said}", **where))
        self._look_at_memory(replayed.result, where)
        for launch in replayed.launches:
            if launch.get("races_unseen"):
                self.verdict.reserve(Point("races unseen", launch["kernel"], report.case))

    def _look_at_memory(self, result: Mapping[str, Any], where: Mapping[str, str]) -> None:
        for name, each in result.get("outputs", {}).items():
            if each.get("unset"):
                self.verdict.reject(
                    Point("uninitialized", f"{each['unset']} bytes of {name} are read before they are written", **where)
                )
        for each in result.get("unset", []):
            self.verdict.reject(
                Point(
                    "uninitialized",
                    f"{each['bytes']} bytes of {each['where']} are read before they are written",
                    **where,
                )
            )
        for name, each in result.get("inputs", {}).items():
            if each.get("changed"):
                self.verdict.reject(Point("input changed", f"{each['changed']} bytes of {name}", **where))
        for each in result.get("state", []):
            self.verdict.reserve(Point("state", f"{each['bytes']} bytes of {each['where']}", **where))

    def _compare_runs(self, results: Sequence[Replayed], report: CaseReport) -> None:
        """Replays of the same inputs: other memory must not matter, another order may change the last bits."""
        base = results[0]
        for each in results[1:]:
            if each.setting.kind != "normal" or each.error or base.error:
                continue
            same = all(np.array_equal(bits(each.outputs[name]), bits(base.outputs[name])) for name in base.outputs)
            if same or each.setting.noise:
                continue
            report.same_bits = False
            if each.setting.schedule:
                self.verdict.note("the order of warps changes the last bits: sums by atomics, or a race")
            elif each.setting.calls > 1:
                self.verdict.reserve(Point("state", "a second call on the same inputs gives other bits", report.case))
            else:
                self.verdict.reject(
                    Point("uninitialized", "the result depends on memory that nothing wrote", report.case)
                )

    def _look_at_orders(self, base: Replayed, recording: Recording, case: Case, report: CaseReport) -> None:
        """Replay other orders of atomic operations. If one gives other bits, the replay goes on with its result."""
        if base.error or self.verdict.reasons or not 0 < work.flag_accesses(base.launches) <= FLAG_ACCESSES:
            return
        setting = Setting("another order", "normal", base.setting.inputs, orders=ORDERS)
        (other,) = self._replay_all(recording, case, len(self.problem.cases), [setting])
        report.replays += 1
        self._look_at(other, case, report, wrong="order")
        if other.error:
            return
        ran = sum(launch["classes"] for launch in other.launches)
        left = sum(launch["left"] for launch in other.launches)
        self.verdict.note(f"{ran} orders of atomic operations were run, {left or 'none'} left")

    def _look_at_inputs(self, results: Iterable[Replayed], case: Case, report: CaseReport) -> None:
        """Elements that the result depends on and that no replay read: a cache, skipped work."""
        done = [each for each in results if not each.error]
        for name, tensor in self.problem.inputs(case).items():
            unread = np.ones(tensor.shape, bool)
            for each in done:
                needed = self.problem.needed(each.setting.inputs, case).get(name)
                unread &= (
                    each.unread[name].astype(bool) if needed is None else np.logical_and(each.unread[name], needed)
                )
            if done and unread.any():
                said = f"{int(unread.sum())} of {unread.size} elements of {name}"
                self.verdict.reject(Point("unread input", said, report.case))

    def _look_at_work(self, base: Replayed, recording: Recording, case: Case, report: CaseReport) -> None:
        report.bytes_floor, report.operations_floor = self.problem.bytes_moved(case), self.problem.operations(case)
        if base.error:
            return
        report.launches = len(base.launches)
        report.kernels = sorted({launch["kernel"] for launch in base.launches})
        report.warp_instructions = sum(launch["steps"] for launch in base.launches)
        copied = sum(2 * each.numbers[2] for each in recording.of_call("copy"))
        copied += sum(each.numbers[3] * each.numbers[4] * each.numbers[5] for each in recording.of_call("set"))
        report.bytes_moved = max(work.bytes_moved(base.launches, copied), touched(base.result))
        operations = work.operations(base.launches)
        report.operations = operations if isfinite(operations) else None
        if report.bytes_moved < report.bytes_floor:
            said = f"{report.bytes_moved} bytes moved: at least {report.bytes_floor} are needed"
            self.verdict.reject(Point("below the floor", said, report.case))
        if operations < report.operations_floor:
            said = f"at most {operations:.0f} operations: at least {report.operations_floor} are needed"
            self.verdict.reject(Point("below the floor", said, report.case))
        opcodes = {work.opcode_of(name) for launch in base.launches for name in launch["executed"]}
        lower = sorted(each for each in opcodes if self.problem.lower and re.search(self.problem.lower, each))
        if lower:
            self.verdict.reject(Point("precision", f"executes {', '.join(lower[:3])}", report.case))


def touched(result: Mapping[str, Any]) -> int:
    """Bytes of the inputs and outputs that the call used. The counters know nothing of copies by TMA."""
    read = sum(each["bytes"] - each["unread"] for each in result["inputs"].values())
    return int(read + sum(each["bytes"] - each["unwritten"] for each in result["outputs"].values()))


def bits(array: Any) -> Any:
    """Bytes, because NaN differs from itself."""
    return array.view(np.uint8)


def mechanism_of(finding: str) -> str:
    if finding.startswith(UNINITIALIZED):
        return "uninitialized"
    return MECHANISM_OF_FINDING.get(finding, "finding")


def first_sentence(finding: Mapping[str, Any]) -> str:
    """Class, kernel, source line and the first line of the message."""
    message = str(finding.get("message", "")).splitlines()
    return f"{finding['finding']} in {finding.get('kernel', '?')}: {message[0] if message else ''}"[:300]
