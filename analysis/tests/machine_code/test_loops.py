"""Which KV loop of a kernel runs: the record, the choice, and what the emulator counts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import Version, load, load_all
from analysis.machine_code import loops
from analysis.machine_code.loops import (
    BENCHMARK,
    REST,
    Part,
    Problem,
    find,
    loops_of,
    parts_of,
    read_loops,
    shares_outside,
)
from analysis.machine_code.regions import OTHER_COPIES, Graph, split
from analysis.machine_code.sass import Listing, parse_listing
from analysis.machine_code.subjects import resolve, start
from analysis.publish.overview import HEADLINE
from analysis.tests.support.compiled import landed

SHORT = (Problem(16, 256, 1), Problem(16, 128, 1), Problem(2, 128, 1))  # instead of PROBLEMS: quick to emulate


def committed(version: str, arch: str = "sm_80") -> Listing:
    path = root() / f"sass/{version}.{arch}.sass"
    return parse_listing(path.read_text(), str(path))[0]


@pytest.fixture(scope="module")
def static_stride() -> Listing:
    return committed("v16")


def recorded(version: str, arch: str = "sm_80") -> dict[str, Part]:
    return {part.role: part for part in read_loops(root())[version, arch]}


def test_the_loop_that_runs_is_taken_and_not_the_first_of_the_largest(static_stride: Listing) -> None:
    """Both loops of v16 hold 256 matrix instructions; the one for any stride stands first."""
    running, first = parts_of(static_stride), split(static_stride)
    assert f"{running.kv.header:04x}" == recorded("v16")["16 heads"].first
    assert f"{first.kv.header:04x}" == recorded("v16")["any stride"].first
    assert running.matrix_count == first.matrix_count == 256
    assert len(running.loop) == recorded("v16")["16 heads"].figures.instructions < len(first.loop)


def test_the_other_copy_is_a_region_of_its_own(static_stride: Listing) -> None:
    """Each copy comes with its own first block and its own stores, so a region has as many in either view."""
    running, other = parts_of(static_stride), parts_of(static_stride, "any stride")
    for parts in (running, other):
        assert sum(len(code) for code in parts.regions.values()) == len(static_stride.body)
        assert sum(at.base == "STG" for at in parts.regions["epilogue"]) == 16
        assert sum(at.base == "STG" for at in parts.regions[OTHER_COPIES]) == 16
    inside = {at.address for at in running.regions[OTHER_COPIES]}
    assert {at.address for at in other.loop} < inside


def test_a_loop_is_chosen_by_number_role_and_address(static_stride: Listing) -> None:
    graph = Graph(static_stride)
    any_stride, heads = loops_of(graph)
    for wanted, expected in (
        ("1", any_stride),
        ("any stride", any_stride),
        (f"{any_stride.loop.header:04x}", any_stride),
        ("2", heads),
        ("16 heads", heads),
        (f"0x{heads.loop.header:x}", heads),
    ):
        assert find(loops_of(graph), wanted, "v16") == expected
    with pytest.raises(AnalysisError, match=r"--loop 3: v16 has no such loop; it has loop 1 \(any stride\) at "):
        find(loops_of(graph), "3", "v16")


def test_a_kernel_of_other_code_has_no_record(static_stride: Listing) -> None:
    """One instruction more in a loop, another architecture or another config: none of them is the recorded kernel."""
    assert all(each.recorded for each in loops_of(Graph(static_stride)))
    for other in (
        replace(static_stride, arch="sm_90"),
        replace(static_stride, symbol=str(load(root(), "v07").header.config)),
        replace(static_stride, instructions=static_stride.instructions[1:]),
    ):
        parts = parts_of(other)
        if other.instructions == static_stride.instructions:
            assert not any(each.recorded for each in loops_of(Graph(other)))
            assert parts.kv.header == split(other).kv.header
            assert "which of them runs is not recorded" in (loops.note_on(parts) or "")


def test_commands_show_the_loop_that_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(root() / "sass/v16.sm_80.sass")
    roles = recorded("v16")
    assert main(["loop", path, "--csv"]) == 0
    said = capsys.readouterr()
    assert f"TOTAL,{roles['16 heads'].figures.instructions}\n" in said.out
    assert f"loop 2 (16 heads) of 2 at {roles['16 heads'].first}: the one that runs" in said.err
    assert main(["sass", path, "--loop", "any stride"]) == 0
    assert capsys.readouterr().out.count(";") == roles["any stride"].figures.instructions
    assert main(["bound", path, "--loop", "tail slice"]) == 2
    assert "it has loop 1 (any stride)" in capsys.readouterr().err


def test_the_nest_names_roles_waits_and_rare_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", str(root() / "sass/v25.sm_80.sass"), "--nest", "--csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    kv = {row[-2] if "runs" in row[-1] else row[-1]: row for row in rows if "KV loop" in "".join(row[7:])}
    assert any("16 heads" in name for name in kv) and any("tail slice" in name for name in kv)
    inner = [row[-1] for row in rows]
    assert "waits" in inner and "repeats for other lanes" in inner
    assert any(word.startswith("block in ") and word.endswith(" % of the passes") for word in inner)


def test_a_kernel_without_a_record_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another configuration of a version is. A listing cannot be, nor a cubin where ptxrun is not built."""
    monkeypatch.setattr(loops, "loops_path", lambda _: Path("nothing"))
    monkeypatch.setattr(loops, "PROBLEMS", SHORT)
    subject = resolve("v16", "sm_80")
    listing = start(subject).listing()
    parts = parts_of(listing, None, subject)
    assert (loops.note_on(parts) or "").startswith("loop 2 (16 heads) of 2 at ")
    monkeypatch.setattr(loops, "PTXRUN", Path("nothing"))
    for of in (subject, None):
        parts = parts_of(listing, None, of)
        assert (loops.note_on(parts) or "").startswith("loop 1 of 2 at ")
        assert "which of them runs is not recorded" in (loops.note_on(parts) or "")


# ---- the record ------------------------------------------------------------------------------------------------------


def descent(version: str) -> list[str]:
    """The version, its parent, the parent's parent and so on."""
    parent = load(root(), version).header.parent
    return [version, *(descent(parent) if parent else [])]


def test_every_version_has_a_record_of_both_architectures() -> None:
    parts = read_loops(root())
    assert [subject for subject in parts if subject[0].startswith("v")] == landed()  # the others stay
    for version, arch in landed():
        kernel = parts[version, arch]
        assert {part.config for part in kernel} == {str(load(root(), version).header.config)}
        assert [part.part for part in kernel] == [*map(str, range(1, len(kernel))), REST]
        assert loops.NEVER not in {part.role for part in kernel}
        if version == "v00":  # it multiplies without matrix instructions: none of its loops has a name
            assert len(kernel) == 1
            continue
        running = max(kernel, key=lambda part: part.passes)
        static_stride = "v16" in descent(version)
        of_warps = "16 heads" if static_stride else "every problem"
        assert running.role == of_warps if arch != "sm_90a" else running.role.startswith(loops.CONSUMER)


def test_the_record_reads_back_equal() -> None:
    parts = [part for kernel in read_loops(root()).values() for part in kernel]
    text = loops.loops_text(parts)
    assert text == loops.loops_path(root()).read_text()
    for damage, word in ((",16 heads,c", ",16 heads,x"), ("=0.9844", "=2.9844"), (",256,0,", ",-256,0,")):
        assert damage in text
        with pytest.raises(AnalysisError, match=r"loops:[0-9]+: "):
            loops.parse_loops(text.replace(damage, word), "loops")


# ---- the problems that are emulated ----------------------------------------------------------------------------------

H200 = 132  # multiprocessors, of the benchmark's GPU


def tail(config: KernelConfig, blocks: int, grid: tuple[int, int, int], multiprocessors: int) -> bool:
    """Whether Q blocks are left over for slices."""
    ctas = grid[0] * grid[1] * grid[2]
    return ctas > (multiprocessors if config.persistent else blocks)


@pytest.mark.parametrize("version", load_all(root()).values(), ids=lambda version: version.version)
def test_the_small_problem_takes_the_path_of_the_benchmark(version: Version) -> None:
    """As many heads and KV blocks, slices in both or in neither, and several Q blocks for a persistent CTA."""
    config = version.header.config
    assert (HEADLINE.heads, HEADLINE.seq) == (BENCHMARK.heads, BENCHMARK.seq)
    whole = config.grid(HEADLINE.seq, HEADLINE.heads, HEADLINE.batch, H200)
    multiprocessors = BENCHMARK.ctas(config)
    small = config.grid(BENCHMARK.seq, 1, 1, multiprocessors)
    blocks = HEADLINE.seq // config.B_r * HEADLINE.heads * HEADLINE.batch
    few = BENCHMARK.seq // config.B_r
    assert tail(config, blocks, whole, H200) == tail(config, few, small, multiprocessors) == config.split_tail
    if config.persistent:
        assert blocks // H200 > 1 and few // multiprocessors > 1
    for problem in (loops.NOTHING_LEFT, loops.OTHER_HEADS):
        few = problem.seq // config.B_r
        assert not tail(config, few, config.grid(problem.seq, 1, 1, problem.multiprocessors), problem.multiprocessors)


def test_the_first_parameter_is_read_from_the_header() -> None:
    config = load(root(), "attention/wgmma").header.config
    buffers = [f"buf:f16:{i}" for i in range(4)]
    strides = "i64:7,i64:8,i64:9"
    general = f"i32:64,{strides},{strides},{strides},u64:0,buf:i32:2,i32:5,f32:0.0883883476,i32:0,i32:0,i32:0,i32:0"
    first = f"struct:[buf:f16:0,buf:f16:1,buf:f16:2,buf:f16:3,u64:0,{strides},i32:64,i32:5,i32:3"
    assert loops.argument_fields(config, buffers, 64, 5, 3, (7, 8, 9)) == f"{first},{general}]"
    before = load(root(), "v37").header.config
    assert loops.argument_fields(before, buffers, 64, 5, 3, (7, 8, 9)) == f"{first}]"


# ---- what the emulator counts ----------------------------------------------------------------------------------------


def test_the_emulator_tells_the_copies_of_a_kernel_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """On shorter sequences than the record's: the same roles and addresses, and as many passes as there must be."""
    monkeypatch.setattr(loops, "PROBLEMS", SHORT)
    config = load(root(), "v16").header.config
    found = loops.measure_loops(resolve("v16", "sm_80"), "v16")
    passes = 256 // config.B_r * (256 // config.B_c - 1) * config.n_warps  # the first block is peeled
    assert [(part.role, part.first, part.passes) for part in found] == [
        ("any stride", recorded("v16")["any stride"].first, 0),
        ("16 heads", recorded("v16")["16 heads"].first, passes),
        ("", "", config.n_warps),  # of one Q block
    ]
    # K of the next block is copied in all passes but the last.
    (share,) = loops.read_shares(found[1].shares).values()
    assert share == pytest.approx(1 - 1 / (256 // config.B_c - 1), abs=1e-4)


def test_the_emulator_counts_kernels_of_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """V transposed and rows of K permuted by their tensor maps. A product is one of two instructions of its asm()."""
    monkeypatch.setattr(loops, "PROBLEMS", [Problem(16, 256, 1), Problem(16, 256, 1), Problem(2, 256, 1)])
    monkeypatch.setattr(loops, "SHORTER", Problem(16, 256, 1))
    config = load(root(), "f03").header.config
    consumer, producer, rest = loops.measure_loops(resolve("f03", "sm_90a"), "f03")
    blocks = 256 // config.B_r, 256 // config.B_c
    assert (consumer.role, consumer.passes) == ("consumer", blocks[0] * (blocks[1] - 1) * config.n_warps)
    assert (producer.role, producer.passes) == ("producer", blocks[0] * blocks[1])
    assert rest.passes == blocks[0] * config.n_warps
    assert 0.25 in loops.read_shares(consumer.shares).values(), "one warp of a warpgroup releases a stage"


def test_inputs_of_fp8_are_normal_and_finite() -> None:
    inputs = np.frombuffer(loops.normal_e4m3(200_000, 7), np.uint8)
    assert inputs.size == 200_000 and not (inputs & 0x7F == 0x7F).any()
    fraction, exponent = 1 + (inputs & 7) / 8.0, (inputs >> 3 & 15).astype(int)
    values = np.where(exponent, fraction * 2.0 ** (exponent - 7), (inputs & 7) / 512) * np.where(inputs & 0x80, -1, 1)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    assert (inputs[: loops.PERIOD] == inputs[loops.PERIOD : 2 * loops.PERIOD]).all()


def test_blocks_outside_the_loops_have_the_share_of_q_blocks(static_stride: Listing) -> None:
    """v16's CTAs have one Q block each: a block serves it, as the loop for 16 heads does, or another stride."""
    parts = parts_of(static_stride)
    shares = shares_outside(parts.graph)
    assert set(shares.values()) == {0.0}
    of_other = {at.address for at in parts.regions[OTHER_COPIES]}
    assert any(first in of_other for first in shares)
    kept = {first for first in parts.graph.blocks if first not in shares}
    assert any(at.base == "EXIT" and not at.predicate for at in parts.graph.instructions(kept))
    persistent = shares_outside(parts_of(committed("v25")).graph)
    assert 0.25 in persistent.values(), "once for a CTA of four Q blocks"
    assert not shares_outside(parts_of(committed("v00")).graph), "not counted"


@pytest.mark.long
@pytest.mark.parametrize("version", dict.fromkeys(version for version, _ in landed()))
def test_the_record_is_what_the_emulator_counts(version: str) -> None:
    """One test for both architectures: what the emulator counts in the one PTX is shared in a process."""
    for arch in (arch for name, arch in landed() if name == version):
        assert loops.measure_loops(resolve(version, arch), version) == read_loops(root())[version, arch]
