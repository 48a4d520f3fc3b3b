"""lib/libflemu.so with emu.h: what a C program needs, what the library exports, and buffers one by one."""

import re
import subprocess
from pathlib import Path

import pytest
from support.emulation import ROOT, entry

LIB = ROOT / "lib"
FOLDERS = ("ptx", "machine", "check", "explore", "cuda")
PLAIN = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]
STORE = """.reg .b64 %rd<2>;
ld.param.u64 %rd1, [to];
st.global.u32 [%rd1], 7;"""

USER = r"""
#include <emu.h>

#include <string.h>

static void show(const char *what, emu_status status, const emu_error *error, const emu_device *device) {
    size_t count;
    const emu_finding *findings = emu_findings(device, &count);
    printf("%s: %d %s%s\n", what, (int)status, error->text, count ? findings[0].message : "");
}

int main(void) {
    static const char text[] = PTX;
    emu_error error;
    emu_module *module = emu_load(text, strlen(text), &error);
    emu_device *device = emu_device_new();
    if (!module || !device) return 1;
    printf("entries: %d %d %d\n", emu_find_entry(module, "second"), emu_find_entry(module, "test"),
           emu_find_entry(module, "tes"));
    const emu_entry_info *info = emu_entry(module, 1);
    printf("parameters: %s %s\n", info->param_types[0], info->param_types[1]);
    uint64_t old = emu_alloc(device, "old", 4, EMU_OUTPUT), to = emu_alloc(device, "to", 4, EMU_OUTPUT);
    emu_launch launch = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = &to, .param_bytes = 8, .checks = true};
    emu_status status = emu_run(device, module, &launch, &error);
    show("another output", status, &error, device);
    bool freed = emu_free(device, old), again = emu_free(device, old);
    printf("freed: %d %d %d\n", freed, again, emu_free(device, to + 4));
    status = emu_run(device, module, &launch, &error);
    show("without it", status, &error, device);
    launch.params = &old;
    status = emu_run(device, module, &launch, &error);
    show("into it", status, &error, device);
    launch.params = NULL;
    status = emu_run(device, module, &launch, &error);
    show("no parameters", status, &error, device);
    uint64_t last = 0;
    for (int i = 0; i < 10000 && (i == 0 || last); i++) {
        last = emu_alloc(device, "short-lived", 4, EMU_BUFFER);
        if (!emu_free(device, last)) return 1;
    }
    printf("after 10000 buffers: %s\n", last ? "room" : "no room");
    const emu_compiler compiler = {0};
    char path[64];
    printf("compiled: %d", emu_compile("none.cu", &compiler, path, sizeof path, &error));
    printf(" %s\n", error.text);
    emu_device_free(device);
    emu_unload(module);
    return 0;
}
"""


def test_a_plain_c11_program_needs_the_header_and_the_library(tmp_path: Path) -> None:
    assert (LIB / "libflemu.so").exists(), "run `make emu-lib`"
    text = entry(STORE, ".param .u64 to") + ".entry second(.param .f32 x, .param .align 8 .b8 pair[12])\n{\nret;\n}\n"
    quoted = text.replace("\n", "\\n")
    (tmp_path / "user.c").write_text(USER.replace("PTX;", f'"{quoted}";'))
    command = ["cc", *PLAIN, f"-I{LIB}", tmp_path / "user.c", f"-L{LIB}", "-lflemu", f"-Wl,-rpath,{LIB}"]
    subprocess.run([*command, "-o", tmp_path / "user"], check=True, timeout=600)
    done = subprocess.run([tmp_path / "user"], env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    lines = iter(done.stdout.splitlines())
    assert next(lines) == "entries: 1 0 -1"
    assert next(lines) == "parameters: f32 b8"
    assert next(lines) == "another output: 1 output-never-written: buffer 'old'"
    assert "4 of 4 bytes" in next(lines) and "old memory" in next(lines)
    assert next(lines) == "freed: 1 0 0"
    assert next(lines) == "without it: 0 "
    rest = "\n".join(lines)
    assert re.search(r"^into it: 1 out-of-bounds.*in buffer 'old', which was freed\.", rest, re.M | re.S), rest
    assert "no parameters: 2 params is NULL, but the entry takes 8 bytes of parameters\n" in rest
    assert "after 10000 buffers: room\n" in rest
    assert "compiled: 0 none.cu: there is no nvcc to compile it; `make setup`" in rest


@pytest.mark.parametrize("folder", FOLDERS)
def test_sources_compile_as_plain_c11(folder: str) -> None:
    """As emu.h promises: no macro, no include folder."""
    files = sorted((ROOT / "emulator" / folder).glob("*.c"))
    assert files
    subprocess.run(["cc", "-fsyntax-only", *PLAIN, "-Wno-psabi", *files], check=True, timeout=600)


def test_the_library_exports_the_interface_alone() -> None:
    interface = set(re.findall(r"\b(emu_\w+)\(", (ROOT / "emulator/emu.h").read_text()))
    done = subprocess.run(
        ["nm", "-D", "--defined-only", LIB / "libflemu.so"], capture_output=True, text=True, check=True
    )
    assert {line.split()[-1] for line in done.stdout.splitlines()} == interface


def test_the_folder_can_be_moved(tmp_path: Path) -> None:
    """Each file is that of today, and the library names no file of the checkout."""
    for name, source in (("emu.h", "emu.h"), ("emu.py", "python/emu.py")):
        assert (LIB / name).read_bytes() == (ROOT / "emulator" / source).read_bytes(), "run `make emu-lib`"
    done = subprocess.run(["readelf", "-d", LIB / "libflemu.so"], capture_output=True, text=True, check=True)
    assert "R" + "PATH" not in done.stdout and "RUN" + "PATH" not in done.stdout
    needed = re.findall(r"NEEDED.*\[(.*)\]", done.stdout)
    assert set(needed) <= {"libm.so.6", "libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
