"""The ring as one warp sees it: from a trace of a few lines, and the committed file."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import ring
from analysis.emulate.ring import Stay, read_ring, stays_of
from analysis.files import root
from analysis.ladder.headers import load

FULL, EMPTY = 64, 80  # two stages


def line(text: str) -> list[str]:
    return [f"cta 0 warp 0  v99_x.cu:12  [40]  {text};"]


def set_register(name: str, value: int) -> list[str]:
    return [*line(f"add.s32 {name}, {name}, 8"), f"        {name} = 0x{value:08x} in lane 0"]


def wait(barrier: int, parity: int, *, tests: int = 1) -> list[str]:
    test = line("mbarrier.test_wait.parity.shared.b64 p, [%r1], %r2")
    failed = [*test, "        p = false in all lanes"] * (tests - 1)
    return [
        *set_register("%r1", barrier),
        *set_register("%r2", parity),
        *failed,
        *test,
        "        p = true in all lanes",
    ]


def copy(stage: int, parity: int) -> list[str]:
    barrier = set_register("%r3", FULL + 8 * stage)
    return [*wait(EMPTY + 8 * stage, parity), *barrier, *line("cp.async.mbarrier.arrive.noinc.shared.b64 [%r3]")]


def read(stage: int, parity: int, *between: str) -> list[str]:
    """Q K^T, what stands between the products, P V and the arrival."""
    loads = [line(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r8}}, [%r9]") * 2 for trans in ("", ".trans")]
    barrier = set_register("%r3", EMPTY + 8 * stage)
    arrival = line("mbarrier.arrive.shared.b64 state, [%r3]")
    return [*wait(FULL + 8 * stage, parity, tests=3), *loads[0], *between, *loads[1], *barrier, *arrival]


def trace() -> list[str]:
    """Two stages and three blocks: the third is copied between the products of the second."""
    return [*copy(0, 1), *copy(1, 1), *read(0, 0), *read(1, 0, *copy(0, 0)), *read(0, 1)]


def test_places_count_products() -> None:
    assert stays_of("v99", trace()) == [
        Stay("v99", 0, 0, 1, 0, 0, 0, 2),
        Stay("v99", 1, 1, 1, 0, 0, 2, 4),
        Stay("v99", 2, 0, 0, 3, 1, 4, 6),
    ]


RECORDED = read_ring(root())


@pytest.mark.parametrize(
    "version", [pytest.param(name, marks=[] if name == "v20" else pytest.mark.long) for name in RECORDED]
)
def test_the_committed_ring_is_fresh(version: str) -> None:
    if not (root() / "bin" / version).exists():
        pytest.skip(f"bin/{version} is not built")
    assert RECORDED[version] == ring.emulate_ring(version), "run `python3 -m analysis ring --write`"


def test_rings_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ring, "root", lambda: tmp_path)
    monkeypatch.setattr(ring, "load", lambda _, name: load(root(), name))
    monkeypatch.setattr(ring, "emulate_ring", lambda version: [Stay(version, 0, 0, 1, 0, 0, 0, 2)])
    assert main(["ring"]) == 2
    assert main(["ring", "v19", "--exit-code"]) == 1
    assert main(["ring", "v19", "--write"]) == 0
    assert main(["ring", "v20", "--write"]) == 0
    assert read_ring(tmp_path) == {name: [Stay(name, 0, 0, 1, 0, 0, 0, 2)] for name in ("v19", "v20")}
    assert main(["ring", "--exit-code"]) == 0
    (tmp_path / "regs/ring.csv").write_text(",".join(ring.COLUMNS) + "\nv19,0,0,1,x,0,0,2\n")
    assert main(["ring"]) == 2
    assert "ring.csv" in capsys.readouterr().err
