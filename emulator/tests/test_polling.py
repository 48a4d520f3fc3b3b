"""A warp that polls an mbarrier: it sleeps until its phase is complete, and only polls that say something count."""

import csv
from pathlib import Path

import numpy as np
import pytest
from support.emulation import entry, ptxrun

SHARED = ".shared .align 16 .b8 smem[64];"
START = """.reg .b32 %s, %t, %i, %n;
.reg .b64 %state, %out; .reg .pred %first, %done, %more;
ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %s, smem; mov.u32 %n, 0;
setp.eq.u32 %first, %t, 0; @%first mbarrier.init.shared.b64 [%s], 1;
bar.sync 0;
"""
# Warp 1 is busy for TURNS turns of a loop, then arrives; warps 0 and 2 poll, and warp 0 counts its polls.
BUSY = (
    START
    + """shr.u32 %i, %t, 5;
setp.eq.u32 %more, %i, 1;
@%more bra work;
poll:
add.u32 %n, %n, 1;
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra poll;
@%first st.global.u32 [%out], %n;
bra.uni end;
work:
mov.u32 %i, TURNS;
again:
sub.u32 %i, %i, 1;
bar.warp.sync -1;
setp.ne.u32 %more, %i, 0;
@%more bra again;
setp.eq.u32 %first, %t, 32; @%first mbarrier.arrive.shared.b64 %state, [%s];
end:"""
)
# Nobody arrives: one warp polls ten times and then continues without.
GIVES_UP = (
    START
    + """poll:
add.u32 %n, %n, 1;
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
@%done bra end;
setp.lt.u32 %more, %n, 10;
@%more bra poll;
end:
@%first st.global.u32 [%out], %n;"""
)
FOREVER = START + "poll:\nmbarrier.test_wait.parity.shared.b64 %done, [%s], 0;\n@!%done bra poll;"
# Lane 0 arrives after one of its polls failed; the others wait for what it sees.
AFTER_A_FAILURE = (
    START
    + """poll:
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
@%done bra end;
@%first mbarrier.arrive.shared.b64 %state, [%s]; add.u32 %n, %n, 1;
bra.uni poll;
end:
@%first st.global.u32 [%out], %n;"""
)


def run(folder: Path, body: str, block: int, *options: object) -> tuple[int, int, str]:
    """The word that the kernel stored, how often its test_wait was counted, and what was reported."""
    source, out, counters = folder / "poll.ptx", folder / "out.bin", folder / "counters.csv"
    source.write_text(entry(body, ".param .u64 out", directives=SHARED))
    done = ptxrun(
        source, "--block", block, "--arg", "buf:u32:1", "--dump", f"0={out}", "--counters-csv", counters, *options
    )
    assert done.returncode in (0, 3), done.stderr
    with counters.open(newline="") as file:
        polls = sum(int(row["executed"]) for row in csv.DictReader(file) if "test_wait" in row["ptx"])
    return int(np.fromfile(out, np.uint32)[0]), polls, done.stderr


@pytest.mark.parametrize("turns", [1, 100, 10_000])
def test_a_wait_is_one_poll_however_long_it_is(turns: int, tmp_path: Path) -> None:
    assert run(tmp_path, BUSY.replace("TURNS", str(turns)), 96)[:2] == (1, 2)


def test_the_code_after_a_failed_poll_runs_with_a_seed(tmp_path: Path) -> None:
    seen = {run(tmp_path, BUSY.replace("TURNS", "1000"), 96, "--schedule", seed)[0] for seed in range(1, 9)}
    assert len(seen) > 1 and min(seen) == 1 and max(seen) < 100


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_polls_that_must_fail_are_counted(seed: int, tmp_path: Path) -> None:
    stored, polls, reported = run(tmp_path, GIVES_UP, 32, "--schedule", seed)
    assert (stored, polls) == (10, 10) and not reported


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_warp_that_arrives_after_a_failed_poll_goes_on(seed: int, tmp_path: Path) -> None:
    stored, polls, reported = run(tmp_path, AFTER_A_FAILURE, 32, "--schedule", seed)
    assert (stored, polls) == (1, 2) and not reported


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_polling_for_ever_is_a_deadlock(seed: int, tmp_path: Path) -> None:
    _, polls, reported = run(tmp_path, FOREVER, 96, "--schedule", seed)
    if seed == 0:
        assert polls == 3 * 10_000, "the number on the page, for each of three warps"
    assert "deadlock" in reported and "polls a barrier that nothing can complete anymore" in reported
    assert "warps 0 to 2" in reported and polls > 1000


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("body", "stored"), [(GIVES_UP, 10), (AFTER_A_FAILURE, 1)])
def test_a_try_wait_ends_after_a_time(body: str, stored: int, seed: int, tmp_path: Path) -> None:
    """CUTLASS tries a wait before it starts the copy of a pipeline of one stage, which alone can end that wait."""
    got, _, reported = run(tmp_path, body.replace("test_wait", "try_wait"), 32, "--schedule", seed)
    assert (got, reported) == (stored, "")


@pytest.mark.parametrize("seed", [0, 1])
def test_waiting_for_ever_is_a_deadlock(seed: int, tmp_path: Path) -> None:
    reported = run(tmp_path, FOREVER.replace("test_wait", "try_wait"), 96, "--schedule", seed)[2]
    assert "deadlock" in reported and "waits, and none can free another" in reported


def test_a_sleeping_poll_is_traced_once(tmp_path: Path) -> None:
    source = tmp_path / "poll.ptx"
    source.write_text(entry(BUSY.replace("TURNS", "50"), ".param .u64 out", directives=SHARED))
    done = ptxrun(source, "--block", 96, "--arg", "buf:u32:1", "--trace", "cta=0,warp=0")
    assert done.returncode == 0 and done.stdout.count("test_wait") == 1, done.stdout
