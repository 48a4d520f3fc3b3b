"""Bodies are skipped 16 bytes at a time or byte by byte: both ways stop at the same byte with the same counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.emulation import ROOT

DRIVER = """
#include "emulator/ptx/braces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *byte_by_byte(const char *at, const char *end, int *depth, int *line);

int main(void) {
    static const char letters[] = "{}{}\\n\\"/ab cdefghijklmnopqrstuvwxyz";
    int wrong = 0, closed = 0, stopped = 0;
    srand(1);
    for (int i = 0; i < 100000; i++) {
        char text[96];
        const size_t length = (size_t)rand() % sizeof text;
        for (size_t k = 0; k < length; k++) text[k] = letters[(size_t)rand() % (sizeof letters - 1)];
        const char *end = text + length;
        int depths[2] = {1 + rand() % 3}, lines[2] = {0};
        depths[1] = depths[0];
        const char *first = emu_follow_braces(text, end, &depths[0], &lines[0]);
        const char *second = byte_by_byte(text, end, &depths[1], &lines[1]);
        wrong += first != second || depths[0] != depths[1] || lines[0] != lines[1];
        closed += !depths[0];
        stopped += depths[0] && first < end;
    }
    printf("%d\\n", wrong);
    return closed < 1000 || stopped < 1000;
}
"""


def test_both_ways_agree(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    compiler = ["cc", "-std=c11", "-O1", f"-I{ROOT}"]
    source = ROOT / "emulator/ptx/braces.c"
    plain = ["-U__SSE2__", "-Demu_follow_braces=byte_by_byte"]
    subprocess.run([*compiler, *plain, "-c", "-o", tmp_path / "plain.o", source], check=True)
    subprocess.run(
        [*compiler, "-o", tmp_path / "driver", tmp_path / "driver.c", source, tmp_path / "plain.o"], check=True
    )
    done = subprocess.run([tmp_path / "driver"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
