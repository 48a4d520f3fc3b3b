"""lib/libflashladder.so as a file, its header, and the example and the page that show how it is used."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.machine_code.contents import code_summary
from analysis.tests.support.copies import environment

ROOT = root()
LIBRARY = ROOT / "lib/libflashladder.so"
HEADER = ROOT / "include/flashladder.h"
NAMES = {
    *("fl_abi", "fl_release", "fl_error", "fl_open", "fl_close", "fl_describe", "fl_device", "fl_kernel", "fl_query"),
    *("fl_prepare", "fl_forward", "fl_query_backward", "fl_backward"),
}
# Sizes on x86-64. A struct grows only at its end, with FL_ABI.
SIZES = {
    "fl_strides": 24, "fl_problem": 320, "fl_tensors": 176, "fl_gradients": 128, "fl_support": 1600,
    "fl_kernel_info": 1184, "fl_description": 536, "fl_device_info": 160,
}  # fmt: skip
# Fields that an FL_ABI added: where the struct of callers of the one before ends. Nothing here ever changes.
SINCE = {
    "fl_support, kernel": 1568, "fl_kernel_info, kernel": 1152, "fl_problem, arrays": 168,
    "fl_tensors, cu_seqlens_q": 56, "fl_tensors, k_scales": 104, "fl_problem, q_dtype": 216,
    "fl_tensors, q_scales": 120, "fl_problem, scale_keys": 224, "fl_tensors, o_scales": 128,
    "fl_gradients, dsinks": 120, "fl_problem, bias_dtype": 232, "fl_tensors, bias": 136,
    "fl_problem, dropout_p": 264, "fl_tensors, max_logits": 152,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="make lib has not run")


def run(*command: str | Path, text: str | None = None, status: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, cwd=ROOT, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_nothing_but_the_interface_is_visible() -> None:
    lines = run("nm", "-D", "--defined-only", LIBRARY).splitlines()
    exported = {line.split()[-1].partition("@")[0] for line in lines if line.split()[-2] != "A"}  # A: a version's name
    assert {name for name in exported if not name.startswith("fl_xla_ffi_")} == NAMES
    assert set(re.findall(r"^[a-z][^;{}#()]*?\b(fl_\w+)\([^;]*\);", read_text(HEADER), re.MULTILINE)) == NAMES


def test_each_function_has_the_version_of_the_abi_that_added_it() -> None:
    """A program that was linked with an older library finds what it asks for in a newer one."""
    symbols = re.findall(r"(\S+) +(fl_\w+)$", run("objdump", "-T", LIBRARY), re.MULTILINE)
    (abi,) = re.findall(r"#define FL_ABI (\d+)", read_text(HEADER))
    assert {name for _, name in symbols} >= NAMES
    nodes = {version for version, _ in symbols}  # FL_ABI 2, 3 and 6 to 10 added no function
    assert nodes == {f"FLASHLADDER_{n}" for n in range(1, int(abi) + 1) if n not in (2, 3, 6, 7, 8, 9, 10)}
    assert re.search(r"\(SONAME\).*\[libflashladder\.so\.1\]", run("readelf", "-d", LIBRARY))


def test_an_installed_library_is_found_by_its_pc_file(tmp_path: Path) -> None:
    run("make", "install", f"PREFIX={tmp_path}", env=environment())
    text = read_text(tmp_path / "lib/pkgconfig/flashladder.pc").replace("${prefix}", str(tmp_path))
    said = dict(re.findall(r"^(\w+): (.*)$", text, re.MULTILINE))
    (release,) = re.findall(r'#define FL_RELEASE "(.*?)"', read_text(HEADER))
    assert said["Version"] == release and read_text(tmp_path / "share/doc/flashladder/LICENSE")
    source = tmp_path / "program.c"
    source.write_text(
        "#include <flashladder.h>\n#include <stdio.h>\nint main(void) { return puts(fl_release()) < 0; }\n"
    )
    run("cc", *said["Cflags"].split(), source, *said["Libs"].split(), "-o", tmp_path / "program")
    assert "libflashladder.so.1" in run("readelf", "-d", tmp_path / "program")
    assert run(tmp_path / "program", env={"LD_LIBRARY_PATH": str(tmp_path / "lib")}).startswith(release)


def test_libc_is_all_that_it_needs() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", LIBRARY))
    glibc = {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64"}
    assert {name.split(".")[0] for name in needed} <= glibc


def test_it_needs_no_new_glibc() -> None:
    """RHEL 8 has 2.28, which is new enough."""
    wanted = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", LIBRARY))
    assert wanted and max((int(major), int(minor)) for major, minor in wanted) <= (2, 28)


def test_it_has_the_size_that_the_page_says() -> None:
    (megabytes,) = re.findall(r"is about (\d+) MB and depends only on libc", read_text(ROOT / "docs/library.md"))
    assert abs(LIBRARY.stat().st_size / 1e6 - int(megabytes)) < 1 and int(megabytes) <= 120


def test_its_machine_code_is_that_of_the_executables() -> None:
    """Assembled again without what a debugger reads: every kernel, its registers and its facts are the same. A
    wheel's library also has code for GPUs that nobody measured, such as sm_120."""
    cubins = sorted((ROOT / "build").glob("*/library/sm_*.cubin"))
    of_both = [cubin for cubin in cubins if cubin.name in ("sm_80.cubin", "sm_90.cubin", "sm_90a.cubin")]
    assert of_both
    for cubin in of_both:
        assert code_summary(cubin) == code_summary(cubin.parents[1] / cubin.name), cubin


def test_it_embeds_the_kernels_of_attention() -> None:
    """Kernels of gradients are not among the versions."""
    files = (ROOT / "kernels/attention").glob("*.cu")
    names = {f"attention/{path.stem}" for path in files if not path.stem.startswith("backward")}
    code = "import flashladder; print(*(version.name for version in flashladder.versions()))"
    said = run(sys.executable, "-c", code, env=environment() | {"PYTHONPATH": str(ROOT / "python")})
    assert {*said.split()} == names and "attention/wgmma" in names


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_stands_alone(language: str) -> None:
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iinclude", "-fsyntax-only"]
    standard = "-std=c11" if language == "c" else "-std=c++11"
    run("cc", "-x", language, standard, *flags, "-", text="#include <flashladder.h>\n")


def test_the_structs_have_the_sizes_that_programs_were_built_with(tmp_path: Path) -> None:
    assert set(re.findall(r"^typedef struct (fl_\w+) \{", read_text(HEADER), re.MULTILINE)) == set(SIZES)
    asserts = "".join(f'_Static_assert(sizeof({name}) == {size}, "{name}");\n' for name, size in SIZES.items())
    asserts += "".join(f'_Static_assert(offsetof({name}) == {at}, "{name}");\n' for name, at in SINCE.items())
    run("cc", "-std=c11", "-Iinclude", "-fsyntax-only", "-x", "c", "-", text=f"#include <flashladder.h>\n{asserts}")


def test_the_example_of_the_header_compiles() -> None:
    example = "\n".join(re.findall(r"^ \*     (.*)$", read_text(HEADER).partition("*/")[0], re.MULTILINE))
    text = "#include <flashladder.h>\n#include <stdio.h>\nint example(void *q, void *k, void *v, void *o);\n"
    text += f"int example(void *q, void *k, void *v, void *o) {{\n{example}\nreturn 0;\n}}\n"
    assert "fl_forward" in example
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-fsyntax-only", "-x", "c", "-", text=text)


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built as the page says."""
    (command,) = re.findall(r"^    (cc .*examples/minimal\.c.*)$", read_text(ROOT / "docs/library.md"), re.MULTILINE)
    program = tmp_path_factory.mktemp("minimal") / "minimal"
    words = shlex.split(command.replace("$PWD", str(ROOT)))
    assert words[-2:] == ["-o", "minimal"]
    run(*words[:-1], program)
    return program


def test_the_example_runs(minimal: Path) -> None:
    assert len(read_text(ROOT / "examples/minimal.c").splitlines()) <= 30
    first, second = run(minimal).splitlines()
    assert re.match(r"attention/mma_sync: ", first)
    assert second == "O[0] 0x3c00, log-sum-exp of the last row 2.3026"  # ones, and ln 10


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_the_example_leaks_nothing_and_reads_nothing_that_is_not_its_own(minimal: Path) -> None:
    run("valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all", minimal)
