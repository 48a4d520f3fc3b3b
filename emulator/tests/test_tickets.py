"""CTAs that draw tickets, or combine partial results, work on all threads of the host. The output is the same on any
number of threads, except for which access of a race comes second."""

import re
from pathlib import Path

import pytest
from support.emulation import entry, ptxrun

CTAS = 20
# Lane 0 draws; all lanes of two warps work, and store which CTA had the ticket; ticket %stop ends the program.
BODY = """.shared .align 4 .b32 ticket;
.reg .u64 %o, %c, %a; .reg .u32 %t, %n, %x, %s, %i, %stop, %none; .reg .pred %first, %q, %z;
ld.param.u64 %o, [out]; ld.param.u64 %c, [counter]; ld.param.u32 %n, [total];
ld.param.u32 %stop, [stop]; mov.u32 %x, %tid.x; setp.eq.u32 %first, %x, 0;
again:
@!%first bra meet;
DRAW
st.shared.u32 [ticket], %t;
meet:
bar.sync 0;
ld.shared.u32 %t, [ticket];
bar.sync 0;
setp.ge.u32 %q, %t, %n; @%q ret; setp.eq.u32 %z, %t, %stop; @%z trap;
mov.u32 %i, 0;
work:
add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 100;
@%q bra work;
mad.lo.u32 %i, %t, 64, %x; mad.wide.u32 %a, %i, 4, %o; mov.u32 %s, %ctaid.x;
STORE
bra again;"""
PARAMS = ".param .u64 out, .param .u64 counter, .param .u32 total, .param .u32 stop"
DRAW, STORE = "atom.global.add.u32 %t, [%c], 1;", "st.global.u32 [%a], %s;"
NEIGHBOUR = STORE + "\nst.global.u32 [%o], %s;"  # all store to the first word, too
RELAXED = "st.relaxed.gpu.global.u32 [%a], %s;"
SUM = """{ .reg .f32 %f;
cvt.rn.f32.u32 %f, %i;
rcp.rn.f32 %f, %f;
red.global.add.f32 [%o + 4], %f; }"""  # of numbers that are rounded: the order of the terms shows
FENCED = "fence.acq_rel.gpu;\n" + DRAW
ACQUIRE = "atom.acquire.gpu.global.add.u32 %t, [%c], 1;"
NEVER = 99


def printed(tmp_path: Path, threads: int, draw: str = DRAW, store: str = STORE, stop: int = NEVER,
            fill: str = ":poison") -> tuple[int, str]:  # fmt: skip
    path = tmp_path / "tickets.ptx"
    path.write_text(entry(BODY.replace("DRAW", draw).replace("STORE", store), PARAMS))
    arguments = [f"buf:u32:{64 * CTAS}{fill}", "buf:u32:1", f"u32:{CTAS}", f"u32:{stop}"]
    done = ptxrun(path, "--grid", CTAS, "--block", 64, "--threads", threads, "--print", f"0:{64 * CTAS}",
                  *(word for each in arguments for word in ("--arg", each)))  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "status", "finding"),
    [
        ({}, 0, ""),
        ({"stop": 11}, 3, "trap"),
        ({"store": RELAXED}, 0, ""),
        ({"store": RELAXED, "stop": 11}, 3, "trap"),
        ({"store": SUM, "fill": ""}, 0, ""),
        ({"store": SUM, "fill": "", "stop": 11}, 3, "trap"),
        ({"draw": FENCED}, 0, ""),
        ({"draw": FENCED, "stop": 11}, 3, "trap"),
    ],
    ids=["right", "trap", "stores", "trap and stores", "sums", "trap and sums", "fences", "trap and fences"],
)
def test_the_number_of_threads_changes_nothing(
    options: dict[str, str | int], status: int, finding: str, tmp_path: Path
) -> None:
    texts = {printed(tmp_path, threads, **options) for threads in (1, 2, 3, 8, 8)}  # type: ignore[arg-type]
    assert len(texts) == 1, texts
    found, text = texts.pop()
    assert found == status and finding in text, text


SUMS = """.reg .u64 %o;
.reg .u32 %i; .reg .f32 %f; .reg .pred %q;
ld.param.u64 %o, [out]; mov.u32 %i, %ctaid.x; add.u32 %i, %i, 1;
again:
cvt.rn.f32.u32 %f, %i; rcp.rn.f32 %f, %f; red.global.add.f32 [%o], %f; add.u32 %i, %i, 20;
setp.lt.u32 %q, %i, 4000;
@%q bra again;
END"""
OWN = "ld.global.f32 %f, [%o];\nst.global.f32 [%o], %f;"  # sees what it added itself


@pytest.mark.parametrize("end", ["", OWN], ids=["sums", "sums and a load"])
def test_ctas_without_tickets_add_in_order(end: str, tmp_path: Path) -> None:
    """Each on a thread of the host; the sum has the bits of one thread, which another order would change."""
    path = tmp_path / "sums.ptx"
    path.write_text(entry(SUMS.replace("END", end), ".param .u64 out"))
    ctas = 20 if not end else 1
    texts = {
        ptxrun(path, "--grid", ctas, "--block", 32, "--threads", threads, "--print", "0:1", "--arg", "buf:f32:1").stdout
        for threads in (1, 2, 3, 8, 8)
    }
    assert len(texts) == 1 and "0: " in texts.pop()


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_race_is_found_on_any_number_of_threads(threads: int, tmp_path: Path) -> None:
    """The host decides which store comes second, so either may be named, but nothing else."""
    status, text = printed(tmp_path, threads, store=NEIGHBOUR)
    found = re.findall(r"^(\S+) at PTX line \d+: (.*)$", text, re.MULTILINE)
    assert status == 1 and found, text
    assert {kind for kind, _ in found} == {"race"} and {store for _, store in found} <= set(NEIGHBOUR.split("\n")), text


def test_eight_ctas_draw_in_turn(tmp_path: Path) -> None:
    """Tickets 0 to 7 are those of CTAs 0 to 7, and so is each eight after them."""
    lines = printed(tmp_path, 2)[1].splitlines()[1:]
    owners = [line.split()[1] for line in lines[::8]]
    assert owners == [str(ticket % 8) for ticket in range(CTAS)]


def untouched(tmp_path: Path, draw: str) -> int:
    """Words that a program leaves alone which ends at ticket 8."""
    text = printed(tmp_path, 2, draw=draw, stop=8)[1]
    values = [word for line in text.splitlines() if ": " in line[:12] for word in line.split()[1:]]
    return len(values) - sum(value in {str(cta) for cta in range(8)} for value in values)


def test_tickets_and_fences_let_ctas_run_ahead(tmp_path: Path) -> None:
    """At the end of the program CTAs 1 to 7 have stored what they drew, ahead of their turns; after an atomic that
    acquires what other CTAs have done, they wait for these."""
    assert untouched(tmp_path, DRAW) == untouched(tmp_path, FENCED) < untouched(tmp_path, ACQUIRE)


# Each CTA stores 64 partial results. The last to count itself adds up those of all.
PARTS = """.shared .align 4 .b32 before;
.reg .u64 %o, %c, %p, %a; .reg .u32 %t, %x, %s, %k, %b, %v; .reg .pred %first, %q;
ld.param.u64 %o, [out]; ld.param.u64 %c, [counter]; ld.param.u64 %p, [parts];
mov.u32 %x, %tid.x; mov.u32 %b, %ctaid.x; setp.eq.u32 %first, %x, 0;
mul.lo.u32 %k, %b, 40;
work:
add.u32 %k, %k, 1; setp.lt.u32 %q, %k, 900;
@%q bra work;
mad.lo.u32 %v, %b, 64, %x; mad.wide.u32 %a, %v, 4, %p; st.global.u32 [%a], %v;
FENCE
bar.sync 0;
@!%first bra meet;
atom.global.add.u32 %t, [%c], 1;
st.shared.u32 [before], %t;
meet:
bar.sync 0;
ld.shared.u32 %t, [before];
FENCE
mov.u32 %k, %nctaid.x; sub.u32 %k, %k, 1; setp.ne.u32 %q, %t, %k; @%q ret;
mov.u32 %s, 0; mov.u32 %k, 0;
add:
mad.lo.u32 %v, %k, 64, %x; mad.wide.u32 %a, %v, 4, %p; ld.global.u32 %v, [%a]; add.u32 %s, %s, %v;
add.u32 %k, %k, 1; mov.u32 %b, %nctaid.x; setp.lt.u32 %q, %k, %b;
@%q bra add;
mad.wide.u32 %a, %x, 4, %o; st.global.u32 [%a], %s;"""


@pytest.mark.parametrize("fence", ["membar.gl;", ""], ids=["fences", "no fence"])
def test_partial_results_are_combined_on_any_number_of_threads(fence: str, tmp_path: Path) -> None:
    path = tmp_path / "parts.ptx"
    path.write_text(entry(PARTS.replace("FENCE", fence), ".param .u64 out, .param .u64 counter, .param .u64 parts"))
    arguments = ("--arg", "buf:u32:64", "--arg", "buf:u32:1", "--arg", f"buf:u32:{64 * CTAS}:poison")
    done = [
        ptxrun(path, "--grid", CTAS, "--block", 64, "--threads", threads, "--print", "0:64", *arguments)
        for threads in (1, 2, 3, 8, 8)
    ]
    assert {each.returncode for each in done} == {0 if fence else 1}, done[0].stderr
    if fence:
        (text,) = {each.stdout + each.stderr for each in done}
        sums = [64 * sum(range(CTAS)) + CTAS * x for x in range(64)]
        assert [int(word) for line in text.splitlines()[1:] for word in line.split()[1:]][:64] == sums
    else:
        assert all("race at PTX line" in each.stderr for each in done)
