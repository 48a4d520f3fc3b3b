"""Configurations: every printed form parses back equal, bad text is refused by name, sets have their exact members."""

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.ladder import config as c
from analysis.ladder.config import ConfigError, Dtype, KernelConfig

CASES = Path(__file__).parents[1] / "fixtures/config_cases.txt"
V01 = c.parse_short_form("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")
V01_SYMBOL = (
    "_Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E"
    "Lb0ELi0ELi0ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELi0ELb0ELb0ELb0ELb0ELb0ELb0ELb0EEEEv12forward_args"
)


def cases(kind: str) -> list[tuple[str, str]]:
    lines = [line for line in CASES.read_text().splitlines() if line and not line.startswith("#")]
    rows = [line.split("\t") for line in lines]
    assert all(len(row) == 3 and row[0] in ("ok", "bad") for row in rows)
    return [(text, expected) for which, text, expected in rows if which == kind]


@st.composite
def configs(draw: st.DrawFn) -> KernelConfig:
    n_warps = draw(st.integers(1, 8))
    B_r, B_c = 16 * n_warps * draw(st.integers(1, 4)), 16 * draw(st.integers(1, 16))
    d_head, buffer = 16 * draw(st.integers(1, 16)), draw(st.booleans())
    step = 16 if buffer else 8

    def tiles(depth: int) -> int:
        return draw(st.sampled_from([0, *(n for n in (2, 4, 8, 16, 32) if n <= depth // step)]))

    K = tiles(d_head)
    stages, swizzled, split_tail = draw(st.sampled_from([0, 2, 3, 4, 12])), draw(st.booleans()), draw(st.booleans())
    padded = not swizzled and draw(st.booleans())
    tensor = not padded and n_warps % 4 == 0 and d_head % 64 == 0 and draw(st.booleans())
    producer = tensor and draw(st.booleans())
    persistent = (split_tail or producer) and draw(st.booleans())
    return V01.replace(
        dtype=draw(st.sampled_from(Dtype)),
        d_head=d_head,
        B_r=B_r,
        B_c=B_c,
        n_warps=n_warps,
        async_copy=draw(st.booleans()),
        eager_load_blocks=draw(st.booleans()),
        swizzled=swizzled,
        Q_mma_load_K_tiles=draw(st.sampled_from([0, K])),
        K_mma_load_K_tiles=K,
        V_mma_load_K_tiles=tiles(B_c),
        mma_double_buffer_loads=buffer,
        optimized_softmax=draw(st.booleans()),
        lazy_rescale=draw(st.booleans()),
        stages=stages,
        slack=draw(st.integers(0, max(stages - 2, 0))),
        padded_rows=padded,
        split_tail=split_tail,
        persistent=persistent,
        tensor_copies=tensor,
        producer=producer,
        QK_ahead=draw(st.booleans()),
        ping_pong=n_warps == 8 and draw(st.booleans()),
        double_buffer_Q=producer and persistent and draw(st.booleans()),
        exp_columns=draw(st.sampled_from([0, 8, 16])),
        first_max=(first_max := draw(st.booleans())),
        early_release=first_max and draw(st.booleans()),
    )


def same(a: KernelConfig, b: KernelConfig) -> bool:
    return a == b and [type(value) for value in a.values()] == [type(value) for value in b.values()]


@given(configs())
def test_every_printed_form_parses_back(config: KernelConfig) -> None:
    typed = ", ".join(
        f"({'dtype' if type(v) is Dtype else type(v).__name__}){int(v) if type(v) is not bool else str(v).lower()}"
        for v in config.values()
    )
    plain = ", ".join(str(int(value)) for value in config.values())
    for text in (
        str(config),
        config.to_cpp(),
        config.symbol(),
        f"void flash_forward<KernelConfig{{{plain}}}>(forward_args)",
        f"void flash_forward<KernelConfig{{{typed}}}>(forward_args)",
        f"{config} | 202 | 0",
    ):
        assert same(c.parse_config(text), config), text


@given(configs())
def test_shortened_forms_parse_back_against_a_base(config: KernelConfig) -> None:
    for include_d_head in (True, False):
        for include_tuple in (True, False):
            text = config.short_form(include_d_head, include_tuple)
            assert same(c.parse_short_form(text, base=config), config), text


def test_a_shortened_form_without_a_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 values"):
        c.parse_short_form(V01.short_form(include_d_head=False))
    with pytest.raises(ConfigError, match=r"expected '\(dtype"):
        c.parse_short_form(V01.short_form(include_tuple=False))


@pytest.mark.parametrize(("text", "canonical"), cases("ok"))
def test_shared_good_cases(text: str, canonical: str) -> None:
    assert str(c.parse_short_form(text)) == canonical


@pytest.mark.parametrize(("text", "word"), cases("bad"))
def test_shared_bad_cases(text: str, word: str) -> None:
    with pytest.raises(ConfigError) as error:
        c.parse_short_form(text)
    assert word in str(error.value)


@given(st.text())
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    for head in ("", "(", "(FP16, 128, 64, 64, 4): ", "KernelConfig{", "_Z13flash_forwardIXtl12KernelConfig"):
        with contextlib.suppress(ConfigError):
            assert isinstance(c.parse_config(head + text), KernelConfig)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"d_head": 72}, ["d_head = 72", "multiple of 16"]),
        ({"d_head": 96, "tensor_copies": True}, ["d_head = 96", "multiple of 64 with tensor"]),
        ({"B_r": 0}, ["B_r = 0", "from 1 to 65536"]),
        ({"d_head": 131072}, ["d_head = 131072", "from 1 to 65536"]),
        ({"n_warps": 8}, ["B_r = 64", "16 rows for each warp", "(n_warps = 8)"]),
        ({"B_c": 40}, ["B_c = 40", "multiple of 16"]),
        ({"V_mma_load_K_tiles": 1}, ["V_mma_load_K_tiles = 1", "power of two"]),
        ({"V_mma_load_K_tiles": 6}, ["V_mma_load_K_tiles = 6", "power of two"]),
        ({"V_mma_load_K_tiles": 16}, ["V_mma_load_K_tiles = 16", "B_c / 8", "B_c = 64"]),
        (
            {"V_mma_load_K_tiles": 8, "mma_double_buffer_loads": True},
            ["V_mma_load_K_tiles = 8", "B_c / 16", "mma_double_buffer_loads = true"],
        ),
        ({"K_mma_load_K_tiles": 32}, ["K_mma_load_K_tiles = 32", "d_head / 8", "d_head = 128"]),
        ({"Q_mma_load_K_tiles": 2}, ["Q_mma_load_K_tiles = 2", "equal to K's", "K_mma_load_K_tiles = 0"]),
        ({"async_copy": 1}, ["async_copy = 1", "bool"]),
        ({"stages": 1}, ["stages = 1", "at least 2"]),
        ({"stages": -1}, ["stages = -1", "at least 2"]),
        ({"stages": 4, "slack": 3}, ["slack = 3", "stages - 2"]),
        ({"slack": 1}, ["slack = 1", "without stages"]),
        ({"stages": 4, "slack": -1}, ["slack = -1", "from 0"]),
        ({"swizzled": True, "padded_rows": True}, ["padded_rows = true", "swizzled"]),
        ({"persistent": True}, ["persistent = true", "split_tail"]),
        ({"producer": True}, ["producer = true", "tensor_copies = false"]),
        ({"tensor_copies": True, "B_c": 272}, ["B_c = 272", "256"]),
        ({"exp_columns": 12}, ["exp_columns = 12", "multiple of 8"]),
        ({"exp_columns": 24}, ["exp_columns = 24", "divide B_c"]),
        ({"early_release": True}, ["early_release = true", "first_max = false"]),
        ({"dtype": 5}, ["dtype = 5", "Dtype"]),
    ],
)
def test_a_broken_rule_is_named_with_field_and_value(change: dict[str, int], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        V01.replace(**change)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_symbol_is_the_one_nvcc_emits() -> None:
    assert V01.symbol() == V01_SYMBOL
    assert c.parse_symbol(V01_SYMBOL) == V01


def test_a_symbol_with_tensor_copies_ends_with_the_second_parameter() -> None:
    config = V01.replace(tensor_copies=True)
    assert config.symbol().endswith("EEEv12forward_args11tensor_maps")
    assert c.parse_symbol(config.symbol()) == config
    demangled = subprocess.run(["c++filt", config.symbol()], capture_output=True, text=True, check=True).stdout
    assert demangled.strip().endswith("}>(forward_args, tensor_maps)") and c.parse_config(demangled) == config


def test_the_first_parameter_of_a_symbol_is_that_of_the_family() -> None:
    wgmma = c.parse_short_form("(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32")
    assert wgmma.symbol().endswith("EEEv14attention_args11tensor_maps") and c.parse_symbol(wgmma.symbol()) == wgmma
    serves = wgmma.replace(serves=True)
    assert serves.symbol().endswith("EEEv12serving_args11tensor_maps")
    for symbol in (
        wgmma.symbol().replace("14attention_args", "12serving_args"),
        V01_SYMBOL.replace("12forward_args", "14attention_args"),
    ):
        with pytest.raises(ConfigError, match="not the symbol of a kernel"):
            c.parse_symbol(symbol)


def test_symbol_demangles_to_a_form_that_parses() -> None:
    demangled = subprocess.run(["c++filt", V01_SYMBOL], capture_output=True, text=True, check=True).stdout
    assert "KernelConfig{(dtype)5, 128" in demangled
    assert same(c.parse_braces(demangled), V01)


def test_later_fields_may_follow_when_they_are_zero() -> None:
    assert c.parse_symbol(V01_SYMBOL.replace("EEEEv", "ELi0ELb0EEEEv")) == V01
    with pytest.raises(ConfigError, match="not the symbol of a kernel"):
        c.parse_symbol(V01_SYMBOL.replace("EEEEv", "ELi3EEEEv"))
    known = V01.to_cpp()
    assert c.parse_braces(known.replace("}", ", false, 0}")) == V01
    with pytest.raises(ConfigError, match="a later field = 3"):
        c.parse_braces(known.replace("}", ", 3}"))


def test_later_fields_may_be_missing() -> None:
    first = "Lb0ELi0ELi0ELi0ELb0ELb0E"
    later = V01_SYMBOL[V01_SYMBOL.index(first) + len(first) : V01_SYMBOL.index("EEEv12")]
    assert c.parse_symbol(V01_SYMBOL.replace(later, "")) == V01
    assert c.parse_symbol(V01_SYMBOL.replace(later, "Lb1ELi4E")) == V01.replace(lazy_rescale=True, stages=4)
    with pytest.raises(ConfigError, match="not the symbol of a kernel"):
        c.parse_symbol(V01_SYMBOL[: V01_SYMBOL.index("ELi4ELb1") + 1] + "EEEv12forward_args")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("void other(int)", "expected"),
        ("KernelConfig{5, 128}", "2 values"),
        ("KernelConfig{5, 128, 64, 64, 4, 2, 0, 0, 0, 0, 0, 0, 0}", "async_copy = 2"),
        ("KernelConfig{5, (bool)128, 64, 64, 4, 1, 0, 0, 0, 0, 0, 0, 0}", "d_head"),
        ("KernelConfig{5, (long)128, 64, 64, 4, 1, 0, 0, 0, 0, 0, 0, 0}", "(long)128"),
        ("KernelConfig{6, 128, 64, 64, 4, 1, 0, 0, 0, 0, 0, 0, 0}", "dtype = 6"),
        ("FlashForwardKernelConfig{5, 128, 64, 64, 4, 1, 0, 0, 0, 0, 0, 0, 0}", "KernelConfig{...}"),
        ("_Z13flash_forwardv", "_Z13flash_forwardv"),
    ],
)
def test_bad_names_are_refused(text: str, word: str) -> None:
    with pytest.raises(ConfigError) as error:
        c.parse_config(text)
    assert word in str(error.value)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (V01_SYMBOL, ""),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4>>(x)",
            "FlashAttention-2",
        ),
        ("_ZN13pytorch_flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traits", "FlashAttention-2"),
        ("_ZN7cutlass13device_kernelIN5flash11enable_sm90INS1_16FlashAttnFwdSm90I", "FlashAttention-3"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "cuDNN attention"),
        ("fmha_cutlassF_f16_aligned_64x128_rf_sm80", "PyTorch memory-efficient attention"),
        ("_attn_fwd", "Triton"),
        ("triton_poi_fused_add_0", "Triton"),
        ("void fwd_attend_ker<128, false>(fwd_globals<128>)", "ThunderKittens"),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "cuBLAS"),
        ("ampere_h16816gemm_128x128_ldg8_nn", "cuBLAS"),
        ("_ZN7cutlass7Kernel2I50cutlass_80_tensorop_f16_s16816gemm_f16_256x64_32x4EEvNT_6ParamsE", "CUTLASS"),
        ("_ZN7cutlass13device_kernelIN4cute5tupleEEEvNT_6ParamsE", "CUTLASS"),
        (
            "flash::flash_forward_kernel<flash::StaticForwardKernelConfig<FlashForwardKernelConfig{5, 128}>>(x)",
            "published ladder",
        ),
        ("my_own_kernel", ""),
        ("", ""),
    ],
)
def test_libraries_of_foreign_kernels(name: str, label: str) -> None:
    assert c.library_of(name) == label


def test_set_sizes_and_members() -> None:
    sizes = {"prog": 7, "progall": 56, "all": 80, "tune": 80, "64,64": 32, "64,32": 16, "128,32": 16, "128,64": 16}
    for name, size in sizes.items():
        members = c.config_set(name)
        assert len(members) == len(set(members)) == size, name
    assert c.config_set("tune")[0].dtype is Dtype.BF16
    assert c.config_set("all") == sorted(c.config_set("tune"))
    tiles = {
        (m.B_r, m.B_c, m.Q_mma_load_K_tiles, m.K_mma_load_K_tiles, m.V_mma_load_K_tiles) for m in c.config_set("tune")
    }
    assert tiles == {(64, 64, 0, k, v) for k in (0, 2) for v in (0, 2)} | {
        (B_r, B_c, 2, 2, v) for B_r, B_c in ((64, 32), (128, 32), (128, 64)) for v in (0, 2)
    }
    shapes = {(m.B_r, m.B_c, m.n_warps) for m in c.config_set("progall")}
    assert shapes == {(64, 64, 4), (64, 32, 4)} | {(128, B_c, w) for B_c in (128, 64, 32) for w in (4, 8)}
    assert {m.dtype for m in c.config_set("prog")} == {Dtype.FP16}


def test_tune_of_a_version_with_tensor_copies_is_over_its_own_fields() -> None:
    """What the header leaves out stays out; a version without tensor copies has the common 80."""
    features = "eager+swizzled+load_0_0_0_tiles+opt_softmax+lazy+stages_2+persistent+tensor+producer+qk_ahead"
    own = c.parse_short_form(f"(FP16, 128, 128, 128, 8): {features}+ping_pong+double_q+exp_32+first_max+early_k")
    members = c.config_set("tune", own)
    assert len(members) == len(set(members)) == 2 * 2 * 3 * 3 * 2 and own in members
    assert {m.dtype for m in members} == set(Dtype) and members[0].dtype is Dtype.BF16
    assert {m.B_c for m in members} == {64, 128} and {m.stages for m in members} == {2, 3, 4}
    assert {m.exp_columns for m in members} == {16, 32, 64} and {m.ping_pong for m in members} == {False, True}
    varied = {"dtype": Dtype.FP16, "B_c": 128, "stages": 2, "exp_columns": 32, "ping_pong": True}
    assert {m.replace(**varied) for m in members} == {own}
    plain = c.config_set("tune", own.replace(ping_pong=False, exp_columns=0))
    assert len(plain) == 2 * 2 * 3 and not any(m.ping_pong or m.exp_columns for m in plain)
    assert c.config_set("tune", V01) == c.config_set("tune")


def test_default_and_lists() -> None:
    both = [V01, V01.replace(dtype=Dtype.BF16)]
    assert c.config_set("", V01) == c.config_set("default", V01) == both
    assert c.config_set(f"{both[1]};{both[0]} ; default", V01) == both[::-1]


@pytest.mark.parametrize("name", ["nonsense", "64,128", "prog,all", "64", ";", "default", "Prog"])
def test_unknown_sets_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        c.config_set(name)


def test_figures_that_follow_from_a_config() -> None:
    big = V01.replace(B_r=128)
    assert (V01.threads(), V01.smem_bytes(), big.smem_bytes()) == (128, 49152, 65536)


def test_differences_name_fields() -> None:
    other = V01.replace(dtype=Dtype.BF16, swizzled=True)
    assert c.differences(V01, other) == [("dtype", "FP16", "BF16"), ("swizzled", "false", "true")]
    assert c.differences(V01, V01) == []
