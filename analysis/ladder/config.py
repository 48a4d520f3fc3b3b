"""Kernel configurations: their fields, their printed forms, the parsers of those forms, and the named sets.

    config = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer")
    config.symbol()     # _Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...

Field order and meaning are those of common/config.h. Every printed form parses back to an equal value. The short form
is also parsed by the harness; both are tested on analysis/tests/fixtures/config_cases.txt.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

from analysis.errors import AnalysisError


class ConfigError(AnalysisError):
    """A configuration that can't be read or that breaks a rule; the message names the part."""


class Dtype(IntEnum):
    """Element type of Q, K, V and O, with the numbers that kernel symbols carry."""

    FP16 = 5
    BF16 = 15


@dataclass(frozen=True, order=True)
class KernelConfig:
    """One kernel instance; compares and sorts field by field. Construction checks the rules of `broken_rules`."""

    dtype: Dtype
    d_head: int
    B_r: int
    B_c: int
    n_warps: int
    async_copy: bool = False
    eager_load_blocks: bool = False
    swizzled: bool = False
    Q_mma_load_K_tiles: int = 0
    K_mma_load_K_tiles: int = 0
    V_mma_load_K_tiles: int = 0
    mma_double_buffer_loads: bool = False
    optimized_softmax: bool = False
    lazy_rescale: bool = False
    stages: int = 0
    slack: int = 0
    padded_rows: bool = False
    split_tail: bool = False
    persistent: bool = False

    def __post_init__(self) -> None:
        broken = broken_rules(self)
        if broken:
            raise ConfigError("; ".join(broken))

    def short_form(self, include_d_head: bool = True, include_tuple: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles`, without the head size or the parenthesis on request."""
        features = [
            *(name for name, field in FEATURES_BEFORE_LOAD if getattr(self, field)),
            f"load_{self.Q_mma_load_K_tiles}_{self.K_mma_load_K_tiles}_{self.V_mma_load_K_tiles}_tiles",
            *(name for name, field in FEATURES_AFTER_LOAD if getattr(self, field)),
            *(f"{name}_{getattr(self, name)}" for name in COUNTS if getattr(self, name)),
            *(name for name, field in FEATURES_AFTER_COUNTS if getattr(self, field)),
        ]
        numbers = [self.d_head] if include_d_head else []
        numbers += [self.B_r, self.B_c, self.n_warps]
        shape = f"({self.dtype.name}, {', '.join(map(str, numbers))}): "
        return (shape if include_tuple else "") + "+".join(features)

    def __str__(self) -> str:
        return self.short_form()

    def to_cpp(self) -> str:
        """The C++ literal, as instances.cuh spells it: `KernelConfig{FP16, 128, 64, 64, 4, true, ...}`.

        Later fields are written up to the last that is not zero.
        """
        values = list(self.values())
        while len(values) > FIRST_VALUES and not values[-1]:
            values.pop()
        return f"KernelConfig{{{', '.join(_cpp_literal(value) for value in values)}}}"

    def symbol(self) -> str:
        """The mangled name of flash_forward for this configuration (Itanium C++ ABI 5.1.5, `tl` braced lists)."""
        letters = {Dtype: "5dtype", bool: "b", int: "i"}
        values = "".join(f"L{letters[type(value)]}{int(value)}E" for value in self.values())
        return f"{SYMBOL_START}{values}{SYMBOL_END}"

    def values(self) -> tuple[Dtype | int | bool, ...]:
        """The field values in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def threads(self) -> int:
        """Threads of one CTA."""
        return self.n_warps * 32

    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA in bytes, as config_smem_bytes of common/config.h has it."""
        row_bytes = self.d_head * 2 + (16 if self.padded_rows else 0)
        rows = self.B_r + 2 * self.B_c * max(self.stages, 1)
        return rows * row_bytes + 16 * self.stages

    def flop(self, batch: int, heads: int, seq: int) -> int:
        """Every floating-point operation of the algorithm, the per-block rescaling included.

        4·B_r·B_c·d + B_r·(4·B_c + d + 4) for each pair of blocks and B_r·d for each Q block, as the published
        ladder counts them.
        """
        block = 4 * self.B_r * self.B_c * self.d_head + self.B_r * (4 * self.B_c + self.d_head + 4)
        q_blocks, kv_blocks = seq // self.B_r, seq // self.B_c
        return batch * heads * q_blocks * (kv_blocks * block + self.B_r * self.d_head)

    def attn_flop(self, batch: int, heads: int, seq: int) -> int:
        """The published ladder's count: two matmuls, 4·seq²·d, and 6·seq² for the softmax of every head."""
        return batch * heads * (4 * seq * seq * self.d_head + 6 * seq * seq)


# The items of a short form, in printed order; load_Q_K_V_tiles stands between the first two groups, and numbers such
# as stages_4 between the last two.
FEATURES_BEFORE_LOAD = (("async", "async_copy"), ("eager", "eager_load_blocks"), ("swizzled", "swizzled"))
FEATURES_AFTER_LOAD = (
    ("buffer", "mma_double_buffer_loads"),
    ("opt_softmax", "optimized_softmax"),
    ("lazy", "lazy_rescale"),
)
FEATURES_AFTER_COUNTS = (("padded", "padded_rows"), ("split_tail", "split_tail"), ("persistent", "persistent"))
COUNTS = ("stages", "slack")
FEATURES = dict(FEATURES_BEFORE_LOAD + FEATURES_AFTER_LOAD + FEATURES_AFTER_COUNTS)
TILE_FIELDS = ("Q_mma_load_K_tiles", "K_mma_load_K_tiles", "V_mma_load_K_tiles")

FIELD_TYPES: dict[str, type] = {field.name: field.type for field in fields(KernelConfig)}  # type: ignore[misc]
FIRST_VALUES = 13  # a symbol or a brace list holds at least these; fields added later are zero where they are missing

SYMBOL_START = "_Z13flash_forwardIXtl12KernelConfig"
SYMBOL_END = "EEEv12forward_args"


def _cpp_literal(value: Dtype | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Dtype) else str(value)


# ---- rules -----------------------------------------------------------------------------------------------------------


def broken_rules(config: KernelConfig) -> list[str]:
    """One sentence for each rule that the values break, naming field, value and rule. Empty for a valid config."""
    for name, kind in FIELD_TYPES.items():
        value = getattr(config, name)
        if type(value) is not kind:
            return [f"{name} = {value!r}: must be of type {kind.__name__}"]
    broken = [
        f"{name} = {getattr(config, name)}: must be positive"
        for name in ("d_head", "B_r", "B_c", "n_warps")
        if getattr(config, name) <= 0
    ]
    if broken:
        return broken
    if config.d_head % 64:
        broken.append(f"d_head = {config.d_head}: must be a multiple of 64")
    if config.B_c % 16:
        broken.append(f"B_c = {config.B_c}: must be a multiple of 16, the depth of one mma")
    if config.B_r % (16 * config.n_warps):
        broken.append(
            f"B_r = {config.B_r}: must be a multiple of 16 rows for each of n_warps = {config.n_warps} warps, "
            f"that is of {16 * config.n_warps}"
        )
    per_step = 16 if config.mma_double_buffer_loads else 8
    for name, depth_name in zip(TILE_FIELDS, ("d_head", "d_head", "B_c"), strict=True):
        tiles, most = getattr(config, name), getattr(config, depth_name) // per_step
        if tiles < 0 or tiles == 1 or tiles & (tiles - 1):
            broken.append(f"{name} = {tiles}: must be 0 or a power of two from 2 on")
        elif tiles > most:
            buffered = " with mma_double_buffer_loads" if config.mma_double_buffer_loads else ""
            broken.append(f"{name} = {tiles}: must be at most {depth_name} / {per_step} = {most}{buffered}")
    if config.Q_mma_load_K_tiles not in (0, config.K_mma_load_K_tiles):
        broken.append(
            f"Q_mma_load_K_tiles = {config.Q_mma_load_K_tiles}: must be 0 or equal to "
            f"K_mma_load_K_tiles = {config.K_mma_load_K_tiles}"
        )
    if config.stages < 0 or config.stages == 1:
        broken.append(f"stages = {config.stages}: must be 0 or at least 2")
    elif not 0 <= config.slack <= max(config.stages - 2, 0):
        broken.append(
            f"slack = {config.slack}: must be from 0 to stages - 2, so that one block at least is fetched ahead, and 0 "
            "without stages"
        )
    if config.swizzled and config.padded_rows:
        broken.append("padded_rows = true: must be false where swizzled = true, either keeps the banks apart")
    if config.persistent and not config.split_tail:
        broken.append("persistent = true: must be false without split_tail, which numbers the Q blocks along the grid")
    return broken


# ---- parsers ---------------------------------------------------------------------------------------------------------


def parse_short_form(text: str, base: KernelConfig | None = None) -> KernelConfig:
    """Read a short form, or a table row that begins with one: what follows the first `|` is not read.

    dtype may be a name in any case or its number; features may stand in any order. A text printed without d_head or
    without the parenthesis takes these fields from `base`. Unknown, repeated, missing or trailing parts are errors.
    """
    form = text.split("|", 1)[0].strip()
    shape_text, colon, feature_text = form.rpartition(":")
    if form and not colon and base is not None and not form.startswith("("):
        return replace(base, **_parse_features(form, text))
    dtype, d_head, B_r, B_c, n_warps = _parse_shape(shape_text if colon else form, base, text)
    if not colon:
        raise ConfigError(f"{text!r}: ':' and the features are missing after {form!r}")
    return KernelConfig(dtype, d_head, B_r, B_c, n_warps, **_parse_features(feature_text, text))


def _parse_shape(shape: str, base: KernelConfig | None, text: str) -> tuple[Dtype, int, int, int, int]:
    match = re.fullmatch(r"\s*\(([^()]*)\)\s*", shape)
    if not match:
        raise ConfigError(f"{text!r}: expected '(dtype, d_head, B_r, B_c, n_warps):', found {shape.strip()!r}")
    dtype_text, *number_texts = (part.strip() for part in match[1].split(","))
    dtype = _parse_dtype(dtype_text, text)
    for number in number_texts:
        if not re.fullmatch(r"[0-9]{1,9}", number):
            raise ConfigError(f"{text!r}: {number!r} is not a number")
    numbers = [int(number) for number in number_texts]
    if len(numbers) == 3 and base is not None:
        numbers.insert(0, base.d_head)
    if len(numbers) != 4:
        raise ConfigError(
            f"{text!r}: expected 4 numbers after the dtype (d_head, B_r, B_c, n_warps), found {len(numbers)}"
        )
    return (dtype, numbers[0], numbers[1], numbers[2], numbers[3])


def _parse_dtype(word: str, text: str) -> Dtype:
    for dtype in Dtype:
        if word.upper() == dtype.name or word == str(int(dtype)):
            return dtype
    raise ConfigError(f"{text!r}: unknown dtype {word!r}: expected FP16 or BF16")


def _parse_features(feature_text: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in (part.strip() for part in feature_text.split("+")):
        load = re.fullmatch(r"load_([0-9]{1,9})_([0-9]{1,9})_([0-9]{1,9})_tiles", item)
        if load:
            new: dict[str, Any] = dict(zip(TILE_FIELDS, map(int, load.groups()), strict=True))
        elif item in FEATURES:
            new = {FEATURES[item]: True}
        elif count := re.fullmatch(rf"({'|'.join(COUNTS)})_([1-9][0-9]{{0,8}})", item):
            new = {count[1]: int(count[2])}
        elif item.startswith("load_"):
            raise ConfigError(f"{text!r}: {item!r} must have the form load_Q_K_V_tiles with three numbers")
        else:
            known = (
                "async, eager, swizzled, load_Q_K_V_tiles, buffer, opt_softmax, lazy, stages_N, slack_N, padded, "
                "split_tail, persistent"
            )
            raise ConfigError(f"{text!r}: unknown feature {item!r}: expected one of {known}")
        if found.keys() & new.keys():
            raise ConfigError(f"{text!r}: repeated feature {item!r}")
        found |= new
    if TILE_FIELDS[0] not in found:
        raise ConfigError(f"{text!r}: the item load_Q_K_V_tiles is missing")
    return dict.fromkeys(FEATURES.values(), False) | dict.fromkeys(COUNTS, 0) | found


def parse_braces(text: str) -> KernelConfig:
    """Read a demangled name: the values of the `KernelConfig{...}` in it, with or without casts.

    Takes `{5, 128, ..., 1, 0}` (ncu), `{(dtype)5, 128, ..., true}` (c++filt) and `{FP16, 128, ..., false}` (C++).
    """
    match = re.search(r"\bKernelConfig\s*\{([^{}]*)\}", text)
    if not match:
        raise ConfigError(f"{text!r}: holds no KernelConfig{{...}}")
    values = []
    for index, part in enumerate(match[1].split(",")):
        value = re.fullmatch(r"\s*(?:\((dtype|int|bool)\))?\s*([A-Za-z0-9]+|-[0-9]+)\s*", part)
        if not value:
            raise ConfigError(f"{text!r}: value {index + 1} of KernelConfig, {part.strip()!r}, is not understood")
        values.append((value[1], value[2]))
    return _from_values(values, text)


def parse_symbol(symbol: str) -> KernelConfig:
    """Read a mangled kernel name: `_Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...EEEv12forward_args`."""
    match = re.fullmatch(re.escape(SYMBOL_START) + r"((?:L(?:5dtype|i|b)n?[0-9]+E)+)" + SYMBOL_END, symbol)
    if not match:
        raise ConfigError(f"{symbol!r}: not the symbol of a flash_forward instance")
    names = {"5dtype": "dtype", "i": "int", "b": "bool"}
    literals = re.findall(r"L(5dtype|i|b)(n?)([0-9]+)E", match[1])
    return _from_values([(names[kind], ("-" if minus else "") + digits) for kind, minus, digits in literals], symbol)


def _from_values(values: Sequence[tuple[str | None, str]], text: str) -> KernelConfig:
    """A config from (cast, value) pairs in field order. Values past the last field must be zero."""
    if len(values) < FIRST_VALUES:
        raise ConfigError(f"{text!r}: KernelConfig holds {len(values)} values, expected at least {FIRST_VALUES}")
    names = list(FIELD_TYPES)
    for index, (_, word) in enumerate(values[len(names) :], start=len(names) + 1):
        if word not in ("0", "false"):
            raise ConfigError(f"{text!r}: value {index} of KernelConfig is {word}, but only {len(names)} are known")
    arguments: dict[str, Any] = {}
    for name, (cast, word) in zip(names, values, strict=False):
        kind = FIELD_TYPES[name]
        if cast is not None and cast != {Dtype: "dtype", int: "int", bool: "bool"}[kind]:
            raise ConfigError(f"{text!r}: {name} is written as ({cast}){word}, but is not of that type")
        arguments[name] = _value_of(kind, name, word, text)
    return KernelConfig(**arguments)


def _value_of(kind: type, name: str, word: str, text: str) -> Dtype | int | bool:
    if kind is Dtype:
        return _parse_dtype(word, text)
    if kind is bool and word in ("0", "1", "false", "true"):
        return word in ("1", "true")
    if kind is int and re.fullmatch(r"-?[0-9]{1,9}", word):
        return int(word)
    raise ConfigError(f"{text!r}: {name} = {word}: not a value of type {kind.__name__}")


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
    ("cuBLAS", r"nvjet|cublas|xmma_gemm|(ampere|turing|volta|sm\d+)_.*gemm|cutlass.*gemm"),
)


def kernel_label(name: str) -> str:
    """What to call a kernel in a table: our short form, the label of a known library, or the name itself."""
    try:
        return parse_config(name).short_form()
    except ConfigError:
        pass
    for label, pattern in FOREIGN_KERNELS:
        if re.search(pattern, name, re.IGNORECASE):
            return label
    return name


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
    return [
        replace(config, B_r=B_r, B_c=B_c, n_warps=n_warps) for B_r, B_c, n_warps in shapes for config in PROGRESSION
    ]


def tuning_space() -> list[KernelConfig]:
    """The auto-tune product, BF16 first, without what `worth_tuning` drops: 80 configurations."""
    product = itertools.product(
        (Dtype.BF16, Dtype.FP16), (64, 128), (32, 64), (0, 2), (0, 2), (0, 2), (False, True), (False, True)
    )
    space = []
    for dtype, B_r, B_c, Q_tiles, K_tiles, V_tiles, buffer, opt_softmax in product:
        if not worth_tuning(B_r, B_c, Q_tiles, K_tiles):
            continue
        config = replace(
            _shape(dtype, B_r, B_c),
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


def default_set(header: KernelConfig) -> list[KernelConfig]:
    """A version's default instances: the configuration of its header in FP16 and in BF16."""
    return [replace(header, dtype=dtype) for dtype in Dtype]


def is_named_set(text: str) -> bool:
    """Whether the text names a family of configurations rather than spelling out each of them."""
    return all("(" not in part for part in text.split(";"))


def config_set(text: str, header: KernelConfig | None = None) -> list[KernelConfig]:
    """The configurations that a set names, each once and in order. `default` needs the version's header config."""
    parts = [part.strip() for part in text.split(";")] if text.strip() else ["default"]
    members: list[KernelConfig] = []
    for part in parts:
        members += _set_part(part, header)
    return list(dict.fromkeys(members))


def _set_part(part: str, header: KernelConfig | None) -> Iterable[KernelConfig]:
    if part in NAMED_SETS:
        return NAMED_SETS[part]()
    if part == "default":
        if header is None:
            raise ConfigError("the set 'default' belongs to a version: name one, or another set")
        return default_set(header)
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
        (name, _cpp_literal(left), _cpp_literal(right))
        for name, left, right in zip(FIELD_TYPES, a.values(), b.values(), strict=True)
        if left != right
    ]
