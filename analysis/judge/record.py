"""Recordings of submissions: what one process of a submission sent to the emulated GPU while it computed decoys.

recorder = Recorder(problem, path, folder, options)
recording = recorder.record(case, rng)
recording.fault       # "" or why it cannot be judged
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.judge import machine
from analysis.judge.arrays import STORED, Tensor
from analysis.judge.ladder_kernel import is_ladder_kernel, write_host_program
from analysis.judge.problem import Case, Problem, case_text, contract

INSIDE_MODULES = ("gpu.py", "run_submission.py", "torch_tensors.py", "torch_extension.py", "torch_extension.h")
HERE = Path(__file__).resolve().parent
DECOYS = 2  # calls in a recording, of which the last is judged: the first may load modules and fill workspaces
MOST_LINES = 200_000
LIBRARY = "library "  # begins the mark of a library call that nothing can record
REGISTERS = re.compile(
    r"%(clock\w*|globaltimer\w*|smid|nsmid|warpid|nwarpid|gridid|envreg\d+|pm\d+\w*|current_graph_exec"
    r"|total_smem_size|aggr_smem_size|reserved_smem\w*|dynamic_smem_size)\b"
)

MISSING = re.compile(r"No module named '(\w+)|fatal error: (\S+): No such file|No such file or directory: '([^']+)'")
LAST_WORDS = 20_000  # bytes of the output that are looked at
COMPILER_ERROR = re.compile(r"(?:RuntimeError: nvcc: )?(?:/\S*/)?(.*\b(?:fatal )?error: .*)")  # of nvcc, gcc or clang
FRAME = re.compile(r'File ".*/files/(\S+)", line (\d+)')  # of a traceback, in the submission


@dataclass(frozen=True)
class Options:
    """Options of the command."""

    arch: str = "sm_80"
    gpu: str = ""
    python: str = ""
    limits: machine.Limits = field(default_factory=machine.Limits)
    save: Path | None = None  # a folder for the recordings
    timed_shapes: bool = True  # judge a sample of CTAs at the sizes that are timed, too
    time: bool = False  # time the recording on a GPU
    baseline: Path | None = None  # a submission that is timed in the same rounds


@dataclass(frozen=True)
class Operation:
    """One line of `judge-replay --list`."""

    kind: str
    numbers: tuple[int, ...]
    bytes: int
    hash: str
    text: str
    at: str  # "setup", "call" or "after"


@dataclass(frozen=True)
class Recording:
    """The file of a recording, what it holds, and how the submission's process ended."""

    path: Path
    ended: machine.Ended
    operations: tuple[Operation, ...] = ()
    fault: str = ""
    mechanism: str = "contract"

    def of_call(self, kind: str) -> list[Operation]:
        return [each for each in self.operations if each.kind == kind and each.at == "call"]


class Recorder:
    """Runs one submission in the jail. Its folder is kept from case to case, because it holds compiled code."""

    def __init__(self, problem: Problem, submission: Path, folder: Path, options: Options) -> None:
        self.problem, self.options, self.folder, self.submission = problem, options, folder, submission
        folder.mkdir()
        for name in INSIDE_MODULES:
            shutil.copy(HERE / "inside" / name, folder / name)
        self.entry = self._copy(submission)
        self.count = 0

    def _copy(self, submission: Path) -> str:
        """Copy the submission into the folder and return the file that is loaded."""
        if submission.is_dir():
            shutil.copytree(submission, self.folder / "files", symlinks=True)
            return f"files/{_entry_of(submission)}"
        if submission.suffix == ".cu" and is_ladder_kernel(submission):
            if self.problem.name != "attention_forward":
                raise AnalysisError(f"{submission}: a kernel of the ladder solves attention_forward alone")
            return write_host_program(submission, self.folder, self.problem.cases)
        if submission.suffix not in (".py", ".cu"):
            raise AnalysisError(f"{submission}: must be a Python module, a .cu file or a folder with submission.py")
        (self.folder / "files").mkdir()
        shutil.copy(submission, self.folder / "files" / submission.name)
        return f"files/{submission.name}"

    def record(self, case: Case, rng: np.random.Generator, runs: bool = True) -> Recording:
        """One process of the submission, from its start to its end, which runs its kernels or only records them."""
        for name in ("recording", "notes"):
            _remove(self.folder / name)
        self._write_request(case, rng)
        self._restore_modules()
        inside = machine.inside(self.folder, self.options.limits)
        python = machine.interpreter(self.options.python)
        ended = machine.in_jail(
            self.folder,
            [python, str(inside / "run_submission.py"), "request.json"],
            machine.submission_environment(self.options.arch, self.options.gpu, inside, runs),
            self.options.limits,
        )
        self.count += 1
        path = self.folder.parent / f"recording.{self.count}"
        path.write_bytes(machine.read_plain(self.folder / "recording"))
        recording = read_recording(self.problem, path, ended, case)
        if not recording.fault:
            return recording
        machine.refuse_missing_tool(ended.said, python)
        left = neighbor(self.submission, ended.said) or missing_package(ended.said, python)
        return replace(recording, fault=f"{recording.fault}; {left}") if left else recording

    def _restore_modules(self) -> None:
        for name in INSIDE_MODULES:
            _remove(self.folder / name)
            shutil.copy(HERE / "inside" / name, self.folder / name)

    def _write_request(self, case: Case, rng: np.random.Generator) -> None:
        tensors, decoys = self.problem.inputs(case), []
        for call in range(DECOYS):
            files = {}
            for name, values in self.problem.generate(case, "normal", rng).items():
                files[name] = f"decoy.{call}.{name}"
                _remove(self.folder / files[name])
                (self.folder / files[name]).write_bytes(tensors[name].laid_out(values))
            decoys.append(files)
        request = {"submission": self.entry, "contract": contract(self.problem, case), "decoys": decoys}
        _remove(self.folder / "request.json")
        (self.folder / "request.json").write_text(json.dumps(request), encoding="utf-8")


class SavedRecordings:
    """A folder of recordings that --save wrote: judged again without running anything of the submission."""

    def __init__(self, problem: Problem, folder: Path) -> None:
        self.problem, self.folder = problem, folder

    def record(self, case: Case, rng: np.random.Generator, runs: bool = True) -> Recording:
        """The recording of this case."""
        path = self.folder / recording_name(self.problem, case)
        if not path.is_file():
            raise AnalysisError(f"{self.folder}: lacks {path.name}, the recording of {case_text(case)}")
        return read_recording(self.problem, path, machine.Ended(machine.EXITED, "", ""), case)


def recording_name(problem: Problem, case: Case) -> str:
    """Name of the recording of a case in a folder of recordings."""
    return f"case.{[*problem.cases, *problem.timed].index(case)}.recording"


def holds_recordings(folder: Path) -> bool:
    return (folder / "case.0.recording").is_file()


def read_recording(problem: Problem, path: Path, ended: machine.Ended, case: Case) -> Recording:
    """Look for the marks of a complete call, and compare them with the contract."""
    listing = list_operations(path)
    if isinstance(listing, str):
        return Recording(path, ended, fault=explained(listing, ended), mechanism=_mechanism(ended))
    fault = fault_of(listing, problem.inputs(case), problem.outputs(case))
    refused = next((each for each in listing if each.kind == "refused"), None)
    if refused:
        return Recording(path, ended, listing, refused.text, "not recordable")
    called = next((each.text[len(LIBRARY) :] for each in listing if each.text.startswith(LIBRARY)), "")
    if fault and called:
        said = f"the submission calls {called[:60]} of PyTorch, whose kernels are machine code"
        return Recording(path, ended, listing, said, "not recordable")
    mechanism = _mechanism(ended) if fault else "contract"
    return Recording(path, ended, listing, explained(fault, ended) if fault else "", mechanism)


def neighbor(submission: Path, said: str) -> str:
    """Return the neighboring file that a single-file submission failed to find; "" if it found all."""
    if not submission.is_file():
        return ""
    asked = {word for words in MISSING.findall(said) for word in words if word}
    beside = sorted(path.name for path in submission.parent.iterdir())
    found = next((name for name in beside if name in asked or name.removesuffix(".py") in asked), "")
    if not found or found == submission.name:
        return ""
    return f"{found} lies beside {submission.name}, which is judged alone: name a folder that holds both"


def missing_package(said: str, python: str) -> str:
    """Say how to install what the submission imports; "" if it found all."""
    missing = re.search(r"^ModuleNotFoundError: No module named '(\w+)", said, re.M)
    return f"install {missing[1]} for {python}, or name a Python that has it by --python" if missing else ""


def _entry_of(folder: Path) -> str:
    names = [path.name for path in sorted(folder.iterdir()) if path.suffix in (".py", ".cu")]
    if "submission.py" in names:
        return "submission.py"
    if len(names) == 1:
        return names[0]
    raise AnalysisError(f"{folder}: must hold submission.py, or one .py or .cu file")


def _remove(path: Path) -> None:
    """Remove what a submission may have put there, a folder too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


MECHANISM_OF_STATUS = {
    machine.TIMEOUT: "timeout",
    machine.MEMORY: "memory",
    machine.PROCESSES: "processes",
    machine.FILES: "files",
    machine.SIGNAL: "signal",
    machine.ATTACKED: "attack",
}
MECHANISM_OF_ERROR = {  # a limit that the program noticed itself
    "files": re.compile("File too large|No space left on device"),
    "memory": re.compile("MemoryError|Cannot allocate memory|bad_alloc"),
    "processes": re.compile("Resource temporarily unavailable"),
}


def _mechanism(ended: machine.Ended) -> str:
    """Why the process ended before it returned, by its status or its last words."""
    if ended.status == machine.FAILED:
        last = ended.said[-1000:]
        return next((name for name, pattern in MECHANISM_OF_ERROR.items() if pattern.search(last)), "contract")
    return MECHANISM_OF_STATUS.get(ended.status, "contract")


def explained(fault: str, ended: machine.Ended) -> str:
    """The fault, how the process ended if not by itself, and its last words."""
    parts = [fault, ended.message if ended.status != machine.EXITED else "", last_words(ended.said)]
    return "; ".join(part for part in parts if part)


def last_words(said: str) -> str:
    """The first error of a compiler, else the last line, and the line of the submission that a traceback ends with."""
    lines = [line[:300] for line in said[-LAST_WORDS:].splitlines()]  # short: a submission may print anything
    errors = [found[1] for line in lines if (found := COMPILER_ERROR.match(line))]
    frames = [found.groups() for line in lines if (found := FRAME.search(line))]
    if errors or not lines:
        return errors[0] if errors else ""
    return f"{f'line {frames[-1][1]} of {frames[-1][0]}' if frames else 'its last line'}: {lines[-1][:200]}"


def list_operations(path: Path) -> tuple[Operation, ...] | str:
    """The operations of a recording, or why it cannot be read."""
    if not path.stat().st_size:
        return "nothing was recorded: the submission never reached the GPU"
    done = subprocess.run(
        [str(machine.tool("judge-replay")), "--list", str(path)], capture_output=True, text=True, errors="replace"
    )
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) > MOST_LINES:
        return done.stderr.strip()[:300] or f"the recording has {len(lines)} operations"
    try:
        return tuple(_operation(json.loads(line)) for line in lines)
    except (KeyError, TypeError, ValueError):
        return "the recording cannot be listed"


def _operation(line: Mapping[str, Any]) -> Operation:
    numbers = tuple(int(number) for number in line["numbers"])
    return Operation(line["kind"], numbers, line["bytes"], line.get("hash", ""), line.get("text", ""), line["at"])


def fault_of(operations: tuple[Operation, ...], inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> str:
    """How the marks differ from the contract, "" where they do not."""
    marks = [each for each in operations if each.kind == "mark"]
    if not any(each.text == "call" for each in marks):
        return "the submission was never called"
    if not any(each.at == "call" for each in operations) and marks[-1].text != "return":
        return "the call did not return"
    given = [parsed for each in marks if (parsed := _buffer(each.text, "input"))]
    if sorted((each.name, each.size) for each in given) != sorted((name, t.size) for name, t in inputs.items()):
        return "the recording has other inputs than the problem"
    last = max(i for i, each in enumerate(marks) if each.text == "call")
    buffers = [parsed for each in marks[last:] if each.at == "call" and (parsed := _buffer(each.text, "output"))]
    returned = {each.name: each.form for each in buffers}
    for name, tensor in outputs.items():
        if name not in returned:
            return f"the submission did not return {name}"
        try:
            fault = _fault_of_form(returned[name], tensor)
        except (KeyError, TypeError, ValueError):
            fault = "has a form that cannot be read"
        if fault:
            return f"{name} {fault}"
    return _overlap([*given, *(each for each in buffers if each.name in outputs)])


def _fault_of_form(form: Mapping[str, Any], tensor: Tensor) -> str:
    """Return what is wrong with an output that the submission's process describes."""
    if "shape" not in form:
        return f"is a {str(form.get('kind'))[:40]}: must be an array in memory of the GPU"
    if not _same_type(str(form["kind"]), tensor.kind) or list(form["shape"]) != list(tensor.shape):
        return f"is {form['kind']} {form['shape']}: must be {tensor.kind} {list(tensor.shape)}"
    pairs = zip(tensor.shape, tensor.strides, form["strides"], strict=True)
    if any(extent > 1 and ours != theirs for extent, ours, theirs in pairs):
        return f"has the strides {form['strides']}: must be contiguous"
    return ""


def _same_type(returned: str, wanted: str) -> bool:
    """The type of the contract, or another name of how NumPy stores it."""
    return returned == wanted or STORED.get(returned) == STORED[wanted]


@dataclass(frozen=True)
class Buffer:
    """A mark of an input or output: where it is, and what the submission's process says of its form."""

    name: str
    address: int
    size: int
    form: Mapping[str, Any]


def _buffer(text: str, kind: str) -> Buffer | None:
    """Parse a mark; None if it is another mark or malformed."""
    words = text.split(" ", 4)
    if words[0] != kind or len(words) < 5:
        return None
    try:
        form = json.loads(words[4])
        return Buffer(words[1], int(words[2]), int(words[3]), form) if isinstance(form, dict) else None
    except ValueError:
        return None


def _overlap(buffers: Sequence[Buffer]) -> str:
    """Two buffers of inputs and outputs that share memory."""
    for one, other in pairwise(sorted(buffers, key=lambda each: each.address)):
        if other.address < one.address + one.size:
            return f"{one.name} and {other.name} share memory: an output must have a buffer of its own"
    return ""


def difference(one: Recording, other: Recording, inputs: Mapping[str, Tensor]) -> str:
    """How the programs of two decoys differ, "" if they do not: what the host computed from the data."""
    ours, theirs = (_program(each) for each in (one, other))
    for a, b in zip(ours, theirs, strict=False):
        if a != b:
            kind, when = a[0], a[-1]
            if kind == "write" and b[0] == "write":
                return f"the host computed {a[2]} bytes from the inputs, in the {when}"
            return f"a {kind} of the {when} differs from one set of inputs to another"
    if len(ours) != len(theirs):
        return f"{len(ours)} operations for one set of inputs, {len(theirs)} for another"
    return ""


def _program(recording: Recording) -> list[tuple[Any, ...]]:
    """The operations that matter: marks and reads do not, nor do writes of the decoys."""
    marks = (_buffer(each.text, "input") for each in recording.operations if each.kind == "mark")
    inputs = {each.address for each in marks if each}
    return [
        (each.kind, each.numbers, each.bytes, each.hash, each.at)
        for each in recording.operations
        if each.kind not in ("mark", "read")
        and not (each.kind == "write" and each.at == "setup" and each.numbers[0] in inputs)
    ]


def ptx_of_call(recording: Recording) -> list[tuple[str, str]]:
    """The kernels that the call launches, each with its module's text."""
    modules: dict[int, str] = {}
    kernels = dict.fromkeys((launch.text, launch.numbers[0]) for launch in recording.of_call("launch"))
    for identity in {identity for _, identity in kernels}:
        command = [str(machine.tool("judge-replay")), "--ptx", str(identity), str(recording.path)]
        modules[identity] = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    return [(name, modules[identity]) for name, identity in kernels]


def special_registers(modules: Iterable[str]) -> list[str]:
    """Registers that tell time, place or machine."""
    code = "\n".join(re.sub(r"//[^\n]*", "", text) for text in modules)
    return sorted({f"%{name}" for name in REGISTERS.findall(code)})
