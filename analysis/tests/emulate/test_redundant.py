"""./fl redundant: barriers, fences and waits that a kernel needs, and those that it does not."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import redundant
from analysis.emulate.redundant import Instruction, instructions, without

# Warp 1 reads what warp 0 stored. Each thread reads again, after a second barrier, what it has read before.
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry reversed(.param .u64 out)
{
.reg .b32 %t, %s, %r<4>;
.reg .b64 %o, %a;
.reg .pred %p0;
.shared .align 4 .b8 words[256];
.file 1 "own/reversed.cu"
ld.param.u64 %o, [out];
mov.u32 %t, %tid.x;
mad.lo.u32 %s, %t, 4, words;
st.shared.u32 [%s], %t;
.loc 1 7 3
bar.sync 0;
sub.u32 %r0, 63, %t;
mad.lo.u32 %s, %r0, 4, words;
ld.shared.u32 %r1, [%s];
.loc 1 9 3
bar.sync 0;
ld.shared.u32 %r2, [%s];
setp.gt.u32 %p0, %t, 99;
@%p0 fence.acq_rel.gpu;
add.u32 %r1, %r1, %r2;
mul.wide.u32 %a, %t, 4;
add.u64 %a, %a, %o;
st.global.u32 [%a], %r1;
ret;
}
"""


def test_what_each_instruction_is_needed_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reversed.ptx"
    path.write_text(KERNEL)
    assert main(["redundant", "--csv", str(path), "--block", "64", "--arg", "out:u32:64"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        'reversed,reversed.cu:7,16,bar.sync 0,"race, uninitialised-shared"',
        "reversed,reversed.cu:9,21,bar.sync 0,no run needs it",
        "reversed,reversed.cu:9,24,@%p0 fence.acq_rel.gpu,no run needs it",
    ]


def test_bits_that_a_seed_changes_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(ptx: Path, seed: int) -> redundant.Outcome:
        text = ptx.read_text()
        return redundant.Outcome("trap" in text or text.count("bar.sync") < 1, "", "", bytes([seed]))

    monkeypatch.setattr(redundant, "run_of_version", lambda *_: (KERNEL, "reversed", run))
    assert main(["redundant", "--csv", "b03"]) == 0
    assert [line.split(",")[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["no run needs it"] * 3


def test_a_wait_for_an_mbarrier_continues_without_it() -> None:
    asks = "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%r1], %r2; @p bra D; }"
    text = f".visible .entry k()\n{{\n  {asks}\nD: ret;\n}}\n"
    (wait,) = instructions(text, "k")
    assert wait == Instruction(3, "mbarrier.try_wait.parity.shared.b64 p, [%r1], %r2", "")
    assert without(text, wait).splitlines()[2] == "  { .reg .pred p; setp.eq.u32 p, 0, 0; @p bra D; }"


def test_records_replace_the_rows_of_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reversed.ptx").write_text(KERNEL)
    record, summary, launches = tmp_path / "rows.csv", tmp_path / "kernels.csv", tmp_path / "launches"
    launches.write_text("run reversed.ptx --block 64 --arg out:u32:64\n")
    record.write_text("kernel,source,PTX line,instruction\nother,a.cu:1,2,bar.sync 0\nreversed,b.cu:3,4,bar.sync 0\n")
    monkeypatch.setattr(redundant, "RECORD", str(record))
    monkeypatch.setattr(redundant, "SUMMARY", str(summary))
    assert main(["redundant", "--write", "--launches", str(launches), str(tmp_path)]) == 0
    kept = ["reversed,reversed.cu:9,21,bar.sync 0", "reversed,reversed.cu:9,24,@%p0 fence.acq_rel.gpu"]
    assert record.read_text().splitlines()[1:] == ["other,a.cu:1,2,bar.sync 0", *kept]
    row = 'reversed,--block 64 --arg out:u32:64,3,2,"no race, no deadlock in any order"'
    assert summary.read_text().splitlines()[1:] == [row]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [([], "names no kernel"), (["v99"], "v99: is missing; run `make v99`"), (["kernel.cu"], "expected a PTX file")],
)
def test_wrong_subjects(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redundant", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_kernel_with_findings_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reversed.ptx"
    path.write_text(KERNEL.replace("bar.sync 0;\n", ""))
    assert main(["redundant", str(path), "--block", "64", "--arg", "out:u32:64"]) == 2
    assert "must run without findings" in capsys.readouterr().err
