"""Kernel configurations: their fields, their printed forms, the parsers of those forms, and the named sets.

    config = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer")
    config.symbol()     # _Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...

Fields, words and rules are the rows of common/config_fields.h, as in the harness. Every printed form parses back to an
equal value.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, make_dataclass
from enum import IntEnum
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.c_source import Names, functions, predicate
from analysis.ladder.fields import (
    ATTENTION,
    ATTENTION_LIST,
    BACKWARD,
    DECODE,
    DECODE_LIST,
    FIELDS,
    FP8,
    FP8_LIST,
    LADDER,
    LIVING,
    PARENTHESIS,
    SHAPE,
    Field,
    FieldList,
    Item,
)


class ConfigError(AnalysisError):
    """A configuration that can't be read or that breaks a rule; the message names the part."""


class Dtype(IntEnum):
    """Element type of Q, K, V and O, with the numbers that kernel symbols carry."""

    FP16 = 5
    BF16 = 15


class Instruction(IntEnum):
    """What a kernel outside the ladder gives the tensor cores, as numbers of kernel symbols."""

    MMA_SYNC = 1
    WGMMA = 2
    FMA = 3  # of a backward_config alone: none of the tensor cores'
    FP8_WGMMA = 4  # of an fp8_config alone


# Of the lists, and of the values.
TYPES: Mapping[str, type[int]] = {"enum dtype": Dtype, "enum instruction": Instruction, "int": int, "bool": bool}
CASTS = {Dtype: "dtype", Instruction: "instruction", int: "int", bool: "bool"}  # in a demangled name
LITERALS = {Dtype: "L5dtype", Instruction: "L11instruction", int: "Li", bool: "Lb"}  # in a mangled one

if TYPE_CHECKING:

    class _Fields:
        """To the type checker a field is an int, as bool and Dtype are too."""

        dtype: Dtype

        def __init__(self, dtype: int, d_head: int, B_r: int, B_c: int, n_warps: int, **others: int) -> None: ...
        def __getattr__(self, name: str) -> int: ...
        def __lt__(self, other: "_Fields") -> bool: ...

else:

    def _column(row: Field) -> tuple:
        kind = TYPES[row.type]
        return (row.name, kind) if row.word == PARENTHESIS else (row.name, kind, field(default=kind(0)))

    _Fields = make_dataclass(
        "_Fields",
        [_column(row) for row in (FIELDS | LIVING).values()],
        namespace={"__post_init__": lambda config: None},  # so that one of a class below is called
        frozen=True,
        order=True,
    )


class KernelConfig(_Fields):
    """One kernel instance, with the fields of the list; compares and sorts field by field.

    Fields that are not in the parenthesis of a short form may be left out, and are zero. Construction checks the rules.
    """

    LIST = LADDER
    STRUCT = "KernelConfig"
    SYMBOL_START = "_Z13flash_forwardIXtl"  # the name of the struct and the values follow
    BEFORE_INSTRUCTION = ""  # in the short form

    def __post_init__(self) -> None:
        broken = broken_rule(self)
        if broken:
            raise ConfigError(broken)

    def replace(self, **values: int) -> "KernelConfig":
        """The same configuration with other values of some fields."""
        return KernelConfig(**dict(zip(FIELDS, self.values(), strict=True)) | values)

    def short_form(self, include_d_head: bool = True, include_tuple: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles`, without the head size or the parenthesis on request."""
        shape = [cpp_literal(getattr(self, row.name)) for row in SHAPE if row.name != "d_head" or include_d_head]
        items = [self._item(item) for item in self.LIST.items]
        return (f"({', '.join(shape)}): " if include_tuple else "") + "+".join(filter(None, items))

    def _item(self, item: Item) -> str:
        values = [getattr(self, row.name) for row in item.fields]
        if not item.required and not values[0]:
            return ""
        if isinstance(values[0], Instruction):
            return self.BEFORE_INSTRUCTION + values[0].name.lower()
        numbers = iter(values)
        return re.sub("[A-Z]", lambda _: str(next(numbers)), item.word)

    def __str__(self) -> str:
        return self.short_form()

    def to_cpp(self) -> str:
        """The C++ literal, as instances.cuh spells it: `KernelConfig{FP16, 128, 64, 64, 4, true, ...}`."""
        return f"{self.STRUCT}{{{', '.join(map(cpp_literal, self.values()))}}}"

    def symbol(self) -> str:
        """The mangled name of flash_forward for this configuration (Itanium C++ ABI 5.1.5, `tl` braced lists)."""
        values = "".join(f"{LITERALS[type(value)]}{int(value)}E" for value in self.values())
        parameters = "".join(f"{len(name)}{name}" for name in self.parameter_types())
        return f"{self.SYMBOL_START}{len(self.STRUCT)}{self.STRUCT}{values}{SYMBOL_END}{parameters}"

    def values(self) -> tuple[int, ...]:
        """The field values in order, each of its field's type."""
        return tuple(getattr(self, name) for name in self.LIST.fields)

    def parameter_types(self) -> list[str]:
        """The types of flash_forward's parameters."""
        args = "serving_args" if self.serves else "attention_args" if self.any_length else "forward_args"
        return [args, *(["tensor_maps"] * self.tensor_copies)]

    def threads(self) -> int:
        """Threads of one CTA."""
        return LAUNCH["config_threads"](self)

    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA in bytes."""
        return LAUNCH["config_smem_bytes"](self)

    def grid(
        self, seq: int, heads: int, batch: int, multiprocessors: int, seq_k: int | None = None
    ) -> tuple[int, int, int]:
        """CTAs of a launch without a mask; as many keys as queries by default."""
        args = SimpleNamespace(seq_q=seq, seq_k=seq_k or seq, heads=heads, batch=batch, causal=0)
        x, y = (LAUNCH[f"config_grid_{axis}"](self, args, multiprocessors) for axis in "xy")
        return x, y, LAUNCH["config_grid_z"](self, args)

    def box_rows(self) -> tuple[int, int, int, int]:
        """Rows that one tensor copy of Q, K, V and O moves (runtime/tensor_maps.h)."""
        return (64, self.B_c, self.B_c, 16)

    def element_bytes(self) -> tuple[int, int, int, int]:
        """Of an element of Q, K, V and O."""
        return (2, 2, 2, 2)

    def tickets_bytes(self, ctas: int) -> int:
        """Memory of attention_args.tickets for so many CTAs, at most."""
        return self.counter_bytes()

    def counter_bytes(self) -> int:
        """Of these the ones that are zero before a launch and after it."""
        return 8


# The functions of common/config.h, by name: what the harness launches.
LAUNCH = functions(
    read_text(root() / "common/config.h"),
    "FL_CONFIG_FN",
    "common/config.h",
    {"config": FIELDS, "args": ("seq_q", "seq_k", "heads", "batch", "causal")},
)


class AttentionConfig(KernelConfig):
    """One instance of a kernel of kernels/attention/, an attention_config; the other words of the ladder follow."""

    LIST = ATTENTION
    STRUCT = "attention_config"

    def __init__(self, **values: int) -> None:
        rows = [row for row in self.LIST.fields.values() if TYPES[row.type] is not Instruction]
        chosen = {row.name: values[row.name] if row.name in values else TYPES[row.type](0) for row in rows}
        given = SimpleNamespace(**chosen, instruction=values["instruction"])
        super().__init__(**chosen, **{name: holds(given) for name, holds in _FOLLOWS[type(self)].items()})

    @property
    def kernel(self) -> str:
        """The file of kernels/attention/ that its instance is of."""
        return self.instruction.name.lower()

    @property
    def instruction(self) -> Instruction:
        return Instruction.WGMMA if self.tensor_copies else Instruction.MMA_SYNC

    def replace(self, **values: int) -> "AttentionConfig":
        return type(self)(**dict(zip(self.LIST.fields, self.values(), strict=True)) | values)


# The functions of common/decode_config.h, by name.
DECODE_SOURCE = read_text(root() / "common/decode_config.h")
DECODE_COUNTERS = int(DECODE_SOURCE.partition("DECODE_COUNTERS = ")[2].partition(" ")[0])
DECODE_PAGE_KEYS = int(DECODE_SOURCE.partition("DECODE_PAGE_KEYS = ")[2].partition(" ")[0])
DECODE_LAUNCH = functions(
    DECODE_SOURCE.replace("DECODE_COUNTERS", str(DECODE_COUNTERS)).replace("WGMMA", str(int(Instruction.WGMMA))),
    "FL_CONFIG_FN",
    "common/decode_config.h",
    {"config": (*FIELDS, *LIVING, "instruction"), "args": ("seq_q", "seq_k", "heads", "KV_heads", "batch")},
)


class DecodeConfig(AttentionConfig):
    """One instance of kernels/attention/decode.cu, a decode_config."""

    LIST = DECODE
    STRUCT = "decode_config"
    instruction = Instruction.MMA_SYNC  # of the class; __init__ gives each config its own

    def __init__(self, **values: int) -> None:
        object.__setattr__(self, "instruction", values["instruction"])
        super().__init__(**values)

    def __hash__(self) -> int:
        return hash(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DecodeConfig) and self.values() == other.values()

    @property
    def kernel(self) -> str:
        return "decode"

    def threads(self) -> int:
        return DECODE_LAUNCH["decode_threads"](self)

    def smem_bytes(self) -> int:
        return DECODE_LAUNCH["decode_smem_bytes"](self)

    def grid(
        self, seq: int, heads: int, batch: int, multiprocessors: int, seq_k: int | None = None
    ) -> tuple[int, int, int]:
        args = SimpleNamespace(seq_q=seq, seq_k=seq_k or seq, heads=heads, KV_heads=heads, batch=batch)
        return DECODE_LAUNCH["decode_ctas"](self, args, multiprocessors), 1, 1

    def box_rows(self) -> tuple[int, int, int, int]:
        keys = DECODE_PAGE_KEYS if self.serves else DECODE_LAUNCH["decode_warp_keys"](self)
        return (1, keys, keys, 16)

    def element_bytes(self) -> tuple[int, int, int, int]:
        return (2, 1, 1, 2) if self.e4m3_cache else (2, 2, 2, 2)

    def tickets_bytes(self, ctas: int) -> int:
        return self.counter_bytes() + DECODE_LAUNCH["decode_part_bytes"](self, 2 * ctas, self.B_r)

    def counter_bytes(self) -> int:
        return 4 * DECODE_COUNTERS


# The functions of common/backward.h, by name.
BACKWARD_SOURCE = read_text(root() / "common/backward.h")
BACKWARD_SMALL_THREADS = int(BACKWARD_SOURCE.partition("BACKWARD_SMALL_THREADS = ")[2].partition(" ")[0])
BACKWARD_COUNTERS = int(BACKWARD_SOURCE.partition("BACKWARD_COUNTERS = ")[2].partition(" ")[0])
BACKWARD_ARGS = ("seq_q", "seq_k", "heads", "KV_heads", "batch", "all_Q_rows", "all_KV_rows")
BACKWARD_LAUNCH = functions(
    BACKWARD_SOURCE.replace("BACKWARD_SMALL_THREADS", str(BACKWARD_SMALL_THREADS)).replace(
        "BACKWARD_COUNTERS", str(BACKWARD_COUNTERS)
    ),
    "FL_CONFIG_FN",
    "common/backward.h",
    {"config": (*FIELDS, *LIVING, "instruction"), "args": BACKWARD_ARGS},
)


class BackwardConfig(AttentionConfig):
    """One instance of a version in kernels/backward/, a backward_config."""

    LIST = BACKWARD
    STRUCT = "backward_config"
    SYMBOL_START = "_Z14flash_backwardIXtl"
    BEFORE_INSTRUCTION = "backward_"
    instruction = Instruction.FMA  # of the class; __init__ gives each config its own

    def __init__(self, **values: int) -> None:
        object.__setattr__(self, "instruction", values["instruction"])
        super().__init__(**values)

    def parameter_types(self) -> list[str]:
        """The types of flash_backward's parameters."""
        args = "backward_serving_args" if self.serves else "backward_args"
        return [args, *(["tensor_maps"] * self.tensor_copies)]

    def threads(self) -> int:
        return BACKWARD_LAUNCH["backward_threads"](self)

    def smem_bytes(self) -> int:
        return BACKWARD_LAUNCH["backward_smem_bytes"](self)

    def grid(
        self, seq: int, heads: int, batch: int, multiprocessors: int, seq_k: int | None = None
    ) -> tuple[int, int, int]:
        rows = {"all_Q_rows": batch * seq, "all_KV_rows": batch * (seq_k or seq)}
        args = SimpleNamespace(seq_q=seq, seq_k=seq_k or seq, heads=heads, KV_heads=heads, batch=batch, **rows)
        return (
            BACKWARD_LAUNCH["backward_grid_x"](self, args, multiprocessors),
            BACKWARD_LAUNCH["backward_grid_y"](self, args),
            BACKWARD_LAUNCH["backward_grid_z"](self, args),
        )

    def small_kernels(self) -> list[str]:
        """The kernels of a pass beside flash_backward (kernels/backward/rows.cuh)."""
        return ["row_sums", *(["round_dQ"] * (self.dQ_sums and not (self.any_rows and self.in_order)))]

    def __hash__(self) -> int:
        return hash(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackwardConfig) and self.values() == other.values()


# The functions of common/fp8.h, by name.
FP8_LAUNCH = functions(
    read_text(root() / "common/fp8.h"),
    "FL_CONFIG_FN",
    "common/fp8.h",
    {"config": (*FIELDS, *LIVING, "instruction"), "args": ("seq_q", "seq_k", "heads", "batch")},
)


class Fp8Config(AttentionConfig):
    """One instance of attention/fp8 or of a version in kernels/fp8/, an fp8_config."""

    LIST = FP8
    STRUCT = "fp8_config"

    @property
    def kernel(self) -> str:
        return "fp8"

    @property
    def instruction(self) -> Instruction:
        return Instruction.FP8_WGMMA

    def parameter_types(self) -> list[str]:
        return ["serving_args" if self.serves else "fp8_args", "tensor_maps"]

    def threads(self) -> int:
        return FP8_LAUNCH["fp8_threads"](self)

    def smem_bytes(self) -> int:
        return FP8_LAUNCH["fp8_smem_bytes"](self)

    def grid(
        self, seq: int, heads: int, batch: int, multiprocessors: int, seq_k: int | None = None
    ) -> tuple[int, int, int]:
        args = SimpleNamespace(seq_q=seq, seq_k=seq_k or seq, heads=heads, batch=batch)
        x = FP8_LAUNCH["fp8_grid_x"](self, args, multiprocessors)
        return x, FP8_LAUNCH["fp8_grid_y"](self, args), FP8_LAUNCH["fp8_grid_z"](self, args)


# Shared memory that one CTA may have, in bytes, by compute capability (CUDA C++ Programming Guide, table of limits).
SMEM_MOST = {
    "8.0": 163 << 10,
    "8.6": 99 << 10,
    "8.7": 163 << 10,
    "8.9": 99 << 10,
    "9.0": 227 << 10,
    "10.0": 227 << 10,
    "12.0": 99 << 10,
}

SYMBOL_END = "EEEv"  # the types of the parameters follow


def cpp_literal(value: int) -> str:
    """A value of a field as C++ spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, IntEnum) else str(value)


# ---- rules -----------------------------------------------------------------------------------------------------------

NAMES = Names(
    {"cfg": (*FIELDS, *LIVING, "instruction")},
    constants={each.name: int(each) for each in (*Dtype, *Instruction)} | {"true": 1, "false": 0},
)
_PREDICATES = {
    kind: [(rule, predicate(rule.holds, rule.where, NAMES)) for rule in kind.LIST.rules]
    for kind in (KernelConfig, AttentionConfig, DecodeConfig, BackwardConfig, Fp8Config)
}
_FOLLOWS = {
    kind: {name: predicate(value, where, NAMES) for name, value in kind.LIST.follows.items()}
    for kind, where in (
        (AttentionConfig, ATTENTION_LIST),
        (DecodeConfig, DECODE_LIST),
        (BackwardConfig, ""),
        (Fp8Config, FP8_LIST),
    )
}


def broken_rule(config: KernelConfig) -> str:
    """Field, value and sentence of the first rule that the values break, as the harness words it; empty if none."""
    for row in config.LIST.fields.values():
        kind, value = TYPES[row.type], getattr(config, row.name)
        if type(value) is not kind:
            return f"{row.name} = {value!r}: must be of type {kind.__name__}"
    return _broken_rule(config)


@lru_cache(maxsize=1024)  # readers make the configs of the versions many times
def _broken_rule(config: KernelConfig) -> str:
    for rule, holds in _PREDICATES[type(config)]:
        if not holds(config):
            others = ", ".join(f"{name} = {_word(getattr(config, name))}" for name in rule.others())
            said = f"{rule.field} = {_word(getattr(config, rule.field))}: {rule.sentence}"
            return said + (f" ({others})" if others else "")
    return ""


def _word(value: int) -> str:
    """A value of a field in a sentence."""
    return value.name.lower() if isinstance(value, Instruction) else cpp_literal(value)


def _checked(values: Mapping[str, int], text: str, kind: type[KernelConfig] = KernelConfig) -> KernelConfig:
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{text!r}: {error}") from None


# ---- parsers ---------------------------------------------------------------------------------------------------------

BLANKS = " \t\n\v\f\r"  # what C's isspace takes
SHAPE_NAMES = ", ".join(row.name for row in SHAPE)


def parse_short_form(text: str, base: KernelConfig | None = None) -> KernelConfig:
    """Read a short form, or a table row that begins with one: what follows the first `|` is not read.

    dtype may be a name in any case or its number; features may stand in any order. A text printed without d_head or
    without the parenthesis takes these fields from `base`. Unknown, repeated, missing or trailing parts are errors.
    """
    form = text.split("|", 1)[0].strip(BLANKS)
    shape_text, colon, feature_text = form.rpartition(":")
    if form and not colon and base is not None and not form.startswith("("):
        shape = {row.name: getattr(base, row.name) for row in SHAPE}
        return _with_features(shape, form, text)
    shape = _parse_shape((shape_text if colon else form).strip(BLANKS), base, text)
    if not colon:
        raise ConfigError(f"{text!r}: ':' and the features are missing after {form!r}")
    return _with_features(shape, feature_text, text)


def _with_features(shape: dict[str, int], feature_text: str, text: str) -> KernelConfig:
    """A configuration of kernels/attention/ names its instruction, one of the ladder has no such item.

    Tensor copies in words are those of a decode_config.
    """
    words = [part.strip(BLANKS) for part in feature_text.split("+")]
    kind = AttentionConfig if {"mma_sync", "wgmma"} & set(words) else KernelConfig
    if kind is AttentionConfig and "tensor" in words:
        kind = DecodeConfig
    if {f"backward_{each.name.lower()}" for each in Instruction} & set(words):
        kind = BackwardConfig
    if "fp8_wgmma" in words:
        kind = Fp8Config
    return _checked(shape | _parse_features(words, kind.LIST, text), text, kind)


def _parse_shape(shape: str, base: KernelConfig | None, text: str) -> dict[str, int]:
    if len(shape) < 2 or shape[0] != "(" or shape[-1] != ")":
        raise ConfigError(f"{text!r}: expected '({SHAPE_NAMES}):', found {shape!r}")
    parts = [part.strip(BLANKS) for part in shape[1:-1].split(",")]
    if len(parts) == len(SHAPE) - 1 and base is not None:
        parts.insert(1, str(base.d_head))
    if len(parts) != len(SHAPE):
        raise ConfigError(
            f"{text!r}: expected {len(SHAPE)} values in the parenthesis ({SHAPE_NAMES}), found {len(parts)}"
        )
    return {row.name: _shape_value(row, part, text) for row, part in zip(SHAPE, parts, strict=True)}


def _shape_value(row: Field, word: str, text: str) -> int:
    if TYPES[row.type] is Dtype:
        return _parse_dtype(word, text)
    if not re.fullmatch(r"[0-9]{1,9}", word):
        raise ConfigError(f"{text!r}: {row.name} = {word!r}: must be a number of at most 9 digits")
    return int(word)


def _parse_dtype(word: str, text: str) -> Dtype:
    for dtype in Dtype:
        if word.upper() == dtype.name or word == str(int(dtype)):
            return dtype
    raise ConfigError(f"{text!r}: unknown dtype {word!r}: expected FP16 or BF16")


def _parse_features(words: Sequence[str], rows: FieldList, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        new = _parse_item(word, rows.items, text)
        if found.keys() & new.keys():
            raise ConfigError(f"{text!r}: repeated feature {word!r}")
        found |= new
    for item in rows.items:
        if item.required and item.fields[0].name not in found:
            raise ConfigError(f"{text!r}: the item {item.word} is missing")
    return found


def _parse_item(word: str, items: Sequence[Item], text: str) -> dict[str, int]:
    for item in items:
        if match := item.pattern.fullmatch(word):
            if TYPES[item.fields[0].type] is Instruction:
                return {item.fields[0].name: Instruction[word.removeprefix("backward_").upper()]}
            values = [int(number) for number in match.groups()] or [True]
            return {row.name: value for row, value in zip(item.fields, values, strict=True)}
        if item.start and word.startswith(item.start):
            least = 0 if item.required else 1
            raise ConfigError(
                f"{text!r}: {word!r} must have the form {item.word} with numbers from {least} to 999999999"
            )
    known = ", ".join(item.word for item in items)
    raise ConfigError(f"{text!r}: unknown feature {word!r}: expected one of {known}")


def parse_braces(text: str) -> KernelConfig:
    """Read a demangled name: the values of `KernelConfig{...}` in it, or of one of the other structs.

    With casts or without: takes `{5, 128, ..., 1, 0}` (ncu), `{(dtype)5, 128, ..., true}` (c++filt) and
    `{FP16, 128, ..., false}` (C++).
    """
    match = re.search(rf"\b({'|'.join(STRUCTS)})\s*\{{([^{{}}]*)\}}", text)
    small = re.search(r"\b(row_sums|round_dQ)\b", text)
    if not match or small:
        raise ConfigError(f"{text!r}: holds no KernelConfig{{...}}")
    values = []
    for index, part in enumerate(match[2].split(",")):
        value = re.fullmatch(r"\s*(?:\((dtype|instruction|int|bool)\))?\s*([A-Za-z0-9_]+|-[0-9]+)\s*", part)
        if not value:
            raise ConfigError(f"{text!r}: value {index + 1} of {match[1]}, {part.strip()!r}, is not understood")
        values.append((value[1], value[2]))
    return _from_values(values, text, STRUCTS[match[1]])


@lru_cache(maxsize=1024)
def parse_symbol(symbol: str) -> KernelConfig:
    """Read a mangled kernel name: `_Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...EEEv12forward_args`."""
    match = re.fullmatch(
        r"_Z(?:13flash_forward|14flash_backward)IXtl"
        + rf"[0-9]+({'|'.join(STRUCTS)})"
        + r"((?:L(?:5dtype|11instruction|i|b)n?[0-9]+E)+)"
        + SYMBOL_END
        + r"([0-9]+\w+?_args)(11tensor_maps)?",
        symbol,
    )
    if not match:
        raise ConfigError(f"{symbol!r}: not the symbol of a flash_forward instance")
    casts = {LITERALS[kind]: CASTS[kind] for kind in CASTS}
    literals = re.findall(r"(L5dtype|L11instruction|Li|Lb)(n?)([0-9]+)E", match[2])
    values = [(casts[kind], ("-" if minus else "") + digits) for kind, minus, digits in literals]
    config = _from_values(values, symbol, STRUCTS[match[1]])
    if not symbol.startswith(config.SYMBOL_START):
        raise ConfigError(f"{symbol!r}: a {match[1]} is none of this function's")
    first = config.parameter_types()[0]
    if match[3] != f"{len(first)}{first}":
        raise ConfigError(f"{symbol!r}: the first parameter of {config} must be of type {first}")
    return config


STRUCTS: Mapping[str, type[KernelConfig]] = {
    kind.STRUCT: kind for kind in (KernelConfig, AttentionConfig, DecodeConfig, BackwardConfig, Fp8Config)
}


def _from_values(values: Sequence[tuple[str | None, str]], text: str, struct: type[KernelConfig]) -> KernelConfig:
    """A config from (cast, value) pairs in field order. Values past the last field must be zero."""
    known = struct.LIST.fields
    least = len(SHAPE) + issubclass(struct, AttentionConfig)  # the instruction stands right behind the shape
    if len(values) < least:
        raise ConfigError(f"{text!r}: {struct.STRUCT} holds {len(values)} values, expected at least {least}")
    for index, (_, word) in enumerate(values[len(known) :], start=len(known) + 1):
        if word not in ("0", "false"):
            raise ConfigError(f"{text!r}: value {index} of {struct.STRUCT} is {word}, but only {len(known)} are known")
    arguments: dict[str, int] = {}
    for row, (cast, word) in zip(known.values(), values, strict=False):
        kind = TYPES[row.type]
        if cast is not None and cast != CASTS[kind]:
            raise ConfigError(f"{text!r}: {row.name} is written as ({cast}){word}, but is not of that type")
        arguments[row.name] = _value_of(kind, row.name, word, text)
    return _checked(arguments, text, struct)


def _value_of(kind: type[int], name: str, word: str, text: str) -> int:
    if kind is Dtype:
        return _parse_dtype(word, text)
    if kind is Instruction:
        for each in Instruction:
            if word in (each.name, str(int(each))):
                return each
    if kind is bool and word in ("0", "1", "false", "true"):
        return word in ("1", "true")
    if kind is int and re.fullmatch(r"-?[0-9]{1,9}", word):
        return int(word)
    raise ConfigError(f"{text!r}: {name} = {word}: not a value of type {kind.__name__}")


def parse_small_kernel(symbol: str) -> tuple[str, BackwardConfig] | None:
    """The name and configuration of a small kernel of a backward pass, `_Z8row_sumsIXtl15backward_config...`."""
    args = "13backward_args|21backward_serving_args"
    match = re.fullmatch(rf"_Z(?:8(row_sums)|8(round_dQ))(IXtl15backward_config.*EEEv(?:{args}))", symbol)
    if not match:
        return None
    main = f"_Z14flash_backward{match[3]}"
    tensor = "11tensor_maps"
    try:
        config = parse_symbol(main)
    except ConfigError:
        config = parse_symbol(main + tensor)
    assert isinstance(config, BackwardConfig)
    return match[1] or match[2], config


def parse_config(text: str) -> KernelConfig:
    """Read any printed form: mangled symbol, name with `KernelConfig{...}`, short form or a table row with one."""
    stripped = text.strip()
    if stripped.startswith("_Z"):
        return parse_symbol(stripped)
    if "{" in stripped:
        return parse_braces(stripped)
    return parse_short_form(text)


# ---- names that are not ours -----------------------------------------------------------------------------------------

# First match wins. Mangled and demangled spellings share these words.
FOREIGN_KERNELS = (
    ("FlashAttention-3", r"FlashAttn(Fwd|Bwd)|enable_sm90|compute_attn_ws|flash::.*_sm90"),
    ("FlashAttention-2", r"flash_(fwd|bwd)(_\w*)?_kernel|Flash_(fwd|bwd)_kernel_traits"),
    ("cuDNN attention", r"cudnn.*(sdpa|flash|fmha|mha)|(sdpa|flash_fprop).*cudnn"),
    ("cuDNN", r"cudnn"),
    ("PyTorch memory-efficient attention", r"fmha_cutlass[FB]|PyTorchMemEffAttention"),
    ("ThunderKittens", r"kittens|(fwd|bwd)_attend_(prep_)?ker"),
    ("Triton", r"triton|^_attn_(fwd|bwd)"),
    ("published ladder", r"FlashForwardKernelConfig|flash_forward_kernel"),
    ("CUTLASS", r"cutlass"),
    ("cuBLAS", r"nvjet|cublas|xmma_gemm|(ampere|turing|volta|sm\d+)_.*gemm"),
)


@cache
def library_of(name: str) -> str:
    """The library that the name of a foreign kernel speaks of, "" where it speaks of none; of our kernels too."""
    try:
        parse_config(name)
    except ConfigError:
        found = (label for label, pattern in FOREIGN_KERNELS if re.search(pattern, name, re.IGNORECASE))
        return next(found, "")
    return ""


# ---- sets ------------------------------------------------------------------------------------------------------------


def _shape(dtype: Dtype, B_r: int, B_c: int, n_warps: int = 4) -> KernelConfig:
    return KernelConfig(dtype, 128, B_r, B_c, n_warps)


PROGRESSION = tuple(
    parse_short_form(f"(FP16, 128, 64, 64, 4): {features}")
    for features in (
        "async+load_0_0_0_tiles",
        "async+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_2_2_2_tiles",
        "async+eager+swizzled+load_2_2_2_tiles+buffer",
        "async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
        "async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
    )
)


def progression_of_all_shapes() -> list[KernelConfig]:
    """The progression at B_r 128, 64 by B_c 128, 64, 32 by 4, 8 warps, without B_r < B_c and 64 rows for 8 warps."""
    shapes = [
        (B_r, B_c, n_warps)
        for B_r, B_c, n_warps in itertools.product((128, 64), (128, 64, 32), (4, 8))
        if B_r >= B_c and not (B_r < 128 and n_warps == 8)
    ]
    return [config.replace(B_r=B_r, B_c=B_c, n_warps=n_warps) for B_r, B_c, n_warps in shapes for config in PROGRESSION]


def tuning_space() -> list[KernelConfig]:
    """The auto-tune product, BF16 first, without what `worth_tuning` drops: 80 configurations."""
    product = itertools.product(
        (Dtype.BF16, Dtype.FP16), (64, 128), (32, 64), (0, 2), (0, 2), (0, 2), (False, True), (False, True)
    )
    space = []
    for dtype, B_r, B_c, Q_tiles, K_tiles, V_tiles, buffer, opt_softmax in product:
        if not worth_tuning(B_r, B_c, Q_tiles, K_tiles):
            continue
        config = _shape(dtype, B_r, B_c).replace(
            async_copy=True,
            eager_load_blocks=True,
            swizzled=True,
            Q_mma_load_K_tiles=Q_tiles,
            K_mma_load_K_tiles=K_tiles,
            V_mma_load_K_tiles=V_tiles,
            mma_double_buffer_loads=buffer,
            optimized_softmax=opt_softmax,
        )
        space.append(config)
    return space


# What is tried where a version copies by tensor maps. A field that is zero in its own configuration stays zero.
TENSOR_TUNING: Mapping[str, tuple[int, ...]] = {
    "B_c": (64, 128),
    "stages": (2, 3, 4),
    "exp_columns": (16, 32, 64),
    "ping_pong": (False, True),
}


def tuning_space_of(header: KernelConfig) -> list[KernelConfig]:
    """The auto-tune product of a version: over its own fields where it copies by tensor maps, else the common one."""
    if not header.tensor_copies:
        return tuning_space()
    tried = {name: values for name, values in TENSOR_TUNING.items() if getattr(header, name)}
    return [
        header.replace(dtype=dtype, **dict(zip(tried, values, strict=True)))
        for dtype in (Dtype.BF16, Dtype.FP16)
        for values in itertools.product(*tried.values())
    ]


def worth_tuning(B_r: int, B_c: int, Q_tiles: int, K_tiles: int) -> bool:
    """The filter of the auto-tune product.

    Q and K are sliced together unless Q stays in registers. 64×64 blocks leave room for Q in registers and are
    tuned only so; 64×32 and 128-row blocks are tuned only with Q read again from shared memory.
    """
    if Q_tiles not in (0, K_tiles):
        return False
    return Q_tiles == 0 if (B_r, B_c) == (64, 64) else Q_tiles != 0


NAMED_SETS: dict[str, Callable[[], Iterable[KernelConfig]]] = {
    "prog": lambda: PROGRESSION,
    "progall": progression_of_all_shapes,
    "all": lambda: sorted(set(tuning_space())),
    "tune": tuning_space,
}
SET_HELP = (
    "default, prog, progall, all, tune, B_r,B_c (members of tune with these blocks), or short forms separated by ';'"
)


def default_set(header: KernelConfig, others: Sequence[KernelConfig] = ()) -> list[KernelConfig]:
    """A version's default instances: the configurations of its header, each in FP16 and in BF16."""
    return [config.replace(dtype=dtype) for config in (header, *others) for dtype in Dtype]


def is_named_set(text: str) -> bool:
    """Whether the text names a family of configurations rather than spelling out each of them."""
    return all("(" not in part for part in text.split(";"))


def config_set(
    text: str, header: KernelConfig | None = None, others: Sequence[KernelConfig] = ()
) -> list[KernelConfig]:
    """The configurations that a set names, each once and in order.

    `default` needs the version's header config and its others, and `tune` follows from the first where it is given.
    """
    parts = [part.strip() for part in text.split(";")] if text.strip() else ["default"]
    members: list[KernelConfig] = []
    for part in parts:
        members += _set_part(part, header, others)
    return list(dict.fromkeys(members))


def _set_part(part: str, header: KernelConfig | None, others: Sequence[KernelConfig]) -> Iterable[KernelConfig]:
    if part == "tune" and header is not None:
        return tuning_space_of(header)
    if part in NAMED_SETS:
        return NAMED_SETS[part]()
    if part == "default":
        if header is None:
            raise ConfigError("the set 'default' belongs to a version: name one, or another set")
        return default_set(header, others)
    blocks = re.fullmatch(r"([0-9]{1,9})\s*,\s*([0-9]{1,9})", part)
    if blocks:
        shape = (int(blocks[1]), int(blocks[2]))
        chosen = [config for config in tuning_space() if (config.B_r, config.B_c) == shape]
        if not chosen:
            there = sorted({(config.B_r, config.B_c) for config in tuning_space()})
            raise ConfigError(
                f"no configuration of tune has the blocks {part!r}: there are "
                + " ".join(f"{B_r},{B_c}" for B_r, B_c in there)
            )
        return chosen
    if "(" in part:
        return [parse_short_form(part)]
    raise ConfigError(f"unknown set {part!r}: expected {SET_HELP}")


# ---- comparison ------------------------------------------------------------------------------------------------------


def differences(a: KernelConfig, b: KernelConfig) -> list[tuple[str, str, str]]:
    """(field, value in a, value in b) of every field in which two configurations differ, as C++ spells the values."""
    return [
        (name, cpp_literal(left), cpp_literal(right))
        for name, left, right in zip(FIELDS, a.values(), b.values(), strict=True)
        if left != right
    ]
