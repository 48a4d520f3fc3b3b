"""The control-flow graph, the loop nest and the regions of a kernel."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from analysis.errors import AnalysisError
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.loops import note_on, parts_in
from analysis.machine_code.regions import Graph, Loop, Parts, find_kv_loop, matrix_count, split, split_at
from analysis.machine_code.sass import Listing, parse_listing, with_control
from analysis.machine_code.subjects import note_unknown
from analysis.tests.support.compiled import ARCHS, cubin, disassembly, listing, listings
from analysis.tests.support.kinds import some_in_check

OURS = "_Z13flash_forward"


def parts_of(arch: str, *defines: str) -> Parts:
    return split(listing(cubin("attention.cu", arch, *defines), OURS))


def code(text: str) -> Listing:
    """A listing from lines of instructions and labels."""
    lines, address = ["//--------------------- .text.made --------------------------"], 0
    for line in text.strip().splitlines():
        if line.strip().endswith(":"):
            lines.append(line.strip())
        else:
            lines.append(f"        /*{address:04x}*/  {line.strip()} ;")
            address += 16
    return parse_listing("\n".join(lines))[0]


def headers(loops: tuple[Loop, ...]) -> list[object]:
    return [[loop.header, *headers(loop.children)] if loop.children else loop.header for loop in loops]


@pytest.mark.parametrize("arch", ARCHS)
def test_regions_of_a_kernel_like_ours(arch: str) -> None:
    parts = parts_of(arch)
    assert list(parts.regions) == ["prologue", "loop", "epilogue"]
    assert parts.matrix_count == 3
    assert sum(at.base == "LDGSTS" for at in parts.loop) == 1
    assert any(at.base == "STG" for at in parts.regions["epilogue"])
    assert sum(len(part) for part in parts.regions.values()) == len(parts.listing.body)


@pytest.mark.parametrize("arch", ARCHS)
def test_peeled_first_block(arch: str) -> None:
    parts = parts_of(arch, "-DPEELED")
    assert list(parts.regions) == ["prologue", "peeled block", "loop", "epilogue"]
    peeled = parts.regions["peeled block"]
    assert matrix_count(peeled) == 3
    assert peeled[0].base in ("DEPBAR", "BAR", "LDGDEPBAR")
    assert matrix_count(parts.regions["prologue"]) == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("defines", [("-DPERSISTENT",), ("-DPERSISTENT", "-DPEELED")])
def test_nest_of_a_persistent_kernel(arch: str, defines: tuple[str, ...]) -> None:
    """The tile loop is outside, the KV loop inside, also where a peeled copy puts as much mma into the tile loop."""
    parts = parts_of(arch, *defines)
    (tiles,) = parts.nest
    (inner,) = tiles.children
    assert inner.header == parts.kv.header
    assert inner.children == ()
    assert inner.blocks < tiles.blocks
    assert parts.matrix_count == 3


def test_kernels_without_a_loop_are_refused() -> None:
    with pytest.raises(AnalysisError, match=r"triple\(int\*\): the kernel has no loop"):
        split(listing(cubin("plain.cu"), "_Z6triple"))


def test_far_branches_are_written_as_calls() -> None:
    """CALL.REL.NOINC to a label is the exit of a loop and does not come back; to a function it does."""
    far = Graph(
        code(
            """
            MOV R1, RZ
            .L_x_0:
            HMMA.16816.F32 R4, R8, R12, R4
            @P0 CALL.REL.NOINC `(.L_x_1)
            BRA `(.L_x_0)
            .L_x_1:
            EXIT
            """
        )
    )
    assert headers(far.nest) == [0x10]
    assert far.blocks[0x10].successors == [0x30, 0x40]
    near = Graph(
        code("MOV R1, RZ\nCALL.REL.NOINC `($__internal_0_$f)\nEXIT\n$__internal_0_$f:\nRET.REL.NODEC R2 `(made)")
    )
    assert near.blocks[0].successors == []
    assert near.order == [0]


def test_a_call_to_a_label_with_its_return_address_comes_back() -> None:
    """As of subroutines: the address after the call is in a register, as a number or as a label."""
    for address in ("0x30", "32@lo((made + .L_x_1@srel))"):
        graph = Graph(
            code(
                f"""
                MOV R1, RZ
                MOV R20, {address}
                CALL.REL.NOINC `(.L_x_9)
                .L_x_1:
                MOV R2, RZ
                EXIT
                .L_x_9:
                RET.REL.NODEC R20 `(made)
                """
            )
        )
        assert 0x40 in {at.address for first in graph.order for at in graph.blocks[first].instructions}
        assert 0x50 not in graph.order


def test_the_busiest_loop_is_neither_the_longest_nor_the_innermost() -> None:
    """A spin inside a long loop, and a loop that counts inside a short one."""
    work = "\n".join(["FFMA R4, R5, R6, R4"] * 40)
    spin = "LDS R1, [R2]\n@P1 BRA `(.L_x_1)"
    around_spin = Graph(code(f".L_x_0:\n{work}\n.L_x_1:\n{spin}\n@P0 BRA `(.L_x_0)\nEXIT"))
    assert find_kv_loop(around_spin).header == 0
    inner = "FFMA R4, R5, R6, R4\n" * 10 + "@P1 BRA `(.L_x_1)"
    nested = Graph(code(f".L_x_0:\n{work}\n.L_x_1:\n{inner}\n@P0 BRA `(.L_x_0)\nEXIT"))
    assert find_kv_loop(nested).header == 0x280
    note = note_on(split_at(nested, find_kv_loop(nested)))
    assert note == (
        "loop at 0280 of 2: a guess from its 11 own instructions and its depth, as none multiplies matrices; "
        "--loop takes another: 0000"
    )
    assert parts_in(nested, "0000").kv.header == 0


def test_the_kv_loop_is_the_one_with_the_most_matrix_instructions() -> None:
    mma = "HMMA.16816.F32 R4, R8, R12, R4\n"
    graph = Graph(code(f".L_x_0:\n{mma}@P0 BRA `(.L_x_0)\n.L_x_1:\n{mma * 2}@P1 BRA `(.L_x_1)\nEXIT"))
    assert find_kv_loop(graph).header == 0x20


def test_reconvergence_goes_where_its_barrier_says() -> None:
    """Both BSSY use B0; taking the wrong one for the second BSYNC would make a loop."""
    graph = Graph(
        code(
            """
            BSSY B0, `(.L_x_1)
            @P0 BRA `(.L_x_0)
            MOV R1, RZ
            .L_x_0:
            BSYNC B0
            .L_x_1:
            BSSY B0, `(.L_x_3)
            @P1 BRA `(.L_x_2)
            MOV R2, RZ
            .L_x_2:
            BSYNC B0
            .L_x_3:
            EXIT
            """
        )
    )
    assert graph.blocks[0x30].successors == [0x40]
    assert graph.blocks[0x70].successors == [0x80]
    assert graph.nest == ()


def test_the_kernel_ends_with_the_exit_that_all_threads_take_after_the_loop() -> None:
    """Not with one before the loop (nothing to do), nor with one that some threads take; what follows was moved."""
    parts = split(
        code(
            """
            @P3 BRA `(.L_x_0)
            EXIT
            .L_x_0:
            HMMA.16816.F32 R4, R8, R12, R4
            @P0 BRA `(.L_x_0)
            @P2 EXIT
            FMUL R4, R4, R5
            STG.E desc[UR4][R2.64], R4
            EXIT
            MOV R9, RZ
            BRA `(.L_x_0)
            """
        )
    )
    assert [at.base for at in parts.regions["epilogue"]] == ["EXIT", "FMUL", "STG", "EXIT"]
    assert [at.base for at in parts.regions["out of line"]] == ["MOV", "BRA"]


def test_a_branch_nowhere_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"the target of 'BRA `\(\.L_x_9\)' at 0000 is unknown"):
        Graph(code("BRA `(.L_x_9)\nEXIT"))
    with pytest.raises(AnalysisError, match="the kernel is empty"):
        Graph(code("NOP"))


def labelled_edges(whole: Listing) -> set[tuple[str, str]]:
    """Edges between labeled pieces; nvdisasm begins a piece at every label and after every branch and call."""
    graph = Graph(whole)
    label_at = {address: name for name, address in whole.labels.items() if name.startswith(".L_x_")}
    edges = set()
    for block in graph.blocks.values():
        pieces = [""]  # names in order, "" for a piece without a label
        for at in block.instructions:
            pieces += [label_at[at.address]] if at.address in label_at else []
            pieces += [""] if at.base == "CALL" else []
        targets = {label_at[each] for each in block.successors if each in label_at}
        edges |= {*pairwise(pieces), *((pieces[-1], target) for target in targets)}
    return {(a, b) for a, b in edges if a and b}


def unlike_pieces(whole: Listing) -> set[str]:
    """Labels of the closing branch and of pieces that end with a call, which nvdisasm links in its own way."""
    unlike, label = set(), ""
    label_at = {address: name for name, address in whole.labels.items()}
    for at in whole.instructions:
        label = label_at.get(at.address, label)
        if at.base == "CALL" or whole.closes(at):
            unlike.add(label)
    return unlike


SWITCH_ARCHS = ("sm_75", "sm_90", "sm_120")


DRAWN = [(source, arch) for source in ("attention.cu", "plain.cu") for arch in ARCHS]
DRAWN += [("jumps.cu", arch) for arch in SWITCH_ARCHS]


@pytest.mark.parametrize("code", some_in_check(DRAWN, [("attention.cu", "sm_90a"), ("plain.cu", "sm_80"), DRAWN[-1]]))
def test_edges_are_those_of_nvdisasm(code: tuple[str, str]) -> None:
    """nvdisasm draws the graph too, with a data-flow analysis of its own."""
    source, arch = code
    path = cubin(source, arch)
    drawn = disassembly(path, "-bbcfg")
    theirs = set(re.findall(r'^"(\.L_x_\d+)":\w+:\w -> "(\.L_x_\d+)"', drawn, re.MULTILINE))
    ours = set().union(*(labelled_edges(whole) for whole in listings(path).values()))
    closing_or_calling = set().union(*(unlike_pieces(whole) for whole in listings(path).values()))
    assert ours == {(a, b) for a, b in theirs if a not in closing_or_calling}
    assert ours


def loops_of(whole: Listing) -> set[tuple[int, frozenset[int]]]:
    return {(loop.header, loop.blocks) for loop in Graph(whole).loops()}


def test_targets_of_a_switch_from_each_source() -> None:
    """From .nv.info; from the jump table where those are 0, as CUDA 11 writes them; of a listing, from its text."""
    path = cubin("jumps.cu", "sm_90")
    (kernel,) = Cubin.read(path).entries
    whole = listing(path)
    assert kernel.branches
    zeros = tuple(replace(each, targets=(0,) * len(each.targets)) for each in kernel.branches)
    text = replace(whole, indirect={})
    from_table = with_control(text, replace(kernel, branches=zeros))
    without_counts = with_control(text, replace(kernel, branches=()))
    lost = with_control(text, replace(kernel, branches=zeros, jump_tables=b""))
    for at in whole.body:
        if at.base == "BRX":
            targets = set(whole.targets(at))
            assert len(targets) > 1
            assert targets == set(from_table.targets(at)) == set(text.targets(at))
            assert targets <= set(without_counts.targets(at))  # up to the end of the bank: no count says where to stop
            assert lost.indirect == {}
    assert loops_of(whole) == loops_of(from_table) == loops_of(text)


def test_a_switch_without_known_targets_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    whole = code("LDC R4, c[0x2][R3]\nBRX R4 -0x20\nEXIT")
    assert [at.base for at in whole.lost] == ["BRX"]
    note_unknown("made", whole)
    assert "targets not known, loops through them are missed: BRX at 0010" in capsys.readouterr().err
