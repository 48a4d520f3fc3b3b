"""A program with one defect, and its twin without it: the first is reported by its class, the second is silent.

check_reported(Defect("race", "two stores", "<<||bar.sync 0;\\n>>st.shared.u32 [%s], %t;", ["lesson.cu:11"]), folder)

In `<<A||B>>` the program has A and its twin B. A row with --schedule has the order in which the defect shows.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from support.emulation import entry, ptxrun

FILES = '.file 1 "lesson.cu"'
SHARED = ".shared .align 16 .b8 smem[1024];"
MBARRIER = """.reg .b32 %s, %t;
.reg .b64 %state;
.reg .pred %q, %done;
mov.u32 %t, %tid.x;
mov.u32 %s, smem;
setp.eq.u32 %q, %t, 0;
"""


@dataclass(frozen=True)
class Defect:
    """`bad` must give findings of class `name` only, and a message that says all of `says`; `good` gives none."""

    name: str
    label: str
    body: str
    says: list[str] = field(default_factory=list)
    twin: str = ""  # where it is another text
    block: int = 64
    params: str = ""
    args: list[str] = field(default_factory=list)
    directives: str = SHARED
    options: list[str] = field(default_factory=list)
    status: int = 1

    @property
    def bad(self) -> str:
        return re.sub(r"<<(.*?)\|\|.*?>>", r"\1", self.body, flags=re.S)

    @property
    def good(self) -> str:
        return re.sub(r"<<.*?\|\|(.*?)>>", r"\1", self.twin or self.body, flags=re.S)

    def __str__(self) -> str:
        return f"{self.name}: {self.label}"


def run(defect: Defect, body: str, folder: Path) -> tuple[int, str, str]:
    directives = defect.directives if defect.directives.startswith(".file") else f"{FILES}\n{defect.directives}"
    path = folder / "defect.ptx"
    path.write_text(entry(body, defect.params, directives=directives))
    args = [word for spec in defect.args for word in ("--arg", spec)]
    done = ptxrun(path, "--block", defect.block, *args, *defect.options)
    return done.returncode, done.stdout, done.stderr


def check_reported(defect: Defect, folder: Path) -> None:
    status, _, text = run(defect, defect.bad, folder)
    summary = re.search(r"^(\d+) findings?: (.*)$", text, re.M)
    assert status == defect.status and summary, f"status {status}\n{text}"
    assert {part.split(" ")[0] for part in summary[2].split(", ")} == {defect.name}, text
    missing = [words for words in defect.says if words not in text]
    assert not missing, f"{missing} is not said in:\n{text}"


def check_silent(defect: Defect, folder: Path) -> None:
    status, _, text = run(defect, defect.good, folder)
    assert (status, text) == (0, "")
