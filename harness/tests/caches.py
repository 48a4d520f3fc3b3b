"""Launches of attention/decode with serving_args on the emulator, and what they should compute in float64.

    cache = Cache(lengths=[3, 0, 70], seq_k=96, page=16, KV_heads=2, group=4, seq_q=1)
    result = launch(CONFIGS[0], cache, split_keys=128)      # raises what the emulator finds
    assert_right(CONFIGS[0], cache, result)

Whatever no key fills is NaN: pages that no sequence has, and rows behind each length. Of configs with the word ragged
a sequence may have queries of its own number, and rows that it does not use, which are NaN too.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from functools import cache as once
from functools import cached_property
from pathlib import Path
from typing import Any

import emu
import numpy as np
import numpy.typing as npt

from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import load_attention
from harness.tests.e4m3 import NAN, VALUES, bytes_of

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [
    config.replace(dtype=dtype) for config in load_attention(ROOT)["attention/decode"].header.serving for dtype in Dtype
]
PTX = ROOT / "build/attention.decode/attention.decode.ptx"
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint16]

# ---- the parameters, as common/ has them -----------------------------------------------------------------------------

_TYPES: dict[str, Any] = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "float": ctypes.c_float}


def _struct(name: str, header: str, front: type[ctypes.Structure] | None = None) -> type[ctypes.Structure]:
    """A struct of a header as a ctypes class, behind the members of another one."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", (ROOT / "common" / header).read_text(), flags=re.S | re.M)
    (body,) = re.findall(rf"\{{([^{{}}]*)\}} {name};", text)
    members: list[tuple[str, Any]] = [("front", front)] if front else []
    for kind, declared in re.findall(r"(?:const )?(\w+) ([^;]*);", body):
        for pointer, member, count in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?(?:, |$)", declared):
            made = ctypes.c_uint64 if pointer else _TYPES[kind]
            if member not in ("attention", "backward"):
                members.append((member, made * int(count) if count else made))
    return type(name, (ctypes.Structure,), {"_fields_": members})


_TYPES["tensor_strides"] = _struct("tensor_strides", "abi.h")
_TYPES["attention_args"] = _TYPES["backward_args"] = None
AttentionArgs = _struct("attention_args", "abi.h")
ServingArgs = _struct("serving_args", "serving.h", AttentionArgs)
assert (ctypes.sizeof(AttentionArgs), ctypes.sizeof(ServingArgs)) == (192, 320)


def tensor_map(
    address: int, sizes: list[int], row: int, d_head: int, box: int, element: int = 2, tiles: int = 0
) -> bytes:
    """What runtime/tensor_maps.c makes: sizes are those of samples or pages, rows and heads; `element` is in bytes, and
    a box has all tiles of a row unless `tiles` says how many."""
    samples, rows, heads = sizes
    span = 128 // element
    return made_map(
        address,
        element,
        (span, rows, d_head // span, heads, samples),
        (element * row, 128, element * d_head, element * rows * row),
        (span, box, tiles or d_head // span, 1, 1),
    )


def map_of_groups(address: int, rows: int, heads: int, KV_heads: int, d_head: int) -> bytes:
    """The same of Q for kernels that pack: of each row all heads of a group, up to a power of two."""
    group = heads // KV_heads
    slots = 1 << (group - 1).bit_length()
    strides = (2 * d_head, 2 * d_head * heads, 2 * d_head * group, 2 * d_head * heads * rows)
    return made_map(address, 2, (d_head, group, rows, KV_heads, 1), strides, (64, slots, 64 // slots, 1, 1))


def made_map(
    address: int, element: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]
) -> bytes:
    info = emu._library.structs["emu_tensor_info"](address=address, rank=5, element_bytes=element, swizzle=SWIZZLE_128B)
    info.sizes[:], info.strides[:], info.box[:] = sizes, strides, box
    text, error = ctypes.create_string_buffer(128), emu._library.error()
    make = emu._library.c.emu_make_tensor_map
    make.restype = ctypes.c_bool
    assert make(ctypes.byref(info), text, ctypes.byref(error)), error.text
    return text.raw


SWIZZLE_128B = (
    re.findall(r"EMU_SWIZZLE_\w+", (emu.FOLDER / "emu.h").read_text().partition("EMU_SWIZZLE_NONE")[2]).index(
        "EMU_SWIZZLE_128B"
    )
    + 1
)


# ---- elements --------------------------------------------------------------------------------------------------------


def rounded(values: Floats, dtype: Dtype) -> Bits:
    if dtype is Dtype.FP16:
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), 0x7FC0, bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def widened(bits: Bits, dtype: Dtype) -> Floats:
    narrow = bits.view(np.float16) if dtype is Dtype.FP16 else (bits.astype(np.uint32) << 16).view(np.float32)
    return narrow.astype(np.float64)


def of_cache(config: KernelConfig, values: Floats) -> npt.NDArray[Any]:
    """Elements of K or V."""
    return bytes_of(values) if config.e4m3_cache else rounded(values, Dtype(config.dtype))


def scales_of(config: KernelConfig, heads: int) -> dict[str, npt.NDArray[np.float32]]:
    """What an element of K and of V stands for, times its value, by KV head."""
    of_head = np.arange(heads) if config.e4m3_cache else np.zeros(heads)
    return {"K": (1 + of_head / 4).astype(np.float32), "V": (1 - of_head / 8).astype(np.float32)}


# ---- problems --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cache:
    """K and V of some sequences, each with as many keys as `lengths` say, and the queries of the next step."""

    lengths: list[int] | None  # None: all have seq_k
    seq_k: int = 96  # what the cache holds of a sequence
    page: int = 0  # rows of a page; 0: no pages
    batch: int = 1  # where there are no lengths
    KV_heads: int = 1
    group: int = 1
    seq_q: int = 1
    causal: bool = False
    seed: int = 0
    only: int = -1  # this sequence alone, of all of them
    pages: dict[tuple[int, int], int] = field(default_factory=dict)  # other numbers of pages, by sequence and page
    queries: list[int] | None = None  # of each sequence, at most seq_q; None: all have seq_q
    packed: bool = False  # with queries: the rows of Q, and without pages of K and V, lie one behind the other
    unused: int = 0  # rows behind those of each sequence of packed tensors

    @property
    def all_queries(self) -> list[int]:
        return self.queries if self.queries is not None else [self.seq_q] * len(self.all_lengths)

    @property
    def all_lengths(self) -> list[int]:
        return self.lengths if self.lengths is not None else [self.seq_k] * self.batch

    @property
    def used(self) -> list[int]:
        """Keys of each sequence, cut to what the cache holds."""
        return [min(max(length, 0), self.seq_k) for length in self.all_lengths]

    @cached_property
    def tensors(self) -> dict[str, Floats]:
        """Q, K and V of one head size, 128: columns of it are another one's."""
        rng = np.random.default_rng(self.seed)
        made = {}
        for name, heads, rows in (
            ("Q", self.KV_heads * self.group, self.seq_q),
            *((n, self.KV_heads, self.seq_k) for n in "KV"),
        ):
            made[name] = rng.standard_normal((len(self.all_lengths), rows, heads, 128))
        return made


@dataclass(frozen=True)
class Result:
    output: Bits
    LSE: npt.NDArray[np.float32]


@once
def _module() -> emu.Module:
    return emu.Module(PTX)


@once
def _kernel(config: KernelConfig) -> emu.Kernel:
    return _module()[config.symbol()]


def launch(
    config: KernelConfig,
    cache: Cache,
    split_keys: int = 0,
    multiprocessors: int = 16,
    order: list[int] | None = None,
    **settings: Any,
) -> Result:
    """Attention of the sequences, or of those that `order` names, in this order."""
    order = list(range(len(cache.all_lengths))) if order is None else order
    d, dtype, batch = config.d_head, Dtype(config.dtype), len(order)
    lengths, used = [cache.all_lengths[i] for i in order], [cache.used[i] for i in order]
    Q = rounded(cache.tensors["Q"][order][..., :d], dtype)
    K, V = (of_cache(config, cache.tensors[name][order][..., :d]) for name in "KV")
    nan = NAN if config.e4m3_cache else rounded(np.array([np.nan]), dtype)[0]
    for sequence, length in enumerate(used):
        K[sequence, length:] = V[sequence, length:] = nan
    heads, rows, samples = cache.KV_heads * cache.group, cache.seq_k, batch
    kept: list[emu.Buffer] = []

    def on_device(array: npt.NDArray[Any], name: str, output: bool = False) -> int:
        kept.append(_module().buffer(array, name, output))
        return kept[-1].address

    args = ServingArgs(split_keys=split_keys, window_left=-1, window_right=-1)
    if cache.page:
        K, V, table = _paged(cache, order, K, V, nan)
        samples, rows = K.shape[:2]
        args.page_rows, args.n_pages = rows, samples
        args.pages_of_sequence = -(-cache.seq_k // rows)
        args.pages = on_device(table, "pages")
    if cache.lengths is not None:
        args.KV_lengths = on_device(np.array(lengths, np.int32), "lengths")
    queries, Q_samples, Q_rows = [cache.all_queries[i] for i in order], batch, cache.seq_q
    if cache.queries is not None:
        for sequence, count in enumerate(queries):
            Q[sequence, count:] = rounded(np.array([np.nan]), dtype)[0]
        args.Q_lengths = on_device(np.array(queries, np.int32), "Q lengths")
    if cache.packed:
        Q, offsets = _one_behind_the_other(Q, queries, cache.unused)
        Q_samples, Q_rows = Q.shape[:2]
        args.Q_offsets, args.Q_rows = on_device(offsets, "Q offsets"), Q_rows
    if cache.packed and not cache.page:
        K, offsets = _one_behind_the_other(K, used, cache.unused)
        V, offsets = _one_behind_the_other(V, used, cache.unused)
        samples, rows = K.shape[:2]
        args.KV_offsets, args.KV_rows = on_device(offsets, "KV offsets"), rows
    if config.e4m3_cache:
        scales = scales_of(config, cache.KV_heads)
        args.K_scales, args.V_scales = (on_device(scales[name], f"{name} scales") for name in "KV")
    front = args.front
    front.Q, front.K, front.V = on_device(Q, "Q"), on_device(K, "K"), on_device(V, "V")
    whole = cache.queries is None  # every row of O is written
    front.O = on_device(np.full_like(Q, UNWRITTEN), "O", output=whole)
    front.LSE = on_device(np.full((Q_samples, heads, Q_rows), UNWRITTEN, np.float32), "LSE", output=whole)
    front.seq_q, front.heads, front.batch, front.seq_k = cache.seq_q, heads, batch, cache.seq_k
    front.KV_heads, front.softmax_scale, front.causal = cache.KV_heads, d**-0.5, cache.causal
    for name, size, row in (
        ("Q", Q_rows, heads),
        ("K", rows, cache.KV_heads),
        ("V", rows, cache.KV_heads),
        ("O", Q_rows, heads),
    ):
        setattr(front, f"{name}_strides", type(front.Q_strides)(batch=size * row * d, seq=row * d, head=d))
    grid, workspace = _grid_and_workspace(config, cache, batch, Q_rows, split_keys, multiprocessors)
    counters = len(kept)
    front.tickets = on_device(np.zeros(workspace // 4, np.int32), "tickets")
    boxes, element = config.box_rows(), K.itemsize
    maps = tensor_map(front.Q, [Q_samples, Q_rows, heads], heads * d, d, boxes[0])
    maps += tensor_map(front.K, [samples, rows, cache.KV_heads], cache.KV_heads * d, d, boxes[1], element)
    maps += tensor_map(front.V, [samples, rows, cache.KV_heads], cache.KV_heads * d, d, boxes[2], element)
    maps += tensor_map(front.O, [Q_samples, Q_rows, heads], heads * d, d, boxes[3])
    _kernel(config)[grid, config.threads(), config.smem_bytes()](bytes(args), maps, **settings)
    assert not kept[counters].array[: config.counter_bytes() // 4].any(), "counters are zero after a launch"
    by_address = {buffer.address: buffer for buffer in kept}
    output, LSE = by_address[front.O].array.copy(), by_address[front.LSE].array.copy()
    return Result(output, LSE) if whole else _of_sequences(cache, queries, output, LSE)


UNWRITTEN = 7  # of O, as bits, and of log-sum-exp


def _one_behind_the_other(
    tensor: npt.NDArray[Any], counts: list[int], unused: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """One sample of the first rows of each, as many as the counts say and some that are not used, and the offsets."""
    parts = [sequence[: count + unused] for sequence, count in zip(tensor, counts, strict=True)]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    return np.concatenate(parts)[None], offsets


def _of_sequences(cache: Cache, queries: list[int], output: Bits, LSE: npt.NDArray[np.float32]) -> Result:
    """The rows of each sequence, [batch, seq_q, ...], zeros and -inf for those that it does not use, which no launch
    may write."""
    heads, d = output.shape[2:]
    made = Result(
        np.zeros((len(queries), cache.seq_q, heads, d), np.uint16),
        np.full((len(queries), heads, cache.seq_q), -np.inf, np.float32),
    )
    first = 0
    for sequence, count in enumerate(queries):
        sample, start = (0, first) if cache.packed else (sequence, 0)
        made.output[sequence, :count] = output[sample, start : start + count]
        made.LSE[sequence, :, :count] = LSE[sample, :, start : start + count]
        output[sample, start : start + count], LSE[sample, :, start : start + count] = UNWRITTEN, UNWRITTEN
        first += min(count + cache.unused, cache.seq_q)
    assert (output == UNWRITTEN).all() and (LSE == UNWRITTEN).all(), "a row of no query is written"
    return made


def _grid_and_workspace(
    config: KernelConfig, cache: Cache, batch: int, Q_rows: int, split_keys: int, multiprocessors: int
) -> tuple[int, int]:
    """What common/decode_config.h has for the launch."""
    rows = cache.seq_q * cache.group
    row_blocks = batch * -(-rows // config.B_r)
    if config.ragged_queries and cache.packed:
        row_blocks = Q_rows * cache.group // config.B_r + batch
    if config.ragged_queries:
        rows = config.B_r
    blocks = row_blocks * -(-cache.seq_k // config.B_c)
    ctas = cache.KV_heads * min(blocks, max(1, multiprocessors // cache.KV_heads))
    places = row_blocks * cache.KV_heads * -(-cache.seq_k // split_keys) if split_keys else 2 * ctas
    return ctas, config.counter_bytes() + places * min(rows, config.B_r) * 4 * (config.d_head + 1)


def _paged(cache: Cache, order: list[int], K: Bits, V: Bits, nan: int) -> tuple[Bits, Bits, npt.NDArray[np.int32]]:
    """K and V in pages in random order, and the table. Behind the last page that a sequence uses stands a wild number,
    and behind that of the last sequence the table ends."""
    page, used = cache.page, [cache.used[i] for i in order]
    needed = [(sequence, number) for sequence, keys in enumerate(used) for number in range(-(-keys // page))]
    numbers = np.random.default_rng(cache.seed).permutation(len(needed) + 2)
    of_sequence = -(-cache.seq_k // page)
    table = np.full((len(used), of_sequence), -(1 << 30), np.int32)
    pools = [np.full((len(numbers), page, *K.shape[2:]), nan, K.dtype) for _ in "KV"]
    for (sequence, number), place in zip(needed, numbers, strict=False):
        table[sequence, number] = cache.pages.get((order[sequence], number), place)
        for pool, tensor in zip(pools, (K, V), strict=True):
            rows = tensor[sequence, number * page : (number + 1) * page]
            pool[place, : len(rows)] = rows
    last = max(1, -(-used[-1] // page))
    return pools[0], pools[1], table.reshape(-1)[: (len(used) - 1) * of_sequence + last]


# ---- what should come out --------------------------------------------------------------------------------------------


def reference(config: KernelConfig, cache: Cache) -> tuple[Floats, Floats]:
    """O and log-sum-exp in float64. A row that sees no key has zeros and -inf."""
    d, dtype = config.d_head, Dtype(config.dtype)
    Q = widened(rounded(cache.tensors["Q"][..., :d], dtype), dtype)
    K, V = (
        (VALUES[of_cache(config, tensor)] if config.e4m3_cache else widened(of_cache(config, tensor), dtype))
        * scales_of(config, cache.KV_heads)[name][:, None]
        for name, tensor in ((name, cache.tensors[name][..., :d]) for name in "KV")
    )
    output, LSE = np.zeros(Q.shape), np.full((Q.shape[0], Q.shape[2], Q.shape[1]), -np.inf)
    for sequence, keys in enumerate(cache.used):
        queries = cache.all_queries[sequence]
        for row in range(queries):
            seen = min(keys, row + 1 + keys - queries) if cache.causal else keys
            for head in range(Q.shape[2] if seen > 0 else 0):
                scores = K[sequence, :seen, head // cache.group] @ Q[sequence, row, head] * d**-0.5
                p = np.exp(scores - scores.max())
                output[sequence, row, head] = p @ V[sequence, :seen, head // cache.group] / p.sum()
                LSE[sequence, head, row] = scores.max() + np.log(p.sum())
    return output, LSE


def assert_right(config: KernelConfig, cache: Cache, result: Result) -> None:
    output, LSE = reference(config, cache)
    got, dtype = widened(result.output, Dtype(config.dtype)), Dtype(config.dtype)
    assert np.isfinite(got).all(), "what lies behind a length came into a result"
    unit = 2.0**-10 if dtype is Dtype.FP16 else 2.0**-7
    assert np.abs(got - output).max(initial=0) <= unit * (1 + np.abs(output).max(initial=0))
    assert (np.isneginf(result.LSE) == np.isneginf(LSE)).all()
    seen = np.isfinite(LSE)
    assert np.abs(result.LSE[seen] - LSE[seen]).max(initial=0) <= 1e-4
