"""mma.sync: the sums of an H200's tensor cores, bit for bit, as mma.h200.csv holds them."""

import csv
import functools
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ROOT, THREADS, Array, Batch, Case
from support.tensor_core import FORMS, fused_sums, instruction, matrices, registers_of, spread

RECORD = Path(__file__).parent / "records/mma.h200.csv"
B200 = Path(__file__).parent / "records/b200.csv"


@functools.cache
def record() -> list[dict[str, str]]:
    with RECORD.open(newline="") as file:
        return list(csv.DictReader(file))


def recorded_forms() -> list[str]:
    return list(dict.fromkeys(row["form"] for row in record()))


def recorded(form: str) -> tuple[list[str], dict[str, Array]]:
    """The kinds of the recorded mmas and all registers [mma * 32], uint32."""
    rows = [row for row in record() if row["form"] == form]
    names = [name for name in rows[0] if name[0] in "abcd" and len(name) == 2]
    return [row["kind"] for row in rows[::32]], {
        name: np.array([int(row[name], 16) for row in rows], np.uint32) for name in names
    }


def as_recorded(got: Array, want: Array) -> Array:
    equal: Array = got.view(np.uint32) == want.view(np.uint32)
    return equal  # and every NaN has the device's bits


@pytest.mark.parametrize("form", recorded_forms())
def test_the_emulator_computes_what_the_gpu_did(form: str, tmp_path: Path) -> None:
    _, registers = recorded(form)
    size = -(-len(registers["a0"]) // THREADS) * THREADS
    inputs = {name: np.resize(registers[name], size) for names in registers_of(form) for name in names}
    results = [name.replace("c", "d") for name in registers_of(form)[2]]
    outputs = {name: np.resize(registers[name], size) for name in results}
    outcome = Batch([Case(form, instruction(form), inputs, outputs, as_recorded)]).run(tmp_path)
    assert not outcome[form], outcome[form]


@pytest.mark.parametrize("form", recorded_forms())
def test_the_rule_explains_what_the_gpu_did(form: str) -> None:
    kinds, registers = recorded(form)
    as_accumulators = registers | {f"c{i}": registers[f"d{i}"] for i in range(4)}
    want, got = matrices(form, as_accumulators)[2], fused_sums(form, registers)
    assert len(kinds) == 9 and sorted(kinds) == sorted(set(kinds))
    assert {kinds[mma] for mma in np.flatnonzero((want != got).any(axis=(1, 2)))} == set()


def test_the_page_counts_the_recorded_outputs() -> None:
    page = " ".join((ROOT / "docs/emulator.md").read_text().split())
    assert f"{len(record()) // 32 * 128:,} outputs of nine kinds" in page  # an mma has 16 x 8 outputs


def test_sums_that_just_fit_32_bits(tmp_path: Path) -> None:
    """Sixteen products of the largest mantissas and an accumulator make 2**31 units of 2**-25, more or less."""
    form, units = FORMS[0], np.arange(THREADS * 4) * 8 + (1 << 31) - 16 * (2047**2 << 5) - THREADS * 16
    full = np.full(THREADS, 0x3FFF3FFF, np.uint32)
    registers = {name: full for names in registers_of(form)[:2] for name in names}
    registers |= {f"c{i}": (units[i::4] * 2.0**-25).astype(np.float32).view(np.uint32) for i in range(4)}
    outputs = spread(fused_sums(form, registers))
    outcome = Batch([Case(form, instruction(form), registers, outputs, as_recorded)]).run(tmp_path)
    assert not outcome[form], outcome[form]


def test_f16_results_are_rounded_once(tmp_path: Path) -> None:
    """1 + 2^-11 is between two f16 numbers; 2^-24 more, which an f32 of that size drops, decides for the upper."""
    first = np.resize(np.arange(32) % 4 == 0, THREADS)  # lanes with k = 0 and 1
    one_and_small, smaller = np.where(first, 0x0C003C00, 0), np.where(first, 0x0C001000, 0)
    none, ones = np.zeros(THREADS), np.full(THREADS, 0x3C003C00)
    inputs = {"a0": one_and_small, "a1": one_and_small, "a2": none, "a3": none, "b0": smaller, "b1": none}
    inputs |= {"c0": ones, "c1": ones}
    text = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d0, %d1}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1};"
    words = {name: values.astype(np.uint32) for name, values in inputs.items()}
    outputs = {name: np.full(THREADS, 0x3C013C01, np.uint32) for name in ("d0", "d1")}
    outcome = Batch([Case("f16 results", text, words, outputs, as_recorded)]).run(tmp_path)
    assert not outcome["f16 results"], outcome["f16 results"]


@pytest.mark.parametrize("result", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
def test_a_b200_gives_the_same_bits(kind: str, result: str, tmp_path: Path) -> None:
    """Row i of A, of eight, meets column i of B. Those of bytes are products of f16 in the machine code of sm_100a."""
    with B200.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == kind]
    if not rows[0][result]:
        pytest.skip("nobody recorded it")
    form = {"f16": "m16n8k16.f16", "bf16": "m16n8k16.bf16", "tf32": "m16n8k4.tf32"}.get(kind, f"m16n8k32.{kind}")
    form += ".f16" * (result == "f16")
    names_a, names_b, names_c = registers_of(form)
    words = {side: np.array([list(bytes.fromhex(row[side])) for row in rows], np.uint8) for side in "ab"}
    lane, mmas = np.arange(32), len(rows) // 8
    inputs: dict[str, Array] = {name: np.zeros((mmas, 32), np.uint32) for name in names_a + names_b + names_c}
    for side, names in (("a", names_a[::2]), ("b", names_b)):  # rows 8 to 15 of A are zeros
        values = words[side].view(np.uint32).reshape(mmas, 8, -1)
        for i, name in enumerate(names):
            inputs[name] = values[:, lane // 4, 4 * i + lane % 4]
    outputs = {name.replace("c", "d"): np.zeros((mmas, 32), np.uint32) for name in names_c}
    c = np.array([int(row["c"], 16) for row in rows], np.uint32)
    if result == "f16":
        c = c.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    for name, target, values in (("c", inputs, c), ("d", outputs, np.array([int(row[result], 16) for row in rows]))):
        for i in range(8):
            register, shift = (f"{name}{i % 2}", 0) if result == "f32" else (f"{name}0", i % 2 * 16)
            target[register][:, 4 * i + i // 2] |= (values.reshape(mmas, 8)[:, i] << shift).astype(np.uint32)

    masks = (0xFFFF, 0xFFFF0000) if result == "f16" else (0xFFFFFFFF,)

    def near_the_diagonal(got: Array, want: Array) -> Array:
        kept = sum(((want & mask) != 0) * np.uint32(mask) for mask in masks)
        equal: Array = (got.view(np.uint32) & kept) == want
        return equal

    size = -(-mmas * 32 // THREADS) * THREADS
    spread_out = [{name: np.resize(of[name], size) for name in of} for of in (inputs, outputs)]
    outcome = Batch([Case(form, instruction(form), *spread_out, near_the_diagonal)]).run(tmp_path)
    assert not outcome[form], outcome[form]
