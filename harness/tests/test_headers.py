"""Headers of emulator, runtime and harness: each compiles alone, its example compiles, what it declares exists.

The example of a header is the indented block of its first comment. EXAMPLES gives the variables that it uses.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("emulator", "runtime", "harness")
HEADERS = sorted(
    path
    for room in (*ROOMS, "common/tests")
    for path in (ROOT / room).rglob("*.h")
    if path.name not in ("forms_table.h", "functions_table.h", "refused_table.h")  # tables, for their includers only
    and path.parent not in (ROOT / "emulator/wasm/include", ROOT / "runtime/windows")  # in place of the C library's
)
NOT_IN_VERSIONS = {"tests", "peers", "device", "wasm", "browser", "windows", "cudart"}
SOURCES = [
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.c")
    if not NOT_IN_VERSIONS & {*path.relative_to(ROOT).parts}
]
DRIVER = ROOT / "emulator/driver"  # a shared object of its own, whose functions are those of CUDA's driver
CUDART = ROOT / "emulator/cudart"  # likewise, those of CUDA's runtime
PAGE = ROOT / "emulator/wasm"  # likewise, whose functions a page calls
DEVICE = ROOT / "harness/device"  # programs that measure a GPU: test_peak.py and test_pipes.py link them
BUILT = {
    path: ROOT / "build" / path.relative_to(ROOT).with_suffix(".o")
    for path in SOURCES
    if path.name != "about.c" and path.parent != DRIVER
}
BUILT[ROOT / "harness/about.c"] = ROOT / "build/v01/about.o"  # compiled for each version

# The parameters of a function that has the example as its body; None for an example of definitions.
EXAMPLES: dict[str, str | None] = {
    "runtime/abilities.h": "struct kernel_config config, bool causal, struct failure failure",
    "harness/about.h": "void",
    "harness/backend.h": "struct backend *backend, struct inputs inputs, const struct instance *instance,"
    " struct kernel_code code, struct output output, struct failure failure",
    "harness/backward.h": "struct problem problem, attention_args attention, uint64_t addresses[N_BACKWARD],"
    " uint64_t (*allocate)(int64_t bytes)",
    "harness/bench.h": "struct backend *backend, struct options options, struct measurement measurement,"
    " struct failure failure",
    "runtime/config.h": "bool causal, struct failure failure",
    "runtime/cuda_driver.h": "struct failure failure",
    "emulator/driver/driver.h": None,
    "emulator/driver/graph.h": "CUgraphExec executable, CUgraphNode node, operation other, CUresult status",
    "emulator/cudart/cudart.h": None,
    "emulator/machine/addresses.h": "const warp *w, const op *o, int lane, uint64_t address",
    "emulator/explore/explore.h": "cta **ctas, size_t count",
    "emulator/machine/interleaving.h": "cluster *c",
    "emulator/explore/tile_counter.h": "cta **ctas, size_t count, const uint64_t *owners, size_t draws",
    "harness/device/microbenchmark.h": "enum status status, const struct code_image *images, uint64_t count,"
    " struct failure failure",
    "harness/device/pipes.h": "pipe_result result",
    "harness/device/stamp.h": "clock_stamp before, clock_stamp after",
    "harness/device/wgmma_peak.h": "wgmma_result result, int warpgroups",
    "harness/e4m3.h": "void",
    "harness/fp8.h": "struct problem problem, attention_args attention, struct reference_row reference, int column",
    "harness/energy.h": "struct backend *backend, double median_ns, struct energy energy, struct failure failure",
    "runtime/gpu_kernel.h": "struct cuda_driver cuda, struct gpu_code code, struct gpu_target target, CUmodule module,"
    " const struct instance *instance, struct gpu_kernel kernel, launch_shape shape, attention_args args,"
    " tensor_maps maps, CUstream stream, struct failure failure",
    "harness/gradients.h": "struct inputs inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,"
    " struct gradient_row *dQ, struct gradient_scratch *scratch, struct output output, struct verdict verdict,"
    " struct failure failure",
    "harness/half.h": "void",
    "runtime/image.h": "const struct code_image *fl_images, uint64_t fl_image_count, struct instance_table table,"
    " struct failure failure",
    "harness/inputs.h": "struct inputs inputs, struct problem problem, struct failure failure",
    "runtime/json.h": "int fd",
    "harness/number_list.h": "struct failure failure",
    "harness/options.h": "struct options options, int argc, char **argv, struct failure failure",
    "harness/parallel.h": "int64_t n_heads, void (*work_on_head)(int64_t, void *), int context",
    "runtime/parameters.h": "struct kernel_config config, attention_args args, struct failure failure",
    "harness/peer.h": "const struct peer *peer, struct peer_launch launch, struct failure failure",
    "harness/peers/fa3.h": "fa3_kernel kernel, fa3_launch launch",
    "harness/peers/fa3_backward.h": "fa3_backward_kernel fa3_bf16_d64_full_any, fa3_backward_launch launch",
    "harness/problem.h": "double seconds",
    "harness/progress.h": "struct progress_plan plan, void (*work)(void)",
    "harness/reference.h": "struct inputs inputs, struct problem problem, int64_t batch, int64_t head,"
    " const int64_t *rows, int n_rows, struct reference_row *results",
    "harness/report.h": "struct report report, struct options options, int argc, char **argv, struct record record,"
    " struct failure failure",
    "harness/select.h": "struct options options, struct instance_table table, size_t count, struct failure failure",
    "harness/serving.h": "struct problem problem, void *memory, attention_args attention, uint64_t address",
    "runtime/sha256.h": "struct sha256 hash, const void *bytes, size_t size, unsigned char digest[32]",
    "harness/stats.h": "const double *samples, int64_t count, struct failure failure",
    "runtime/status.h": "struct failure *failure, int device, int count",
    "harness/tensor_memory.h": "struct problem problem, const uint16_t *values, uint16_t *device",
    "runtime/tensor_maps.h": "attention_args args, struct kernel_config config",
    "runtime/launch.h": "struct kernel_config config, attention_args args, int64_t multiprocessors",
    "harness/verify.h": "struct inputs inputs, struct output output, struct verdict verdict, struct failure failure",
    "harness/tests/element.h": "void",
    "common/tests/tap.h": "int sum",
    "emulator/emu.h": "const char *text",
    "emulator/check/orders.h": "int gaps",
    "emulator/check/cells.h": "const cta *m, const warp *w, int lane",
    "emulator/check/checks.h": "const cta *m, uint32_t stamp",
    "emulator/check/events.h": "struct cta *m, struct warp *w, const op *o, uint32_t mask",
    "emulator/explore/ages.h": "ages now, uint32_t thread, uint32_t stamp",
    "emulator/explore/delayed.h": "cta *m, size_t i",
    "emulator/explore/state.h": "cta *m, uint32_t first, const bool *kept, live_sets live, uint64_t before",
    "emulator/machine/boxes.h": "cta *m, const bulk_copy *copy, row_function *move_row",
    "emulator/explore/copies.h": "int (*search)(void)",
    "emulator/machine/lane_loop.h": None,
    "emulator/machine/mma.h": "double accumulator, const double *terms, mma_a a, mma_b b,"
    " const uint32_t *const *a_words, const uint32_t *const *b_words,"
    " const uint32_t *const *c_words, uint32_t *const *d_words",
    "emulator/machine/numbers.h": "void",
    "emulator/machine/special.h": "void",
    "emulator/ptx/braces.h": "const char *at, const char *end",
    "emulator/ptx/builder.h": "decoder *dec",
    "emulator/ptx/characters.h": "const char *at",
    "emulator/ptx/decode.h": "loader *load, entry *code, statement in",
    "emulator/ptx/errors.h": "const char *path, size_t bytes, emu_error *error",
    "emulator/ptx/lexer.h": "loader *load, const char *text, size_t bytes",
    "emulator/ptx/loader.h": "loader *load, size_t count, int line, const char *name",
    "emulator/ptx/program.h": "const emu_module *module",
    "emulator/ptx/reader.h": "parser *p, uint64_t value",
    "emulator/tool/arguments.h": "emu_device *device, const emu_entry_info *entry, const char *const *specs, int count,"
    " unsigned char *block, emu_error error",
    "emulator/tool/files.h": "const char *path, size_t bytes, emu_error error",
    "emulator/wasm/page.h": "void",
    "emulator/wasm/view.h": "emu_launch launch",
    "emulator/wasm/watch.h": "void",
}


def example(header: Path) -> str:
    comment = header.read_text().partition("*/")[0]
    return "\n".join(re.findall(r"^ \*     (.*)$", comment, re.M))


def compile_text(text: str, *flags: str, language: str = "c") -> str:
    """What the compiler says of a text; "" where it is right."""
    standard = "-std=c11" if language == "c" else "-std=c++17"
    command = [
        "cc",
        "-x",
        language,
        standard,
        "-D_GNU_SOURCE",
        f"-I{ROOT}",
        f"-isystem{ROOT}/.venv/toolkit/include",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
    ]
    done = subprocess.run([*command, "-fsyntax-only", "-"], input=text, capture_output=True, text=True, timeout=600)
    return done.stderr


def name(header: Path) -> str:
    return header.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("header", [each for each in HEADERS if not example(each)], ids=name)
def test_a_header_compiles_alone(header: Path) -> None:
    """One with an example is included ahead of it, below."""
    assert compile_text(f'#include "{name(header)}"\n') == ""


def test_every_example_has_its_variables_here_and_no_other() -> None:
    assert sorted(name(header) for header in HEADERS if example(header)) == sorted(EXAMPLES)


@pytest.mark.parametrize("header", [each for each in HEADERS if example(each)], ids=name)
def test_the_example_of_a_header_compiles(header: Path) -> None:
    variables = EXAMPLES[name(header)]
    text = f'#include "{name(header)}"\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n'
    text += "".join(f"{each}\n" for each in re.findall(r"#include .*", example(header)))
    body = re.sub(r"#include .*", "", example(header))
    text += (
        body
        if variables is None
        else f"int example({variables});\nint example({variables}) {{\n{body}\nreturn 0;\n}}\n"
    )
    unused = (
        "-Wno-unused-parameter",
        "-Wno-unused-but-set-parameter",
        "-Wno-unused-variable",
        "-Wno-unused-but-set-variable",
        "-Wno-unused-value",
    )
    assert compile_text(text, *unused) == ""


def test_an_example_that_does_not_compile_shows() -> None:
    assert "undeclared" in compile_text("int example(void) { return missing; }")


# ---- what is declared, defined and used ------------------------------------------------------------------------------


def declarations(header: Path) -> set[str]:
    """Names of the functions and objects that a header declares: nothing inline, no types."""
    flags = ["-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", "-E", "-x", "c"]
    done = subprocess.run(["cc", *flags, header], capture_output=True, text=True, check=True)
    own, here, file = [], True, header
    for line in done.stdout.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            above, file = file, Path(marker[1])
            here = file == header or (file.name == "forms_table.h" and (above == header or (here and above == file)))
        elif here and not line.startswith("#"):
            own.append(line)
    found = set()
    for statement in statements("\n".join(own).replace('extern "C" {', "")):
        words = re.sub(r"__attribute__ ?\(\(.*?\)\)+|_Noreturn|extern", "", statement).strip()
        if re.match(r"(typedef|static|enum|_Static_assert|(struct|union) \w* ?(\{\})?$|$)", words):
            continue
        if functions := re.match(r"(?:lane_function|decode_function|op_handler) (\w.*)", words):
            found.update(functions[1].split(", "))
        elif declared := re.search(r"(\w+) ?\(", words) or re.search(r"(\w+)(?:\[\w*\])*$", words):
            found.add(declared[1])
    return found


def statements(text: str) -> Iterator[str]:
    """Statements at file scope, each in one line and with nothing in its braces."""
    depth, statement = 0, ""
    for character in text:
        depth -= character == "}"
        if depth == 0 and not (character == "}" and not statement):
            statement += character
        depth += character == "{"
        body = depth == 0 and character == "}" and ")" in statement
        if depth == 0 and (character == ";" or body):
            yield " ".join(statement.rstrip(";").split())
            statement = ""


def symbols(path: Path) -> list[tuple[str, str]]:
    """Global symbols of an object, kind and name; resolvers of functions for wider vectors left out."""
    lines = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line.split()[-2], line.split()[-1]) for line in lines if "." not in line.split()[-1]]


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, set[Path]]]:
    """By name: the sources whose objects define it, and those that use it."""
    assert not [str(path) for path in BUILT.values() if not path.exists()], "run `make v01 bin/ptxrun`"
    found: dict[str, dict[str, set[Path]]] = defaultdict(lambda: {"defined": set(), "used": set()})
    for source, at in BUILT.items():
        for kind, symbol in symbols(at):
            found[symbol]["used" if kind == "U" else "defined"].add(source)
    return found


def test_declarations_are_read() -> None:
    assert {"emu_load", "emu_run", "emu_form_at"} <= declarations(ROOT / "emulator/emu.h")
    assert {"emu_lanes_add_32", "emu_lanes_pack_64"} <= declarations(ROOT / "emulator/ptx/lanes.h")
    assert {"emu_load_fail", "emu_load_larger"} == declarations(ROOT / "emulator/ptx/loader.h") & {
        "emu_load_fail", "emu_load_larger", "load_grow",
    }  # fmt: skip
    assert "emu_character_classes" in declarations(ROOT / "emulator/ptx/characters.h")


@pytest.mark.parametrize(
    "header", [path for path in HEADERS if path.parent not in (DRIVER, CUDART, PAGE, DEVICE)], ids=name
)
def test_what_a_header_declares_is_defined(header: Path, table: dict[str, dict[str, set[Path]]]) -> None:
    embedded = {"fl_images", "fl_image_count", "fl_device_images", "fl_device_image_count"}  # code.S makes them
    elsewhere = embedded | {"fa3_call", "fa3_backward_call", "fa3_backward_bytes"}  # which make peer-fa3* compiles
    missing = {each for each in declarations(header) if not table[each]["defined"]} - elsewhere
    assert not missing, "declared, but defined nowhere"


def words(*paths: Path) -> Counter[str]:
    """How often each word stands in some files."""
    return Counter(word for path in paths for word in re.findall(r"\w+", path.read_text()))


def test_what_is_not_static_is_used_elsewhere(table: dict[str, dict[str, set[Path]]]) -> None:
    """By another source, a row of the emulator's table of forms, the shared objects, the page, a C test of what its own
    source uses, or a test of what emu.h offers."""
    folders = (ROOT / "library", ROOT / "analysis/ladder", DRIVER, CUDART, PAGE)
    users = [path for folder in folders for path in folder.glob("*.c")]
    called = words(ROOT / "emulator/ptx/forms_table.h", *users)
    tests = words(*(path for room in ROOMS for path in (ROOT / room).rglob("tests/*.[ch]")))
    offered = (
        words(ROOT / "emulator/emu.h").keys()
        & words(*(path for room in ROOMS for path in (ROOT / room).rglob("tests/test_*.py"))).keys()
    )
    in_source = {source: words(source) for places in table.values() for source in places["defined"]}
    lonely = set()
    for symbol, places in table.items():
        for source in places["defined"]:
            tested = symbol in offered or (symbol in tests and in_source[source][symbol] > 1)
            if symbol != "main" and symbol not in called and not tested and not places["used"] - {source}:
                lonely.add(f"{source.relative_to(ROOT)}: {symbol}")
    assert not lonely, "make them static, or delete them"


def test_64_bit_numbers_are_printed_one_way() -> None:
    """By PRId64 and PRIu64, or by j of a format that is made up at run time: never by a cast to long long."""
    others = [
        str(path) for path in SOURCES if re.search(r"%[-0*.\d]*ll?[diux]|\((unsigned )?long long\)", path.read_text())
    ]
    assert not others
