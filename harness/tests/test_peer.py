"""bin/peers/fa3 on the made-up GPU, with kernels of fake_fa3.c instead of FlashAttention-3's."""

import subprocess
from pathlib import Path

import pytest
from made_up_gpu import NEEDS_V01, ROOT, made_up, records

pytestmark = NEEDS_V01
# Type, head size, causal, cluster.
KERNELS = [("FP16", 128, False, 1), ("FP16", 128, False, 2), ("BF16", 128, False, 2), ("FP16", 64, True, 1)]
ABOUT = {"VERSION": "fa3", "NAME": "fa3", "TITLE": "FlashAttention-3"}
ABOUT |= dict.fromkeys(("PARENT", "IDEA", "CONFIG", "OTHERS", "SERVING", "ARCH"), "")
ONE = ("--batch", "1", "--heads", "2")
SMALL = (*ONE, "--seq", "256", "--runs", "2")
LONG = "times=200"  # ms: the counter of energy is read between few launches


def link(folder: Path, name: str, kernels: list[str], *sources: str) -> Path:
    """A peer's executable as make links it, except the kernels."""
    (folder / "kernels.h").write_text(
        f'#define FA3_E4M3 0\n#define FA3_LIBRARY "FlashAttention-3 3.1"\n#define FA3_KERNELS {" ".join(kernels)}\n'
    )
    lines = [f'#define FL_{key} "{value}"\n' for key, value in (ABOUT | {"VERSION": name}).items()]
    (folder / "about.h").write_text("".join(lines) + f"#define FL_PEER fl_{name}\n")
    build = ROOT / "build"
    objects = (*build.glob("harness/*.o"), *build.glob("runtime/*.o"), *build.glob("emulator/*/*.o"))
    harness = [str(path) for path in objects if path.stem != "ptxrun"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I.", f"-I{folder}", "-Ibuild", "-pthread"]
    program = folder / name
    built = ["harness/about.c", *sources, *harness, "build/device/code.o"]
    subprocess.run(["cc", *flags, "-o", str(program), *built, "-ldl", "-lm"], check=True, cwd=ROOT, timeout=600)
    return program


@pytest.fixture(scope="module")
def fa3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [
        f"KERNEL(fa3_{dtype.lower()}_d{d_head}_{'causal' if causal else 'full'}_x{cluster}, "
        f"{dtype}, {d_head}, {str(causal).lower()}, {cluster})"
        for dtype, d_head, causal, cluster in KERNELS
    ]
    folder = tmp_path_factory.mktemp("peer")
    return link(folder, "fa3", names, "harness/peers/fa3.c", "harness/tests/fake_fa3.c")


BACKWARD = ["d128_full_any, BF16, 128, false, false", "d128_causal_any, BF16, 128, true, false"]
ORDERED = "d128_full_ordered, BF16, 128, false, true"


@pytest.fixture(scope="module", params=["fa3_backward", "fa3_ordered"])
def backward(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"KERNEL(fa3_bf16_{each})" for each in (*BACKWARD, ORDERED)]
    sources = ("harness/peers/fa3_backward.c", "harness/tests/fake_fa3_backward.c")
    return link(tmp_path_factory.mktemp(request.param), request.param, names, *sources)


def run(fa3: Path, driver: str, *arguments: str, how: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", **(made_up(driver, how) if driver else {"LD_LIBRARY_PATH": "/nowhere"}), **more}
    return subprocess.run([fa3, *arguments], capture_output=True, text=True, env=env, timeout=600, cwd=ROOT)


def test_a_record_of_a_peer_is_checked_and_timed_like_one_of_a_version(fa3: Path, driver: str) -> None:
    arguments = (*SMALL, "--dtype", "bf16", "--check", "all", "--energy", "--json", "-")
    (record,) = records(run(fa3, driver, *arguments, how=LONG))
    assert record["peer"] == "fa3" and record["library"] == "FlashAttention-3 3.1"
    assert not {"version", "config", "symbol"} & record.keys() and record["code_hash"] is None
    assert record["check"]["pass"] and record["check"]["pass_after"] and record["check"]["rows"] == 512
    assert record["problem"]["dtype"] == "bf16" and record["timing"]["samples_ns"] == [200e6] * 2
    assert record["energy"]["watts"] == pytest.approx(700, rel=0.03)
    done = run(fa3, driver, *SMALL, how="off", FAKE_NVML="")
    assert done.returncode == 1 and "fa3 FlashAttention-3 3.1  batch 1 heads 2 seq 256" in done.stdout


def test_pairs_of_ctas_where_the_number_of_q_blocks_is_even(fa3: Path, driver: str) -> None:
    """As FlashAttention-3's own dispatch does."""
    for seq, cluster in ((128, 1), (256, 2), (384, 1)):
        done = run(fa3, driver, *ONE, "--heads", "1", "--seq", str(seq), "--profile", FAKE_FA3="says")
        shape = f"{seq} x {seq} x 128 on 1 KV heads"
        assert done.stderr == f"fa3_fp16_d128_full_x{cluster} on 4 SMs, {shape}, scale 0.088388\n"


@pytest.mark.parametrize(
    ("arguments", "kernel"),
    [(("--causal",), "fp16_d128_causal_x1"), (("--d-head", "256", "--dtype", "bf16"), "bf16_d256_full_x2")],
)
def test_a_kernel_that_was_not_built_is_named(fa3: Path, driver: str, arguments: tuple[str, ...], kernel: str) -> None:
    missing = run(fa3, driver, *SMALL, *arguments)
    assert missing.returncode == 2
    for word in (f"kernel {kernel} is not built", "FA3_KERNELS", "seq_q"):
        assert word in missing.stderr


def test_the_case_of_attention_reaches_the_kernel(fa3: Path, driver: str) -> None:
    heads = ("--heads", "4", "--kv-heads", "2", "--profile")
    case = ("--causal", "--d-head", "64", "--seq-q", "100", "--seq-k", "300", "--scale", "0.5")
    done = run(fa3, driver, "--batch", "1", *heads, *case, FAKE_FA3="says")
    assert done.stderr == "fa3_fp16_d64_causal_x1 on 4 SMs, 100 x 300 x 64 on 2 KV heads causal, scale 0.500000\n"
    one = run(fa3, driver, "--batch", "1", *heads, "--causal", "--seq-q", "1", "--seq-k", "300", FAKE_FA3="says")
    shape = "1 x 300 x 128 on 2 KV heads"
    assert one.stderr.startswith(f"fa3_fp16_d128_full_x1 on 4 SMs, {shape}, "), "the mask hides nothing from one query"


def test_log_sum_exp_goes_where_it_is_checked(fa3: Path, driver: str) -> None:
    """The made-up kernels write 0, which is wrong."""
    (record,) = records(run(fa3, driver, *SMALL, "--lse", "--json", "-"))
    assert record["check"]["nan"] == 0 and record["check"]["pass"] is False and record["check"]["lse_max_error"] > 0


def test_the_counter_is_zero_before_each_launch_and_that_is_not_timed(fa3: Path, driver: str) -> None:
    """A causal kernel draws its tiles from it."""
    done = run(fa3, driver, *SMALL, "--energy", how=f"log,{LONG}")
    ran = [" ".join(line.split()[: 2 if line.startswith("memset") else 1]) for line in done.stderr.splitlines()]
    launches = [index for index, word in enumerate(ran) if word == "flash_forward"]
    assert len(launches) > 4
    before = [ran[:index][::-1] for index in launches]
    between = [words[: words.index("memset 16")] for words in before]
    assert all(words in ([], ["record", "stamp_clocks"]) for words in between)
    assert [] in between and ["record", "stamp_clocks"] in between


def test_a_launch_that_fails_ends_with_3_and_the_library_s_reason(fa3: Path, driver: str) -> None:
    done = run(fa3, driver, *SMALL, FAKE_FA3="fails")
    assert done.returncode == 3 and done.stderr == "fa3: FlashAttention-3: made up\n"


@pytest.mark.parametrize(
    "arguments", [("--config", "all"), ("--list",), ("--info",), ("--dump", "x"), ("--backend", "emu")]
)
def test_what_a_peer_lacks_is_refused(fa3: Path, driver: str, arguments: tuple[str, ...]) -> None:
    done = run(fa3, driver, *arguments)
    assert done.returncode == 2 and " ".join(arguments[: 1 + (arguments[0] == "--backend")]) in done.stderr
    assert "FlashAttention-3 3.1" in done.stderr


def test_without_its_gpu_it_cannot_run_and_the_emulator_is_not_taken(fa3: Path, driver: str) -> None:
    assert run(fa3, "").returncode == 77
    other = run(fa3, driver, *SMALL, how="cc=86")
    assert other.returncode == 77 and "which needs compute capability 9.0, but Fake GPU has 8.6" in other.stderr


def test_nothing_is_left_on_the_gpu(fa3: Path, driver: str) -> None:
    done = run(fa3, driver, *SMALL, "--seq", "256,128", how="left")
    assert done.returncode == 0
    assert "0 streams, 0 events, 0 pinned, 0 bytes" in done.stderr


BF16 = (*ONE, "--dtype", "bf16")


def test_a_backward_pass_gets_all_tensors_and_the_kernel_of_its_mask(backward: Path, driver: str) -> None:
    done = run(backward, driver, *BF16, "--seq-q", "200", "--seq-k", "300", "--profile")
    order, in_order = ("ordered", " in order") if backward.name == "fa3_ordered" else ("any", "")
    said = f"fa3_bf16_d128_full_{order} on 4 SMs, 200 x 300 x 128, B_r 80 bf16{in_order}\n"
    assert done.stderr == said
    causal = run(backward, driver, *BF16, "--seq", "128", "--causal", "--profile")
    if in_order:
        assert causal.returncode == 2 and "bf16, d_head 128, causal, deterministic is not built" in causal.stderr
    else:
        assert causal.stderr == "fa3_bf16_d128_causal_any on 4 SMs, 128 x 128 x 128, B_r 64 bf16\n"


def test_gradients_of_a_peer_are_compared_and_its_record_says_the_pass(backward: Path, driver: str) -> None:
    """The made-up kernels leave the NaN that gradients are filled with."""
    (record,) = records(run(backward, driver, *BF16, "--seq", "128", "--runs", "2", "--json", "-"))
    assert record["peer"] == backward.name and record["problem"]["pass"] == "backward"
    assert record["check"]["nan"] > 0 and record["check"]["pass"] is False


@pytest.mark.parametrize("arguments", [("--dtype", "fp16"), ("--kv-heads", "1"), ("--d-head", "64")])
def test_a_backward_kernel_that_was_not_built_is_named(backward: Path, driver: str, arguments: tuple[str, ...]) -> None:
    missing = run(backward, driver, *BF16, "--seq", "128", *arguments)
    assert missing.returncode == 2 and "backward kernel for" in missing.stderr
    assert "FA3_BACKWARD_KERNELS of make/peers.mk" in missing.stderr
