"""Replays of a recording on inputs of the judge, each in a process and a jail of its own.

replayed = replay(recording, tensors, Setting("poison 0", inputs, poison="00"), folder, options)
replayed.outputs["y"]        # the array that the recorded program computed from these inputs
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from analysis.judge import machine
from analysis.judge.arrays import STORED, Array, Tensor
from analysis.judge.outcomes import follow_tests
from analysis.judge.record import Options, Recording

USAGE, REFUSED, STOPPED, MEMORY = 2, 4, 5, 6  # exit statuses of judge-replay
NAN_POISON = "ff"
WRITTEN_FIRST, READ_FIRST = 1, 2  # in NAME.touch
STEPS = 20_000_000  # warp instructions of a CTA: the limit that a kernel without an end meets on any machine
SECONDS = 3600  # of a replay: only so that a judge ends


@dataclass(frozen=True)
class Setting:
    """One replay: its inputs, and what else the judge chooses."""

    name: str
    kind: str
    inputs: Mapping[str, Array]
    poison: str = NAN_POISON
    schedule: int = 0
    noise: int = 0
    calls: int = 1
    ctas: int = 0  # how many CTAs of a larger launch run; 0: all
    orders: int = 0  # how many orders of each launch run at most; 0: one
    follows: bool = False  # tests of data leave a trace


@dataclass(frozen=True)
class Replayed:
    """Results of a replay; `error` says why it has no outputs."""

    setting: Setting
    error: str = ""
    outputs: Mapping[str, Array] = field(default_factory=dict)
    unread: Mapping[str, NDArray[np.bool_]] = field(
        default_factory=dict
    )  # of each element of an input: the call never read it
    written: Mapping[str, NDArray[np.bool_]] = field(
        default_factory=dict
    )  # of each element of an output: the call wrote it
    result: Mapping[str, Any] = field(default_factory=dict)  # result.json of judge-replay
    launches: tuple[Mapping[str, Any], ...] = ()  # counters
    findings: tuple[Mapping[str, Any], ...] = ()


def replay(
    recording: Recording,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    setting: Setting,
    folder: Path,
    options: Options,
) -> Replayed:
    """Run the recorded program in a clean process. The folder is removed afterwards."""
    folder.mkdir()
    try:
        if setting.follows:
            follow_tests(recording.path, folder / "recording")
        else:
            shutil.copy(recording.path, folder / "recording")
        for name, values in setting.inputs.items():
            (folder / f"{name}.in").write_bytes(inputs[name].laid_out(values))
        command = [str(machine.tool("judge-replay")), *_arguments(setting, options), "recording", "."]
        environment = {"LD_LIBRARY_PATH": str(machine.emulated()), "PATH": "/usr/bin:/bin"}
        ended = machine.in_jail(folder, command, environment, replace(options.limits, seconds=SECONDS))
        return _read(setting, ended, folder, inputs, outputs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _arguments(setting: Setting, options: Options) -> list[str]:
    libcuda = machine.emulated() / "libcuda.so.1"
    chosen = {"poison": setting.poison, "schedule": setting.schedule, "noise": setting.noise, "calls": setting.calls}
    chosen |= {"libcuda": str(libcuda), "arch": options.arch, "steps": STEPS} | (
        {"gpu": options.gpu} if options.gpu else {}
    )
    chosen |= {"ctas": setting.ctas} if setting.ctas else {}
    chosen |= {"orders": setting.orders} if setting.orders else {}
    words = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    return words + [word for name in setting.inputs for word in ("--input", f"{name}={name}.in")]


def _read(
    setting: Setting,
    ended: machine.Ended,
    folder: Path,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
) -> Replayed:
    findings = tuple(each for each in _json_lines(folder / "notes") if "finding" in each)
    result = _json(folder / "result.json")
    if ended.status != machine.EXITED or result.get("error"):
        error = result.get("error") or ended.said.splitlines()[-1:] or [ended.message]
        return Replayed(
            setting, str(error if isinstance(error, str) else error[0])[:300], findings=findings, result=result
        )
    arrays = {}
    for name, tensor in outputs.items():
        data = machine.read_plain(folder / f"{name}.out")
        if len(data) != tensor.size:
            return Replayed(setting, f"{name} has {len(data)} bytes: must have {tensor.size}", findings=findings)
        arrays[name] = np.frombuffer(data, STORED[tensor.kind]).reshape(tensor.shape)
    unread = {name: ~_touched(folder, name, tensor, READ_FIRST) for name, tensor in inputs.items()}
    written = {name: _touched(folder, name, tensor, WRITTEN_FIRST) for name, tensor in outputs.items()}
    counters = tuple(_json_lines(folder / "counters"))
    return Replayed(setting, "", arrays, unread, written, result, counters, findings)


def _touched(folder: Path, name: str, tensor: Tensor, how: int) -> NDArray[np.bool_]:
    """Which elements the call touched first in this way."""
    touched = np.frombuffer(machine.read_plain(folder / f"{name}.touch"), np.uint8)
    if touched.size != tensor.size:
        raise AnalysisError(f"judge-replay left {touched.size} bytes of {name}.touch: {tensor.size} expected")
    return np.array(tensor.view((touched == how).reshape(tensor.span, -1).any(axis=1)), dtype=bool)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in machine.read_plain(path).decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def _json(path: Path) -> dict[str, Any]:
    lines = machine.read_plain(path).decode(errors="replace")
    try:
        value = json.loads(lines)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
