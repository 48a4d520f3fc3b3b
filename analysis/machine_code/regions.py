"""Control flow of a kernel: basic blocks, the loop nest, and the parts that versions are compared by.

    parts = split(listing)
    print(parts.kv.first, len(parts.regions["loop"]))

A kernel may hold several KV loops, copies of one for different problems: the innermost loops with matrix instructions.
loops.py knows which one runs; split() chooses the one with the most matrix instructions. If warps have roles, these are
the consumers' loops (of tcgen05.mma: "mma"); the producers' loops start copies, and "reader" loops read tensor memory.
Code before the KV loop is prologue, and peeled block from the barrier before the first matrix instruction on; code
after it is remainder block up to the last matrix instruction, then epilogue. Blocks that the compiler moved after the
code they belong to are "out of line". Code that only leads to or follows another KV loop is "other copies", and code
that belongs to a producer's loop in that way is "producer".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from analysis.errors import AnalysisError
from analysis.machine_code.cubin import WORD_BYTES
from analysis.machine_code.opcodes import COPY_ENGINE, MATRIX, TENSOR_MEMORY, WARP_GROUP, main_matrix
from analysis.machine_code.sass import INDIRECT, Instruction, Listing

# Roles of loops and warps: wgmma is executed by consumers, tcgen05.mma is started by one thread, whose role is MMA.
PRODUCER, CONSUMER, MMA, READER = "producer", "consumer", "mma", "reader"
OTHER_COPIES = "other copies"
WHOLE = "whole"  # the only region of a kernel without a loop
REGIONS = ("prologue", "peeled block", "loop", "remainder block", "epilogue", "out of line", PRODUCER, OTHER_COPIES)
_SYNCHRONISING = frozenset({"BAR", "DEPBAR", "SYNCS", "LDGDEPBAR", "ARRIVES", "WARPSYNC"})
_BRANCHES = INDIRECT | {"BRA", "JMP", "CALL", "WARPSYNC"}
_LEAVING = INDIRECT | {"BRA", "JMP", "EXIT", "RET", "KILL", "CALL"}
_ENDING = _BRANCHES | _LEAVING | {"BSSY", "BSYNC"}  # what may end a block or start another
_BARRIER_MOVE = re.compile(r"(B\d+|R\d+), (B\d+|R\d+)$")
RETURN_ADDRESS_WITHIN = 16  # instructions before a call
_POLLED = frozenset({"LDS", "LDG", "LD", "ATOM", "ATOMS", "ATOMG", "SYNCS"})
_PRODUCTS = frozenset({"FFMA", "HFMA2", "DFMA"})
_ACTING = _PRODUCTS | frozenset(
    {"ST", "STS", "STG", "STL", "LDGSTS", "ARRIVES", "RED", "REDS", "REDG", *COPY_ENGINE, "UTMASTG"}
)


@dataclass
class Block:
    """Instructions that run one after another."""

    first: int  # address
    instructions: list[Instruction]
    successors: list[int] = field(default_factory=list)  # addresses of blocks

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]


@dataclass(frozen=True)
class Loop:
    """A natural loop: every path into it goes through the block at `header`."""

    header: int
    blocks: frozenset[int]
    latches: tuple[int, ...]  # addresses of the blocks that branch back
    children: tuple["Loop", ...] = ()

    def own_blocks(self) -> frozenset[int]:
        inner: frozenset[int] = frozenset().union(*(child.blocks for child in self.children))
        return self.blocks - inner


@dataclass(frozen=True)
class Parts:
    """A kernel split into regions. The instructions of a region are in address order."""

    graph: "Graph"
    kv: Loop
    regions: dict[str, tuple[Instruction, ...]]  # those of REGIONS that exist, in that order
    every_pass: tuple[Instruction, ...]  # of the KV loop: what no pass with its matrix instructions leaves out
    shares: Mapping[int, float] | None = None  # of the passes, by address, where less than 1; None: not known

    @property
    def listing(self) -> Listing:
        return self.graph.listing

    @property
    def nest(self) -> tuple[Loop, ...]:
        """The outermost loops with their children."""
        return self.graph.nest

    @property
    def loop(self) -> tuple[Instruction, ...]:
        """The KV loop without what the compiler moved out of line; nothing of a kernel without a loop."""
        return self.regions.get("loop", ())

    @cached_property
    def matrix_count(self) -> int:
        return matrix_count(self.loop, self.graph.matrix)

    @cached_property
    def matrix_work(self) -> float | None:
        """The work of the loop's matrix instructions for a warp, in m16n8k16; None if one is unknown."""
        work = [matrix_work(at) for at in self.loop if at.base in self.graph.matrix]
        return None if None in work else sum(each for each in work if each is not None)


class Graph:
    """The control-flow graph of one kernel with its subroutines."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.code = list(listing.code)
        if not self.code:
            raise AnalysisError(f"{listing.label}: the kernel is empty")
        self._bases: dict[int, frozenset[str]] = {}  # by the header of a loop
        self.blocks = self._blocks()
        self._link()

    @cached_property
    def matrix(self) -> frozenset[str]:
        """The opcodes that this kernel's matrix instructions are counted by."""
        return main_matrix(at.base for at in self.code)

    @property
    def has_roles(self) -> bool:
        """True if the matrix instructions run on their own, so that some warps start them and others copy or read."""
        return self.matrix in (WARP_GROUP, TENSOR_MEMORY)

    @property
    def multiplier(self) -> str:
        """The role of the warps that multiply, in a kernel whose warps have roles."""
        return MMA if self.matrix is TENSOR_MEMORY else CONSUMER

    # The target of a branch. BSYNC continues where the BSSY of its barrier register said; see _link.

    def _targets(self, at: Instruction) -> list[int]:
        if at.base not in _BRANCHES:
            return []
        target = self.listing.target(at)
        if at.base in ("BRA", "JMP", "CALL") and target is None and not self._is_call(at):
            raise AnalysisError(f"{self.listing.label}: the target of {at.text!r} at {at.address:04x} is unknown")
        if at.base in ("BRA", "JMP") or (at.base in ("CALL", "WARPSYNC") and target is not None):
            return [] if target is None or self._is_call(at) else [target]
        if at.base in INDIRECT:
            return list(self.listing.targets(at))
        return []

    def _is_call(self, at: Instruction) -> bool:
        """A call that comes back, in contrast to the CALL.REL.NOINC to a label that serves as a far branch."""
        named = re.search(r"`\(([^)]+)\)", at.operands)
        return at.base == "CALL" and (named is None or not named[1].startswith(".L") or self._comes_back(at))

    def _comes_back(self, call: Instruction) -> bool:
        """True if the instructions before a call load the address after it, to which a RET then returns."""
        return_address = call.address + WORD_BYTES
        location = self.listing.index[call.address]
        for at in self.listing.instructions[max(0, location - RETURN_ADDRESS_WITHIN) : location]:
            loaded = re.search(r", (0x[0-9a-f]+)$|32@lo\(\(.* \+ (\.L\w+)@srel\)\)$", at.operands)
            if (
                loaded
                and "MOV" in at.opcode
                and return_address == (int(loaded[1], 16) if loaded[1] else self.listing.labels.get(loaded[2]))
            ):
                return True
        return False

    def _falls_through(self, at: Instruction) -> bool:
        """BRA.DIV leaves where the warp is divergent, BRA.CONV where it is convergent."""
        if at.base not in _LEAVING:
            return True
        by_warp = not {"DIV", "CONV"}.isdisjoint(at.opcode.split("."))
        conditional = by_warp or re.match(r"!?U?P[0-9]", at.operands) is not None
        return bool(at.predicate) or conditional or self._is_call(at)

    def _blocks(self) -> dict[int, Block]:
        starts = {self.code[0].address}
        inside = {at.address for at in self.code}
        for position, at in enumerate(self.code):
            if at.base not in _ENDING:
                continue
            targets = self._targets(at)
            ends = bool(targets) or not self._falls_through(at) or at.base in ("BSYNC", "EXIT", "RET")
            if at.base == "BSSY":
                target = self.listing.target(at)
                targets = [] if target is None else [target]
            starts.update(target for target in targets if target in inside)
            if ends and position + 1 < len(self.code):
                starts.add(self.code[position + 1].address)
        blocks: dict[int, Block] = {}
        cuts = [position for position, at in enumerate(self.code) if at.address in starts]
        for start, end in pairwise([*cuts, len(self.code)]):
            block = self.code[start:end]
            blocks[block[0].address] = Block(block[0].address, block)
        return blocks

    def _link(self) -> None:
        """Fill in successors. The targets of BSYNC come from the BSSY that reach it, found by iteration."""
        order = sorted(self.blocks)
        next_block = dict(pairwise(order))
        state: dict[int, dict[str, frozenset[int]]] = {first: {} for first in order}
        work = list(order)
        while work:
            first = work.pop(0)
            block = self.blocks[first]
            barriers = dict(state[first])
            for at in block.instructions:
                register = re.match(r"B\d+", at.operands) if at.base == "BSSY" else None
                if register:
                    target = self.listing.target(at)
                    barriers[register[0]] = frozenset() if target is None else frozenset({target})
                moved = _BARRIER_MOVE.match(at.operands) if at.base == "BMOV" else None
                if moved and moved[2] in barriers:  # saved in a register, and taken back from it
                    barriers[moved[1]] = barriers[moved[2]]
            successors = [target for target in self._targets(block.last) if target in self.blocks]
            register = re.match(r"B\d+", block.last.operands)
            reconverges = sorted(barriers.get(register[0], ())) if block.last.base == "BSYNC" and register else []
            successors += [target for target in reconverges if target in self.blocks]
            # After a BSYNC a warp is at the target of its BSSY; without a known one it continues.
            moves = block.last.base == "BSYNC" and reconverges and not block.last.predicate
            if self._falls_through(block.last) and not moves and first in next_block:
                successors.append(next_block[first])
            block.successors = sorted(set(successors))
            for successor in block.successors:
                merged = dict(state[successor])
                for name, targets in barriers.items():
                    merged[name] = merged.get(name, frozenset()) | targets
                if merged != state[successor]:
                    state[successor] = merged
                    if successor not in work:
                        work.append(successor)

    @cached_property
    def predecessors(self) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {first: [] for first in self.blocks}
        for first, block in self.blocks.items():
            for successor in block.successors:
                before[successor].append(first)
        return before

    @cached_property
    def order(self) -> list[int]:
        """Blocks that the entry reaches, in reverse postorder."""
        entry = self.code[0].address
        seen, finished = {entry}, []
        stack = [(entry, iter(self.blocks[entry].successors))]
        while stack:
            first, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                stack.pop()
                finished.append(first)
            else:
                seen.add(following)
                stack.append((following, iter(self.blocks[following].successors)))
        return finished[::-1]

    @cached_property
    def dominators(self) -> dict[int, int]:
        """Immediate dominator of each reached block (Cooper, Harvey and Kennedy's iteration); the entry's is itself."""
        position = {first: at for at, first in enumerate(self.order)}
        entry = self.order[0]
        found = {entry: entry}
        changed = True
        while changed:
            changed = False
            for first in self.order[1:]:
                known = [before for before in self.predecessors[first] if before in found]
                new = known[0]
                for other in known[1:]:
                    while other != new:
                        while position[other] > position[new]:
                            other = found[other]
                        while position[new] > position[other]:
                            new = found[new]
                if found.get(first) != new:
                    found[first] = new
                    changed = True
        return found

    def dominates(self, above: int, below: int) -> bool:
        while below != above:
            up = self.dominators[below]
            if up == below:
                return False
            below = up
        return True

    @cached_property
    def nest(self) -> tuple[Loop, ...]:
        """The outermost loops in address order; each holds its children."""
        latches: dict[int, list[int]] = {}
        for first in self.order:
            for successor in self.blocks[first].successors:
                if self.dominates(successor, first):
                    latches.setdefault(successor, []).append(first)
        bodies = {header: self._body(header, ends) for header, ends in latches.items()}

        def build(headers: Iterable[int]) -> tuple[Loop, ...]:
            remaining = sorted(headers, key=lambda header: (-len(bodies[header]), header))
            loops = []
            while remaining:
                outer = remaining.pop(0)
                inner = [header for header in remaining if header in bodies[outer]]
                remaining = [header for header in remaining if header not in bodies[outer]]
                loops.append(Loop(outer, bodies[outer], tuple(sorted(latches[outer])), build(inner)))
            return tuple(sorted(loops, key=lambda loop: loop.header))

        return build(bodies)

    def _body(self, header: int, latches: list[int]) -> frozenset[int]:
        body, work = {header}, list(latches)
        while work:
            first = work.pop()
            if first not in body:
                body.add(first)
                work += self.predecessors[first]
        return frozenset(body)

    def loops(self) -> list[Loop]:
        """All loops, an outer one before its children."""
        found: list[Loop] = []
        work = list(self.nest)
        while work:
            loop = work.pop(0)
            found.append(loop)
            work = [*loop.children, *work]
        return found

    def instructions(self, blocks: Iterable[int]) -> list[Instruction]:
        """The instructions of blocks in address order, without NOPs."""
        return [at for first in sorted(blocks) for at in self.blocks[first].instructions if at.base != "NOP"]

    def bases(self, loop: Loop) -> frozenset[str]:
        """The opcodes in a loop, without modifiers."""
        if loop.header not in self._bases:
            self._bases[loop.header] = frozenset(at.base for at in self.instructions(loop.blocks))
        return self._bases[loop.header]


def matrix_count(instructions: Iterable[Instruction], opcodes: frozenset[str] = MATRIX) -> int:
    return sum(at.base in opcodes for at in instructions)


_HMMA_WORK = {"16816": 1.0, "1688": 0.5, "1684": 0.25}


def matrix_work(at: Instruction) -> float | None:
    """The work of a matrix instruction for one warp, in m16n8k16; a warp has 16 of wgmma's 64 rows."""
    group = re.match(r"HGMMA\.64x(\d+)x(\d+)\.", at.opcode)
    if group:
        return int(group[1]) / 8 * int(group[2]) / 16
    return _HMMA_WORK.get(at.opcode.split(".")[1]) if at.base == "HMMA" else None


def in_line(graph: Graph, loop: Loop) -> list[int]:
    """The contiguous blocks of a loop around its header; the others were moved out of line."""
    order = sorted(graph.blocks)
    position = {first: at for at, first in enumerate(order)}
    found = [loop.header]
    for step in (1, -1):
        at = position[loop.header] + step
        while 0 <= at < len(order) and order[at] in loop.blocks:
            found.append(order[at])
            at += step
    return sorted(found)


def kv_loops(graph: Graph) -> list[Loop]:
    """The innermost loops with matrix instructions, in address order.

    A spin on a barrier inside one holds no matrix instructions, so it does not hide the loop around it. Nor does a loop
    of mma.sync hide that of wgmma around it, which it serves as a slow path.
    """
    return _innermost(graph, lambda loop: not graph.bases(loop).isdisjoint(graph.matrix))


def producer_loops(graph: Graph) -> list[Loop]:
    """The innermost loops that start copies by the copy engine and multiply nothing, in address order.

    If ptxas does not know that only one thread starts a copy, the copy is in a loop over the lanes, which is none of
    these.
    """

    def copies(loop: Loop) -> bool:
        bases = graph.bases(loop)
        return not bases.isdisjoint(COPY_ENGINE) and bases.isdisjoint(MATRIX) and not _over_lanes(graph, loop)

    return _innermost(graph, copies) if graph.has_roles else []


def reader_loops(graph: Graph) -> list[Loop]:
    """The innermost loops that load tensor memory into registers but neither multiply nor copy, in address order."""

    def reads(loop: Loop) -> bool:
        bases = graph.bases(loop)
        return "LDTM" in bases and bases.isdisjoint(MATRIX | COPY_ENGINE)

    return _innermost(graph, reads) if graph.matrix is TENSOR_MEMORY else []


def _innermost(graph: Graph, fits: Callable[[Loop], bool]) -> list[Loop]:
    inner = [loop for loop in graph.loops() if fits(loop) and not any(fits(each) for each in _below(loop))]
    return sorted(inner, key=lambda loop: loop.header)


def _below(loop: Loop) -> Iterator[Loop]:
    for child in loop.children:
        yield child
        yield from _below(child)


def _over_lanes(graph: Graph, loop: Loop) -> bool:
    return all(graph.blocks[latch].last.opcode == "BRA.U.ANY" for latch in loop.latches)


def find_kv_loop(graph: Graph) -> Loop:
    """The KV loop with the most matrix instructions, the first of several; without any, busiest_loop().

    The code does not show which loop runs; loops.py knows it for the versions.
    """
    inner = kv_loops(graph)
    if inner:
        return max(inner, key=lambda loop: matrix_count(graph.instructions(loop.blocks), graph.matrix))
    return busiest_loop(graph)


PASSES = 8  # of a loop for one of the loop around it: what is guessed where nothing is known


def busiest_loop(graph: Graph) -> Loop:
    """The loop whose own instructions run most often, if each loop goes round PASSES times; the first of several.

    A loop that waits for others does no work, however often it goes round.
    """
    weights: dict[int, int] = {}

    def weigh(loops: Iterable[Loop], passes: int) -> None:
        for loop in loops:
            waits = what_it_is(graph, loop) in (WAITS, FOR_REGISTERS)
            weights[loop.header] = 0 if waits else passes * len(graph.instructions(loop.own_blocks()))
            weigh(loop.children, passes * PASSES)

    weigh(graph.nest, PASSES)
    if not weights:
        raise AnalysisError(f"{graph.listing.label}: the kernel has no loop")
    return max(graph.loops(), key=lambda loop: weights[loop.header])


WAITS, FOR_REGISTERS = "waits", "waits for registers"
OTHER_LANES, REPEATS = "repeats for other lanes", "repeats"


def what_it_is(graph: Graph, loop: Loop) -> str:
    """The role of a loop without matrix instructions."""
    code = [at for at in graph.instructions(loop.blocks) if not at.never]
    bases = {at.base for at in code}
    if "USETMAXREG" in bases:
        return FOR_REGISTERS
    if bases & _POLLED and not bases & _ACTING and not any(at.opcode.startswith("SYNCS.ARRIVE") for at in code):
        return WAITS
    return OTHER_LANES if _over_lanes(graph, loop) or "R2UR" in bases else REPEATS


def every_pass(graph: Graph, loop: Loop, near: Iterable[int]) -> list[int]:
    """The blocks of a loop that every path with its matrix instructions executes."""
    heart = max(near, key=lambda first: matrix_count(graph.blocks[first].instructions, graph.matrix))

    def leads_back(avoided: int) -> bool:
        work, seen = [heart], {avoided}
        while work:
            for successor in graph.blocks[work.pop()].successors:
                if successor == loop.header and successor not in seen:
                    return True
                if successor in loop.blocks and successor not in seen:
                    seen.add(successor)
                    work.append(successor)
        return False

    return [block for block in near if graph.dominates(block, heart) or not leads_back(block)]


def reached(start: int, edges: Callable[[int], Iterable[int]]) -> set[int]:
    """The blocks that one leads to along edges, itself included."""
    found, work = {start}, [start]
    while work:
        new = [block for block in edges(work.pop()) if block not in found]
        found.update(new)
        work += new
    return found


def of_others(graph: Graph, kv: Loop) -> dict[str, set[int]]:
    """The blocks before or after another copy's or a producer's loop that are neither before nor after this one."""

    def around(loops: Iterable[Loop]) -> set[int]:
        found: set[int] = set()
        for loop in loops:
            found |= reached(loop.header, lambda block: graph.blocks[block].successors)
            found |= reached(loop.header, lambda block: graph.predecessors[block])
        return found

    mine = around([kv])
    copies = around(loop for loop in kv_loops(graph) if loop.header != kv.header) - mine
    producers = around(loop for loop in producer_loops(graph) if loop.header != kv.header) - mine
    return {OTHER_COPIES: copies, PRODUCER: producers - copies}


def split(listing: Listing) -> Parts:
    """The regions of a kernel around find_kv_loop(); AnalysisError when it has no loop."""
    graph = Graph(listing)
    return split_at(graph, find_kv_loop(graph))


def unsplit(graph: Graph) -> Parts:
    """A kernel as one region, for one without a loop."""
    return Parts(graph, Loop(graph.code[0].address, frozenset(), ()), {WHOLE: graph.listing.body}, ())


def split_at(graph: Graph, kv: Loop, shares: Mapping[int, float] | None = None) -> Parts:
    """The regions of a kernel around one of its loops."""
    near = in_line(graph, kv)
    loop = graph.instructions(near)
    first, last = loop[0].address, loop[-1].address
    others = {name: graph.instructions(blocks) for name, blocks in of_others(graph, kv).items()}
    elsewhere = {at.address for code in others.values() for at in code}
    body = [at for at in graph.listing.body if at.address not in elsewhere]
    before = [at for at in body if at.address < first]
    main_end = next((at.address for at in body if at.address > last and _ends(at)), body[-1].address)
    after = [at for at in body if last < at.address <= main_end]
    cut = _start_of_peeled_block(before, graph.matrix)
    rest = max((at + 1 for at, each in enumerate(after) if each.base in graph.matrix), default=0)
    parts = dict(
        zip(
            REGIONS,
            (
                before[:cut],
                before[cut:],
                loop,
                after[:rest],
                after[rest:],
                [at for at in body if at.address > main_end],
                others[PRODUCER],
                others[OTHER_COPIES],
            ),
            strict=True,
        )
    )
    always = every_pass(graph, kv, near)
    regions = {name: tuple(part) for name, part in parts.items() if part}
    return Parts(graph, kv, regions, tuple(graph.instructions(always)), shares)


def _ends(at: Instruction) -> bool:
    return at.base == "EXIT" and not at.predicate


def _start_of_peeled_block(before: list[Instruction], opcodes: frozenset[str]) -> int:
    """Position of the barrier before the first matrix instruction, with the waits that lead to it."""
    matrix = next((position for position, at in enumerate(before) if at.base in opcodes), None)
    if matrix is None:
        return len(before)
    cut = matrix
    while cut > 0 and before[cut - 1].base not in _SYNCHRONISING:
        cut -= 1
    if cut == 0:
        return matrix
    while cut > 0 and before[cut - 1].base in _SYNCHRONISING:
        cut -= 1
    return cut


def to_dot(graph: Graph, kv: frozenset[int]) -> str:
    """The control-flow graph in the language of Graphviz; loop headers are drawn bold, the blocks `kv` are filled."""
    headers = {loop.header for loop in graph.loops()}
    lines = [
        "digraph kernel {",
        f"    label = {_quoted(graph.listing.label)};",
        '    node [shape=box, fontname="monospace"];',
    ]
    for first, block in sorted(graph.blocks.items()):
        matrix = matrix_count(block.instructions)
        title = f"{first:04x}: {len(block.instructions)} instructions" + (f", {matrix} matrix" if matrix else "")
        style = (["bold"] if first in headers else []) + (["filled"] if first in kv else [])
        extra = f', style="{",".join(style)}"' if style else ""
        lines.append(f"    b{first:x} [label={_quoted(title + chr(10) + block.last.text)}{extra}];")
        lines += [f"    b{first:x} -> b{successor:x};" for successor in block.successors]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
