"""Checks read from kernel sources, the generated instances, and the commands `instances` and `configs`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.checks import parse_checks
from analysis.ladder.config import Dtype, KernelConfig, config_set, default_set, parse_braces, parse_short_form
from analysis.ladder.headers import load, load_all, load_attention, read_version, refusals
from analysis.ladder.instances import about_text, instances_text, select

CONFIG = parse_short_form("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")

KERNEL = """/* v01 - a "quoted" title
 *
 * parent    none
 * idea      plain \\\\ simple
 *           in two lines
 * config    (FP16, 128, 64, 64, 4): async+load_0_0_0_tiles
 * arch      sm_80
 */
/* static_assert(false, "in a comment") */
static_assert(FP16 == 5, "not a check of the configuration either");
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(!cfg.swizzled, "no swizzle // here");  // static_assert(false, "in a comment");
    static_assert(cfg.n_warps == 4 || (cfg.n_warps == 8 && cfg.B_r == 128),
                  "n_warps must be 4, "
                  "or 8 with 128 rows");
}
static_assert(sizeof(int) == 4, "not a check of the configuration");
"""


def kernel_file(folder: Path, text: str = KERNEL) -> Path:
    path = folder / "kernels/mma_sync/v01_base.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def holds(expression: str, config: KernelConfig = CONFIG) -> bool:
    source = f'void check_config() {{ static_assert({expression}, "sentence"); }}'
    (check,) = parse_checks(source, "kernel.cu")
    return check.holds(config)


def test_checks_are_those_of_check_config() -> None:
    checks = parse_checks(KERNEL, "kernel.cu")
    assert [(check.line, check.sentence) for check in checks] == [
        (13, "no swizzle // here"),
        (14, "n_warps must be 4, or 8 with 128 rows"),
    ]
    assert all(check.holds(CONFIG) for check in checks)
    assert not checks[0].holds(parse_short_form("(FP16, 128, 64, 64, 4): swizzled+load_0_0_0_tiles"))
    assert not checks[1].holds(parse_short_form("(FP16, 128, 32, 64, 2): load_0_0_0_tiles"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cfg.dtype == FP16", True),
        ("cfg.dtype == BF16", False),
        ("cfg.async_copy && !cfg.swizzled", True),
        ("!cfg.async_copy || cfg.swizzled == true", False),
        ("config_smem_bytes(&cfg) <= 48 * 1024", True),
        ("config_smem_bytes(&cfg) < 49152", False),
        ("config_threads(&cfg) % 128 == 0", True),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 10 - 3 - 2 == 5", True),
        ("7 / 2 == 3 && -7 % 7 == 0 && ~0 == -1", True),
        ("(cfg.B_c & (cfg.B_c - 1)) == 0 && 1 << 6 == cfg.B_c && 0x40 == cfg.B_c", True),
        ("(1 | 0) == 1", True),
        ("!(1 > 2) == true && !!cfg.async_copy", True),
        ("cfg.B_c == (cfg.B_r > 64 ? 1 : cfg.async_copy ? 64 : 2)", True),
        ("cfg.Q_mma_load_K_tiles == 0 || 8 % cfg.Q_mma_load_K_tiles == 0", True),
        ("cfg.optimized_softmax ? cfg.B_c == 1 : cfg.B_c == 64", True),
    ],
)
def test_expressions_have_their_c_value(expression: str, expected: bool) -> None:
    assert holds(expression) is expected


@given(
    st.recursive(
        st.integers(0, 9).map(str) | st.just("cfg.B_c"),
        lambda e: st.tuples(e, st.sampled_from(["+", "-", "*", "==", "<", ">=", "!="]), e).map(
            lambda t: f"({' '.join(t)})"
        ),
        max_leaves=12,
    )
)
def test_fully_bracketed_expressions_agree_with_python(expression: str) -> None:
    assert holds(expression) is bool(eval(expression, {"cfg": CONFIG}))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("void other() {}", "check_config"),
        ("void check_config() {}", "no static_assert"),
        ("void check_config() { static_assert(cfg.B_r == 64); }", "sentence"),
        ('void check_config() { static_assert(cfg.B_r ==, "s"); }', "not understood"),
        ('void check_config() { static_assert((cfg.B_r, "s"); }', "never closed"),
        ('void check_config() { static_assert(cfg.B_r == 64 64, "s"); }', "not understood"),
        ('void check_config() { static_assert(cfg.B_r @ 64, "s"); }', "'@'"),
        ('void check_config() { static_assert(010 == 8, "s"); }', "octal"),
        ('void check_config() { static_assert(1 | 0 == 0, "s"); }', "without brackets"),
        ('void check_config() { static_assert(2 > 1 == 1, "s"); }', "without brackets"),
        ('void check_config() { static_assert(9 ** 9 ** 9, "s"); }', "'**'"),
        ('void check_config() { static_assert(cfg.B_r, "s");', "never closed"),
    ],
)
def test_a_check_that_is_not_understood_is_an_error(source: str, word: str) -> None:
    with pytest.raises(AnalysisError) as error:
        parse_checks(source, "kernel.cu")
    assert word in str(error.value) and "kernel.cu" in str(error.value)


@pytest.mark.parametrize(("expression", "word"), [("cfg.rows == 1", "rows"), ("sizeof(int) == 4", "sizeof")])
def test_what_a_configuration_does_not_have_is_an_error(expression: str, word: str) -> None:
    with pytest.raises(AnalysisError, match=f"not defined: .*{word}"):
        holds(expression)


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(AnalysisError, match="not defined"):
        holds("8 % cfg.Q_mma_load_K_tiles == 0")


@given(st.text(alphabet="()&|!<>=+-*/% cfg.B_r0123456789x\"'?:", max_size=40))
def test_any_expression_is_read_or_refused(text: str) -> None:
    try:
        holds(text)
    except AnalysisError:
        pass
    except ValueError:
        pytest.fail("a negative shift or the like must be an AnalysisError")


def test_select_cuts_to_what_the_version_supports(tmp_path: Path) -> None:
    version = read_version(kernel_file(tmp_path))
    kept, cut = select(version, "prog")
    assert kept[:2] == config_set("default", CONFIG) and len(kept) == 2
    assert len(cut) == 6 and all(reasons[0] == "no swizzle // here" for _, reasons in cut)


def test_what_needs_more_shared_memory_than_the_only_architecture_has_is_cut() -> None:
    version = load(root(), "v28")
    kept, cut = select(version, "tune")
    assert [(config.B_c, config.stages) for config, _ in cut] == [(128, 4)] * 2
    assert {reason for _, reasons in cut for reason in reasons} == {
        "shared memory must be at most 232448 bytes, what a CTA of sm_90a may have"
    }
    assert max(config.smem_bytes() for config in kept) == 231424
    big = load(root(), "v16").header.config.replace(B_r=256, B_c=512, n_warps=8)
    assert big.smem_bytes() > 232448 and not any("shared memory" in why for why in refusals(load(root(), "v16"), big))


def test_an_explicit_list_with_nothing_supported_is_refused(tmp_path: Path) -> None:
    version = read_version(kernel_file(tmp_path))
    with pytest.raises(AnalysisError, match="no swizzle // here"):
        select(version, "(FP16, 128, 64, 64, 4): swizzled+load_0_0_0_tiles")


def test_a_version_that_refuses_its_own_config_is_an_error(tmp_path: Path) -> None:
    version = read_version(kernel_file(tmp_path, KERNEL.replace("!cfg.swizzled", "cfg.swizzled")))
    with pytest.raises(AnalysisError, match="its own configuration"):
        select(version, "default")


def test_a_list_builds_these_and_the_headers_first() -> None:
    """A kernel with forty others is compiled in seconds where one is asked for."""
    version = load_attention(root())["attention/wgmma"]
    first, other = default_set(version.header.config), version.header.others[0].replace(dtype=Dtype.BF16)
    assert len(default_set(version.header.config, version.header.beside)) > 40
    assert select(version, str(first[0])) == (first, [])
    assert select(version, f"{other}; {first[1]}") == ([*first, other], [])
    assert select(version, f"default; {other}")[0] == default_set(version.header.config, version.header.beside)


def test_generated_texts(tmp_path: Path) -> None:
    version = read_version(kernel_file(tmp_path))
    kept, _ = select(version, "(BF16, 128, 128, 64, 8): async+load_0_0_0_tiles")
    lines = instances_text(kept).splitlines()[1:]
    assert [parse_braces(line) for line in lines] == kept and len(kept) == 3
    assert lines[0].startswith(
        "template __global__ void flash_forward<KernelConfig{FP16, 128, 64, 64, 4, true, false, "
    )
    assert lines[0].endswith(", false}>(const __grid_constant__ forward_args);")
    (tensor,) = instances_text([kept[0].replace(tensor_copies=True)]).splitlines()[1:]
    assert tensor.endswith("(const __grid_constant__ forward_args, const __grid_constant__ tensor_maps);")
    about = about_text(version)
    assert '#define FL_TITLE "a \\"quoted\\" title"' in about
    assert '#define FL_IDEA "plain \\\\\\\\ simple in two lines"' in about
    assert '#define FL_PARENT ""' in about and '#define FL_NAME "base"' in about


def test_command_writes_only_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, out = kernel_file(tmp_path), tmp_path / "build dir"
    assert main(["instances", str(kernel), "--out", str(out)]) == 0
    written = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert {path.name for path in written} == {"instances.cuh", "about.h"}
    assert main(["instances", str(kernel), "--out", str(out)]) == 0
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == written
    assert capsys.readouterr().err == ""
    assert main(["instances", str(kernel), "--set", "prog", "--out", str(out)]) == 0
    assert "6 members of 'prog' left out" in capsys.readouterr().err
    assert main(["instances", str(kernel), "--set", "prog", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["built"][0] == str(CONFIG) and len(said["left_out"]) == 6
    assert main(["instances", str(tmp_path / "v02_none.cu"), "--out", str(out)]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_build_needs_no_package(tmp_path: Path) -> None:
    kernel = "kernels/mma_sync/v01_base.cu"
    command = [sys.executable, "-S", "-m", "analysis", "instances", kernel, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=root(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_version_builds_its_default_set() -> None:
    for version in load_all(root()).values():
        configs, cut = select(version, "default")
        sizes = [config.d_head for config in (version.header.config, *version.header.beside)]
        wanted = [(size, dtype) for size in sizes for dtype in Dtype]
        assert [(config.d_head, config.dtype) for config in configs] == wanted and not cut


def test_configs_lists_a_set_with_a_version_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs", "--set", "progall", "--version", "v01", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 56
    built = [row for row in rows if row["v01"] == "builds"]
    assert built and all("swizzled" not in row["config"] for row in built)
    refused = [row["v01"] for row in rows if row["v01"] != "builds"]
    sentences = {check.sentence for check in load(root(), "v01").checks}
    assert refused and all(verdict.split(" (and ")[0] in sentences for verdict in refused)


def test_configs_takes_several_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs", "--version", "v01 v02", "--set", "default", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "config,threads,smem bytes,v01,v02"
    assert len(lines) == 5 and all("builds" in line for line in lines[1:])
    assert sum(line.count("builds") for line in lines) < 8


def test_configs_compares_two_forms(capsys: pytest.CaptureFixture[str]) -> None:
    other = "(BF16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles"
    assert main(["configs", "--compare", str(CONFIG), other, "--csv"]) == 0
    assert capsys.readouterr().out == "field,A,B\ndtype,FP16,BF16\nswizzled,false,true\n"
    assert main(["configs", "--compare", str(CONFIG), other, "--exit-code"]) == 1
    assert main(["configs", "--compare", str(CONFIG), CONFIG.symbol(), "--exit-code"]) == 0


def test_configs_uses_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELS", "64,64")
    assert main(["configs", "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 33
    monkeypatch.setenv("KERNELS", "nonsense")
    assert main(["configs"]) == 2
    assert "unknown set 'nonsense'" in capsys.readouterr().err
