"""Runs the versions' executables, bin/vNN: finding them, calling them with a time limit, reading what they print.

    outcome = run(find("v07"), ["--backend", "gpu", "--seq", "512,1024", "--json", "-"], timeout=60)
    for raw in outcome.records: ...

$LAUNCH is put before every run, as in make ("srun -G1"). Exit statuses are those of the harness (docs/measuring.md).
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.building import BUILDS, built
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.claims import RUNG
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import ATTENTION, name_of_stem, stem_of
from analysis.measure.driver import why_none

RIGHT, WRONG, USAGE, SYSTEM, UNTRUSTED, CANNOT_RUN = 0, 1, 2, 3, 4, 77
MEANING = {
    WRONG: "wrong result",
    USAGE: "usage refused",
    SYSTEM: "CUDA, emulator or system error",
    UNTRUSTED: "measured but not trustworthy",
    CANNOT_RUN: "this machine cannot run the version",
}
TIMED_OUT = -1
INFO_SECONDS = 60.0
NUMBER = "[0-9]{1,18}"


def cuda_program(name: str, otherwise: str) -> str:
    """A program of the CUDA toolkit, from the PATH or from the usual folders; the message ends with `otherwise`."""
    folders = [os.environ.get(variable, "") for variable in ("CUDA", "CUDA_HOME")] + ["/usr/local/cuda"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *(f"{folder}/bin" for folder in folders if folder)])
    found = shutil.which(name, path=path)
    if not found:
        raise AnalysisError(f"{name} is not on the PATH nor in /usr/local/cuda/bin; {otherwise}")
    return found


class NoGpu(AnalysisError):
    """There is no GPU here; commands that need one end with status 77."""


class AnotherGpu(AnalysisError):
    """The version runs on other GPUs only; a check of all versions continues with the others."""


@dataclass(frozen=True)
class Outcome:
    """One finished run. `status` is TIMED_OUT when it was stopped at its time limit."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def needs_another_gpu(self) -> bool:
        """True if there is a GPU: the version is for another architecture, or needs more shared memory."""
        reasons = (" was built for sm_", " bytes of shared memory per CTA")
        return self.status == CANNOT_RUN and any(reason in self.stderr for reason in reasons)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON records among the lines of the output; a line that only looks like one is an error."""
        found = []
        for line in self.stdout.splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError as error:
                    raise AnalysisError(f"{self.argv[0]}: printed no JSON: {error}: {line[:80]}") from None
        return found

    def problem(self) -> str:
        """The error in one sentence with the last line of the message; "" for status 0."""
        if self.status == RIGHT:
            return ""
        if self.status == TIMED_OUT:
            return f"stopped after {self.seconds:.0f} s"
        if self.status < 0:
            meaning = f"killed by {signal.Signals(-self.status).name}"
        else:
            meaning = f"exit {self.status}, {MEANING.get(self.status, 'not a status of the harness')}"
        text = self.stderr if self.stderr.strip() else self.stdout
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("{")]
        return f"{meaning}: {lines[-1].strip()}" if lines else meaning


@dataclass(frozen=True)
class Timing:
    """The stopping rule of one short run, as the options of the executables name it.

    A power-limited GPU boosts for the first tens of milliseconds of work, then settles: an H200 goes from 1.80 to
    1.68 GHz within 0.1 s. min_time is long enough for the median to be in the settled part.
    """

    warmup: int = 3
    min_samples: int = 10
    max_noise: float = 0.5  # percent
    min_time: float = 0.25  # seconds
    timeout: float = 3.0  # seconds


def bin_folder() -> Path:
    """The folder of the executables: $BIN, else bin/ of the checkout."""
    return Path(os.environ.get("BIN") or root() / "bin")


def built_versions(folder: Path | None = None) -> list[str]:
    """The versions with an executable, in order."""
    folder = folder or bin_folder()
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(name_of_stem(name) for name in names if re.fullmatch(rf"{RUNG}|{ATTENTION}\.\w+", name))


def find(version: str, folder: Path | None = None) -> Path:
    """The executable of a version."""
    folder = folder or bin_folder()
    path = folder / stem_of(version)
    if not (path.is_file() and os.access(path, os.X_OK)):
        there = ", ".join(built_versions(folder)) or "none"
        raise AnalysisError(f"{path}: not built; run `make {stem_of(version)}`. Built versions: {there}")
    return path


def peer_folder() -> Path:
    """The folder of the peers that are executables. make builds them there whatever $BIN is."""
    return root() / "bin" / "peers"


def find_peer(name: str) -> Path:
    """The executable of a peer that is built from its own source."""
    path = peer_folder() / name
    if not os.access(path, os.X_OK):
        goal = name if name == "fa3" else "fa3-backward"
        raise AnalysisError(f"{path} is not there: `make -f harness/peers/peers.mk peer-{goal}` builds it")
    return path


def require_config(version: str, config: KernelConfig) -> None:
    """Refuse a configuration that a version's executable does not hold, with those that it holds."""
    path = find(version)
    (info,) = checked(run(path, ["--info"], INFO_SECONDS)).records
    built = [str(instance["config"]) for instance in info["instances"]]
    if str(config) not in built:
        raise AnalysisError(
            f"{path}: the config {config} is not built; there are: {'; '.join(built)}; "
            f'`make {version} KERNELS="{config}"` builds it'
        )


def chosen_versions(text: str | None) -> list[str]:
    """Versions from a list separated by commas or blanks, each once and built for ./fl; without a list all that are
    built."""
    named = list(dict.fromkeys(map(name_of_stem, re.findall(r"[^,\s]+", text or ""))))
    if named:
        built(*map(stem_of, named), BIN=os.environ.get("BIN", ""))
    names = named or built_versions()
    if not names:
        raise AnalysisError(f"{bin_folder()}: contains no version; run `make v07`")
    for name in names:
        find(name)
    return names


def need_gpu() -> None:
    """NoGpu before ./fl builds for a GPU that is missing, unless $LAUNCH runs the programs elsewhere."""
    if os.environ.get(BUILDS) and not os.environ.get("LAUNCH") and (why := why_none()):
        raise NoGpu(why)


def launcher() -> list[str]:
    """The words of $LAUNCH."""
    text = os.environ.get("LAUNCH", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise AnalysisError(f"LAUNCH={text}: {error}") from error


def run(
    executable: Path, arguments: Sequence[str], timeout: float, environment: dict[str, str] | None = None
) -> Outcome:
    """Run to the end or to the time limit, with $LAUNCH in front. Never raises for what the program does.

    The environment is set after $LAUNCH, which may set some of it itself or start the program on another machine.
    """
    settings = [f"{name}={value}" for name, value in (environment or {}).items()]
    launch = launcher() + (["env", *settings] if settings else [])
    return run_command([*launch, str(executable), *arguments], timeout)


def run_command(argv: Sequence[str], timeout: float) -> Outcome:
    """The command line after LAUNCH, for any command. On the time limit the whole process group is ended."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise AnalysisError(f"{argv[0]}: {error.strerror}") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        status = process.returncode
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        status = TIMED_OUT
    return Outcome(tuple(argv), status, stdout, stderr, time.monotonic() - start)


def checked(outcome: Outcome, allowed: Sequence[int] = (RIGHT,)) -> Outcome:
    """The outcome when its status is allowed; for 77 NoGpu, or AnotherGpu; AnalysisError otherwise."""
    if outcome.status in allowed:
        return outcome
    if outcome.status == CANNOT_RUN and not outcome.needs_another_gpu:
        raise NoGpu(f"{outcome.argv[0]}: {outcome.problem()}")
    kind = AnotherGpu if outcome.needs_another_gpu else AnalysisError
    raise kind(f"{shlex.join(outcome.argv)}: {outcome.problem()}")


def numbers(text: str, name: str) -> list[int]:
    """A list such as 512,1024 or the doubling range 512:16384:*2, as the executables take them; each number once."""
    values: list[int] = []
    for part in (part.strip() for part in text.split(",")):
        steps = re.fullmatch(rf"({NUMBER}):({NUMBER}):([*+])({NUMBER})", part)
        if steps:
            value, last, step = int(steps[1]), int(steps[2]), int(steps[4])
            if step < (2 if steps[3] == "*" else 1) or value < 1:
                raise AnalysisError(f"{name} {part!r}: the range never ends")
            if value > last:
                raise AnalysisError(f"{name} {part!r}: the range ends at {last}, before it begins at {value}")
            while value <= last:
                values.append(value)
                value = value * step if steps[3] == "*" else value + step
        elif re.fullmatch(NUMBER, part) and int(part) > 0:
            values.append(int(part))
        else:
            raise AnalysisError(f"{name} {part!r}: expected positive numbers such as 512,1024 or 512:16384:*2")
    return list(dict.fromkeys(values))


def standard_batch(seq: int) -> int:
    """The batch of the published protocol: 16 up to 4096, 8 at 8192, 4 beyond; the executables' own default."""
    return 16 if seq <= 4096 else 8 if seq <= 8192 else 4


def stream(executable: Path, arguments: Sequence[str], timeout: float) -> Iterator[dict[str, Any]]:
    """The JSON records of a run as they are printed. At the end the status is checked: see `checked`; 1 and 4 pass."""
    argv = [*launcher(), str(executable), *arguments]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, text=True, start_new_session=True
        )
        stopper = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
        stopper.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait()
        finally:
            stopper.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        messages.seek(0)
        outcome = Outcome(tuple(argv), status, "", messages.read(), time.monotonic() - start)
    checked(outcome, (RIGHT, WRONG, UNTRUSTED))
