"""The list of fields and rules: C and Python take the same texts, and a new row is all that a new field needs."""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder import config as c
from analysis.ladder.config import ConfigError, KernelConfig
from analysis.ladder.fields import (
    ATTENTION,
    BACKWARD,
    DECODE,
    FIELDS,
    FP8,
    LADDER,
    LIST,
    FieldList,
    Item,
    parse_fields,
    parse_rules,
)
from analysis.ladder.headers import Version, load_all, refusals
from analysis.tests.support.kinds import some_in_check

LISTS = {"ladder": LADDER, "attention": ATTENTION, "decode": DECODE, "backward": BACKWARD, "fp8": FP8}
C_FILES = ("tests/config_lines.c", "config.c", "json.c", "launch.c", "status.c")
CHECKED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FORMS, SEED = 2000, 15


def compiled(checkout: Path, target: Path) -> Path:
    """runtime/tests/config_lines.c of a checkout, with the parts of the harness that it needs."""
    sources = [str(checkout / "runtime" / name) for name in C_FILES]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", *CHECKED, f"-I{checkout}"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(target), *sources], check=True, timeout=600)
    return target


def said_by_c(program: Path, texts: list[str]) -> list[list[str]]:
    """(ok, short form, fields as JSON) or (bad, message) of each text."""
    done = subprocess.run([str(program)], input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    return [line.split("\t", 1 if line.startswith("bad") else 2) for line in done.stdout.split("\n")[:-1]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(root(), tmp_path_factory.mktemp("config") / "config_lines")


# ---- the same texts for both -----------------------------------------------------------------------------------------


def good_form(rng: random.Random, rows: FieldList) -> tuple[list[str], list[str]]:
    """The values in the parenthesis and the items of a configuration that Python takes; what it refuses goes."""
    always = {item.fields[0].name for item in rows.items if item.required or "|" in item.word}
    while True:
        n_warps = rng.choice((1, 2, 4, 8))
        sizes = (16 * rng.randint(1, 16), 16 * n_warps * rng.randint(1, 4), 16 * rng.randint(1, 8), n_warps)
        if rows is DECODE:
            B_r = rng.choice([rows for rows in (16, 32, 64) if rows <= 16 * n_warps])
            sizes = (64 * rng.randint(1, 2), B_r, 256 * n_warps // B_r * rng.randint(1, 4), n_warps)
            by_wgmma = rng.random() < 0.4
            if by_wgmma:
                sizes = (sizes[0], 64 * (n_warps // 8 + 1), 8192 // sizes[0], 4 * (n_warps // 8 + 1))
        if rows is FP8:
            n_warps = rng.choice((8, 12))
            sizes = (128, 16 * n_warps, 32 * rng.randint(1, 4), n_warps)
        values = [rng.choice(("FP16", "BF16", "bf16", "5", "15")), *map(str, sizes)]
        items = {
            item.fields[0].name: item_text(item, rng)
            for item in rows.items
            if item.fields[0].name in always or rng.random() < 0.6
        }
        if rows is DECODE:  # by tensor it is known
            items |= {"instruction": "wgmma" if by_wgmma else "mma_sync", "tensor_copies": "tensor"}
        if rows is FP8:
            items |= {"instruction": "fp8_wgmma", "stages": "stages_2"}
        while True:
            said = said_by_python(f"({','.join(values)}): {'+'.join(items.values())}")
            if said[0] == "ok":
                return values, list(items.values())
            wrong = next(re.finditer(r": (\w+) = ", said[1]))[1]
            if wrong not in items or wrong in always:
                break
            del items[wrong]


def item_text(item: Item, rng: random.Random) -> str:
    """An item with numbers that are often allowed."""
    if "|" in item.word:
        return rng.choice(item.word.split("|"))
    allowed = (0, 2, 2, 4) if item.required else (8, 8, 16, 24) if item.word == "exp_N" else (1, 2, 4, 5)
    return re.sub("[A-Z]", lambda _: str(rng.choice(allowed)), item.word)


def spoil(values: list[str], items: list[str], rng: random.Random, rows: FieldList) -> None:
    """Change one value or item, so that another rule or another part of the parser is asked."""
    at, item = rng.randrange(len(values)), rng.randrange(len(items))
    kind = rng.randrange(16)
    if kind <= 2:
        types = ("FP32", "fP16", "05", "6", "", "x")
        odd = (
            "0",
            "1",
            "8",
            "24",
            "96",
            "065",
            "65536",
            "65600",
            "131072",
            "-64",
            "0x40",
            "272",
            "1e2",
            "",
            "x",
            "9" * 10,
        )
        values[at] = rng.choice((*odd, "9" * 10) if at else types)
    elif kind == 3:
        del values[at]
    elif kind == 4:
        values.insert(at, rng.choice(("2", "x", "")))
    elif kind == 5:
        items.insert(item, rng.choice(items))
    elif kind == 6:
        items.insert(
            item, rng.choice(("asynch", "ASYNC", "load", "load_", "loads", "stages", "stages_", "", "async lazy"))
        )
    elif kind == 7:
        del items[item]
    elif kind <= 11:
        items.insert(item, item_text(rng.choice(rows.items), rng))
    else:
        number = rng.choice(("0", "1", "3", "7", "16", "64", "08", "1000000000", "-2", "x"))
        numbered = [i for i, text in enumerate(items) if re.search("[0-9]", text)]
        if numbered:
            item = rng.choice(numbered)
            places = [found.span() for found in re.finditer("[0-9]+", items[item])]
            start, end = rng.choice(places)
            items[item] = items[item][:start] + number + items[item][end:]


def edited(text: str, rng: random.Random) -> str:
    """A character deleted, doubled or replaced anywhere, or all of the features cut off."""
    if rng.random() < 0.1:
        return text.partition(":")[0]
    at = rng.randrange(len(text))
    other = rng.choice("(), :+_|09afN\t\v\x1c")
    return text[:at] + rng.choice(("", text[at] * 2, other, other + text[at])) + text[at + 1 :]


def forms(count: int, seed: int, rows: FieldList = LADDER) -> Iterator[str]:
    """Short forms, about half of them good."""
    rng = random.Random(seed)
    for _ in range(count):
        values, items = good_form(rng, rows)
        if rng.random() < 0.5:
            spoil(values, items, rng, rows)
        if rng.random() < 0.3:
            rng.shuffle(items)
        blank = rng.choice(("", "", "", " ", "\t"))
        text = f"({f',{blank} '.join(values)}){blank}: {f'{blank}+{blank}'.join(items)}"
        text += rng.choice(("", "", "", " | 202 | 0", "|x"))
        yield edited(text, rng) if rng.random() < 0.15 else text


def said_by_python(text: str) -> list[str]:
    """What `said_by_c` gives, from this side."""
    try:
        config = c.parse_config(text)
    except ConfigError as error:
        return ["bad", str(error)]
    return ["ok", str(config), json.dumps(fields_of(config))]


def fields_of(config: KernelConfig) -> dict[str, object]:
    values = zip(config.LIST.fields, config.values(), strict=True)
    return {name: value.name.lower() if isinstance(value, IntEnum) else value for name, value in values}


def comparable(said: list[str]) -> list[object]:
    """JSON read; a message without the word before the text, and with control characters escaped as Python does."""
    if said[0] == "ok":
        return [said[0], said[1], json.loads(said[2])]
    message = re.sub(r"[\t\v\x1c]", lambda found: repr(found[0])[1:-1], said[1])
    return [said[0], message.removeprefix("config ")]


EACH_LIST = pytest.mark.parametrize("rows", LISTS.values(), ids=LISTS)


@pytest.mark.parametrize("count", some_in_check([200, FORMS], [200]))
@EACH_LIST
def test_both_sides_say_the_same(program: Path, rows: FieldList, count: int) -> None:
    texts = list(forms(count, SEED, rows))
    by_c, by_python = said_by_c(program, texts), [said_by_python(text) for text in texts]
    assert len(by_c) == len(texts)
    different = [
        (text, a, b) for text, a, b in zip(texts, by_c, by_python, strict=True) if comparable(a) != comparable(b)
    ]
    assert not different, "\n".join(map(str, different[:5]))
    counts = Counter(said[0] for said in by_c)
    assert counts["ok"] > count / 4 and counts["bad"] > count / 4, counts


@pytest.mark.long
@EACH_LIST
def test_every_rule_is_broken_and_every_message_said(rows: FieldList) -> None:
    said = [said_by_python(text) for text in forms(FORMS, SEED, rows)]
    messages = "\n".join(each[1] for each in said if each[0] == "bad")
    for rule in rows.rules:
        assert re.search(rf"\b{rule.field} = \S+: {re.escape(rule.sentence)}", messages), f"never broken: {rule}"
    for words in (
        "unknown dtype",
        "expected '(",
        "values in the parenthesis",
        "must be a number",
        "':' and the features",
        "must have the form",
        "unknown feature",
        "repeated feature",
        *(["is missing"] if rows is LADDER else []),
    ):
        assert words in messages, f"never said: {words}"


@EACH_LIST
def test_c_decodes_the_symbols_that_python_writes(program: Path, rows: FieldList) -> None:
    said_of = map(said_by_python, forms(200, SEED + 1, rows))
    configs = [c.parse_short_form(said[1]) for said in said_of if said[0] == "ok"]
    assert len(configs) > 50
    for config, said in zip(configs, said_by_c(program, [config.symbol() for config in configs]), strict=True):
        assert said[:2] == ["ok", str(config)] and json.loads(said[2]) == fields_of(config)


# ---- a new field -----------------------------------------------------------------------------------------------------

NEW_ROWS = """
FIELD(int, pipelines, "pipelines_N", "v97", "v96", "a made-up number")
FIELD(bool, wavy, "wavy", "v98", "", "a made-up flag")
RULE(wavy, !cfg.wavy || cfg.pipelines > 2, "must be off with fewer than 3 pipelines")
"""
ASK = """
import json, sys
from analysis.ladder import config as c
for text in sys.stdin.read().splitlines():
    try:
        config = c.parse_config(text)
        values = [int(value) for value in config.values()]
        print("ok", config, json.dumps([config.symbol(), config.to_cpp(), values]), sep="\\t")
    except c.ConfigError as error:
        print("bad", error, sep="\\t")
"""


def test_a_row_is_all_that_a_new_field_needs(tmp_path: Path) -> None:
    for name in ("analysis", "emulator", "runtime", "harness", "common", "kernels"):
        shutil.copytree(root() / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "emu", "fixtures"))
    rows = tmp_path / LIST
    rows.write_text(rows.read_text().replace("\n#undef FIELD", NEW_ROWS + "\n#undef FIELD"))
    texts = [
        "(FP16, 128, 64, 64, 4): wavy+load_0_0_0_tiles+pipelines_3",
        "(FP16, 128, 64, 64, 4): wavy+load_0_0_0_tiles+pipelines_2",
        "(FP16, 128, 64, 64, 4): load_0_0_0_tiles",
        "(FP16, 128, 64, 64, 4): load_0_0_0_tiles+hilly",
    ]
    python = [sys.executable, "-c", ASK]
    done = subprocess.run(python, cwd=tmp_path, input="\n".join(texts), capture_output=True, text=True, check=True)
    by_python = [line.split("\t") for line in done.stdout.splitlines()]
    program = compiled(tmp_path, tmp_path / "config_lines")
    by_c = said_by_c(program, texts)

    canonical = "(FP16, 128, 64, 64, 4): load_0_0_0_tiles+pipelines_3+wavy"
    assert by_c[0][:2] == by_python[0][:2] == ["ok", canonical]
    fields = json.loads(by_c[0][2])
    assert (fields["pipelines"], fields["wavy"]) == (3, True) and list(fields)[-2:] == ["pipelines", "wavy"]
    symbol, cpp, values = json.loads(by_python[0][2])
    assert symbol.endswith("Li3ELb1EEEEv12forward_args") and cpp.endswith("3, true}") and values[-2:] == [3, 1]
    assert said_by_c(program, [symbol])[0][:2] == ["ok", canonical]
    for side in (by_c, by_python):
        assert "wavy = true: must be off with fewer than 3 pipelines (pipelines = 2)" in side[1][1]
        assert side[2][1] == texts[2]
        assert side[3][1].endswith(f"{LADDER.items[-1].word}, pipelines_N, wavy")

    asked = ["--version", "v01", "--set", "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+pipelines_3", "--json"]
    command = [sys.executable, "-m", "analysis", "configs", *asked]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["v01"] == "pipelines must be 0: v97 is the first version with mma.sync that acts on it"


# ---- the list itself -------------------------------------------------------------------------------------------------


VERSIONS = load_all(root())


def takes(version: Version, name: str) -> bool:
    """Whether a version takes its own configuration with a field in use; a rule may want other fields with it."""
    config = version.header.config
    for value in (True,) if FIELDS[name].type == "bool" else (1, 2):
        with contextlib.suppress(ConfigError):
            if not refusals(version, config.replace(**{name: value})):
                return True
    return bool(getattr(config, name))


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_taken_since_the_version_of_its_row_and_refused_before(name: str) -> None:
    for since, one_arch in ((FIELDS[name].mma_sync, False), (FIELDS[name].wgmma, True)):
        if since in VERSIONS:
            assert takes(VERSIONS[since], name)
        line = [version for version in VERSIONS.values() if version.one_arch is one_arch]
        before = [version for version in line if not since or version.version < since]
        assert not [version.version for version in before if takes(version, name)]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ('FIELD(long, a, "a", "v01", "v26", "h")', "FIELD(long"),
        ('FIELD(int, 1a, "a", "v01", "v26", "h")', "a new name"),
        ('FIELD(int, a, "a", "v01", "v26", "h")\nFIELD(int, a, "b", "v01", "v26", "h")', "list.h:2"),
        ('FIELD(int, a, WORD, "v01", "v26", "h")', "WORD"),
        ('FIELD(int, a, "a", "h")', "6 columns, found 4"),
        ("FIELD(int, a", "never closed"),
        ("RULE(a, cfg.a > 0, SENTENCE)", "sentence"),
        ('RULE(a, "sentence")', "3 columns, found 2"),
    ],
)
def test_a_row_that_is_not_understood_is_an_error(row: str, word: str) -> None:
    with pytest.raises(AnalysisError) as error:
        parse_fields(row, "list.h")
        parse_rules(row, "list.h")
    assert word in str(error.value) and "list.h:" in str(error.value)


def test_comments_and_macros_are_no_rows() -> None:
    field = 'FIELD(int, b, "b" "_N", "v01", "", "1, (2")'
    source = f'#define FIELD(type, name)\n/* FIELD(int, a, "a", "v01", "v26", "h") */ {field}\n'
    (row,) = parse_fields(source, "list.h").values()
    assert (row.name, row.word, row.help) == ("b", "b_N", "1, (2")
