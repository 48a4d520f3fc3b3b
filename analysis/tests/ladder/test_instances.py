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
from analysis.ladder.config import Dtype, KernelConfig, config_set, parse_braces, parse_short_form
from analysis.ladder.headers import load, load_all, read_version
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
        ("config_smem_bytes(&cfg) <= 48 * 1024", True),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 10 - 3 - 2 == 5", True),
        ("(cfg.B_c & (cfg.B_c - 1)) == 0 && 1 << 6 == cfg.B_c && 0x40 == cfg.B_c", True),
        ("cfg.B_c == (cfg.B_r > 64 ? 1 : cfg.async_copy ? 64 : 2)", True),
        ("cfg.Q_mma_load_K_tiles == 0 || 8 % cfg.Q_mma_load_K_tiles == 0", True),
    ],
)
def test_expressions_have_their_c_value(expression: str, expected: bool) -> None:
    assert holds(expression) is expected


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("void other() {}", "check_config"),
        ("void check_config() { static_assert(cfg.B_r == 64); }", "sentence"),
        ('void check_config() { static_assert(cfg.B_r ==, "s"); }', "not understood"),
        ('void check_config() { static_assert(cfg.B_r == 64 64, "s"); }', "not understood"),
        ('void check_config() { static_assert(1 | 0 == 0, "s"); }', "without brackets"),
    ],
)
def test_a_check_that_is_not_understood_is_an_error(source: str, word: str) -> None:
    with pytest.raises(AnalysisError) as error:
        parse_checks(source, "kernel.cu")
    assert word in str(error.value) and "kernel.cu" in str(error.value)


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
        sizes = [config.d_head for config in (version.header.config, *version.header.additional)]
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


def test_configs_compares_two_forms(capsys: pytest.CaptureFixture[str]) -> None:
    other = "(BF16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles"
    assert main(["configs", "--compare", str(CONFIG), other, "--csv"]) == 0
    assert capsys.readouterr().out == "field,A,B\ndtype,FP16,BF16\nswizzled,false,true\n"
    assert main(["configs", "--compare", str(CONFIG), other, "--exit-code"]) == 1
    assert main(["configs", "--compare", str(CONFIG), CONFIG.symbol(), "--exit-code"]) == 0
