"""The peers that the versions are measured against: executables of bin/peers/, and what is called through PyTorch.

    with Peers.start() as peers: record = peers.measure("fa2", problem, seed=1, timing=Timing(), check_rows=64)

The latter run in one process of an interpreter with PyTorch (peers_worker.py): this one, or the python3 of the PATH.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, fields
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.measure.executables import NoGpu, Timing
from analysis.measure.records import Problem

# Name in records, and what it is. The first is what ratios are taken to.
PEERS = {
    "fa2": "FlashAttention-2, PyTorch's flash back end",
    "cudnn": "cuDNN's attention through PyTorch",
    "efficient": "PyTorch's memory-efficient back end",
    "fa3": "FlashAttention-3, bin/peers/fa3",
    "cublas": "cuBLAS matmul 8192³, a yardstick",
    "fa3_backward": "FlashAttention-3's backward pass, bin/peers/fa3_backward",
    "fa3_ordered": "the deterministic one, bin/peers/fa3_ordered",
}
BACKWARD = ("fa3_backward", "fa3_ordered")  # run next to versions of the backward pass, only by name
BUILT = ("fa3", *BACKWARD)  # executables that make builds
YARDSTICK_SIZE = 8192


def differing(problem: Problem) -> dict[str, Any]:
    """The fields of a problem that are not the default, as in JSON: everything that the PyTorch process needs."""
    values = ((field, getattr(problem, field.name)) for field in fields(problem))
    return {field.name: value for field, value in values if value != field.default}


class Peers:
    """The running worker. `library` and `device` describe it; `missing` says why a peer can't be used."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        hello = self._read()
        if "error" in hello:
            process.kill()
            process.wait()
            problem = NoGpu if hello.get("no_gpu") else AnalysisError
            raise problem(f"peers: {hello['error']}")
        self.library: str = hello["library"]
        self.device: dict[str, Any] = hello["device"]
        self.missing: dict[str, str] = {name: why for name, why in hello["peers"].items() if why}

    @classmethod
    def start(cls, python: str | None = None) -> "Peers":
        """Start the worker; AnalysisError when no interpreter with PyTorch is found, NoGpu when PyTorch sees no GPU."""
        return cls(
            subprocess.Popen(
                [python or _python_with_torch(), "-m", "analysis.measure.peers_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=root(),
            )
        )

    def measure(
        self, peer: str, problem: Problem, seed: int, timing: Timing, check_rows: int, energy: bool = False
    ) -> dict[str, Any]:
        """One record; AnalysisError with the library's own sentence when it can't run the problem."""
        assert self.process.stdin is not None
        request = {
            "peer": peer,
            "problem": differing(problem),
            "seed": seed,
            "timing": asdict(timing),
            "check_rows": check_rows,
            "energy": energy,
        }
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AnalysisError("peers: the PyTorch process ended") from None
        answer = self._read()
        if "error" in answer:
            raise AnalysisError(f"{peer} on {problem}: {answer['error']}")
        return answer

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # libraries print warnings of their own
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AnalysisError(f"peers: the PyTorch process ended with status {self.process.wait()}")

    def close(self) -> None:
        """End the worker."""
        if self.process.stdin:
            self.process.stdin.close()
        if self.process.stdout:
            self.process.stdout.close()
        self.process.terminate()
        self.process.wait()

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def yardstick(dtype: str) -> Problem:
    """The matmul that cuBLAS runs."""
    return Problem("matmul", dtype, 1, 1, YARDSTICK_SIZE, YARDSTICK_SIZE, "normal")


def chosen(text: str) -> list[str]:
    """Peers from a list with commas, each once; "all" is every one of the forward pass."""
    listed = (name.strip() for name in text.split(","))
    forward = [name for name in PEERS if name not in BACKWARD]
    names = forward if text == "all" else list(dict.fromkeys(name for name in listed if name))
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise AnalysisError(f"unknown peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    return names


def _python_with_torch() -> str:
    if importlib.util.find_spec("torch"):
        return sys.executable
    other = shutil.which("python3")
    if other and subprocess.run([other, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        return other
    raise AnalysisError(f"peers need PyTorch, which neither {sys.executable} nor the python3 of the PATH has")
