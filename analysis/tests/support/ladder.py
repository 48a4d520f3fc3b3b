"""A small ladder for tests of pages: v01 and v02 with listings, registers, traffic and records of their own."""

import json
import shutil
from pathlib import Path
from typing import Any

from analysis.emulate.traffic import to_csv
from analysis.files import root
from analysis.ladder.headers import load
from analysis.machine_code.regs import Row, registers_path, registers_text
from analysis.machine_code.traffic import Traffic
from analysis.measure.records import Problem, Record, parse
from analysis.publish.overview import HEADLINE, Step, read_steps

V01, V02 = load(root(), "v01"), load(root(), "v02")
OWN = {"v01": str(V01.header.config), "v02": str(V02.header.config)}


def listing_text(config: str, hmma: int, moves: int) -> str:
    """A listing in the form of sass/, its loop made of `hmma` and `moves` and a branch back."""
    lines = ["\t.target\tsm_90", f"//--------------------- kernel {config} ---------------------"]
    code = [("", "S2R", "R0, SR_TID.X"), *[("", "HMMA.16816.F32", "R4, R8, R12, R4")] * hmma]
    code += [*[("", "MOV", "R1, R2")] * moves, ("@P0", "BRA", "0x10"), ("", "EXIT", "")]
    for index, (predicate, opcode, operands) in enumerate(code):
        text = f"        /*{16 * index:04x}*/  B------:R-:W-:-:S01  {predicate:>6} {opcode} {operands}"
        lines.append(text.rstrip() + " ;")
    return "\n".join(lines) + "\n"


def small_ladder(folder: Path) -> Path:
    """The files of the ladder below a folder."""
    for part in ("kernels/mma_sync", "regs", "sass", "logs/bench", "logs/profile"):
        (folder / part).mkdir(parents=True)
    rows = {}
    for version, registers, moves in ((V01, 200, 5), (V02, 210, 3)):
        name = version.version
        shutil.copy(version.path, folder / "kernels/mma_sync")
        rows[name] = [Row(OWN[name], "sm_90", registers, 0, 0, 0, 0, 1, "424[0]", "12ab", 0, 0)]
        (folder / f"sass/{name}.sm_90.sass").write_text(listing_text(OWN[name], 4, moves))
    registers_path(folder).write_text(registers_text(rows, {}))
    traffic = [Traffic("v01", "c", 10, 64, 10, 5), Traffic("v02", "c", 10, 10, 10, 5)]
    (folder / "regs/traffic.csv").write_text(to_csv(traffic))
    return folder


def record(subject: str, ns: float, run: str, problem: Problem = HEADLINE, at: int = 0, **more: Any) -> Record:
    """A record of an H200; of a version in its own configuration."""
    raw: dict[str, Any] = {
        "schema": 1,
        "device": {"name": "NVIDIA H200"},
        "problem": {name: getattr(problem, name) for name in ("dtype", "batch", "heads", "seq", "d_head", "dist")},
        "timing": {"samples_ns": [ns, ns * 1.01, ns * 0.99]},
        "check": {"pass": True},
        "run": {"id": run, "round": at},
        "version" if subject.startswith("v") else "peer": subject,
        "library": "PyTorch 9",
        "config": OWN.get(subject, ""),
    }
    return parse(raw | more)


def bench(folder: Path, *records: Record) -> list[Step]:
    """The steps of the ladder with these records of an H200."""
    (folder / "logs/bench/h200.jsonl").write_text("".join(json.dumps(one.raw) + "\n" for one in records))
    return read_steps(folder)
