"""Messages on standard error besides a command's output: notes, and the progress of long work.

note(f"{name}: skipped {image}: {reason}")
for kernel in progress(kernels, "kernels", len(kernels)): ...
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

FIRST_SECONDS = 3.0  # shorter work says nothing
TERMINAL_SECONDS, FILE_SECONDS = 0.2, 10.0  # between two lines

T = TypeVar("T")


def note(text: str) -> None:
    """Something that the reader of the output has to know and that does not stop the command."""
    print(f"note: {text}", file=sys.stderr)


def progress(items: Iterable[T], what: str, total: int, stream: TextIO | None = None) -> Iterator[T]:
    """The items, with a line about how many are done: rewritten on a terminal, else one every few seconds."""
    out = stream or sys.stderr
    terminal = out.isatty()
    before, after = ("\r", "") if terminal else ("", "\n")
    began = time.monotonic()
    due = began + FIRST_SECONDS
    shown = False
    for done, item in enumerate(items):
        now = time.monotonic()
        if now >= due:
            out.write(f"{before}{done} of {total} {what}, {now - began:.0f} s{after}")
            out.flush()
            shown = True
            due = now + (TERMINAL_SECONDS if terminal else FILE_SECONDS)
        yield item
    if shown and terminal:
        out.write("\r" + " " * 60 + "\r")
        out.flush()
