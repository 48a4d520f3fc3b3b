"""The JSON that docs/tools.md promises: each command of json_names.csv prints the names in its row."""

import csv
import json
from pathlib import Path

import pytest

from analysis.__main__ import INSTALLED, main
from analysis.files import read_text, root
from analysis.machine_code.cubin import Cubin
from analysis.table import JSON_SCHEMA

NAMES = "analysis/tests/records/json_names.csv"
ROWS = [(command, names) for command, names in csv.reader(read_text(root() / NAMES).splitlines()[1:])]


def names(record: dict[str, object]) -> str:
    """The names of an object, those of the objects of a list in brackets."""
    found = []
    for name, value in record.items():
        inner = [key for each in value for key in each] if isinstance(value, list) and _objects(value) else []
        found.append(f"{name}[{', '.join(dict.fromkeys(inner))}]" if inner else name)
    return ", ".join(found)


def _objects(value: list[object]) -> bool:
    return all(isinstance(each, dict) for each in value)


@pytest.mark.parametrize(("command", "documented"), ROWS)
def test_a_command_prints_the_promised_names(
    command: str, documented: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"OLD": root() / "build/device/sm_80.cubin", "NEW": root() / "build/device/sm_90.cubin"}
    for name, text in (("BASELINE", '{"schema": 1, "files": {}}'), ("NAMES", "_Z1fi"), ("TIMES", "1\n2\n")):
        files[name] = tmp_path / name
        files[name].write_text(text)
    if "sass-diff OLD NEW" in command or "regs" in command:  # of one architecture
        files["NEW"] = changed(files["OLD"], tmp_path / "new.cubin")
    assert main([*(str(files.get(word, word)) for word in command.split()), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record.pop("schema") == JSON_SCHEMA
    assert names(record) == documented


def changed(cubin: Path, to: Path) -> Path:
    """The cubin with another stall count in an instruction of every kernel, and so another code of each."""
    data = bytearray(cubin.read_bytes())
    for kernel in Cubin.read(cubin).entries:
        data[data.index(kernel.code) + 13] ^= 0x02
    to.write_bytes(data)
    return to


def test_every_command_of_the_package_has_names_and_the_page_leads_there() -> None:
    assert f"](../{NAMES})" in read_text(root() / "docs/tools.md")
    assert {command.split()[0] for command, _ in ROWS} == set(INSTALLED) - {"judge"}  # which prints a schema of its own
