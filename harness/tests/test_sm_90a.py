"""Versions for sm_90a alone, on the emulator and on made-up GPUs: who runs them, and what their tensor maps say."""

import subprocess
from pathlib import Path

import pytest
from made_up_gpu import ROOT, made_up, records, run

from analysis.ladder.headers import Version, load, load_all

VERSIONS = [version for version in load_all(ROOT).values() if version.one_arch]
OWN = ("--batch", "2", "--heads", "2", "--check", "all", "--quiet", "--json", "-")
SMALL = (*OWN, "--config", "all")


def first(copies: bool) -> Version:
    """The first version for sm_90a alone that is built, without tensor copies or with them."""
    for version in VERSIONS:
        if version.header.config.tensor_copies == copies and program_of(version).exists():
            return version
    pytest.skip(f"no version for sm_90a alone {'with' if copies else 'without'} tensor copies is built: make all")


def program_of(version: Version) -> Path:
    return ROOT / "bin" / version.stem


def on_gpu(driver: str, how: str, version: Version, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With one block of queries and keys per head: a made-up GPU goes through them in double precision."""
    seq = max(version.header.config.B_r, version.header.config.B_c)
    return run(*SMALL, "--seq", str(seq), *arguments, program=program_of(version), **made_up(driver, how))


@pytest.mark.parametrize("how", ["cc=90", "cc=80"])
def test_maps_are_aligned_wherever_the_heap_puts_them(driver: str, how: str) -> None:
    """A driver refuses a map that is not. A block that malloc maps by itself starts 16 bytes past a page."""
    version, tunables = first(copies=True), "glibc.malloc.mmap_threshold=64"
    seq = str(max(version.header.config.B_r, version.header.config.B_c))
    environment = made_up(driver, how) | {"GLIBC_TUNABLES": tunables}
    done = run("--batch", "1", "--heads", "1", "--seq", seq, program=program_of(version), **environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("capability", ["8.0", "8.6", "10.0", "12.0"])
def test_another_gpu_is_refused_by_name(driver: str, capability: str) -> None:
    version = first(copies=False)
    how = f"cc={capability.replace('.', '')}"
    done = on_gpu(driver, how, version, "--backend", "gpu")
    assert done.returncode == 77 and not done.stdout
    assert done.stderr == (
        f"{version.version}: {version.version} was built for sm_90a and needs an H100 or H200 (compute capability "
        f"9.0), but Fake GPU has {capability}; the emulator runs it anywhere (--backend emu)\n"
    )


@pytest.mark.parametrize("copies", [False, True])
def test_the_emulator_runs_it_where_the_gpu_cannot(driver: str, copies: bool) -> None:
    done = on_gpu(driver, "cc=80", first(copies), "--batch", "1")
    assert done.returncode == 0, done.stderr
    assert [(record["backend"], record["check"]["pass"]) for record in records(done)] == [("emu", True)] * 2
    for record in records(done):
        total, size = record["counters"]["total"], record["problem"]
        flop = 4 * size["batch"] * size["heads"] * size["seq"] ** 2 * size["d_head"]
        assert total["wgmma"] * 2 * 16 * 128 * 16 >= flop and total["mma"] == 0, "a warp's part of m64n128k16"
        assert (total["copied"] >= 3 * 2 * flop // (4 * size["seq"])) == copies, (
            "Q, K and V by the copy engine, or none"
        )


@pytest.mark.parametrize("copies", [False, True])
def test_a_gpu_of_90_runs_it(driver: str, copies: bool) -> None:
    """The made-up GPU takes addresses and strides of a kernel with tensor copies from the maps alone."""
    done = on_gpu(driver, "cc=90", first(copies), "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert [(record["backend"], record["check"]["pass"]) for record in records(done)] == [("gpu", True)] * 2


def scheduled(driver: str, how: str) -> subprocess.CompletedProcess[str]:
    """A kernel whose CTAs are scheduled dynamically, by a counter in global memory."""
    program = program_of(load(ROOT, "attention/wgmma"))
    if not program.exists():
        pytest.skip("bin/attention.wgmma is not built: make attention")
    return run(*OWN, "--seq", "128", "--runs", "1", program=program, **made_up(driver, how))


def test_counters_that_cannot_be_set_are_an_error(driver: str) -> None:
    done = scheduled(driver, "cc=90,fails=cuStreamSynchronize:1")
    assert done.returncode == 3 and "setting the tickets to zero: CUDA_ERROR_UNKNOWN" in done.stderr


def test_counters_are_set_to_zero_and_what_lies_behind_them_to_poison(driver: str) -> None:
    """In this order, before the first launch."""
    done = scheduled(driver, "cc=90,log")
    assert done.returncode == 0, done.stderr
    config, lines = load(ROOT, "attention/wgmma").header.config, done.stderr.splitlines()
    whole, zeros = config.tickets_bytes(1), config.counter_bytes()
    set_first = [line for line in lines[: [line.split()[0] for line in lines].index("flash_forward")] if "mem" in line]
    assert f"memset {whole} of 0xff" in set_first and f"memset {zeros} of 0x00" in set_first
    assert set_first.index(f"memset {whole} of 0xff") < set_first.index(f"memset {zeros} of 0x00")


def test_a_map_that_the_driver_refuses_is_named(driver: str) -> None:
    done = on_gpu(driver, "fails=cuTensorMapEncodeTiled:2", first(copies=True))
    assert done.returncode == 3
    assert "cuTensorMapEncodeTiled of V: CUDA_ERROR_UNKNOWN (999, " in done.stderr


def test_a_cubin_that_was_cut_off_is_refused(driver: str, tmp_path: Path) -> None:
    version = first(copies=False)
    whole = (ROOT / "build" / version.version / "sm_90a.cubin").read_bytes()
    program = program_of(version).read_bytes()
    assert program.count(whole) == 1
    half = whole[: len(whole) // 2].ljust(len(whole), b"\0")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(program.replace(whole, half))
    damaged.chmod(0o755)
    done = run(*SMALL, "--seq", "128", program=damaged, **made_up(driver, "cc=90"))
    assert done.returncode == 3
    assert "the embedded sm_90a code" in done.stderr and "build it again with make" in done.stderr
