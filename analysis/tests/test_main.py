"""The command line: every command is there with its help, and each outcome has its exit status."""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import __main__ as program
from analysis.__main__ import COMMANDS, main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder import configs

WRITERS = (
    "judge-corpus",
    "new",
    "notebooks",
    "read",
    "site",
    "strip",
)  # what they make is of another kind: a kernel, a page


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_there_and_documents_every_argument(
    command: program.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    module = __import__(f"analysis.{command.module}", fromlist=["x"])
    word = command.name.replace("-", "_")
    assert callable(getattr(module, f"run_{word}"))
    parser = argparse.ArgumentParser()
    getattr(module, f"add_{word}_arguments")(parser)
    undocumented = [action.dest for action in parser._actions if not action.help]
    assert undocumented == []
    if command.name not in WRITERS:
        assert "json" in [action.dest for action in parser._actions]
    with pytest.raises(SystemExit) as stop:
        main([command.name, "--help"])
    assert stop.value.code == 0
    assert "usage:" in capsys.readouterr().out


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "analysis", *arguments], cwd=root(), capture_output=True, text=True, check=False
    )


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], cwd=root(), capture_output=True, text=True, check=False)


def test_usage_errors_are_2() -> None:
    assert run().returncode == 2
    unknown, near = run("nonsense"), run("bnech")
    assert (
        unknown.returncode == 2
        and unknown.stderr == "analysis: nonsense: no such command; `analysis --help` lists all\n"
    )
    assert near.returncode == 2 and near.stderr.startswith("analysis: bnech: no such command; did you mean bench?")
    version = run("loop", "V7")
    assert (
        version.returncode == 2 and "no version 'V7'; did you mean v07? Versions are v00 to v37, b01" in version.stderr
    )
    assert run("configs", "--nonsense").returncode == 2
    assert run("configs", "--set", "nonsense").returncode == 2


@pytest.mark.parametrize(
    ("raised", "status", "words"),
    [
        (AnalysisError("the file is odd"), 2, "analysis configs: the file is odd"),
        (OSError(28, "No space left on device", "out.csv"), 3, "out.csv: No space left on device"),
        (ModuleNotFoundError("no numpy", name="numpy"), 2, "needs numpy, which"),
        (RuntimeError("a fault"), 3, "this is a fault of the program"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_each_failure_has_its_status(
    raised: BaseException, status: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(configs, "run_configs", fail)
    assert main(["configs"]) == status
    assert words in capsys.readouterr().err


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in an interpreter that has the standard library and nothing else."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "analysis", *arguments], cwd=root(), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [["notebooks", "a b"]])
def test_what_needs_a_package_says_what_to_type_instead(arguments: list[str]) -> None:
    (needs,) = (command.needs for command in COMMANDS if command.name == arguments[0])
    done = bare(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"analysis {arguments[0]}: needs {needs}, which {sys.executable} does not have: run " in done.stderr
    assert f"`{shlex.join(['.venv/bin/python', '-m', 'analysis', *arguments])}`" in done.stderr


def test_every_other_command_starts_in_a_bare_interpreter() -> None:
    names = [command.name for command in COMMANDS if not command.needs]
    code = (
        "from analysis.__main__ import main\n"
        f"for name in {names}:\n"
        "    try: main([name, '--help'])\n"
        "    except SystemExit as stop: assert stop.code == 0, name\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=root(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["--help", "bench"]])
def test_all_commands_are_listed_where_none_is_chosen(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    said = "".join(capsys.readouterr())
    assert [command.name for command in COMMANDS if command.name not in said] == []


@pytest.mark.parametrize("arguments", ["--help", "configs --help", "exercises"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_little_output_is_not_lost_in_silence(arguments: str, unbuffered: str) -> None:
    """It fails at the end, when the buffer is written, and the interpreter does not try again."""
    done = shell(f"PYTHONUNBUFFERED={unbuffered} '{sys.executable}' -m analysis {arguments} >/dev/full")
    name = "analysis" if arguments == "--help" else f"analysis {arguments.partition(' ')[0]}"
    assert (done.returncode, done.stderr) == (3, f"{name}: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "closed", "status", "said"),
    [
        ("exercises", ">&-", 3, "analysis exercises: standard output: Bad file descriptor\n"),
        ("exercises", "2>&- >/dev/null", 0, ""),
        ("nonsense", ">/dev/null 2>&-", 2, ""),
    ],
)
def test_streams_that_are_closed(arguments: str, closed: str, status: int, said: str) -> None:
    """Lost output is a failure; a command that writes nothing there succeeds."""
    done = shell(f"'{sys.executable}' -m analysis {arguments} {closed}")
    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize("command", ["configs --set all -o {}/out", "ladder --part record -o {}/out"])
def test_what_a_file_holds_is_kept_where_the_disk_is_full(command: str, tmp_path: Path) -> None:
    """Files may have a KiB at most here: a disk that is full fails at the same write."""
    path = next(tmp_path / word.partition("/")[2] for word in command.split() if word.startswith("{}"))
    path.write_text("before")
    done = shell(f"ulimit -f 1; PYTHONDONTWRITEBYTECODE=1 '{sys.executable}' -m analysis {command.format(tmp_path)}")
    name = command.partition(" ")[0]
    assert (done.returncode, done.stderr) == (3, f"analysis {name}: {path}: File too large\n")
    assert [one.name for one in tmp_path.iterdir()] == [path.name] and path.read_text() == "before"


@pytest.mark.parametrize("command", ["configs --set all --json", "--help"])
def test_a_reader_that_has_left_ends_a_command_as_it_ends_a_program_in_c(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "analysis", *command.split()], cwd=root(), stdout=writer,
                          stderr=subprocess.PIPE, check=False)  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
