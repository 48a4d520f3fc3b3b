"""General attention on the emulator: random sizes, masks, scales, layouts and KV heads, every row checked.

The executables compare with the float64 reference, which test_reference_numpy.py compares with NumPy.
"""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_gpu import ROOT, made_up, records, run

from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import Version, load_attention

GENERAL = [*load_attention(ROOT).values()]
BY_NAME = pytest.mark.parametrize("version", GENERAL, ids=lambda version: version.version)
SEEDS = st.integers(0, 2**62)


def lengths(block: int) -> st.SearchStrategy[int]:
    """From 1 on; often about a whole block or two."""
    near = st.builds(lambda blocks, off: max(1, blocks * block + off), st.integers(0, 2), st.integers(-2, 2))
    return st.one_of(st.integers(1, 2 * block + 5), near)


@st.composite
def cases(draw: st.DrawFn, version: Version) -> list[str]:
    """Arguments of a small problem that the version takes."""
    header = version.header
    config: KernelConfig = draw(st.sampled_from([one for one in (header.config, *header.beside) if not one.cap]))
    KV_heads = draw(st.integers(1, 2))
    heads = KV_heads * draw(st.sampled_from((1, 2, 3, 8)))
    sizes: dict[str, object] = {
        "seq-q": draw(lengths(config.B_r)),
        "seq-k": draw(lengths(config.B_c)),
        "batch": draw(st.integers(1, 2)),
        "heads": heads,
        "kv-heads": KV_heads,
        "dist": draw(st.sampled_from(("normal", "normal", "uniform", "large"))),
        "layout": draw(st.sampled_from(("bshd",) if config.e4m3_inputs else ("bshd", "bhsd", "padded"))),
        "seed": draw(SEEDS),
    }
    dtype = draw(st.sampled_from(("fp16", "bf16")))
    if config in (*header.smaller, *header.serving):  # only its name chooses it
        sizes["config"] = config.replace(dtype=Dtype[dtype.upper()]).short_form()
        if "+pages" in sizes["config"]:
            sizes["page-rows"] = draw(st.sampled_from((16, 64, 256)))
    else:
        sizes |= {"d-head": config.d_head, "dtype": dtype}
    flags = ["--lse"] * draw(st.booleans()) + ["--causal"] * draw(st.booleans())
    if scale := draw(st.sampled_from((0, 0, 0.01, 0.3))):
        sizes["scale"] = scale
    return [*(word for name, value in sizes.items() for word in (f"--{name}", str(value))), *flags]


def assert_right(version: Version, arguments: list[str]) -> None:
    program = ROOT / "bin" / version.stem
    if not program.exists():
        pytest.skip(f"bin/{version.stem} is not built: make {version.stem}")
    fixed = ("--backend", "emu", "--check", "all", "--quiet", "--json", "-")
    done = run(*fixed, *arguments, program=program)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["check"]["pass"] and record["counters"]["findings"] == 0
    assert (record["check"]["lse_max_error"] is not None) == ("--lse" in arguments)


@BY_NAME
def test_random_cases_are_right(version: Version) -> None:
    @settings(max_examples=4)
    @given(arguments=cases(version))
    def each(arguments: list[str]) -> None:
        assert_right(version, arguments)

    each()


@pytest.mark.long
@BY_NAME
def test_many_random_cases_are_right(version: Version) -> None:
    @settings(max_examples=25)
    @given(arguments=cases(version))
    def each(arguments: list[str]) -> None:
        assert_right(version, arguments)

    each()


# One case for each thing that a kernel can do, in every check: the golden counters tell only that the code has changed.
# Rows that see no key, and Q blocks of which one warp has rows; three heads for each KV head, of two samples.
ABILITIES = {
    "any_length": "--seq-q 150 --seq-k 133 --heads 2 --lse",
    "causal": "--seq-q 290 --seq-k 200 --heads 2 --lse --causal",
    "grouped_heads": "--seq-q 40 --seq-k 70 --heads 6 --kv-heads 2 --batch 2 --lse",
}


@pytest.mark.parametrize("ability", ABILITIES)
@BY_NAME
def test_what_a_kernel_can_do(version: Version, ability: str) -> None:
    assert_right(version, ["--batch", "1", *ABILITIES[ability].split()])


# Cases that random ones rarely meet: one query, one key, rows without a key, a group of 16 heads.
EDGES = (
    "--seq-q 1 --seq-k 1 --lse",
    "--seq-q 1 --seq-k 300 --causal --lse --layout padded",
    "--seq-q 200 --seq-k 70 --causal --lse",
    "--seq-q 5 --seq-k 1 --causal --lse",
    "--seq 65 --heads 16 --kv-heads 1 --causal --layout bhsd",
)
SLICES = (  # of kernels that cut what is left over
    # The grid has slices for the 2 Q blocks that 18 leave over on 16 CTAs; packed they are 9, which need more slices.
    "--seq-q 1 --seq-k 600 --heads 18 --kv-heads 9",
    # A few rows behind the last full Q block: one slice of 32 rows for each head, or two.
    "--seq-q 257 --seq-k 1100 --heads 9 --lse",
    "--seq-q 310 --seq-k 3100 --heads 5 --kv-heads 5 --batch 2 --causal --lse",
)


@pytest.mark.long
@pytest.mark.parametrize("edge", [*EDGES, *SLICES])
@BY_NAME
def test_edges(version: Version, edge: str) -> None:
    config = version.header.config
    if config.e4m3_inputs and "--layout" in edge:
        pytest.skip("kernels of e4m3 take contiguous tensors")
    if edge in SLICES and not config.split_tail:
        pytest.skip(f"{version.version} has no slices")
    for each in (config, *version.header.others):
        assert_right(version, ["--heads", "1", *edge.split(), "--d-head", str(each.d_head)])
    for each in version.header.smaller:
        assert_right(version, ["--heads", "1", *edge.split(), "--config", each.short_form()])


@BY_NAME
def test_a_cta_takes_one_q_block_after_another(version: Version) -> None:
    """27 Q blocks on 16 CTAs. Scores are large: S is computed again while the next rows of Q may already be copied."""
    problem = "--seq-q 300 --seq-k 200 --heads 9 --kv-heads 3 --causal --dist large --schedule 1"
    d_head = max(each.d_head for each in (version.header.config, *version.header.others))
    assert_right(version, [*problem.split(), "--d-head", str(d_head)])


# ---- what the harness does with them ---------------------------------------------------------------------------------

PROGRAM = ROOT / "bin/attention.mma_sync"
BUILT = pytest.mark.skipif(not PROGRAM.exists(), reason="bin/attention.mma_sync is not built: make attention")
SMALL = ("--batch", "2", "--heads", "2", "--seq-q", "33", "--seq-k", "20", "--causal", "--lse", "--check", "all")


@BUILT
@pytest.mark.parametrize("layout", ["bshd", "bhsd", "padded"])
def test_a_gpu_is_given_every_layout(driver: str, layout: str) -> None:
    """The made-up GPU reads tensors by the strides of attention_args; 13 rows of 33 see no key."""
    gpu = made_up(driver, "left")
    done = run(*SMALL, "--layout", layout, "--scale", "0.2", "--runs", "1", "--json", "-", program=PROGRAM, **gpu)
    assert done.returncode == 0, done.stderr
    (record,) = records(done)
    assert record["backend"] == "gpu" and record["check"]["pass"] and record["check"]["pass_after"]
    assert record["check"]["lse_max_error_over_bound"] < 1 and record["check"]["rows"] == 132
    wanted = {"seq": 33, "seq_k": 20, "causal": True, "lse": True, "layout": layout, "kv_heads": 2}
    assert {name: record["problem"][name] for name in wanted} == wanted and abs(record["problem"]["scale"] - 0.2) < 1e-7
    pairs = 20 * 21 / 2  # of a query and a key that it sees, of one head
    assert record["derived"]["tflops"] == pytest.approx(
        4 * 4 * 128 * pairs / record["timing"]["median"] / 1e3, rel=1e-5
    )
    assert "left: 0 contexts, 0 modules, 0 streams, 0 events, 0 pinned, 0 bytes" in done.stderr


@BUILT
@pytest.mark.parametrize(
    ("how", "layout", "words"),
    [
        ("off", "bhsd", ["WRONG: 1 of", "column 5"]),
        ("lse_off", "bshd", ["WRONG: 1 of", "row 1, head 0, log-sum-exp"]),
        ("stray", "padded", ["WRONG: 0 of", "1 written between the rows"]),
        ("idle", "bshd", ["NaN or Inf"]),
        ("lse_late", "bshd", ["NaN or Inf"]),
    ],
)
def test_a_wrong_result_is_named(driver: str, how: str, layout: str, words: list[str]) -> None:
    square = (
        "--batch",
        "1",
        "--heads",
        "1",
        "--seq",
        "20",
        "--lse",
        "--check",
        "all",
        "--runs",
        "1",
        "--layout",
        layout,
    )
    done = run(*square, program=PROGRAM, **made_up(driver, how))
    assert done.returncode == 1, done.stderr
    assert [word for word in words if word not in done.stdout] == []


@BUILT
@pytest.mark.parametrize(
    ("lengths", "last"),
    [
        (("--seq-q", "64", "--seq-k", "32,200"), ("--seq-q", "64", "--seq-k", "200")),
        (("--seq-q", "32,64", "--seq-k", "200"), ("--seq-q", "64", "--seq-k", "200")),
        (("--seq-q", "64", "--seq-k", "200,32"), ("--seq-q", "64", "--seq-k", "32")),
    ],
)
def test_a_problem_has_the_same_inputs_behind_another(
    driver: str, tmp_path: Path, lengths: tuple[str, ...], last: tuple[str, ...]
) -> None:
    """Inputs at hand serve a problem that needs no more of Q and of K; O of the last problem is what is kept."""
    outputs = []
    for words in (lengths, last):
        path = tmp_path / "O"
        arguments = ("--batch", "1", "--heads", "2", *words, "--output", str(path))
        done = run(*arguments, "--runs", "1", "--check", "1", program=PROGRAM, **made_up(driver, ""))
        assert done.returncode == 0, done.stderr
        outputs.append(path.read_bytes())
    assert outputs[0] == outputs[1]


@BUILT
def test_the_written_output_does_not_depend_on_the_layout(tmp_path: Path) -> None:
    files = []
    for layout in ("bshd", "bhsd", "padded"):
        path = tmp_path / layout
        done = run(*SMALL, "--layout", layout, "--backend", "emu", "--output", str(path), program=PROGRAM)
        assert done.returncode == 0, done.stdout + done.stderr
        files.append((path.read_bytes(), Path(f"{path}.lse").read_bytes()))
    assert files[0] == files[1] == files[2]
    output, lse = files[0]
    values = struct.unpack(f"<{2 * 2 * 33}f", lse)
    assert len(output) == 2 * 2 * 33 * 2 * 128 and values[12] == -float("inf") and values[13] > -10
    assert output[: 13 * 2 * 2 * 128] == bytes(13 * 2 * 2 * 128), "rows that see no key"


@BUILT
def test_text_and_csv_say_what_is_not_plain() -> None:
    done = run(*SMALL, "--layout", "bhsd", "--scale", "0.5", "--backend", "emu", program=PROGRAM)
    assert "batch 2 heads 2 seq 33 on 20 fp16 causal scale 0.5 lse bhsd\n" in done.stdout
    assert "of log-sum-exp" in done.stdout
    header, row = run(*SMALL, "--backend", "emu", "--csv", program=PROGRAM).stdout.splitlines()
    cells = dict(zip(header.split(","), next(csv.reader([row])), strict=True))
    assert (cells["seq"], cells["seq_k"], cells["causal"], cells["lse"], cells["layout"]) == (
        "33",
        "20",
        "yes",
        "yes",
        "bshd",
    )
    assert float(cells["lse_max_error_over_bound"]) < 1
