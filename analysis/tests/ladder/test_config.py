"""Configurations: printed forms parse back equal, bad text is refused by name, sets have their exact members.

runtime/tests/test_config.c tries fixtures/config_cases.txt: Python asks the same compiled parser.
"""

from itertools import product

import pytest

from analysis.files import root
from analysis.ladder import config as c
from analysis.ladder.config import ConfigError, Dtype, KernelConfig
from analysis.ladder.headers import load_all

CONFIGS = [version.header.config for version in load_all(root()).values()]
V01 = c.parse_short_form("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")
V01_SYMBOL = (
    "_Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128ELi64ELi64ELi4ELb1ELb0ELb0ELi0ELi0ELi0ELb0ELb0E"
    "Lb0ELi0ELi0ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELb0ELi0ELb0ELb0ELb0ELb0ELb0ELb0ELb0EEEEv12forward_args"
)


def same(a: KernelConfig, b: KernelConfig) -> bool:
    return a == b and [type(value) for value in a.values()] == [type(value) for value in b.values()]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
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
    for include_d_head, include_tuple in product((True, False), repeat=2):
        text = config.short_form(include_d_head, include_tuple)
        assert same(c.parse_short_form(text, base=config), config), text


def test_a_shortened_form_without_a_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 values"):
        c.parse_short_form(V01.short_form(include_d_head=False))
    with pytest.raises(ConfigError, match=r"must begin with '\(dtype"):
        c.parse_short_form(V01.short_form(include_tuple=False))


def test_a_number_is_no_dtype() -> None:
    with pytest.raises(ConfigError, match=r"dtype = 5.*Dtype"):
        V01.replace(dtype=5)


def test_symbol_is_the_one_nvcc_emits() -> None:
    assert V01.symbol() == V01_SYMBOL
    assert c.parse_symbol(V01_SYMBOL) == V01


def test_later_fields_may_follow_when_they_are_zero() -> None:
    assert c.parse_symbol(V01_SYMBOL.replace("EEEEv", "ELi0ELb0EEEEv")) == V01
    with pytest.raises(ConfigError, match="not the symbol of a kernel"):
        c.parse_symbol(V01_SYMBOL.replace("EEEEv", "ELi3EEEEv"))
    known = V01.to_cpp()
    assert c.parse_braces(known.replace("}", ", false, 0}")) == V01
    with pytest.raises(ConfigError, match="a later field = 3"):
        c.parse_braces(known.replace("}", ", 3}"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("void other(int)", "must begin with"),
        ("KernelConfig{5, 128, 64, 64, 4, 2, 0, 0, 0, 0, 0, 0, 0}", "async_copy = 2"),
        ("KernelConfig{5, (long)128, 64, 64, 4, 1, 0, 0, 0, 0, 0, 0, 0}", "(long)128"),
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
        ("_ZN7cutlass13device_kernelIN5flash11enable_sm90INS1_16FlashAttnFwdSm90I", "FlashAttention-3"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "cuDNN attention"),
        ("_attn_fwd", "Triton"),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "cuBLAS"),
        ("_ZN7cutlass13device_kernelIN4cute5tupleEEEvNT_6ParamsE", "CUTLASS"),
        ("my_own_kernel", ""),
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


def test_default_and_lists() -> None:
    both = [V01, V01.replace(dtype=Dtype.BF16)]
    assert c.config_set("", V01) == c.config_set("default", V01) == both
    assert c.config_set(f"{both[1]};{both[0]} ; default", V01) == both[::-1]


@pytest.mark.parametrize("name", ["nonsense", "64,128", "prog,all", "64", ";", "default", "Prog"])
def test_unknown_sets_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        c.config_set(name)


def test_differences_name_fields() -> None:
    other = V01.replace(dtype=Dtype.BF16, swizzled=True)
    assert c.differences(V01, other) == [("dtype", "FP16", "BF16"), ("swizzled", "false", "true")]
    assert c.differences(V01, V01) == []
