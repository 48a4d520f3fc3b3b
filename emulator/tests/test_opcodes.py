"""Every opcode form against the vectors of opcodes_*.py: random and edge values, widths and rounding modes."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.candidates import lines_refused_by_ptxas
from support.emulation import Array, Batch, Case, entry, ptxrun
from support.forms import missing, read_forms
from test_setmaxnreg import HANDED_OVER
from test_tcgen05 import SCATTER, copy_program
from test_tensor_copies import VARIANTS, pixels_program
from test_wmma import every_form as wmma_forms
from vectors import tensor_fields, wgmma_integers
from vectors.opcodes import CASES, FIRST
from vectors.opcodes_atomic import cell_cases, hint_cases
from vectors.opcodes_blackwell import blackwell_cases, geforce_cases
from vectors.opcodes_cluster import BOX_FOR_BOTH, cluster_cases
from vectors.opcodes_convert import compare_cases, convert_cases, table_cases
from vectors.opcodes_float import float_cases
from vectors.opcodes_hopper import hopper_cases
from vectors.opcodes_integer import integer_cases, logic_cases
from vectors.opcodes_matrix import mma_cases
from vectors.opcodes_memory import atomic_cases, data_cases
from vectors.opcodes_narrow import narrow_cases
from vectors.opcodes_set import set_cases
from vectors.opcodes_warp import copy_cases, flow_cases, matrix_cases, shuffle_cases, vote_cases
from vectors.tensor_boxes import PROGRAMS
from vectors.wgmma_shapes import products, program

GROUPS = (
    integer_cases, logic_cases, compare_cases, convert_cases, float_cases, set_cases, narrow_cases, data_cases,
    atomic_cases, cell_cases, hint_cases, shuffle_cases, vote_cases, matrix_cases, mma_cases, table_cases, copy_cases,
    flow_cases, hopper_cases, cluster_cases, blackwell_cases, geforce_cases,
)  # fmt: skip
OTHER_TARGETS = {matrix_cases: "sm_100a", blackwell_cases: "sm_100a", geforce_cases: "sm_120a"}
# Cases of ld.global.nc read what their own kernel wrote, which is a race that test_findings.py looks for.
OPTIONS = {cluster_cases: ("--cluster", 2), data_cases: ("--checks", "off"), hint_cases: ("--checks", "off")}


@functools.cache
def build(make: Callable[[], None]) -> Batch:
    CASES.clear()
    if make is not table_cases:  # those are longer
        CASES.append(FIRST)
    make()
    return Batch(CASES, OTHER_TARGETS.get(make, "sm_90a"))


@pytest.mark.parametrize("make", GROUPS, ids=lambda make: make.__name__)
def test_opcodes(make: Callable[[], None], tmp_path: Path) -> None:
    wrong = {name: text for name, text in build(make).run(tmp_path, *OPTIONS.get(make, ())).items() if text}
    assert not wrong, f"{len(wrong)} of {len(build(make).cases)} cases\n" + "\n".join(
        f"{name}: {text}" for name, text in wrong.items()
    )


ARITHMETIC = (integer_cases, logic_cases, float_cases, set_cases, narrow_cases)


def of_some_lanes(case: Case) -> Case:
    """The case with a guard that is true in every third lane; the others keep what the destination held."""
    bits = 8 * case.output_type("d").itemsize
    register = "%kept" if case.output_type("d").kind == "f" else "%d"
    code = (
        f".reg .pred %some;\n.reg .b32 %third;\n.reg .b{bits} %kept;\nrem.u32 %third, %i, 3;\n"
        f"setp.eq.u32 %some, %third, 0;\nmov.b{bits} {register}, 21;\n"
    )
    if register == "%kept":
        code += f"mov.b{bits} %d, %kept;\n"

    def compare(got: Array, want: Array) -> Array:
        some = np.arange(len(got)) % 3 == 0
        result: Array = np.where(some, case.compare(got, want), got.view(f"u{bits // 8}") == 21)
        return result

    return dataclasses.replace(case, code=f"{code}@%some {case.code}", compare=compare)


@pytest.mark.parametrize("make", ARITHMETIC, ids=lambda make: make.__name__)
def test_arithmetic_of_some_lanes(make: Callable[[], None], tmp_path: Path) -> None:
    """Lanes that are off keep their registers: every eighth case of one instruction and one result."""
    single = [case for case in build(make).cases if "\n" not in case.code and list(case.outputs) == ["d"]]
    batch = Batch([FIRST, *(of_some_lanes(case) for case in single[make is narrow_cases :: 8] if case is not FIRST)])
    wrong = {name: text for name, text in batch.run(tmp_path).items() if text}
    assert len(batch.cases) > 1 and not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


# Forms that no vector uses, with the reason.
ELSEWHERE = {
    "call": "printf and assert: test_findings.py",
    "tcgen05": "test_tcgen05.py",
    "clusterlaunchcontrol": "test_tcgen05.py",
    "mma sync aligned kind::f8f6f4": "test_narrow.py",
    "mma sync aligned kind::mxf8f6f4": "test_narrow.py",
    "mma sync aligned kind::mxf4|kind::mxf4nvf4": "test_narrow.py",
    "trap": "test_findings.py",
    "brkpt": "does nothing",
    "exit": "test_findings.py",
    "ret": "uni changes nothing",
    "ldu": "as ld",
    "suld": "test_textures.py",
    "sust": "test_textures.py",
    "tex": "test_textures.py",
    "wmma": "test_wmma.py",
    "prefetch param|const? tensormap": "does nothing",
    "cp async bulk prefetch": "does nothing",
    "brx": "test_functions.py",
    "ld": "L2 eviction needs sm_100, release is no order of a load",
    "st": "hints of other architectures; param: calls",
    "cvt ftz? f64 f32|f64": "f64 to f64",
    "mov v2|v4 b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64": "test_declarations.py",
}


def texts() -> list[str]:
    """Programs with every form, but those that have a test of their own."""
    return [
        *wmma_forms(),
        *(build(make).text()[0] for make in GROUPS),
        wgmma_integers.program(),
        program(products(0)),
        *(boxes.text() for boxes in PROGRAMS),
        HANDED_OVER.replace("TUNING", ".maxnreg 128").replace("TAKEN", "216").replace("GIVEN", "40"),
        BOX_FOR_BOTH,
        tensor_fields.MADE,
        tensor_fields.every_form(),
        copy_program("gathered rows", False),
        copy_program("bytes", True),
        SCATTER,
        *(pixels_program([0] * inner, [0] * inner) for inner in (1, 2, 3)),
        *(pixels_program([0, 0], [0, 0], variant) for variant in VARIANTS),
    ]


def test_every_form_has_a_vector() -> None:
    """Each row of the table, and each alternative of its modifiers, is used by a case above."""
    text = "".join(texts())
    unused = [
        line
        for line in missing(read_forms(), text)
        if not line.startswith(tuple(f"{name} " for name in ELSEWHERE)) and line.split(":")[0] not in ELSEWHERE
    ]
    assert not unused, "\n".join(unused)


def test_vectors_are_legal_ptx(tmp_path: Path) -> None:
    """ptxas of the pinned toolkit accepts every vector: nothing is tested that PTX does not have."""
    for text in texts():
        (tmp_path / "vectors.ptx").write_text(text)
        assert not lines_refused_by_ptxas(tmp_path / "vectors.ptx")


ROUNDED = """.reg .f32 %f<4>;
.reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .pred %p;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f437C0000; setp.ge.u32 %p, %r1, 2;
@%p bra LEFT_OUT;
fma.rm.f32 %f1, %f1, %f2, %f2;
LEFT_OUT:
st.global.f32 [%rd1], %f1;"""


def test_a_rounded_instruction_leaves_other_lanes_alone(tmp_path: Path) -> None:
    (tmp_path / "rounded.ptx").write_text(entry(ROUNDED, ".param .u64 out"))
    done = ptxrun(tmp_path / "rounded.ptx", "--block", 4, "--arg", "out:f32:4", "--print", 0)
    assert done.returncode == 0 and done.stdout.splitlines()[1].split() == ["0:", "252", "504", "2", "3"]
