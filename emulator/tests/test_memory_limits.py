"""Memory that a launch takes: only what threads touch of a large local memory, and no more than a device gives."""

import subprocess
import sys
from pathlib import Path

from support.emulation import PTXRUN, entry, ptxrun

MIB = 1 << 20
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def local(size: int) -> str:
    return f""".reg .b64 %a, %l;
.reg .b32 %x, %y;
.local .align 4 .b8 big[{size}];
ld.param.u64 %a, [a]; mov.u32 %x, %tid.x; mov.u64 %l, big; st.local.u32 [%l+4096], %x;
ld.local.u32 %y, [%l+8192]; ld.local.u32 %x, [%l+4096]; add.u32 %x, %x, %y;
mad.wide.u32 %a, %x, 4, %a;
st.global.u32 [%a], %x;"""


def test_local_memory_takes_room_where_it_is_touched(tmp_path: Path) -> None:
    """Each CTA writes 2 of its 512 MB; the next CTA finds zeros again."""
    path = tmp_path / "local.ptx"
    path.write_text(entry(local(512 << 10), ".param .u64 a"))
    words = [PTXRUN, path, "--grid", 6, "--block", 1024, "--threads", 3, "--arg", "buf:u32:1024", "--print", "0:3"]
    # a process of its own starts it: the memory of a child begins with what its parent has
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, words)], capture_output=True, text=True, check=True, timeout=600
    )
    *printed, kib = run.stdout.splitlines()
    assert "0 1 2" in "\n".join(printed), run.stdout
    assert int(kib) << 10 < 100 * MIB, f"{int(kib) >> 10} MB"


def test_more_than_a_device_gives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "local.ptx"
    path.write_text(entry(local(MIB), ".param .u64 a"))
    done = ptxrun(path, "--block", 1024, "--arg", "buf:u32:1024")
    assert done.returncode == 2 and "1048576 bytes of local memory per thread, above 524288" in done.stderr
