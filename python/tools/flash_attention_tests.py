"""Run flash-attention's own tests over flashladder.flash_attn_interface and write what passes as a table.

    git clone --depth 1 https://github.com/Dao-AILab/flash-attention ../flash-attention
    PYTHONPATH=python python python/tools/flash_attention_tests.py ../flash-attention --cases 400

The cases are drawn from the grid of tests/test_flash_attn.py with a fixed seed. Without a GPU the emulator computes
CPU tensors, and cases of more than --rows queries or keys are left out. PyTorch, pytest and einops are needed.
"""

from __future__ import annotations

import argparse
import datetime
import random
import re
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import flashladder
from flashladder import flash_attn_interface as ours

SOURCE = "tests/test_flash_attn.py"
PRIVATE = ("_num_splits", "generator_arg")  # tests of functions of the C++ extension
RECORD = Path(__file__).resolve().parents[2] / "logs/library/flash_attention_tests.md"


def rotate(x: Any, cos: Any, sin: Any, seqlen_offsets: Any, interleaved: bool) -> Any:
    """The tests' reference of rotary embedding, one row at a time."""
    made, half = x.clone(), cos.shape[1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    for b, offset in enumerate(seqlen_offsets.tolist()):
        for row in range(x.shape[1]):
            c, s = (table[offset + row].float() for table in (cos, sin))
            one, other = x[b, row, :, first].float(), x[b, row, :, second].float()
            made[b, row, :, first], made[b, row, :, second] = one * c - other * s, one * s + other * c
    return made


def install(folder: Path) -> None:
    """Put the modules where the tests import them: ours, and flash-attention's helpers without a kernel."""
    package = types.ModuleType("flash_attn")
    package.__path__ = [str(folder / "flash_attn")]
    for name in dir(ours):
        if name.startswith("flash_attn_"):
            setattr(package, name, getattr(ours, name))
    interface = types.ModuleType("flash_attn.flash_attn_interface")
    interface._get_block_size_n, interface.USE_TRITON_ROCM = None, False  # type: ignore[attr-defined]
    rotary = types.ModuleType("flash_attn.layers.rotary")
    rotary.apply_rotary_emb = rotate  # type: ignore[attr-defined]
    sys.modules |= {"flash_attn": package, interface.__name__: interface, rotary.__name__: rotary}


def copy_for(device: str, folder: Path, to: Path) -> Path:
    """The test file with its device replaced. Folder `to` must exist."""
    text = (folder / SOURCE).read_text()
    if device != "cuda":
        text = text.replace('"cuda"', f'"{device}"')
        torch.cuda.get_device_capability = lambda *_: (9, 0)
    copied = to / "test_flash_attn.py"
    copied.write_text(text)
    return copied


class Sample:
    """A pytest plugin that runs a sample of the grid and counts the outcomes of each test."""

    def __init__(self, cases: int, rows: int, seed: int, only: str) -> None:
        self.cases, self.rows, self.seed, self.only = cases, rows, seed, only
        self.counts: dict[str, Counter[str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        fitting = [item for item in items if self.only in item.name and self._fits(item)]
        random.Random(self.seed).shuffle(fitting)
        items[:] = sorted(fitting[: self.cases], key=lambda item: item.originalname)

    def _fits(self, item: Any) -> bool:
        sizes = getattr(item, "callspec", None)
        named = sizes.params if sizes else {}
        longest = max(
            [size for name, size in named.items() if name.startswith("seqlen") and type(size) is int], default=0
        )
        return longest <= self.rows and not any(part in item.name for part in PRIVATE)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = (yield).get_result()
        if report.when == "call" and report.outcome != "skipped":
            outcome = "passed" if report.outcome == "passed" else reason_of(call.excinfo.value)
            self.counts.setdefault(item.originalname, Counter())[outcome] += 1
            if outcome.startswith("failed"):
                print(item.name, outcome, file=sys.stderr)


def reason_of(error: BaseException) -> str:
    text = str(error)
    if not isinstance(error, NotImplementedError):
        return f"failed: {type(error).__name__}"
    return "rejected: " + re.sub(r"^\w+ requires", "an argument requires", text).partition(":")[0]


def written(counts: dict[str, Counter[str]], header: str) -> str:
    """Two tables: outcomes of each test, and the reasons."""
    lines = [header, "", "| test | cases | passed | rejected | failed |", "|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for name, outcomes in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        kinds: Counter[str] = Counter()
        for outcome, count in outcomes.items():
            kinds[outcome.partition(":")[0]] += count
        total = outcomes
        lines.append(f"| {name} | {kinds.total()} | {kinds['passed']} | {kinds['rejected']} | {kinds['failed']} |")
    lines += ["", "| cases | why not passed |", "|---|---|"]
    lines += [f"| {count} | {outcome} |" for outcome, count in total.most_common() if outcome != "passed"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a checkout of flash-attention")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--rows", type=int, help="most queries or keys (GPU: no limit; emulator: 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the tests' names")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"), help="where the changed copy of the tests goes")
    parser.add_argument("--write", type=Path, nargs="?", const=RECORD, help="the record, else to standard output")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    install(asked.folder)
    rows = asked.rows or (400 if device == "cpu" else 1 << 30)
    sample = Sample(asked.cases, rows, asked.seed, asked.only)
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "--tb=no", "-p", "no:warnings", "--rootdir", str(asked.scratch),
         "-c", "/dev/null", str(copy_for(device, asked.folder, asked.scratch))], plugins=[sample]
    )  # fmt: skip
    found = subprocess.run(["git", "-C", asked.folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    where = torch.cuda.get_device_name() if device == "cuda" else "the emulator"
    header = (
        f"{datetime.date.today()}, flashladder {flashladder.backend().release}, {where}: {asked.cases} cases drawn "
        f"with seed {asked.seed} from flash-attention's {SOURCE} at {found.stdout.strip() or 'an unknown commit'}"
        + (f", at most {rows} queries and keys." if rows < 1 << 30 else ".")
    )
    text = written(sample.counts, header)
    asked.write.write_text(text) if asked.write else print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
