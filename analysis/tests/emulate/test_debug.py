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
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import Dtype, KernelConfig, parse_short_form
from analysis.ladder.headers import load
from analysis.measure.records import Problem
from analysis.tests.support.copies import checkout, lend_objects, make

CONFIG = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles")
PROBLEM = Problem("attention", "fp16", 1, 1, 256, 128, "normal")
KERNEL = "kernels/mma_sync/v04_interleave.cu"


def transcript(start: str) -> str:
    """The indented block of docs/debugging.md that begins like this."""
    page = (root() / "docs/debugging.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^(?:    .*)?\n)+", page, re.MULTILINE)]
    (found,) = [block.strip() for block in blocks if block.strip().startswith(start)]
    return found


# ---- faults seeded into a kernel -------------------------------------------------------------------------------------


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


def test_an_untouched_kernel_is_right(seeded: Callable[..., dict[str, object]], copy: Path) -> None:
    assert seeded("/* O /= l,", "/*  O /= l,", in_words=True)["first"] is None
    kept = np.load(copy / "kept/v04.kernel.npz")
    assert kept["O"].shape == (1, 1, 4, 4, 64, 128)
    assert kept["m"].shape == (1, 1, 4, 4, 64)
    said = (copy / "said").read_text()
    assert transcript("v04 (FP16") in said, "docs/debugging.md shows another output"


@pytest.mark.long
def test_a_wrong_swizzle_term(seeded: Callable[..., dict[str, object]]) -> None:
    """K is read with row % 4 where it was written with row % 8: keys 4-7 of every 8 come from other columns."""
    old = "K_addr.at(16 * n, 16 * k)"
    first = seeded(old, f"{old} ^ (K_addr.lane & 4) * 16")["first"]
    assert isinstance(first, dict)
    assert (first["quantity"], first["KV_block"], first["step"], first["Q_block"]) == ("S", 0, 0, 0)
    assert first["columns"] == [column for column in range(64) if column % 8 >= 4]
    assert first["rows"] == list(range(64))
    assert first["warps"] == [0, 1, 2, 3]


@pytest.mark.long
def test_a_missing_rescale(seeded: Callable[..., dict[str, object]]) -> None:
    """One 8-wide tile of O is left as it was: the second block is the first to show it."""
    old = "                O[i][n][2 * half + 1] *= factor;\n"
    first = seeded(old, old.replace("factor", "n == 5 ? 1.0f : factor"))["first"]
    assert isinstance(first, dict)
    assert (first["quantity"], first["KV_block"], first["step"]) == ("O", 1, 1)
    assert first["columns"] == [41, 43, 45, 47]
    assert "not rescaled" in first["looks_like"]


@pytest.mark.long
def test_a_missing_rescale_of_the_sums(seeded: Callable[..., dict[str, object]]) -> None:
    first = seeded("            l[i][half] *= factor;\n", "")["first"]
    assert isinstance(first, dict)
    assert (first["quantity"], first["KV_block"], first["columns"]) == ("l", 1, [])
    assert first["looks_like"].startswith("l was not rescaled")


@pytest.mark.long
def test_a_swapped_fragment(seeded: Callable[..., dict[str, object]], copy: Path) -> None:
    """The two halves of one B operand of K are exchanged in warp 2: 16 columns of its rows trade places."""
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
    assert "32-39 hold what column 40-47 should" in first["looks_like"]
    assert "40-47 hold what column 32-39 should" in first["looks_like"]
    assert transcript("first wrong") in (copy / "said").read_text(), "docs/debugging.md shows another output"


# ---- faults seeded into arrays ---------------------------------------------------------------------------------------


def made(order: list[int]) -> Blocks:
    """A dump of a kernel that is right up to rounding."""
    return online_softmax.reference(CONFIG, PROBLEM, 1, order)[0]


def compared(dump: Blocks) -> debug.Comparison:
    return debug.compare(CONFIG, PROBLEM, 1, dump)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_the_order_is_read_from_the_dump(order: list[int]) -> None:
    sides = compared(made(order))
    assert list(sides.order) == order
    assert sides.first is None


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


LAZY = CONFIG.replace(optimized_softmax=True, lazy_rescale=True)
FIRST_MAX = LAZY.replace(first_max=True)


@pytest.mark.parametrize(
    ("config", "exponent", "right"),
    [
        (CONFIG, 7, False),
        (LAZY, 7, True),
        (LAZY, 9, False),
        (FIRST_MAX, 14, True),
        (FIRST_MAX, 16, False),
        (FIRST_MAX.replace(dtype=Dtype.BF16), 59, True),
        (FIRST_MAX.replace(dtype=Dtype.BF16), 61, False),
    ],
)
def test_the_maximum_of_a_lazy_kernel_may_lag_by_a_power_of_two(
    config: KernelConfig, exponent: int, right: bool
) -> None:
    problem = replace(PROBLEM, dtype=config.dtype.name.lower())
    m = online_softmax.reference(config, problem, 1, range(4))[0].m.copy()
    m[0, 0, 1, 2:, 5] -= np.log(2) * exponent * np.sqrt(128)
    lazy = FIRST_MAX.replace(dtype=Dtype.BF16)
    dump = replace(online_softmax.reference(lazy, problem, 1, range(4), m)[0], m=m)
    first = debug.compare(config, problem, 1, dump).first
    assert (first is None) == right
    assert first is None or (first.quantity, first.KV_block, first.rows) == ("m", 2, (5,))


def test_rows_that_traded_places_are_named() -> None:
    dump = made([0, 1, 2, 3])
    dump.O[0, 0, 3, 1, [8, 40]] = dump.O[0, 0, 3, 1, [40, 8]]
    first = compared(dump).first
    assert first is not None
    assert (first.quantity, first.KV_block, first.rows, first.warps) == ("O", 1, (8, 40), (0, 2))
    assert first.looks_like == "rows in the wrong place: 8 holds what row 40 should, 40 holds what row 8 should"


def test_a_fault_without_a_pattern_gets_no_explanation() -> None:
    dump = made([0, 1, 2, 3])
    dump.S[0, 0, 0, 0, 3, 4] += 1.0
    first = compared(dump).first
    assert first is not None
    assert first.looks_like == ""


def test_what_is_over_its_bound_is_wrong_and_nothing_else() -> None:
    bound = compared(made([0, 1, 2, 3])).bound.S
    dump = made([0, 1, 2, 3])
    dump.S[0, 0, 1, 0, 3, 4] += 0.9 * bound[0, 0, 1, 0, 3, 4]
    assert compared(dump).first is None
    dump.S[0, 0, 1, 0, 7, 5] -= 1.1 * bound[0, 0, 1, 0, 7, 5]
    alone = compared(dump).first
    assert alone is not None
    assert (alone.quantity, alone.rows, alone.columns) == ("S", (7,), (5,))
    dump.S[0, 0, 1, 0, 9, 6] += 5.0 * bound[0, 0, 1, 0, 9, 6]
    first = compared(dump).first
    assert first is not None
    assert (first.quantity, first.rows, first.columns, first.wrong, first.worst) == ("S", (7, 9), (5, 6), 2, (9, 6))


def test_what_is_no_number_explains_no_other_error() -> None:
    dump = made([0, 1, 2, 3])
    dump.S[0, 0, 0, 0, 3, 4] = np.nan
    dump.S[0, 0, 0, 0, 40, 20] += 1.0
    first = compared(dump).first
    assert first is not None
    assert (first.wrong, first.looks_like) == (2, "")


def unscaled_sums() -> tuple[Blocks, int, int, float]:
    """A dump whose row sums in the second block are those of a kernel that does not rescale, where the maximum rose.

    With it the two rows that show this most, and the bound of the second one's sum.
    """
    dump = made([0, 1, 2, 3])
    bound = compared(dump).bound.l[0, 0, 0, 1]
    before = dump.l[0, 0, 0, 1].copy()
    dump.l[0, 0, 0, 1] = dump.l[0, 0, 0, 0] + dump.P[0, 0, 0, 1].sum(-1)
    one, two = (int(row) for row in np.argsort(-abs(dump.l[0, 0, 0, 1] - before))[:2])
    return dump, one, two, float(bound[two])


def test_a_missing_rescale_explains_only_the_values_that_it_gives() -> None:
    dump, _, two, bound = unscaled_sums()
    first = compared(dump).first
    assert first is not None and two in first.rows
    assert first.looks_like == "l was not rescaled by exp(m_old - m) before this block's part was added"
    unit = online_softmax.UNIT_ROUNDOFF["fp16"]
    dump.l[0, 0, 0, 1, two] += 6 * bound + unit * dump.l[0, 0, 0, 1, two]
    other = compared(dump).first
    assert other is not None
    assert (other.rows, other.looks_like) == (first.rows, "")


def test_a_column_that_could_come_from_two_places_is_said_to_be_of_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys 20 and 30 are equal, and so are these columns of S: who holds one of them holds the other too."""
    Q, K, V = online_softmax.inputs(PROBLEM, 1)
    K[:, :, 30] = K[:, :, 20]
    monkeypatch.setattr(online_softmax, "inputs", lambda problem, seed: (Q, K, V))
    for source, said in ((40, "columns in the wrong place: 50 holds what column 40 should"), (20, "")):
        dump = made([0, 1, 2, 3])
        dump.S[0, 0, 0, 0, :, 50] = dump.S[0, 0, 0, 0, :, source]
        first = compared(dump).first
        assert first is not None
        assert (first.columns, first.looks_like) == ((50,), said)


def test_an_infinite_value_is_wrong() -> None:
    dump = made([0, 1, 2, 3])
    dump.l[0, 0, 0, 0, 3] = np.inf
    first = compared(dump).first
    assert first is not None
    assert (first.quantity, first.rows) == ("l", (3,))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_bounds_admit_the_rounding_of_P_and_not_twice_it(dtype: str) -> None:
    problem = replace(PROBLEM, dtype=dtype)
    wanted, bound = online_softmax.reference(CONFIG, problem, 1, range(4))
    rounding = abs(online_softmax.rounded(wanted.P, dtype) - wanted.P)
    assert (rounding <= bound.P).all()
    assert (2.2 * online_softmax.UNIT_ROUNDOFF[dtype] * wanted.P + 2 * online_softmax.TINY[dtype] >= bound.P).all()


def test_the_reference_is_softmax() -> None:
    Q, K, V = online_softmax.inputs(PROBLEM, 1)
    S = Q @ K.transpose(0, 1, 3, 2) / np.sqrt(128)
    weights = np.exp(S - S.max(-1, keepdims=True))
    wanted = (weights / weights.sum(-1, keepdims=True)) @ V
    last = made([0, 1, 2, 3])
    out = last.O[:, :, :, 3] / last.l[:, :, :, 3, :, None]
    np.testing.assert_allclose(out.reshape(wanted.shape), wanted, rtol=1e-10, atol=1e-12)


def test_runs() -> None:
    assert debug.runs([5]) == "5"
    assert debug.runs(range(64)) == "0-63"
    assert debug.runs([0, 1, 8, 9, 12]) == "0-1, 8-9, 12"
    assert debug.runs([column for column in range(64) if column % 8 >= 4]) == ("4-7, 12-15 and so on every 8 up to 63")
    assert debug.runs([0, 8, 16]) == "0, 8, 16"
    assert debug.runs([0, 8, 16, 24]) == "0, 8 and so on every 8 up to 24"
    assert debug.runs([0, 8, 16, 25]) == "0, 8, 16, 25"
    assert debug.runs([0, 8, 16, 24, 25]) == "0, 8, 16, 24-25"


def test_a_dump_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(bytes(400))
    with pytest.raises(AnalysisError, match="holds 100 floats"):
        online_softmax.read_dump(tmp_path / "dump", CONFIG, PROBLEM)


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


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_dump_of_a_run_that_failed_is_not_compared(
    ready_dump: Callable[[Blocks, int], None], tmp_path: Path, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ready_dump(made([0, 1, 2, 3]), status)
    assert run(tmp_path) == 2
    said = capsys.readouterr()
    assert f"exit {status}" in said.err and said.out == ""


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
        (["--kv-heads", "0"], "--kv-heads 0: must be positive"),
        (["--scale", "nan"], "--scale nan: must be positive"),
        (["--config", str(CONFIG), "--d-head", "64"], f"--d-head 64: the config {CONFIG} is for 128"),
    ],
)
def test_a_value_that_would_be_passed_over_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["debug", "--version", "v04", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_version_without_hooks_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "--version", "v00", "--backend", "emu"]) == 2
    assert "v00 has no hooks of common/debug.cuh" in capsys.readouterr().err


# ---- general attention -----------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_what_a_mask_leaves_undefined_is_not_compared(order: list[int]) -> None:
    dump = general(order)
    for _, array in dump.items():
        array[:, :, 0, 2:] = np.nan  # rows 0 to 63 see up to key 111: blocks 2 and 3 are skipped
        array[:, :, 0, 1, :16] = np.nan  # rows 0 to 15, those of a warp, see up to key 63
        array[:, :, 2, :, 22:] = np.nan  # rows behind the last query
    dump.S[dump.S == -np.inf] = -1e30
    sides = debug.compare(GENERAL_CONFIG, GENERAL, 1, dump)
    assert list(sides.order) == order and sides.first is None


@pytest.mark.parametrize(
    ("row", "key", "KV_block"),
    [
        (0, 49, 0),  # key 49 is the first that row 0 does not see
        (17, 2, 1),
        (21 + 128, 8, 3),  # behind the last key
    ],
)
def test_a_score_that_is_not_masked_is_found(row: int, key: int, KV_block: int) -> None:
    dump = general([0, 1, 2, 3])
    assert dump.S[1, 3, row // 64, KV_block, row % 64, key] == -np.inf
    dump.S[1, 3, row // 64, KV_block, row % 64, key] = 0.5
    first = debug.compare(GENERAL_CONFIG, GENERAL, 1, dump).first
    assert first is not None
    assert (first.quantity, first.batch, first.head, first.KV_block, first.columns) == ("S", 1, 3, KV_block, (key,))


def test_a_missed_rescale_is_named_with_shared_heads_and_a_last_partial_block() -> None:
    problem = replace(GENERAL, causal=False)
    dump = online_softmax.reference(GENERAL_CONFIG, problem, 1, range(4))[0]
    grows = (dump.m[:, :, 2, 3, :22] > dump.m[:, :, 2, 2, :22]).any(-1)  # in the last block
    batch, head = np.argwhere(grows)[-1]
    V = online_softmax.inputs(problem, 1)[2][batch, head // 2, 192:]
    dump.O[batch, head, 2, 3] = dump.O[batch, head, 2, 2] + dump.P[batch, head, 2, 3][:, : len(V)] @ V
    first = debug.compare(GENERAL_CONFIG, problem, 1, dump).first
    assert first is not None and (first.quantity, first.KV_block) == ("O", 3)
    assert first.looks_like.startswith("O was not rescaled")


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
    """Of kernels that take Q blocks by tickets or the longest first, and KV blocks from the last to the first."""
    kernel = load(root(), version)
    config = next(one for one in (kernel.header.config, *kernel.header.others) if one.d_head == d_head)
    files = [kernel.path, *(root() / "kernels/attention").glob("*.cuh")]
    copy = checkout(tmp_path / "copy", [str(file.relative_to(root())) for file in files])
    lend_objects(copy, "dump")
    make(copy, "DUMP=1", f"KERNELS={config}", version)
    monkeypatch.setenv("BIN", str(copy / "bin"))
    command = ["debug", "--version", version, "--config", str(config), "--backend", "emu", "--exit-code"]
    assert main([*command, "--out", str(tmp_path), *options.split()]) == 0


def test_another_size_of_heads_needs_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "--version", "v37", "--d-head", "64"]) == 2
    assert "--d-head 64: v37 has configs for 128" in capsys.readouterr().err
