"""What the emulator finds in v52 with heads of 256, which has a ring of Q.

With few keys nothing makes a consumer wait for the other one, so it may wait for a copy of Q before the copy that went
to the same place before has come; then it would not wait at all. attention/wgmma has full mbarriers for each consumer;
v52 stays what was measured: docs/orders.md. This one finding is no failure of a random test; the output must be right
all the same.
"""

from __future__ import annotations

import re
import subprocess

FILE = "wgmma/v52_q_ring.cu"


def is_the_ring_of_Q(done: subprocess.CompletedProcess[str], arguments: list[str]) -> bool:
    """Whether all that was found is one phase-overrun, at the wait for Q, with heads of 256."""
    found = re.findall(r"^([a-z-]+) at kernels/(\S+):\d+, PTX line", done.stderr, re.MULTILINE)
    heads = re.search(r"--d-head[ =]256\b", " ".join(arguments))
    return heads is not None and found == [("phase-overrun", FILE)]
