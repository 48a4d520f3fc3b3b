"""Errors of kernels/fp8/ on the emulator, which has the sums of an H200 bit for bit, as rows of a Markdown table.

    PYTHONPATH=lib python -m harness.tests.fp8_errors               # minutes; docs/fp8-accuracy.md has what it prints
    PYTHONPATH=lib python -m harness.tests.fp8_errors f05 --keys 512,4096

An error is |O - reference| / |reference|, with the lengths of vectors; the reference is float64 of the same bytes. In
parentheses: by how much O is larger on the whole.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import emu

from analysis.ladder.headers import load_fp8
from harness.tests.fp8 import Problem, error, gain, run

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "Q, K and V of N(0, 1)": {},
    "Q and K of N(0, 16): scores of N(0, 256)": {"size": 4.0},
    "V of N(1, 1)": {"V_mean": 1.0},
}


def measured(version: str, keys: int, **kind: float) -> str:
    """An entry of the table: of 128 queries, or of 64 where a version takes any number."""
    config = load_fp8(ROOT)[version].header.config
    assert config.e4m3_inputs
    problem = Problem(64 if config.any_length else config.B_r, keys, **kind)  # type: ignore[arg-type]
    module = emu.Module(ROOT / f"build/{version}/{version}.ptx")
    got, _ = run(module, config, problem, checks=False)
    return f"{error(got, problem.exact[0]):.2e} ({gain(got, problem.exact[0]):+.2%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=["f02", "f05", "f07"])
    parser.add_argument("--keys", default="512,4096,16384")
    asked = parser.parse_args()
    lengths = [int(keys) for keys in asked.keys.split(",")]
    print("| inputs | version |" + "".join(f" {keys} keys |" for keys in lengths))
    print("|---|---|" + "---|" * len(lengths))
    for name, kind in KINDS.items():
        for version in asked.versions:
            cells = (measured(version, keys, **kind) for keys in lengths)
            print(f"| {name} | {version} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
