"""attention/fp8 with serving_args on the emulator, against float64 of the same bytes: several lengths, packed and not,
factors of heads and of blocks of keys, O in e4m3. What belongs to no sequence is NaN."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import emu
import numpy as np
import numpy.typing as npt
import pytest

from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import load
from harness.tests.caches import SWIZZLE_128B, ServingArgs, tensor_map, widened
from harness.tests.e4m3 import NAN, VALUES, bytes_of

ROOT = Path(__file__).resolve().parents[2]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
CONFIGS = [each for each in load(ROOT, "attention/fp8").header.serving if each.e4m3_inputs]
NAMES = [f"{'accurate' if each.flush_blocks else 'fast'}-{each.d_head}" for each in CONFIGS]
SOME = [
    pytest.param(each, id=name, marks=[] if each.d_head == 128 else [pytest.mark.long])
    for each, name in zip(CONFIGS, NAMES, strict=True)
]
POISON = 0xA5
QUIET = {"checks": False}


@cache
def module() -> emu.Module:
    path = ROOT / "build/attention.fp8/attention.fp8.ptx"
    if not path.exists():
        pytest.skip("attention.fp8.ptx is not built: make attention.fp8")
    return emu.Module(path)


@dataclass(frozen=True)
class Sequences:
    """Two heads of queries on one of keys; lengths of each sequence; `packed`: one behind the other."""

    queries: tuple[int, ...] = (70, 0, 200, 1)
    keys: tuple[int, ...] = (150, 40, 230, 0)
    d_head: int = 128
    packed: bool = True
    causal: bool = False
    factors: bool = False  # of heads
    scale_keys: int = 0
    O_e4m3: bool = False
    size: float = 1.0
    V_mean: float = 0.0
    noise: int = 0  # 1: what belongs to no sequence is large numbers, not NaN
    seed: int = 1

    @cached_property
    def inputs(self) -> tuple[list[Bytes], list[Bytes], list[Bytes]]:
        rng = np.random.default_rng(self.seed)
        made: tuple[list[Bytes], ...] = ([], [], [])
        for queries, keys in zip(self.queries, self.keys, strict=True):
            for tensor, rows, heads in zip(made, (queries, keys, keys), (2, 1, 1), strict=True):
                values = rng.standard_normal((rows, heads, self.d_head))
                tensor.append(bytes_of(self.size * values if tensor is not made[2] else values + self.V_mean))
        return made  # type: ignore[return-value]

    @cached_property
    def scales(self) -> dict[str, npt.NDArray[np.float32]]:
        """Of Q by head, of K and V by sequence and block of keys or by head, of O by head."""
        if self.scale_keys:
            blocks = -(-max(self.keys) // self.scale_keys)
            rng = np.random.default_rng(2)
            made = {name: rng.uniform(0.25, 4, (len(self.keys), 1, blocks)).astype(np.float32) for name in "KV"}
        else:
            made = {"K": np.array([0.75], np.float32), "V": np.array([1.5], np.float32)}
        return made | {"Q": np.array([0.5, 1.25], np.float32), "O": np.array([0.02, 0.01], np.float32)}

    def operands(self, sequence: int) -> tuple[Floats, Floats, Floats]:
        """Q, K and V times their factors."""
        Q, K, V = (VALUES[tensor[sequence]] for tensor in self.inputs)
        if self.scale_keys:
            of_key = np.arange(len(K)) // self.scale_keys
            K, V = (x * self.scales[n][sequence, 0, of_key][:, None, None] for n, x in (("K", K), ("V", V)))
        elif self.factors:
            K, V = K * 0.75, V * 1.5
        if self.factors or self.scale_keys:
            Q = Q * self.scales["Q"][:, None]
        return Q, K, V

    def scores(self, sequence: int) -> tuple[Floats, Floats]:
        """Those of each row, [2, queries, keys], and V."""
        Q, K, V = self.operands(sequence)
        S = np.einsum("qhd,kd->hqk", Q, K[:, 0]) / math.sqrt(self.d_head)
        queries, keys = len(Q), len(K)
        if self.causal:
            S = np.where(np.tri(queries, keys, keys - queries, dtype=bool), S, -np.inf)
        return S, V[:, 0]

    def exact(self, sequence: int) -> tuple[Floats, Floats]:
        """O [queries, 2, d_head] and log-sum-exp [2, queries] as the formula is written."""
        S, V = self.scores(sequence)
        most = S.max(axis=2, keepdims=True, initial=-1e30)
        P = np.exp(S - most)
        total = P.sum(axis=2, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            output = np.where(total > 0, np.einsum("hqk,kd->hqd", P, V) / total, 0)
            return output.transpose(1, 0, 2), (most + np.log(total))[..., 0]

    def LSE_bound(self, sequence: int, rounded: bool) -> Floats:
        """Of the error of log-sum-exp, [2, queries].

        The sum of a score and its terms are cut d_head / 32 times, each by less than a unit, 2^-13 of what the sum has
        come to. What terms lose has both signs and mostly cancels: two units each time, twice what random inputs reach.

        Where l is of rounded P: a weight w between 2^e and 2^(e+1) is rounded to steps of 2^(e-3). It is off by at most
        half a step, evenly spread, so that the variance is at most (w / 8)^2 / 12. Errors of different keys do not
        depend on each other: relative to l the deviation is sqrt(sum p^2) / sqrt(768), where p are the weights with the
        sum 1. Of n equal weights that is 1 / sqrt(768 n). Six deviations are enough for some 10^8 rows. If all errors
        had one sign they were 1/16, as that of a single key.
        """
        Q, K, _ = self.operands(sequence)
        steps = self.d_head // 32
        by_step = np.einsum("qhsd,ksd->shqk", Q.reshape(len(Q), 2, steps, 32), K.reshape(len(K), steps, 32))
        come_to = np.abs(by_step.cumsum(axis=0)).max(axis=(0, 3), initial=0) / math.sqrt(self.d_head)
        cut = 2 * steps * 2.0**-13 * np.maximum(come_to, 1)
        if not rounded:
            return cut
        (S, _), (_, LSE) = self.scores(sequence), self.exact(sequence)
        p = np.exp(S - np.where(np.isfinite(LSE), LSE, 0)[..., None])
        return cut + np.minimum(1 / 16, 6 * np.sqrt((p * p).sum(axis=2) / 768))


@dataclass(frozen=True)
class Outputs:
    values: list[Floats]  # O of each sequence
    LSE: list[Floats]
    bits: list[npt.NDArray[Any]]
    strays: bool  # whether something was written that belongs to no sequence


def on_device(kept: list[emu.Buffer], name: str, array: npt.NDArray[Any]) -> int:
    kept.append(module().buffer(np.ascontiguousarray(array), name))
    return int(kept[-1].address)


def placed(problem: Sequences, parts: list[Bytes], lengths: tuple[int, ...], heads: int) -> tuple[Bytes, list[int]]:
    """A tensor [rows, heads, d_head] of NaN with the sequences in it, and where each begins. A packed one has five rows
    before the first; else each sequence has the rows of the longest."""
    rows = max(1, *lengths)
    starts = [5 + sum(lengths[:b]) if problem.packed else b * rows for b in range(len(lengths))]
    whole = np.full(
        (sum(lengths) + 12 if problem.packed else rows * len(lengths), heads, problem.d_head), NAN, np.uint8
    )
    if problem.noise:
        whole[:] = np.random.default_rng(problem.noise).choice([0x7E, 0xFE, 0x38], whole.shape)
    for start, part in zip(starts, parts, strict=True):
        whole[start : start + len(part)] = part
    return whole, starts


def launch(config: KernelConfig, problem: Sequences, **settings: Any) -> Outputs:
    d, batch = config.d_head, len(problem.queries)
    tensors: dict[str, Bytes] = {}
    starts: dict[str, list[int]] = {}
    kept: list[emu.Buffer] = []
    for name, parts, lengths in zip("QKV", problem.inputs, (problem.queries, problem.keys, problem.keys), strict=True):
        tensors[name], starts[name] = placed(problem, parts, lengths, 2 if name == "Q" else 1)
    rows = {name: len(tensor) if problem.packed else len(tensor) // batch for name, tensor in tensors.items()}
    args = ServingArgs(window_left=-1, window_right=-1, scale_keys=problem.scale_keys, O_e4m3=problem.O_e4m3)
    front = args.front
    for name in "QKV":
        setattr(front, name, on_device(kept, name, tensors[name]))
    width = 1 if problem.O_e4m3 else 2
    whole = np.full((len(tensors["Q"]), 2, d * width), POISON, np.uint8)
    LSE = np.full((2, rows["Q"]) if problem.packed else (batch, 2, rows["Q"]), np.nan, np.float32)
    front.O, front.LSE = on_device(kept, "O", whole), on_device(kept, "LSE", LSE)
    front.tickets = on_device(kept, "tickets", np.zeros(2, np.int32))
    results = kept[-3:]
    if problem.packed:
        args.Q_rows, args.KV_rows = rows["Q"], rows["K"]
        for name, lengths in (("Q", problem.queries), ("KV", problem.keys)):
            offsets = np.array([*starts[name[0]], starts[name[0]][-1] + lengths[-1]], np.int32)
            setattr(args, f"{name}_offsets", on_device(kept, f"{name} offsets", offsets))
    else:
        for name, lengths in (("Q", problem.queries), ("KV", problem.keys)):
            setattr(args, f"{name}_lengths", on_device(kept, f"{name} lengths", np.array(lengths, np.int32)))
    if problem.factors or problem.scale_keys:
        for name in "QKV":
            setattr(args, f"{name}_scales", on_device(kept, f"{name} scales", problem.scales[name]))
    if problem.O_e4m3:
        args.O_scales = on_device(kept, "O scales", problem.scales["O"])
    front.seq_q, front.seq_k = max(1, *problem.queries), max(1, *problem.keys)
    front.heads, front.KV_heads, front.batch, front.causal = 2, 1, batch, problem.causal
    front.softmax_scale = d**-0.5
    samples = 1 if problem.packed else batch
    maps = b""
    for name, heads, box in (("Q", 2, 64), ("K", 1, config.B_c), ("V", 1, config.B_c), ("O", 2, 16)):
        of = rows["Q" if name == "O" else name]
        strides = {"batch": of * heads * d, "seq": heads * d, "head": d}
        setattr(front, f"{name}_strides", type(front.Q_strides)(**strides))
        if name == "O":
            maps += tensor_map(front.O, [samples, of, heads], heads * d, d, box)
        else:
            maps += bytes_map(getattr(front, name), [samples, of, heads], d, box)
    grid = config.grid(front.seq_q, 2, batch, 3, front.seq_k)
    module()[config.symbol()][grid, config.threads(), config.smem_bytes()](bytes(args), maps, **settings)
    assert not results[2].array.any(), "tickets are 0 after a launch"
    return outputs(problem, config, starts["Q"], results[0].array, results[1].array)


def outputs(problem: Sequences, config: KernelConfig, starts: list[int], whole: Any, LSE: Any) -> Outputs:
    made, strays = Outputs([], [], [], False), np.ones(len(whole), bool)
    for b, (start, queries) in enumerate(zip(starts, problem.queries, strict=True)):
        bits = whole[start : start + queries]
        strays[start : start + queries] = False
        made.bits.append(bits)
        if problem.O_e4m3:
            made.values.append(VALUES[bits] * problem.scales["O"][:, None])
        else:
            made.values.append(widened(bits.copy().view(np.uint16), Dtype(config.dtype)))
        of = LSE[:, start : start + queries] if problem.packed else LSE[b, :, :queries]
        made.LSE.append(of.astype(np.float64))
    return replace(made, strays=bool((whole[strays] != POISON).any()))


def bytes_map(address: int, sizes: list[int], d: int, box: int) -> bytes:
    """As runtime/tensor_maps.c makes it: rows of 64 bytes have the swizzle before that of 128, 256 are two of them."""
    samples, rows, heads = sizes
    span = min(d, 128)
    info = emu._library.structs["emu_tensor_info"](
        address=address, rank=5, element_bytes=1, swizzle=SWIZZLE_128B - (d == 64)
    )
    info.sizes[:] = (span, rows, d // span, heads, samples)
    info.strides[:] = (heads * d, span, d, rows * heads * d)
    info.box[:] = (span, box, d // span, 1, 1)
    text, message = ctypes.create_string_buffer(128), emu._library.error()
    make = emu._library.c.emu_make_tensor_map
    make.restype = ctypes.c_bool
    assert make(ctypes.byref(info), text, ctypes.byref(message)), message.text
    return text.raw


def assert_right(config: KernelConfig, problem: Sequences, got: Outputs, most: float = 0.05) -> None:
    """Factors of keys of V are in P: l is then of what was not rounded."""
    assert not got.strays, "rows that belong to no sequence were written"
    rounded = bool(config.rounded_sums) and not problem.scale_keys
    for b, (output, LSE) in enumerate(zip(got.values, got.LSE, strict=True)):
        exact, exact_LSE = problem.exact(b)
        assert np.isfinite(output).all(), f"sequence {b}: what belongs to no sequence came into it"
        assert np.linalg.norm(output - exact) <= most * np.linalg.norm(exact), f"sequence {b}"
        seen = np.isfinite(exact_LSE)
        assert (np.isfinite(LSE) == seen).all()
        assert (np.abs(LSE[seen] - exact_LSE[seen]) <= problem.LSE_bound(b, rounded)[seen]).all(), f"sequence {b}"


@pytest.mark.parametrize("config", SOME)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_sequences_of_several_lengths(config: KernelConfig, packed: bool) -> None:
    problem = Sequences(d_head=config.d_head, packed=packed, causal=packed, factors=not packed)
    assert_right(config, problem, launch(config, problem))


@pytest.mark.parametrize("config", SOME)
def test_each_so_many_keys_have_factors(config: KernelConfig) -> None:
    """Other blocks than the kernel's, for each sequence."""
    problem = Sequences((70, 33), (300, 170), d_head=config.d_head, scale_keys=64)
    assert_right(config, problem, launch(config, problem, **QUIET))
    equal = replace(problem, scale_keys=32, causal=True)
    assert_right(config, equal, launch(config, equal, **QUIET))


@pytest.mark.parametrize("config", CONFIGS[::3], ids=NAMES[::3])
def test_factors_of_keys_that_differ_by_much(config: KernelConfig) -> None:
    """P begins at 8 with the factor in it: a large one behind a small one is lowered, and none is lost."""
    problem = Sequences((64,), (500,), d_head=config.d_head, scale_keys=128, V_mean=0.0)
    problem.scales["V"][0, 0] = [1e-3, 1e4, 1.0, 1e-4]
    assert_right(config, problem, launch(config, problem, **QUIET))


FAST = [each for each in CONFIGS if not each.flush_blocks]


@pytest.mark.parametrize("config", FAST, ids=[str(each.d_head) for each in FAST])
def test_O_in_e4m3(config: KernelConfig) -> None:
    """Divided by the factor of its head, and rounded once more."""
    problem = Sequences(d_head=config.d_head, O_e4m3=True, factors=True)
    assert_right(config, problem, launch(config, problem), most=0.06)


def test_results_do_not_depend_on_what_belongs_to_no_sequence() -> None:
    """Rows behind the last query share warps with those of the sequence."""
    config = CONFIGS[0]
    quiet = Sequences((69,), (400,), size=3.0)
    loud = replace(quiet, noise=7)
    assert_right(config, quiet, launch(config, quiet, **QUIET))
    one, other = launch(config, quiet, **QUIET), launch(config, loud, **QUIET)
    assert (one.bits[0] == other.bits[0]).all() and (one.LSE[0] == other.LSE[0]).all()


def test_scores_that_overflow_are_computed_again_from_their_sequence() -> None:
    problem = Sequences((70, 65), (300, 480), size=30.0)
    for b, (output, _) in enumerate(zip(launch(CONFIGS[0], problem, **QUIET).values, range(2), strict=True)):
        exact, _ = problem.exact(b)
        assert np.linalg.norm(output - exact) <= 0.1 * np.linalg.norm(exact)


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
@pytest.mark.parametrize("schedule", [1, 3])
def test_lengths_in_any_order_of_warps(config: KernelConfig, schedule: int) -> None:
    for causal in (False, True):
        problem = Sequences((193, 5, 400, 64), (97, 700, 400, 1), d_head=config.d_head, causal=causal, seed=schedule)
        assert_right(config, problem, launch(config, problem, schedule=schedule))
