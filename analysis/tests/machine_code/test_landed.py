"""The newest version of each kind as built: the bytes of its cubins, its listings and its PTX are read without a gap.

A listing is taken apart once for all tests of its cubin; the gate on the figures is in test_gate.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.headers import load
from analysis.machine_code.control import inconsistencies
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.ptx import embedded_ptx, parse_ptx
from analysis.machine_code.regions import PRODUCER, REGIONS, Graph, split
from analysis.machine_code.sass import Listing, disassemble
from analysis.tests.support.compiled import built, landed
from analysis.tests.support.kinds import newest_of_each_kind, one_of_each_kind

PLAIN = "v00"  # multiplies in fp32, without matrix instructions


@dataclass(frozen=True)
class Code:
    path: Path
    listing: Listing


NEWEST = [each for each in landed() if each[0] in newest_of_each_kind()]


@pytest.fixture(scope="module", params=NEWEST, ids="-".join)
def code(request: pytest.FixtureRequest) -> Iterator[Code]:
    """The kernel of a version's own config, as the gate has it printed."""
    version, arch = request.param
    path = built(version, arch)
    yield Code(path, disassemble(path, load(root(), version).header.config))


def test_control_codes(code: Code) -> None:
    assert inconsistencies(Graph(code.listing)) == []


def test_the_kv_loop(code: Code) -> None:
    listing = code.listing
    parts = split(listing)
    config = listing.config
    assert config is not None
    times = config.B_r // 16 // config.n_warps
    if listing.arch == "sm_90a":  # m64nNk16, N = B_c and N = d_head
        assert parts.matrix_count == times * (config.d_head // 16 + config.B_c // 16)
        assert {at.base for at in parts.regions.get(PRODUCER, ())} & {"HGMMA"} == set()
        assert (PRODUCER in parts.regions) == config.producer
    elif code.path.parent.name == PLAIN:
        assert parts.matrix_count == 0
        assert sum(at.base == "FFMA" for at in parts.loop) >= config.B_r * config.d_head * 2 // config.threads()
    else:  # m16n8k16
        assert parts.matrix_count == 2 * times * (config.B_c // 8) * (config.d_head // 16)
    assert parts.regions["epilogue"][-1].base == "EXIT"
    assert [name for name in REGIONS if name in parts.regions] == list(parts.regions)


@pytest.mark.parametrize("version", one_of_each_kind(dict.fromkeys(version for version, _ in landed())))
def test_every_statement_is_understood(version: str) -> None:
    """The cubins of both architectures are made from one text."""
    texts = [embedded_ptx(Cubin.read(built(version, arch))) for name, arch in landed() if name == version]
    assert texts == texts[:1] * len(texts)
    statements = [at for each in parse_ptx(texts[0]).functions for at in each.statements]
    matrix = [at for at in statements if at.opcode.startswith("mma.sync")]
    warp_group = [at for at in statements if at.opcode.startswith("wgmma.mma_async")]
    assert bool(matrix or warp_group) != (version == PLAIN)
    assert all((len(at.defines), len(at.uses)) in ((4, 10), (4, 6)) for at in matrix)
    for at in warp_group:  # m64nNk16: a thread has N / 2 sums
        (columns,) = re.findall(r"\.m64n(\d+)k16\.", at.opcode)
        assert len(at.defines) == int(columns) // 2 < len(at.uses)
    assert all(not at.defines for at in statements if at.opcode.startswith(("st.", "cp.async", "bar")))
    targets = {label for at in statements for label in at.label}
    assert {at.target for at in statements if at.target} <= targets
