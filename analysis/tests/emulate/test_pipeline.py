"""Steps of a pipeline: from a trace of a few lines, and the committed file."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import pipeline
from analysis.emulate.pipeline import SEVERAL, Work, read_pipeline, work_of
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import load

COPY = "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group"
QK, PV = (
    "wgmma.mma_async.x {%f1, %f2}, %rd1, %rd2, p, 1, 1, 0, 0",
    "wgmma.mma_async.x {%f1, %f2}, {%r1}, %rd2, p, 1, 1, 1",
)
COMMIT, WAIT = ("wgmma.commit_group.sync.aligned",), ("wgmma.wait_group.sync.aligned 0",)


def trace(*steps: tuple[int, str]) -> list[str]:
    """Lines as the emulator writes them; a step is a warp and an instruction, which lane 0 alone executes if it says
    so. `%r9 = 64` gives a register a value.
    """
    lines = []
    for warp, text in steps:
        if "=" in text:
            name, value = text.split(" = ")
            lines += [f"cta 0 warp {warp}  [1]  mov.b32 {name}, 7;", f"        {name} = 0x{int(value):08x} in lane 0"]
        else:
            alone = text.startswith(("mbarrier.arrive", "cp.async"))
            lines.append(f"cta 0 warp {warp}  v99_x.cu:12  [40]  {text};" + "   lanes 0x00000001" * alone)
    return lines


def group(*ops: str, first: int = 4) -> list[tuple[int, str]]:
    """Four warps that do the same."""
    return [(warp, op) for warp in range(first, first + 4) for op in ops]


def producer() -> list[tuple[int, str]]:
    """Copies Q, K and V of one block and announces them at the barriers 64, 72 and 80."""
    values = [(0, f"%r{number} = {64 + 8 * number}") for number in range(3)]
    tensors = [(0, f"%rd{number} = {128 * (number + 1)}") for number in range(3)]
    inits = [(0, f"mbarrier.init.shared.b64 [%r{number}], 1") for number in range(3)]
    copies = [
        (0, op)
        for number in range(3)
        for op in (
            f"mbarrier.arrive.expect_tx.shared.b64 _, [%r{number}], 32768",
            f"{COPY} [%r7], [%rd{number}, {{%r7, %r7, %r7, %r7, %r7}}], [%r{number}]",
        )
    ]
    return [*values, *tensors, *inits, *copies]


def consumer() -> list[tuple[int, str]]:
    """S, its largest scores and exponentials, O and its store."""
    values = group("%r0 = 64", "%r1 = 72", "%r2 = 80", "%r5 = 0")
    waits = [f"mbarrier.try_wait.parity.shared.b64 p, [%r{number}], %r5" for number in range(3)]
    softmax = ["max.f32 %f1, %f2, %f3"] * SEVERAL + ["ex2.approx.ftz.f32 %f1, %f2"] * SEVERAL
    product = [*waits, QK, *COMMIT, *WAIT, *softmax, PV, *COMMIT, *WAIT]
    end = ["stmatrix.sync.aligned.x [%r1], {%r1}", f"{STORE} [%rd1, {{%r1}}], [%r1]", "cp.async.bulk.wait_group.read 0"]
    return [*values, *group(*product, *end)]


def test_every_work_begins_when_what_it_waits_for_is_done() -> None:
    assert {(one.who, one.what, one.step) for one in work_of("v99", trace(*producer(), *consumer()), 1)} == {
        ("copies", "Q", 0), ("copies", "K", 0), ("copies", "V", 0), ("products 1", "QK", 1), ("threads 1", "max", 2),
        ("threads 1", "exp", 3), ("products 1", "PV", 4), ("threads 1", "store", 5), ("copies", "O", 6),
    }  # fmt: skip


def test_the_order_of_the_trace_does_not_matter() -> None:
    """Only each warp's own order does: the consumer may stand first, where its waits are not yet over."""
    inits = [step for step in producer() if "init" in step[1] or "=" in step[1]]
    copies = [step for step in producer() if step not in inits]
    assert work_of("v99", trace(*inits, *consumer(), *copies), 1) == work_of("v99", trace(*producer(), *consumer()), 1)


def test_an_arrival_that_is_missing_is_an_error() -> None:
    without = [step for step in producer() if "expect_tx" not in step[1] or "[%r2]" not in step[1]]
    with pytest.raises(AnalysisError, match=r"v99: the trace waits for what never comes: warp 4 \(wait\)"):
        work_of("v99", trace(*without[:-1], *consumer()), 1)


RECORDED = read_pipeline(root())


@pytest.mark.parametrize(
    "version", [pytest.param(name, marks=[] if name == "v36" else pytest.mark.long) for name in RECORDED]
)
def test_the_committed_steps_are_fresh(version: str) -> None:
    if not (root() / "bin" / version).exists():
        pytest.skip(f"bin/{version} is not built")
    fresh = pipeline.emulate_pipeline(version)
    assert RECORDED[version] == fresh, "run `python3 -m analysis pipeline --write`"


def test_steps_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "root", lambda: tmp_path)
    monkeypatch.setattr(pipeline, "load", lambda _, name: load(root(), name))
    monkeypatch.setattr(pipeline, "emulate_pipeline", lambda version: [Work(version, "copies", "K", 2, 0, 5)])
    assert main(["pipeline"]) == 2
    assert main(["pipeline", "v28", "--exit-code"]) == 1
    assert main(["pipeline", "v28", "--write"]) == 0
    assert read_pipeline(tmp_path) == {"v28": [Work("v28", "copies", "K", 2, 0, 5)]}
    assert main(["pipeline", "v29", "--write"]) == 0
    assert set(read_pipeline(tmp_path)) == {"v28", "v29"}  # the rows of other versions stay
    assert main(["pipeline", "--exit-code"]) == 0
    (tmp_path / "regs/pipeline.csv").write_text("version,who,what,block,Q_block,step\nv28,copies,K,x,0,5\n")
    assert main(["pipeline"]) == 2
    assert "pipeline.csv" in capsys.readouterr().err
