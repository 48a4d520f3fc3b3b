"""Basic blocks and edges against nvdisasm's own graph, of kernels of six architectures.

What nvdisasm draws otherwise: it cuts straight code, which rejoin() undoes; code that nothing leads to is not drawn;
and EDGES, each with the reason. Any other difference fails. $FLASHLADDER_CUBINS may name a folder of more binaries:
libraries, objects, cubins.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from analysis.files import root
from analysis.machine_code.cubin import WORD_BYTES, Cubin
from analysis.machine_code.images import read_images
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction, Listing, disassemble_all
from analysis.tests.support.compiled import built, cubin, disassembly
from analysis.tests.support.kinds import newest_of_each_kind


@dataclass
class Flow:
    """Blocks as the addresses of their instructions, by the first, and edges between them."""

    blocks: dict[int, list[int]] = field(default_factory=dict)
    edges: set[tuple[int, int]] = field(default_factory=set)

    def before(self, block: int) -> set[int]:
        return {a for a, b in self.edges if b == block}

    def after(self, block: int) -> set[int]:
        return {b for a, b in self.edges if a == block}

    def rejoin(self, block: int) -> None:
        """A block with the one before it, where that leads to it alone and nothing else does: no path is lost.

        nvdisasm cuts there before what waits, works on a warp as a whole or leaves (SHFL, VOTE, SYNCS, EXIT), around a
        call, before the first of some loads and stores, and where a branch through a table begins.
        """
        before = [first for first, code in self.blocks.items() if code[-1] == block - WORD_BYTES]
        if self.before(block) == set(before) and [self.after(first) for first in before] == [{block}]:
            self.blocks[before[0]] += self.blocks.pop(block)
            self.edges = {(before[0] if a == block else a, b) for a, b in self.edges if b != block}

    def leave_out(self, block: int) -> None:
        del self.blocks[block]
        self.edges = {(a, b) for a, b in self.edges if block not in (a, b)}


def drawn(text: str) -> Iterator[tuple[str, Flow]]:
    """The graph of each function that nvdisasm drew, with its symbol."""
    for part in text.split('\nsubgraph "cluster_')[1:]:
        nodes = dict(re.findall(r'^"([^"]+)"\n\[label="\{(.*)\}"\]$', part, re.MULTILINE))
        codes = {
            name: [int(at, 16) for at in re.findall(r"(?:<\w+>|\\l)([0-9a-f]{4,}):\\ ", label)]
            for name, label in nodes.items()
        }
        found = Flow({code[0]: code for code in codes.values()})
        for a, b in re.findall(r'^"([^"]+)":\w+:\w -> "([^"]+)":\w+:\w', part, re.MULTILINE):
            found.edges.add((codes[a][0], codes[b][0]))
        yield part[: part.index('"')], found


def flow_of(graph: Graph) -> Flow:
    blocks = {first: [at.address for at in block.instructions] for first, block in graph.blocks.items()}
    return Flow(blocks, {(first, to) for first, block in graph.blocks.items() for to in block.successors})


def of_kernel(whole: Listing, functions: dict[str, Flow]) -> tuple[Flow, set[int]]:
    """What is drawn of a kernel and the subroutines behind it, as one; and where they begin."""
    found, starts = Flow(), set()
    for symbol, flow in functions.items():
        if symbol in whole.labels and (symbol == whole.symbol or whole.labels[symbol] > 0):
            starts.add(whole.labels[symbol])
            found.blocks |= {first: list(code) for first, code in flow.blocks.items()}
            found.edges |= flow.edges
    return found, starts


# ---- edges that one of the two has alone, each with its reason -------------------------------------------------------

Fits = Callable[[Listing, Instruction, int], bool]


def own_function(whole: Listing, last: Instruction, to: int) -> bool:
    """A function that calls itself: the call comes back, so that its edge is no path of the caller.

    A CALL to a label is another thing: a far branch, with an edge in both graphs.
    """
    return last.base == "CALL" and "`(.L" not in last.operands and whole.target(last) == to


def collective(whole: Listing, last: Instruction, to: int) -> bool:
    """WARPSYNC.COLLECTIVE names where the lanes go on that it does not wait for; nvdisasm goes straight on alone."""
    return last.opcode == "WARPSYNC.COLLECTIVE" and whole.target(last) == to


EDGES: dict[str, tuple[Fits, ...]] = {"nvdisasm": (own_function,), "ours": (collective,)}


def reached(flow: Flow, starts: set[int]) -> set[int]:
    found, work = set(starts), list(starts)
    while work:
        new = flow.after(work.pop()) - found
        found |= new
        work += new
    return found


def differences(whole: Listing, functions: dict[str, Flow]) -> list[str]:
    """Where the two graphs of a kernel differ without a reason."""
    ours, (theirs, starts) = flow_of(Graph(whole)), of_kernel(whole, functions)
    at = {each.address: each for each in whole.instructions}
    for name, flow, other in (("nvdisasm", theirs, ours), ("ours", ours, theirs)):
        for a, b in sorted(flow.edges - other.edges):
            if any(fits(whole, at[flow.blocks[a][-1]], b) for fits in EDGES[name]):
                flow.edges.discard((a, b))
    alive = reached(ours, starts)
    for block in sorted(set(ours.blocks) - alive - set(theirs.blocks)):
        ours.leave_out(block)  # code that nothing leads to: nvdisasm draws none
    for block in sorted(set(theirs.blocks) - set(ours.blocks)):
        theirs.rejoin(block)
    found = [f"{a:04x} to {b:04x}" for a, b in sorted(ours.edges ^ theirs.edges)]
    for block in sorted(set(ours.blocks) | set(theirs.blocks)):
        lengths = [len(flow.blocks.get(block, ())) for flow in (ours, theirs)]
        if lengths[0] != lengths[1]:
            found.append(f"block {block:04x}: {lengths[0]} instructions, nvdisasm has {lengths[1]}")
    return found


def check(path: Path) -> set[str]:
    """Compares all kernels of a cubin; the opcodes that they hold."""
    read = Cubin.read(path)
    functions = dict(drawn(disassembly(path, "-bbcfg", "-poff")))
    seen = set()
    for _, kernel, whole in disassemble_all([(read, path, read.entries)]):
        assert isinstance(whole, Listing), whole.reason
        assert differences(whole, functions) == [], kernel.symbol
        seen |= {each.opcode for each in whole.body}
    return seen


# What each architecture's code of flow.cu has to hold, so that the edges of these are compared.
BEFORE_SM_90 = ("BRA.CONV", "BRA.DIV", "BREAK", "BSYNC", "BMOV.32", "CALL.REL.NOINC", "RET.REL.NODEC", "WARPSYNC")
SINCE_SM_90 = (*BEFORE_SM_90[1:], "WARPSYNC.COLLECTIVE")
HELD = {
    **dict.fromkeys(("sm_75", "sm_80", "sm_89"), BEFORE_SM_90),
    **dict.fromkeys(("sm_90", "sm_90a"), SINCE_SM_90),
    "sm_120": ("BRA.U", "BREAK.RELIABLE", "BSYNC.RECONVERGENT", *SINCE_SM_90[3:]),
}


@pytest.mark.long
@pytest.mark.parametrize("arch", HELD)
def test_graphs_of_code_with_calls_and_branches_of_all_kinds(arch: str) -> None:
    seen = check(cubin("flow.cu", arch))
    assert set(HELD[arch]) <= seen


@pytest.mark.long
@pytest.mark.parametrize("arch", HELD)
def test_graphs_of_switches(arch: str) -> None:
    assert {"BRX", "BRXU"} & check(cubin("jumps.cu", arch))


@pytest.mark.long
@pytest.mark.parametrize("version", sorted(newest_of_each_kind()))
def test_graphs_of_the_ladder(version: str) -> None:
    paths = sorted((root() / "build" / version).glob("sm_*.cubin")) or [built(version, "sm_80")]
    for path in paths:
        assert check(path)


def public() -> list[Path]:
    folder = os.environ.get("FLASHLADDER_CUBINS")
    return sorted(each for each in Path(folder).rglob("*") if each.is_file()) if folder else []


@pytest.mark.long
@pytest.mark.parametrize("path", public(), ids=lambda path: path.name)
def test_graphs_of_public_binaries(path: Path, tmp_path: Path) -> None:
    for image in read_images(path):
        if image.kind == "cubin" and image.cubin(str(path)).entries:
            check(image.as_file(tmp_path))
