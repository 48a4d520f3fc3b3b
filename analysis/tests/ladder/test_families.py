"""A new kind of kernel is a fields file and a block in common/families.h: a fake one, which nothing else knows."""

from pathlib import Path

from analysis.files import read_text, root
from analysis.tests.ladder.test_config_fields import answers_of

FIELDS = """#include "common/fields_begin.h"
FIELD(enum dtype, dtype, "()", "element type")
FIELD(int, d_head, "()", "elements of a row")
FIELD(int, B_r, "()", "rows of Q")
FIELD(int, B_c, "()", "rows of K")
FIELD(int, n_warps, "()", "warps")
FIELD(enum instruction, instruction, "fake_mma_sync|fake_wgmma", "what multiplies")
FIELD(int, petals, "petals_N", "a number")
FIELD(bool, shiny, "shiny", "a flag")
RULE(shiny, !cfg.shiny || cfg.petals > 4, "must be off with fewer than 5 petals")
HAS(CAUSAL, cfg.shiny)
HAS(TENSOR_COPIES, cfg.instruction == WGMMA)
#include "common/fields_end.h"
"""
STRUCT = """
typedef struct fake_config {
#define FIELD(type, name, word, ...) type name;
#include "common/fake_fields.h"
} fake_config;
static inline launch_shape fake_launch_shape(const fake_config *config, const attention_args *args, int64_t count) {
    const launch_shape shape = {(uint32_t)(args->seq_q / config->B_r), (uint32_t)args->heads, (uint32_t)count,
                                (uint32_t)(32 * config->n_warps), (uint32_t)(1000 * config->petals)};
    return shape;
}
"""
ROW = """FAMILY(FAKE, fake, fake_config, fake, "", flash_fake, attention_args, serving_args)
#include "common/fake_fields.h"
END_FAMILY
"""
ASKED = """
from analysis.ladder import config as c
from analysis.ladder.instances import instances_text
shape = "(BF16, 64, 32, 16, 2): "
config = c.parse_config(shape + "shiny+fake_wgmma+petals_5")
print(config, config.family.name, config.instruction.name, config.petals, config.causal, config.any_length)
print(config.symbol(), config.to_cpp())
print(config == c.parse_config(config.symbol()) == c.parse_config(config.to_cpp()) == config.replace(petals=5))
print(config.threads(), config.smem_bytes(), config.grid(320, 3, 1, 132), config.parameter_types())
print(instances_text([config]).splitlines()[-1])
for text in ("fake_mma_sync+shiny", "fake_mma_sync+pages", "load_0_0_0_tiles+shiny", "wgmma+stages_2+petals_3"):
    try:
        c.parse_config(shape + text)
    except c.ConfigError as error:
        print(str(error).partition("': ")[2])
"""
VALUES = "L5dtype15ELi64ELi32ELi16ELi2EL11instruction2ELi5ELb1E"
SYMBOL = f"_Z10flash_fakeIXtl11fake_config{VALUES}EEEv14attention_args11tensor_maps"
CPP = "fake_config{BF16, 64, 32, 16, 2, WGMMA, 5, true}"


def test_a_family_is_a_fields_file_and_a_row(tmp_path: Path) -> None:
    families = read_text(root() / "common/families.h")
    last = "/* clang-format on */"
    assert families.count(last) == families.count("#endif\n\n#ifndef FAMILY\n") == 1
    families = families.replace("#endif\n\n#ifndef FAMILY\n", f"{STRUCT}#endif\n\n#ifndef FAMILY\n")
    headers = {"fake_fields.h": FIELDS, "families.h": families.replace(last, ROW + last)}
    assert answers_of(tmp_path, headers, ASKED).splitlines() == [
        "(BF16, 64, 32, 16, 2): fake_wgmma+petals_5+shiny fake WGMMA 5 True False",
        f"{SYMBOL} {CPP}",
        "True",
        "64 5000 (10, 3, 132) ['attention_args', 'tensor_maps']",
        f"template __global__ void flash_fake<{CPP}>(const __grid_constant__ attention_args, "
        "const __grid_constant__ tensor_maps);",
        "shiny = true: must be off with fewer than 5 petals (petals = 0)",
        "'pages' is a flag of attention, not of fake; write one of fake_mma_sync|fake_wgmma, petals_N, shiny",
        "'shiny' is a flag of fake, not of ladder; write one of async, eager, swizzled, load_Q_K_V_tiles, buffer, "
        "opt_softmax, lazy, stages_N, slack_N, padded, split_tail, persistent, tensor, producer, qk_ahead, ping_pong, "
        "double_q, exp_N, first_max, early_k",
        "'petals_3' is a flag of fake, not of attention; write one of mma_sync|wgmma, stages_N, exp_N, ping_pong, "
        "serve, cap, pages, pack, extend, dv_N, dropout, latent, bias",
    ]
