"""`debug` finds seeded faults: in real kernels on the emulator, and in arrays for what no kernel here does wrong."""

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.emulate import debug, online_softmax
from analysis.emulate.online_softmax import Blocks
from analysis.files import root
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import load
from analysis.measure.records import Problem
from analysis.tests.support.copies import checkout, lend_objects, make

CONFIG = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles")
PROBLEM = Problem("attention", "fp16", 1, 1, 256, 128, "normal")
KERNEL = "kernels/mma_sync/v04_interleave.cu"


def transcript(start: str) -> str:
    """The indented block of docs/adding-a-version.md that begins like this."""
    page = (root() / "docs/adding-a-version.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^(?:    .*)?\n)+", page, re.MULTILINE)]
    (found,) = [block.strip() for block in blocks if block.strip().startswith(start)]
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkout(tmp_path_factory.mktemp("debug") / "copy", [KERNEL])
    lend_objects(folder, "dump")
    return folder


@pytest.fixture
def seeded(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, object]]]:
    original = (copy / KERNEL).read_text()
    monkeypatch.setenv("BIN", str(copy / "bin"))

    def find(old: str, new: str, in_words: bool = False) -> dict[str, object]:
        assert original.count(old) == 1, f"the kernel no longer reads {old!r}"
        (copy / KERNEL).write_text(original.replace(old, new))
        make(copy, "DUMP=1", "ARCHS=80", "v04")
        command = ["debug", "--version", "v04", "--backend", "emu", "--out", str(copy / "kept"), "--exit-code"]
        status = main([*command, "--json"])
        record = json.loads(capsys.readouterr().out)
        assert status == (1 if record["first"] else 0)
        if in_words:
            assert main(command) == status
            (copy / "said").write_text(capsys.readouterr().out)
        return dict(record)

    yield find
    (copy / KERNEL).write_text(original)


def test_a_built_kernel_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (root() / "bin/dump/v01").exists():
        pytest.skip("run `make DUMP=1 v01`")
    monkeypatch.delenv("BIN", raising=False)
    assert main(["debug", "--version", "v01", "--backend", "emu", "--out", str(tmp_path), "--exit-code"]) == 0


@pytest.mark.long
def test_an_untouched_kernel_is_right(seeded: Callable[..., dict[str, object]], copy: Path) -> None:
    assert seeded("/* O /= l,", "/*  O /= l,", in_words=True)["first"] is None
    kept = np.load(copy / "kept/v04.kernel.npz")
    assert kept["O"].shape == (1, 1, 4, 4, 64, 128)
    assert kept["m"].shape == (1, 1, 4, 4, 64)
    said = (copy / "said").read_text()
    assert transcript("v04 (FP16") in said, "docs/adding-a-version.md shows another output"


@pytest.mark.long
def test_a_swapped_fragment(seeded: Callable[..., dict[str, object]], copy: Path) -> None:
    """The two halves of one B operand of K are exchanged in warp 2: 16 columns of its rows are swapped."""
    old = "mma<cfg>(S[i][2 * n + 1], Q[i], K[n][1], K[n][3]);"
    before = "mma<cfg>(S[i][2 * n], Q[i], K[n][0], K[n][2]);"
    swapped = (
        "const bool swap = n == 2 && threadIdx.x / 32 == 2;\n"
        "mma<cfg>(S[i][2 * n], Q[i], K[n][swap ? 1 : 0], K[n][swap ? 3 : 2]);\n"
        "mma<cfg>(S[i][2 * n + 1], Q[i], K[n][swap ? 0 : 1], K[n][swap ? 2 : 3]);"
    )
    first = seeded(f"{before}\n            {old}", swapped, in_words=True)["first"]
    assert isinstance(first, dict)
    assert (first["quantity"], first["KV_block"], first["warps"]) == ("S", 0, [2])
    assert first["columns"] == list(range(32, 48))
    assert first["rows"] == list(range(32, 48))
    assert "32-39 hold what columns 40-47 should" in first["looks_like"]
    assert "40-47 hold what columns 32-39 should" in first["looks_like"]
    assert transcript("first wrong") in (copy / "said").read_text(), "docs/adding-a-version.md shows another output"


def made(order: list[int]) -> Blocks:
    """A dump of a kernel that is right up to rounding."""
    return online_softmax.reference(CONFIG, PROBLEM, 1, order)[0]


def compared(dump: Blocks) -> debug.Comparison:
    return debug.compare(CONFIG, PROBLEM, 1, dump)


def test_the_first_block_in_the_kernels_order_is_named() -> None:
    dump = made([3, 2, 1, 0])
    dump.P[0, 0, 1, 0, 7, 9] += 0.5
    dump.P[0, 0, 2, 2, 5, 3] = np.nan
    first = compared(dump).first
    assert first is not None
    assert (first.KV_block, first.step, first.Q_block, first.rows, first.columns) == (2, 1, 2, (5,), (3,))
    assert first.looks_like.startswith("nothing was written")
    assert "P (exponentials) of KV block 2, number 2 in the kernel's order" in debug.sentence(first, CONFIG)
    assert "warp 0" in debug.sentence(first, CONFIG)


def test_rows_that_traded_places_are_named() -> None:
    dump = made([0, 1, 2, 3])
    dump.O[0, 0, 3, 1, [8, 40]] = dump.O[0, 0, 3, 1, [40, 8]]
    first = compared(dump).first
    assert first is not None
    assert (first.quantity, first.KV_block, first.rows, first.warps) == ("O", 1, (8, 40), (0, 2))
    assert first.looks_like == "rows in the wrong position: 8 holds what row 40 should, 40 holds what row 8 should"


def test_what_is_over_its_bound_is_wrong_and_nothing_else() -> None:
    dump = made([0, 1, 2, 3])
    bound = compared(dump).bound.S[0, 0, 1, 0]
    dump.S[0, 0, 1, 0, 3, 4] += 0.9 * bound[3, 4]
    assert compared(dump).first is None
    dump.S[0, 0, 1, 0, 7, 5] -= 1.1 * bound[7, 5]
    first = compared(dump).first
    assert first is not None and (first.quantity, first.rows, first.columns) == ("S", (7,), (5,))


@pytest.fixture
def ready_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Blocks, int], None]:
    """Makes a bin/dump/v04 that leaves this dump, says that it found something, and exits with this status."""

    def make(dump: Blocks, status: int) -> None:
        parts = [values.reshape(*values.shape[:4], -1) for _, values in dump.items()]
        np.concatenate(parts, -1).astype("<f4").tofile(tmp_path / "ready")
        program = tmp_path / "dump/v04"
        program.parent.mkdir(exist_ok=True)
        record = json.dumps({"backend": "emu"})
        program.write_text(
            f'#!/bin/sh\nfor last; do :; done\ncp "{tmp_path}/ready" "$last"\necho \'{record}\'\n'
            f"echo 'v04: a race' >&2\nexit {status}\n"
        )
        program.chmod(0o755)

    monkeypatch.setenv("BIN", str(tmp_path))
    monkeypatch.delenv("LAUNCH", raising=False)
    return make


def run(tmp_path: Path, *options: str) -> int:
    return main(["debug", "--version", "v04", "--out", str(tmp_path / "kept"), "--json", *options])


def test_the_status_says_whether_a_value_is_wrong_when_asked(
    ready_dump: Callable[[Blocks, int], None], tmp_path: Path
) -> None:
    dump = made([0, 1, 2, 3])
    ready_dump(dump, 0)
    assert (run(tmp_path), run(tmp_path, "--exit-code")) == (0, 0)
    dump.S[0, 0, 0, 0, 3, 4] += 1.0
    ready_dump(dump, 0)
    assert (run(tmp_path), run(tmp_path, "--exit-code")) == (0, 1)


def test_a_finding_of_the_emulator_is_told_and_the_dump_compared(
    ready_dump: Callable[[Blocks, int], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready_dump(made([0, 1, 2, 3]), 1)
    assert run(tmp_path) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["first"] is None and "v04: a race" in record["where"]


def test_a_version_without_dumps_is_told_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIN", str(tmp_path))
    assert main(["debug", "--version", "v04"]) == 2
    assert "make DUMP=1 v04" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seq", "0"], "--seq 0: must be positive"),
        (["--seq", "100"], "--seq 100: must be a multiple of 64; use 64 or 128"),
        (["--kv-heads", "0"], "--kv-heads 0: must be positive"),
        (["--scale", "nan"], "--scale nan: must be positive"),
        (["--config", str(CONFIG), "--d-head", "64"], f"--d-head 64: must be 128, as in --config {CONFIG}"),
    ],
)
def test_a_value_that_would_be_passed_over_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["debug", "--version", "v04", *options]) == 2
    assert said in capsys.readouterr().err


GENERAL = Problem("attention", "bf16", 2, 4, 150, 64, "normal", causal=True, kv_heads=2, seq_k=198)
GENERAL_CONFIG = parse_short_form("(BF16, 64, 64, 64, 4): mma_sync+stages_2")


def general(order: list[int]) -> Blocks:
    return online_softmax.reference(GENERAL_CONFIG, GENERAL, 1, order)[0]


@pytest.mark.parametrize("scale", [0.0, 0.4])
@pytest.mark.parametrize(("seq", "seq_k"), [(150, 200), (200, 150), (1, 70), (64, 0)])
def test_block_by_block_is_softmax_at_the_end(seq: int, seq_k: int, scale: float) -> None:
    problem = replace(GENERAL, seq=seq, seq_k=seq_k)
    blocks = online_softmax.reference(GENERAL_CONFIG, problem, 1, range(-(-(seq_k or seq) // 64))[::-1], scale=scale)[0]
    l, O = (array[:, :, :, 0].reshape(2, 4, -1, *array.shape[5:])[:, :, :seq] for array in (blocks.l, blocks.O))  # noqa: E741
    wanted, _, lse = online_softmax.attention(problem, 1, scale)
    np.testing.assert_allclose(O / np.where(l > 0, l, 1)[..., None], wanted, rtol=0, atol=1e-12)
    assert ((l == 0) == (lse == -np.inf)).all()


@pytest.mark.parametrize(
    ("row", "key", "KV_block"),
    [
        (0, 49, 0),  # key 49 is the first that row 0 does not see
        (17, 2, 1),
        (21 + 128, 8, 3),  # past the last key
    ],
)
def test_a_score_that_is_not_masked_is_found(row: int, key: int, KV_block: int) -> None:
    dump = general([0, 1, 2, 3])
    assert dump.S[1, 3, row // 64, KV_block, row % 64, key] == -np.inf
    dump.S[1, 3, row // 64, KV_block, row % 64, key] = 0.5
    first = debug.compare(GENERAL_CONFIG, GENERAL, 1, dump).first
    assert first is not None
    assert (first.quantity, first.batch, first.head, first.KV_block, first.columns) == ("S", 1, 3, KV_block, (key,))


GENERAL_KERNELS = [
    ("attention.mma_sync", 128, "--seq 300 --heads 4 --kv-heads 2 --causal"),
    ("attention.wgmma", 128, "--seq 300 --heads 4 --kv-heads 2 --causal"),
    ("attention.wgmma", 64, "--seq 300 --seq-k 400 --heads 2 --causal"),  # consumers swap their parts of the Q blocks
    ("attention.wgmma", 256, "--seq 150 --heads 2 --causal"),
]


@pytest.mark.first
@pytest.mark.long
@pytest.mark.parametrize(("version", "d_head", "options"), GENERAL_KERNELS)
def test_hooks_name_the_q_block_and_the_kv_block(
    version: str, d_head: int, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that fetch Q blocks dynamically or longest first, and KV blocks from the last to the first."""
    kernel = load(root(), version)
    config = next(one for one in (kernel.header.config, *kernel.header.others) if one.d_head == d_head)
    files = [kernel.path, *(root() / "kernels/attention").glob("*.cuh")]
    copy = checkout(tmp_path / "copy", [str(file.relative_to(root())) for file in files])
    lend_objects(copy, "dump")
    make(copy, "DUMP=1", f"KERNELS={config}", version)
    monkeypatch.setenv("BIN", str(copy / "bin"))
    command = ["debug", "--version", version, "--config", str(config), "--backend", "emu", "--exit-code"]
    assert main([*command, "--out", str(tmp_path), *options.split()]) == 0
