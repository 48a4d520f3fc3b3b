"""Memory that a launch takes: only what threads touch of a large local memory, and no more than a device gives."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.emulation import PTXRUN, entry, ptxrun

MIB = 1 << 20


def local(size: int) -> str:
    return f""".reg .b64 %a, %l;
.reg .b32 %x, %y;
.local .align 4 .b8 big[{size}];
ld.param.u64 %a, [a];
mov.u32 %x, %tid.x;
mov.u64 %l, big;
st.local.u32 [%l+4096], %x;
ld.local.u32 %y, [%l+8192];
ld.local.u32 %x, [%l+4096];
add.u32 %x, %x, %y;
mad.wide.u32 %a, %x, 4, %a;
st.global.u32 [%a], %x;"""


def test_local_memory_takes_room_where_it_is_touched(tmp_path: Path) -> None:
    """Of 512 MB in each CTA 2 MB are written; the next CTA finds zeros again."""
    path = tmp_path / "local.ptx"
    path.write_text(entry(local(512 << 10), ".param .u64 a"))
    words = [PTXRUN, path, "--grid", 6, "--block", 1024, "--threads", 3, "--arg", "buf:u32:1024", "--print", "0:3"]
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 and "0 1 2" in printed, printed
    assert used.ru_maxrss * 1024 < 100 * MIB, f"{used.ru_maxrss >> 10} MB"


def test_more_than_a_device_gives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "local.ptx"
    path.write_text(entry(local(MIB), ".param .u64 a"))
    done = ptxrun(path, "--block", 1024, "--arg", "buf:u32:1024")
    assert done.returncode == 2 and "1048576 bytes of local memory per thread, above 524288" in done.stderr
