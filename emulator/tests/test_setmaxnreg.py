"""setmaxnreg: warps take registers once others have given some back."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import ptxrun

# Warps 0 to 3 take TAKEN registers; warps 4 to 7 raise a flag and then give some: who took too early reads no flag.
HANDED_OVER = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry handed(.param .u64 out) TUNING
{
.reg .b32 %t, %x; .reg .b64 %out, %own; .reg .pred %takes;
.shared .align 4 .b8 flag[4];
mov.u32 %t, %tid.x; ld.param.u64 %out, [out]; mul.wide.u32 %own, %t, 4; add.s64 %own, %out, %own;
setp.eq.u32 %takes, %t, 0; @%takes st.shared.u32 [flag], 7;
bar.sync 0;
mov.u32 %x, 1; setp.lt.u32 %takes, %t, 128; @%takes bra.uni take;
atom.shared.exch.b32 %x, [flag], 9;
bar.sync 1, 128;
setmaxnreg.dec.sync.aligned.u32 GIVEN;
bra.uni end;
take:
setmaxnreg.inc.sync.aligned.u32 TAKEN;
atom.shared.add.u32 %x, [flag], 0;
end:
st.global.u32 [%own], %x;
ret;
}
"""


def run(folder: Path, tuning: str, taken: int, given: int, *options: object) -> tuple[int, str, list[int]]:
    """Exit status, what was said, and what the threads of the taking warps read."""
    text = HANDED_OVER.replace("TUNING", tuning).replace("TAKEN", str(taken)).replace("GIVEN", str(given))
    (folder / "handed.ptx").write_text(text)
    out = folder / "out.bin"
    done = ptxrun(folder / "handed.ptx", "--block", 256, "--arg", "buf:u32:256", "--dump", f"0={out}", *options)
    return done.returncode, done.stderr, sorted(set(np.fromfile(out, np.uint32)[:128].tolist()))


@pytest.mark.parametrize("schedule", range(4))
def test_registers_are_waited_for(schedule: int, tmp_path: Path) -> None:
    """128 registers each at entry; 216 + 40 are as many together."""
    assert run(tmp_path, ".maxnreg 128", 216, 40, "--schedule", schedule) == (0, "", [9])


@pytest.mark.parametrize(
    ("tuning", "entry", "taken", "given"),
    [
        ("", 248, 256, 240),
        (".maxntid 256, 1, 1", 248, 256, 240),
        (".maxnreg 168", 168, 240, 96),
        (".maxnreg 175", 168, 240, 96),
        (".minnctapersm 2", 128, 216, 40),
        (".maxntid 256, 1, 1 .minnctapersm 3", 80, 136, 24),
    ],
)
def test_the_pool_is_what_the_cta_began_with(tuning: str, entry: int, taken: int, given: int, tmp_path: Path) -> None:
    """Eight registers more than were given back never come; the deadlock says how many there are."""
    status, said, read = run(tmp_path, tuning, taken, given)
    assert (status, said, read) == (0, "", [9])
    status, said, _ = run(tmp_path, tuning, taken, given + 8)
    assert status == 3 and "deadlock" in said, said
    wanted = f"it requests {taken} registers per thread, {32 * taken} in all; the CTA began with {256 * entry}"
    assert wanted in said and "the other warps leave" in said, said


def test_registers_of_warps_that_end_stay_theirs(tmp_path: Path) -> None:
    """Only setmaxnreg.dec gives registers to others."""
    text = HANDED_OVER.replace("TUNING", "").replace("setmaxnreg.dec.sync.aligned.u32 GIVEN;", "ret;")
    (tmp_path / "ends.ptx").write_text(text.replace("TAKEN", "256"))
    done = ptxrun(tmp_path / "ends.ptx", "--block", 256, "--arg", "buf:u32:256")
    assert done.returncode == 3 and "it requests 256 registers per thread" in done.stderr


@pytest.mark.parametrize("count", [16, 25, 264, -8])
def test_other_counts_are_refused(count: int, tmp_path: Path) -> None:
    (tmp_path / "handed.ptx").write_text(
        HANDED_OVER.replace("TUNING", "").replace("TAKEN", str(count)).replace("GIVEN", "24")
    )
    done = ptxrun(tmp_path / "handed.ptx", "--block", 256, "--arg", "buf:u32:256")
    assert done.returncode == 2 and "a multiple of 8 from 24 to 256 is needed" in done.stderr
