"""The rows of common/*_fields.h: a new row is all that a new field needs, every rule can be broken, first versions."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.ladder import config as c
from analysis.ladder.config import FAMILIES, FIELDS, TYPES, ConfigError, Dtype, KernelConfig
from analysis.ladder.headers import load_all, load_off_ladder

LINKED = ("config", "cuda_driver", "json", "launch", "status", "tensor_maps")
# Asks with another library instead of analysis.ladder.config's.
ASKS = "import ctypes, sys; load = ctypes.CDLL; ctypes.CDLL = lambda path: load(sys.argv[1])\n"


def answers_of(folder: Path, headers: dict[str, str], code: str) -> str:
    """The output of code that calls the library built with some headers of common/ replaced."""
    (folder / "common").mkdir()
    for name, text in headers.items():
        (folder / "common" / name).write_text(text)
    sources = [root() / "analysis/ladder/config_library.c", *(root() / f"runtime/{name}.c" for name in LINKED)]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{folder}", f"-I{root()}", "-ldl"]
    library = folder / "library.so"
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", library, *sources], check=True, timeout=600)
    command = [sys.executable, "-c", ASKS + code, str(library)]
    return subprocess.run(command, cwd=root(), capture_output=True, text=True, check=True).stdout


NEW_ROWS = """FIELD(int, pipelines, "pipelines_N", "a fake number", "v97", "v96")
FIELD(bool, wavy, "wavy", "a fake flag", "v98", "")
RULE(wavy, !cfg.wavy || cfg.pipelines > 2, "must be off with fewer than 3 pipelines")
"""
NEW_FIELDS = """
from analysis.ladder import config as c
from analysis.ladder.headers import load, refusals
from analysis.files import root
for text in ("wavy+load_0_0_0_tiles+pipelines_3", "wavy+load_0_0_0_tiles+pipelines_2", "load_0_0_0_tiles+hilly"):
    try:
        config = c.parse_short_form(f"(FP16, 128, 64, 64, 4): {text}")
        same = c.parse_config(config.symbol()) == c.parse_config(config.to_cpp()) == config
        print(config, config.values()[-2:], same)
    except c.ConfigError as error:
        print(error)
print(refusals(load(root(), "v01"), load(root(), "v01").header.config.replace(pipelines=3)))
"""


def test_a_row_is_all_that_a_new_field_needs(tmp_path: Path) -> None:
    rows = read_text(root() / "common/config_fields.h")
    before = "FIELD(bool, unused_1"
    assert before in rows
    headers = {"config_fields.h": rows.replace(before, NEW_ROWS + before)}
    good, broken, unknown, refused = answers_of(tmp_path, headers, NEW_FIELDS).splitlines()
    assert good == "(FP16, 128, 64, 64, 4): load_0_0_0_tiles+pipelines_3+wavy (3, True) True"
    assert broken.endswith("wavy = true: must be off with fewer than 3 pipelines (pipelines = 2)")
    assert unknown.endswith("unknown flag 'hilly'; write one of " + ", ".join(words()) + ", pipelines_N, wavy")
    assert refused == "['pipelines must be 0: v97 is the first version with mma.sync that acts on it']"


def words() -> list[str]:
    return list(dict.fromkeys(field.word for field in FIELDS.values() if field.word != c.PARENTHESIS))


FILES = {name: f"common/{'config' if name == 'ladder' else name}_fields.h" for name in FAMILIES}
CONFIGS = [
    config
    for version in (*load_all(root()).values(), *load_off_ladder(root()).values())
    for config in (version.header.config, *version.header.additional)
]
ODD = (0, 1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 144, 192, 256, 272, 512, 65552, -1, -8)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_can_be_broken(family: str) -> None:
    """By a few random changes of the configurations of kernels; a message has the sentence of its rule."""
    source = re.sub(r"//.*|\\\n", "", read_text(root() / FILES[family]))
    rules = [
        (field, "".join(re.findall(r'"([^"]*)"', rest)))
        for field, rest in re.findall(r"^RULE\((\w+),(.*?\")\)$", source, re.MULTILINE | re.DOTALL)
    ]
    assert len(rules) == source.count("\nRULE(") > 5
    left, rng = set(rules), random.Random(family)
    mine = [config for config in CONFIGS if config.family.name == family]
    for _ in range(20000):
        if not left:
            break
        config, fields = rng.choice(mine), rng.sample(list(FAMILIES[family].fields), rng.randint(1, 4))
        try:
            config.replace(**{name: another(config, name, rng) for name in fields})
        except ConfigError as error:
            left -= {
                (field, sentence)
                for field, sentence in left
                if str(error).startswith(f"{field} = ") and f": {sentence}" in str(error)
            }
    assert not left


def another(config: KernelConfig, name: str, rng: random.Random) -> int:
    """A value of a field."""
    kind = TYPES[FAMILIES[config.family.name].fields[name].type]
    if kind is bool:
        return rng.random() < 0.5
    if kind is int:
        return rng.choice(ODD)
    return rng.choice([*Dtype]) if kind is Dtype else rng.choice([c.Instruction.MMA_SYNC, c.Instruction.WGMMA])
