"""Running executables: ranges of numbers, what a failed run says, and runs that are left before their end."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.measure import executables
from analysis.measure.executables import Outcome


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("512, 1024", [512, 1024]),
        ("512:2048:*2", [512, 1024, 2048]),
        ("1:4:+1", [1, 2, 3, 4]),
        ("512,128:512:*2", [512, 128, 256]),
    ],
)
def test_lists_and_ranges(text: str, values: list[int]) -> None:
    assert executables.numbers(text, "--seqs") == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1:8:*1", "never ends"),
        ("4:3:+1", "ends at 3, before it begins at 4"),
        ("0", "expected positive numbers"),
        ("1:8", "expected positive numbers"),
    ],
)
def test_what_is_no_list_is_refused(text: str, said: str) -> None:
    with pytest.raises(AnalysisError, match=rf"--seqs '{text.replace('*', '.').replace('+', '.')}': .*{said}"):
        executables.numbers(text, "--seqs")


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "said"),
    [
        (0, "out", "err", ""),
        (1, "the result\n", "", "exit 1, wrong result: the result"),
        (2, "out", "first\n last \n\n", "exit 2, usage refused: last"),
        (3, 'why\n{"schema": 1}\n\n', " \n", "exit 3, CUDA, emulator or system error: why"),
        (9, "", "", "exit 9, not a status of the harness"),
        (-9, "", "", "killed by SIGKILL"),
        (executables.TIMED_OUT, "", "err", "stopped after 7 s"),
    ],
)
def test_a_failed_run_says_why(status: int, stdout: str, stderr: str, said: str) -> None:
    assert Outcome(("bin/v01",), status, stdout, stderr, 7.3).problem() == said


def program(folder: Path, script: str) -> Path:
    path = folder / "v01"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


EXITING = 0x4  # PF_EXITING of Linux: on one busy core a process may stay so for long, its files closed already


def is_running(pid: int) -> bool:
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and not int(others[5]) & EXITING


def test_the_time_limit_ends_a_program_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is over as soon as the program has told what it started."""
    told, communicate = tmp_path / "told", subprocess.Popen.communicate

    def hurried(process: Any, input: Any = None, timeout: float | None = None) -> Any:
        while timeout and not told.exists():
            assert process.poll() is None
        return communicate(process, input, timeout and 0.01)

    monkeypatch.setattr(subprocess.Popen, "communicate", hurried)
    hanging = program(tmp_path, f"sleep infinity & echo $!; : >'{told}'; wait")
    outcome = executables.run_command([str(hanging)], 1e6)
    assert outcome.status == executables.TIMED_OUT and not is_running(int(outcome.stdout))


def test_a_gpu_of_another_architecture_is_a_gpu() -> None:
    """A check of all versions continues with the others."""
    for said, kind in (("v26 was built for sm_90a", executables.AnotherGpu), ("no NVIDIA driver", executables.NoGpu)):
        with pytest.raises(AnalysisError, match=said) as error:
            executables.checked(Outcome(("bin/v26",), 77, "", said, 0.1))
        assert type(error.value) is kind
