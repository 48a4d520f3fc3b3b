"""The parts of the judge: element types, problems, comparison, work and what the data decides in a kernel."""

from pathlib import Path

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.judge import machine, work
from analysis.judge.arrays import E4M3, Tensor, from_floats, to_floats
from analysis.judge.compare import lint, wrong_values
from analysis.judge.dataflow import Flow, kernel_lines
from analysis.judge.machine import refuse_missing_tool
from analysis.judge.outcomes import marked, outcomes_of
from analysis.judge.problem import load_problem, shipped
from analysis.judge.record import last_words
from analysis.judge.schema import SCHEMA
from analysis.judge.timing import AGAIN, BASELINE, SUBMISSION, Work, arch_for, decide
from analysis.judge.verdict import REJECTIONS, RESERVATIONS, STATUS_OF_MECHANISM, Point, Verdict

RNG = np.random.default_rng(5)


def test_every_code_of_e4m3_and_bf16_is_its_own_rounding() -> None:
    for kind, codes in (("e4m3", np.arange(256)), ("bf16", np.arange(0, 1 << 16, 7))):
        values = to_floats(codes, kind)
        finite = np.isfinite(values)
        assert (from_floats(values[finite], kind) == codes[finite]).all()
        assert np.isnan(to_floats(from_floats(np.array([np.nan]), kind), kind)).all()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    numbers = RNG.standard_normal(4000) * 10.0 ** RNG.integers(-4, 3, 4000)
    numbers[:126] = (E4M3[:126] + E4M3[1:127]) / 2  # ties
    expected = np.clip(numbers, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (from_floats(numbers, "e4m3") == expected).all()


def test_gaps_of_strided_tensors_are_nan() -> None:
    tensor = Tensor("f32", (2, 3), (5, 1))
    flat = np.frombuffer(tensor.laid_out(np.ones((2, 3), np.float32)), np.float32)
    assert tensor.size == 4 * 8 and np.isnan(flat).tolist() == [False] * 3 + [True] * 2 + [False] * 3


@pytest.mark.parametrize("name", shipped())
def test_problems_accept_their_reference_and_no_answer_without_work(name: str) -> None:
    problem = load_problem(name)
    assert lint(problem, RNG) == []
    for case in problem.cases:
        for kind in problem.kinds:
            inputs = problem.generate(case, kind, RNG)
            tensors = problem.outputs(case)
            expected = problem.reference(inputs, case)
            outputs = {each: from_floats(expected[each], tensors[each].kind) for each in expected}
            assert wrong_values(problem, case, inputs, outputs)[0] == ""
            for one in outputs if kind == "normal" else ():
                assert wrong_values(problem, case, inputs, outputs | {one: np.zeros_like(outputs[one])})[0] != ""
        assert problem.bytes_moved(case) > 0 and problem.operations(case) > 0


def test_one_large_value_does_not_decide_the_precision() -> None:
    """Its rounding error alone was more than three quarters of its bound in some replays."""
    problem = load_problem("matmul")
    for seed in range(1000):
        inputs = problem.generate(problem.cases[1], "needle", np.random.default_rng(seed))
        correct = from_floats(problem.reference(inputs, problem.cases[1])["c"], "f16")
        assert wrong_values(problem, problem.cases[1], inputs, {"c": correct})[0] == "", seed


CONSTANT = """
import numpy as np
from analysis.judge.problems.softmax import *
KINDS = ("normal",)
def outputs(case): return {"y": Tensor("f32", (case["rows"],))}
def reference(inputs, case): return {"y": np.ones(case["rows"])}
def bound(inputs, case, expected): return {"y": 1e-4 * expected["y"]}
"""


def test_lint_finds_a_result_that_is_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(CONSTANT)
    found = lint(load_problem(str(tmp_path / "sums.py")), RNG)
    assert any("the result of other inputs would be accepted" in each for each in found)
    (tmp_path / "empty.py").write_text("CASES = ()")
    with pytest.raises(AnalysisError, match="lacks KINDS, TOLERANCE"):
        load_problem(str(tmp_path / "empty.py"))


@pytest.mark.parametrize(
    ("opcode", "operations"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4096),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", 65536),
        ("fma.rn.f32", 64),
        ("fma.rn.f16x2", 256),
        ("ex2.approx.ftz.f32", 32),
        ("ld.global.f32", 0),
        ("st.shared.f32", 0),
    ],
)
def test_operations_of_an_opcode(opcode: str, operations: float) -> None:
    assert work.operations_of(opcode) == operations


PTX = """.version 8.0
.visible .entry other(.param .u64 other_0) { ret; }
.visible .entry f(
    .param .u64 f_param_0
)
{
    ld.param.u64 %rd1, [f_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    setp.gt.u32 %p1, %r1, 99;
    @%p1 st.global.u32 [%rd2], %r1;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r3, %r2, 1;
    setp.eq.u32 %p2, %r3, 7;
    @%p2 st.global.u32 [%rd2+4], %r1;
    @%p2 bra $L;
    st.global.u32 [%rd2+8], %r1;
$L:
    st.global.u32 [%rd2+12], %r1;
    shr.u64 %rd3, %rd1, 40;
    and.b64 %rd4, %rd1, 15;
    setp.eq.s64 %p3, %rd1, 0;
    ret;
}
"""


@pytest.mark.parametrize(
    ("text", "decided"), [("@%p1 st", False), ("@%p2 st", True), ("[%rd2+8]", True), ("[%rd2+12]", False)]
)
def test_what_the_data_decides(text: str, decided: bool) -> None:
    lines = kernel_lines(PTX, "f")
    (line,) = [number for number, each in lines.items() if text in each]
    assert Flow(lines).depends_on_data(line) is decided
    assert PTX.splitlines()[line - 1] == lines[line]


def test_a_kernel_that_is_made_to_take_long_is_taken_to_depend_on_data() -> None:
    chain = [f"add.u32 %r{i}, %r{i + 1}, 1;" for i in range(2000)]
    lines = [*chain, "ld.global.u32 %r2000, [%rd1];", "setp.eq.u32 %p1, %r0, 7;", "@%p1 st.global.u32 [%rd1], %r0;"]
    assert Flow(dict(enumerate(lines))).depends_on_data(2002)


def test_an_address_may_be_compared_and_aligned_but_not_taken_apart() -> None:
    found = Flow(kernel_lines(PTX, "f")).tests_of_addresses()
    assert [each.partition(" ")[0] for each in found] == ["shr.u64"]


TESTS = """.version 8.0
.func (.param .b32 r) helper(.param .b32 a)
{
    setp.eq.s32 %p1, %r1, 7;
    ret;
}
.visible .entry f(
    .param .u64 f_param_0
)
{
    ld.global.f32 %f1, [%rd1];
    setp.eq.f32 %p1, %f1, 0f3DFCD6EA;
    @!%p9 setp.ge.and.f32 %p2, %f1, 0f00000000, %p1;
    setp.lt.u32 %p3, %r1, 4;
    ld.global.u32 %r2, [%rd1];
    setp.lt.s32 %p4, %r2, %r1;
    setp.lt.s32 %p4, %r2, 1;
    setp.lt.s32 %p4, %r2, 5;
    shr.u32 %r3, %r2, 31;
    shr.u32 %r3, %r2, 30;
    brev.b32 %r3, %r2; setp.eq.s32 %p4, %r2, 5;
    ret;
}
"""


def test_tests_of_data_leave_a_trace_on_their_own_line() -> None:
    text, tests = marked(TESTS)
    before, after = TESTS.splitlines(), text.splitlines()
    assert len(before) == len(after) and all(new.startswith(old) for old, new in zip(before, after, strict=True))
    assert sorted(tests) == [("", 4, 0), ("f", 12, 0), ("f", 13, 0), ("f", 13, 1), ("f", 18, 0), ("f", 19, 0)]
    assert "setp.eq.f32 %judge_t|%judge_f, %f1, 0f3DFCD6EA; @%judge_t brev.b32 %judge_n, 1;" in after[11]
    assert "setp.ge.and.f32 %judge_t|%judge_f, %f1, 0f00000000, !%p9; @%judge_t" in after[12]
    counters = {"executed": {"brev.b32@12": 3, "clz.b32@13": 1, "bfind.u32@12": 1, "add.s32@12": 5}}
    assert outcomes_of(counters) == {(12, 0, True), (12, 0, False), (13, 1, False)}


def test_the_first_reason_gives_the_status() -> None:
    verdict = Verdict("softmax", "", "x.py", "", "", 1)
    assert verdict.status == 0
    verdict.reserve(Point("state", "4 bytes"))
    assert verdict.status == 4
    verdict.reject(Point("values", "wrong"))
    assert verdict.status == 1 and "REJECTED" in verdict.as_text() and "4 bytes" in verdict.as_text()
    with pytest.raises(ValueError, match="not in the table"):
        verdict.reject(Point("magic", ""))
    assert set(STATUS_OF_MECHANISM) <= set(REJECTIONS) and not set(REJECTIONS) & set(RESERVATIONS)


def times_of_v37(**changed: float) -> dict[str, object]:
    """times.json of one process: v37 on an H200, batch 1, 4 heads, 2,048 rows."""
    sample = {
        "event_ns": 27328,
        "stamps_ns": 30464,
        "host_ns": 37850,
        "set": 0,
        "hash": "e88a6511a14151a9",
        "same": True,
    }
    state = {"sm_MHz": 1980, "memory_MHz": 3201, "milliwatts": 145301, "celsius": 31, "slowdowns": 0}
    device = {"device": "NVIDIA H200", "multiprocessors": 132, "bus_bits": 6016, "memory_kHz": 3201000, "held": True}
    return device | {"launches": 1, "samples": [sample | state | changed] * 3}


FASTER = {"event_ns": 1300, "stamps_ns": 4400, "host_ns": 12000}


@pytest.mark.parametrize(
    ("submission", "again", "mechanism"),
    [
        ({}, {}, ""),
        ({}, {"event_ns": 27900}, ""),
        ({}, {"event_ns": 28500}, "unsteady time"),
        ({"slowdowns": 4}, {}, "unsteady time"),
        ({"slowdowns": 1}, {}, ""),
        ({"event_ns": 9000}, {"event_ns": 9000}, "clocks"),
        ({"host_ns": 20000}, {}, "clocks"),
        (FASTER, FASTER, "impossible time"),
        (FASTER | {"event_ns": 1320}, FASTER | {"event_ns": 1320}, ""),
    ],
)
def test_what_times_decide(submission: dict[str, float], again: dict[str, float], mechanism: str) -> None:
    verdict = Verdict("attention_forward", "", "v37", "", "", 1)
    times = {SUBMISSION: [times_of_v37(**submission)] * 3, AGAIN: [times_of_v37(**again)] * 3}
    times[BASELINE] = [times_of_v37(event_ns=49232, stamps_ns=52736, host_ns=91746)] * 3
    # 1,307 ns at 4.8 TB/s, and 1,004 ns at the highest speed of sparse products
    work = Work("case", 3 * 2 * 4 * 2048 * 128, 4 * 4 * 2048 * 2048 * 128, "9.0")
    decide(times, work, dict.fromkeys(times, "5a55"), verdict)
    points = [point.mechanism for point in (*verdict.reasons, *verdict.reservations)]
    assert points == [mechanism] * bool(mechanism), verdict.as_text()
    assert "1980 MHz, 145 W, 31 C, SASS 5a55" in verdict.as_text() and "floor 1307" in verdict.as_text()
    if not (submission or again):
        assert "the baseline takes 1.802 times as long" in verdict.as_text()
        described = SCHEMA["properties"]["times"]["items"]["properties"]
        assert [set(row) for row in verdict.as_json()["times"]] == [set(described)] * 3


def test_machine_code_is_of_the_gpu_or_of_the_features_that_the_module_asks_for() -> None:
    assert [arch_for(f".version 8.0\n.target {each}\n", "9.0") for each in ("sm_80", "sm_90a")] == ["sm_90", "sm_90a"]


def test_a_compiler_that_this_machine_lacks_is_no_fault_of_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {tmp_path}\n")
    python.chmod(0o755)
    no_header = "main.c:3:10: fatal error: Python.h: No such file or directory"
    no_compiler = (
        "RuntimeError: Failed to find C compiler.",
        "nvcc fatal   : Failed to preprocess host compiler properties.",
    )
    monkeypatch.setattr(machine, "PATH", str(tmp_path))
    for said, remedy in ((no_header, "on Debian python3-dev"), *((each, "install g\\+\\+") for each in no_compiler)):
        with pytest.raises(AnalysisError, match=remedy):
            refuse_missing_tool(said, str(python))
    for file in ("Python.h", "gcc"):
        (tmp_path / file).touch(0o755)
    for said in (no_header, *no_compiler):  # this machine has both: the submission said so
        refuse_missing_tool(said, str(python))


def test_a_long_line_of_output_is_cut() -> None:
    assert last_words("/" * (1 << 20)) == "its last line: " + "/" * 200
