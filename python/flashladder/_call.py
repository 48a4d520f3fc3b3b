"""One call of attention: what every front end of the package fills in, and the only way to the library.

    call = Call(q, k, v, options(causal=True), present(seqlens_k=lengths))
    o, lse = call.run()

A `Plan` holds everything that follows from the shapes, types and options of a call. It is made once: a call whose facts
are known reads addresses, makes its result and launches.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import warnings
from collections.abc import Container
from typing import Any, NamedTuple

from flashladder import _launch
from flashladder._dlpack import Borrowed
from flashladder._frameworks import (
    DTYPES,
    E4M3,
    HOST,
    INT8,
    JAX,
    TRACED,
    DLPack,
    Framework,
    Layout,
    NumPy,
    Torch,
    attribute,
    common,
    framework_of,
    kind_of,
    layout_of,
    stream_handle,
)
from flashladder._library import (
    ARRAYS,
    BIAS_BYTES,
    BIAS_DTYPE,
    BIAS_FLOAT,
    EMULATOR,
    LIBRARY,
    Description,
    Problem,
    check,
    handle,
)
from flashladder._library import E4M3 as KIND_E4M3
from flashladder._library import INT8 as KIND_INT8
from flashladder._options import Options, number_of_scale, size
from flashladder._overlap import overlap, overlaps_itself, span

AXES, PACKED = "[batch, seq, heads, d_head]", "[tokens, heads, d_head]"
PAGED = "[n_pages, page_rows, kv_heads, d_head]"
PAGE_UNIT = 16  # every page has a multiple of so many rows
SPLIT_KEYS = (512, 2048)  # of the smallest part with batch-invariant bits: up to 16 rows of a KV head, and more
KINDS_OF_BYTES = {E4M3: KIND_E4M3, INT8: KIND_INT8}  # of caches
MOST_SEQUENCES = 65535  # of one launch
MOST_PLANS = 1024
EMULATED = 2e9  # floating-point operations per second of the emulator on one core
LEVELS = 6  # functions from _warn() up to the caller of attention()
LONG = 60.0  # seconds on the emulator from which a warning says so


class Plan(NamedTuple):
    """The requirements of a call with known facts."""

    problem: Problem | None  # None where there is no key or no row: O is 0
    address: int  # of the problem, which this tuple keeps alive
    lse_shape: tuple[int, ...]
    gpu: int | None
    seconds: float  # that the emulator takes, roughly; 0 on a GPU
    inputs: tuple[Layout, ...]  # of q, k and v
    out: Layout | None
    ragged: bool  # rows may belong to no sequence, and the kernel does not write those


_plans: dict[Any, Plan] = {}


class Call(NamedTuple):
    """The arguments of one call. `arrays` has those of ARRAYS that are there, in their order."""

    q: Any
    k: Any
    v: Any
    options: Options
    arrays: dict[str, Any] = {}  # noqa: RUF012, nobody writes to it
    most: tuple[int, int] = (0, 0)  # rows of a packed sequence, at most: of q and of k
    out: Any = None

    def framework(self) -> Framework:
        """The framework of all arrays. TypeError where one is of another."""
        framework = common(self.q, self.k, self.v, self.out)
        for name, array in self.arrays.items():
            if framework_of(name, array) is not framework:
                raise TypeError(f"{name} is {kind_of(array)} and q {kind_of(self.q)}: pass arrays of one package")
        return framework

    def plan(self, framework: Framework) -> Plan:
        """The requirements of this call. ValueError where its arrays do not belong together."""
        facts = framework.facts
        arrays = tuple((name, facts(array)) for name, array in self.arrays.items())
        of_out = None if self.out is None else facts(self.out)
        key = (facts(self.q), facts(self.k), facts(self.v), of_out, arrays, self.most, self.options)
        plan = _plans.get(key)
        if plan is None:
            if len(_plans) >= MOST_PLANS:
                _plans.clear()
            plan = _plans[key] = _new_plan(framework, self)
        return plan

    def problem(self) -> Problem | None:
        """The problem of this call, None where it is empty; of arrays of other packages by __dlpack__."""
        framework = self.framework()
        if type(framework) is DLPack:
            self._refuse_dlpack()
            return self._borrowed(0).plan(framework).problem
        call = self.prepared(framework)
        return (call.chunk(0) if call.sequences() > MOST_SEQUENCES else call).plan(framework).problem

    def run(self, stream: Any = None) -> tuple[Any, Any]:
        """O and log-sum-exp, None where that is not wanted."""
        framework = self.framework()
        if self.options.dropout_p and self.sequences() > MOST_SEQUENCES:
            raise NotImplementedError(f"dropout_p with {self.sequences()} sequences: at most {MOST_SEQUENCES}")
        if type(framework) is JAX:
            return framework.run(self, stream)
        chosen = None if stream is None else stream_handle(stream)
        if type(framework) is DLPack:
            self._refuse_dlpack()
            self._borrowed(chosen or 0)._launch(framework, chosen, stream)
            return self.out, None
        call = self.prepared(framework)
        if call.sequences() > MOST_SEQUENCES:
            return call._in_chunks(framework, stream)
        return call._launch(framework, chosen, stream)

    def sequences(self) -> int:
        """The number of sequences."""
        starts = self.arrays.get("cu_seqlens_q")
        return int(self.q.shape[0] if starts is None else starts.shape[0] - 1) if len(self.q.shape) else 0

    def prepared(self, framework: Framework) -> Call:
        """With as many samples of K and V as of Q, and pages whose rows are a power of two: most calls as they are."""
        of_q, of_k = self.q.shape, self.k.shape
        if "block_table" in self.arrays:
            if len(of_k) == 4 and of_k[1] & (of_k[1] - 1) and not of_k[1] % PAGE_UNIT:
                return self._with_smaller_pages(framework)
        elif len(of_q) == len(of_k) == 4 and of_q[0] != of_k[0] and 1 in (of_q[0], of_k[0]):
            return self._broadcast(framework)
        return self

    def _broadcast(self, framework: Framework) -> Call:
        """One sample of Q, or of K and V, for all samples of the other."""
        names = ("q",) if self.q.shape[0] == 1 else ("k", "v")
        batch = max(self.q.shape[0], self.k.shape[0]) if 0 not in (self.q.shape[0], self.k.shape[0]) else 0
        wide = {}
        for name in names:
            array = getattr(self, name)
            made = framework.package().broadcast_to(array, (batch, *array.shape[1:]))
            wide[name] = made if framework.layout(array).gpu is None else made + 0  # a GPU's strides are not 0
        return self._replace(**wide)

    def _with_smaller_pages(self, framework: Framework) -> Call:
        """Each page as several of the largest power of two that divides its rows. A cache of other strides stays."""
        rows = int(self.k.shape[1])
        unit = rows & -rows
        views = {}
        for name in ("k", "v"):
            array = getattr(self, name)
            of_page, of_row = framework.layout(array).strides[:2]
            if of_page % (unit * of_row):
                return self
            step = of_page // (unit * of_row)
            count = (array.shape[0] - 1) * step + rows // unit
            views[name] = framework.view(array, (count, unit, *array.shape[2:]), unit * of_row)
        table = self.arrays["block_table"]
        within = framework.package().arange(rows // unit, dtype=table.dtype, **framework.same_device(table))
        small = (table[:, :, None] * step + within).reshape(table.shape[0], -1)
        return self._replace(**views, arrays=present(**{**self.arrays, "block_table": small}))

    def _launch(self, framework: Framework, chosen: int | None, stream: Any) -> tuple[Any, Any]:
        plan = self.plan(framework)
        framework.refuse(self.q, self.k, self.v, self.out, self.arrays)
        current = _stream_of(framework, plan, chosen, stream)
        made, lse = framework.results(
            self.q, self.v.shape[-1], self.options.return_lse and plan.lse_shape, self.out, chosen, self.options.dtype
        )
        if plan.ragged or plan.problem is None:
            if self.out is None or plan.problem is None:
                framework.fill(made, 0.0, chosen)
            if lse is not None:
                framework.fill(lse, -math.inf, chosen)
        if "max_logits" in self.arrays and (plan.problem is None or 0 in self.q.shape):
            framework.fill(self.arrays["max_logits"], -math.inf, chosen)
        address = framework.address
        inputs = (address(self.q), address(self.k), address(self.v))
        if self.out is not None:
            _check_apart(plan, address(made), inputs)
        if plan.problem is not None:
            arrays = self.arrays
            at = [address(arrays[name]) if name in arrays else 0 for name in ARRAYS] if arrays else _launch.NO_ARRAYS
            tensors = (*inputs, address(made), 0 if lse is None else address(lse))
            _launch.forward(plan.address, tensors, at, current)
        return made, lse

    def _in_chunks(self, framework: Framework, stream: Any) -> tuple[Any, Any]:
        """One launch for each 65,535 sequences, because a grid has no more."""
        packed = "cu_seqlens_q" in self.arrays
        rows = self.q.shape[-3]
        shape = (self.q.shape[-2], rows) if packed else (self.q.shape[0], self.q.shape[-2], rows)
        handle = None if stream is None else stream_handle(stream)
        wanted = self.options.return_lse and shape
        out, lse = framework.results(self.q, self.v.shape[-1], wanted, self.out, handle, self.options.dtype)
        if packed and self.out is None:
            framework.fill(out, 0.0, handle)
        for first in range(0, self.sequences(), MOST_SEQUENCES):
            _, part_lse = self.chunk(first, out).run(stream)
            if lse is not None and packed:  # rows of other sequences are -infinity in a part
                lse = part_lse if first == 0 else framework.package().maximum(lse, part_lse)
            elif lse is not None:
                lse[first : first + MOST_SEQUENCES] = part_lse
        return out, lse

    def chunk(self, first: int, out: Any = None) -> Call:
        """The call of at most 65,535 sequences from number `first` on. `out` is that of all sequences."""
        some = slice(first, first + MOST_SEQUENCES)
        arrays = {
            name: array[first : first + MOST_SEQUENCES + 1]
            if name.startswith("cu_")
            else array
            if name in ("sinks", "q_scales", "o_scales", "rng_state")
            or (name.endswith(("_scales", "_slopes")) and len(array.shape) == 1)
            or (name in ("bias", "block_mask") and array.shape[0] == 1)
            else array[some]
            for name, array in self.arrays.items()
        }
        if "cu_seqlens_q" in arrays:
            return self._replace(arrays=arrays, out=out)
        k, v = (x if "block_table" in arrays else x[some] for x in (self.k, self.v))
        return self._replace(q=self.q[some], k=k, v=v, arrays=arrays, out=None if out is None else out[some])

    def _refuse_dlpack(self) -> None:
        plain = Options(self.options.causal, self.options.scale, version=self.options.version)
        if self.arrays or self.options._replace(return_lse=False) != plain:
            raise NotImplementedError(
                "lengths, pages, windows, sinks and soft caps need PyTorch, JAX, CuPy and NumPy arrays: "
                f"{kind_of(self.q)} supports only unpacked sequences of equal length"
            )

    def _borrowed(self, stream: int) -> Call:
        """The call with the memory that __dlpack__ of its arrays returns."""
        names = ("q", "k", "v") if self.out is None else ("q", "k", "v", "out")
        borrowed: dict[str, Any] = {name: Borrowed(name, getattr(self, name), stream) for name in names}
        return self._replace(**borrowed)


# ---- arrays of a call ------------------------------------------------------------------------------------------------


def present(**arrays: Any) -> dict[str, Any]:
    """The given arrays, in the order of ARRAYS."""
    return {name: arrays[name] for name in ARRAYS if arrays.get(name) is not None}


def with_max_logits(q: Any, sequences: int, arrays: dict[str, Any], options: Options) -> dict[str, Any]:
    """With room for the largest scores, [sequences, heads], where they are wanted."""
    if not options.return_max_logits:
        return arrays
    room = _full(q, sequences * q.shape[-2], 0, "float32").reshape(sequences, q.shape[-2])
    return present(**arrays, max_logits=room)


def returned(made: Any, lse: Any, arrays: dict[str, Any], options: Options) -> Any:
    """The return value of a call: the result, in a tuple if log-sum-exp or the largest scores are requested."""
    if options.return_max_logits:
        return (made, lse, arrays["max_logits"]) if options.return_lse else (made, arrays["max_logits"])
    return (made, lse) if options.return_lse else made


def made_for(q: Any, k: Any, sequences: int, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays as kernels read them: a number instead of an array counts for all sequences or heads, and sinks of
    fp16 and bf16 become float32."""
    made = {}
    for name, array in arrays.items():
        if array is None:
            continue
        if name.endswith("_scales") and math.prod(attribute(array, "shape", ())) == 1:
            array = _filled(q, (q if name in ("q_scales", "o_scales") else k).shape[-2], name[:-1], array)
        elif name.startswith("seqlens_") and type(array) is int:
            array = _full(q, sequences, size(name, array), "int32")
        elif name == "rng_state" and isinstance(array, (tuple, list)):
            array = _state(q, array)
        elif name in ("bias", "block_mask") and len(attribute(array, "shape", (0,) * 4)) < 4:
            array = array[(None,) * (4 - len(array.shape))]
        elif name == "sinks" and str(attribute(array, "dtype", "")).rpartition(".")[2] in DTYPES:
            framework = framework_of(name, array)
            is_torch = type(framework) is Torch
            array = array.to(framework.package().float32) if is_torch else array.astype("float32")
        made[name] = array
    return made


def _state(like: Any, state: Any) -> Any:
    """Seed and offset as an array on the device of another one."""
    whole = len(state) == 2 and all(type(one) is int and -(1 << 63) <= one < 1 << 63 for one in state)
    if not whole or not hasattr(framework_of("q", like), "same_device"):
        raise TypeError(f"rng_state is {state!r}: int64 [2] is needed, seed and offset, or two such integers")
    framework = framework_of("q", like)
    package = framework.package()
    if type(framework) is JAX:
        return package.array([one >> bits & 0xFFFFFFFF for one in state for bits in (0, 32)], dtype=package.uint32)
    make = package.tensor if type(framework) is Torch else package.array
    return make(state, dtype=package.int64, **framework.same_device(like))


def split_keys(options: Options, rows: int, arrays: Container[str]) -> int:
    """Keys of the smallest part; 0: parts may depend on the batch. Few rows are added up fast, so parts may be small.
    `rows` are those of a KV head of each sequence, unless sequences have different numbers of queries."""
    if not options.batch_invariant:
        return 0
    same = "cu_seqlens_q" not in arrays and "seqlens_q" not in arrays
    return SPLIT_KEYS[0] if same and rows <= 16 else SPLIT_KEYS[1]


def _filled(q: Any, heads: int, name: str, scale: Any) -> Any:
    if attribute(scale, "shape", None) is None:
        return _full(q, heads, number_of_scale(name, scale), "float32")
    return _full(q, heads, 1, "float32") * scale


def _full(like: Any, count: int, value: Any, dtype: str) -> Any:
    framework = framework_of("q", like)
    if not hasattr(framework, "same_device"):
        raise NotImplementedError(
            f"{kind_of(like)}: a number needs PyTorch, JAX, CuPy or NumPy arrays; pass an array instead"
        )
    package = framework.package()
    return package.full((count,), value, dtype=getattr(package, dtype), **framework.same_device(like))


def packed(
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqlens_q: Any,
    seqlens_k: Any,
    block_table: Any,
    sinks: Any,
) -> tuple[dict[str, Any], tuple[int, int]]:
    """The arguments of attention_varlen(): the arrays, and the largest number of rows of a sequence, 0 for pages."""
    for name, offsets in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if name == "cu_seqlens_q" if offsets is None else not attribute(offsets, "shape", ()):
            given = None if offsets is None else kind_of(offsets)
            raise TypeError(f"{name} is {given}: an int32 array [batch + 1] is needed")
    if block_table is None and cu_seqlens_k is None:
        raise TypeError("cu_seqlens_k is None: an int32 array [batch + 1] is needed, or block_table")
    if block_table is not None:
        if (cu_seqlens_k is None) == (seqlens_k is None):
            raise TypeError("block_table needs one of cu_seqlens_k and seqlens_k: pass one and set the other to None")
        if seqlens_k is None:
            seqlens_k, cu_seqlens_k = cu_seqlens_k[1:] - cu_seqlens_k[:-1], None
    arrays = present(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_q=seqlens_q,
        seqlens_k=seqlens_k,
        block_table=block_table,
        sinks=sinks,
    )
    most_k = size("max_seqlen_k", max_seqlen_k)
    return arrays, (size("max_seqlen_q", max_seqlen_q), 0 if block_table is not None else most_k)


# ---- plans -----------------------------------------------------------------------------------------------------------


def _new_plan(framework: Framework, call: Call) -> Plan:
    options, arrays = call.options, call.arrays
    is_packed, paged = "cu_seqlens_q" in arrays, "block_table" in arrays
    named = {"q": call.q, "k": call.k, "v": call.v} | ({} if call.out is None else {"out": call.out})
    layouts = {
        name: _unpacked(name, layout_of(framework, name, array), is_packed and not (paged and name in "kv"))
        for name, array in named.items()
    }
    q, k = layouts["q"], layouts["k"]
    all_e4m3, in_bytes = options.dtype is not None, k.dtype in KINDS_OF_BYTES
    _check_e4m3(framework, call.q, layouts, all_e4m3)
    for name, layout in layouts.items():
        _check(name, layout, q, k.dtype if in_bytes and name in ("qkv" if all_e4m3 else "kv") else "")
    _check_shapes(layouts, PACKED if is_packed else AXES, same_batch=not paged)
    samples, rows_q, heads, d_head = q.shape
    n_pages, rows_k, kv_heads, _ = k.shape
    d_head_v = layouts["v"].shape[3]
    if paged and rows_k % PAGE_UNIT:
        raise ValueError(f"page_rows {rows_k}: pages of k, its second axis, must have a multiple of {PAGE_UNIT} rows")
    extra = {name: layout_of(framework, name, array) for name, array in arrays.items()}
    if "rng_state" in extra and type(framework) is JAX:
        extra["rng_state"] = framework.state(extra["rng_state"])
    batch = samples
    if is_packed:
        starts = extra["cu_seqlens_q"].shape
        batch = max(0, starts[0] - 1) if len(starts) == 1 else 0
    if not in_bytes:
        refuse_scales(extra, is_packed, k.dtype)
    seq_q, seq_k = (max(1, rows) for rows in call.most) if is_packed else (rows_q, rows_k)
    blocks = -(-seq_k // options.scale_keys) if options.scale_keys else 0
    _check_arrays(extra, q, batch, heads, kv_heads, blocks)
    more: dict[str, Any] = {"arrays": sum(1 << i for i, name in enumerate(ARRAYS) if name in arrays)}
    if is_packed:
        more |= {"total_q": rows_q} | ({} if paged else {"total_k": rows_k})
    if paged:
        pages, step = extra["block_table"].shape[1], extra["block_table"].strides[0]
        seq_k = pages * rows_k
        more |= {"n_pages": n_pages, "page_rows": rows_k, "pages_of_sequence": step if batch > 1 else pages}
    if "bias" in extra:
        more |= _bias(extra["bias"], q, (batch, heads, seq_q, seq_k))
    if "block_mask" in extra:
        more |= _blocks(extra["block_mask"], (batch, heads, seq_q, seq_k), options.block_size)
    if options.dropout_p:
        if "rng_state" not in extra:
            raise TypeError("rng_state is None: dropout_p needs an int64 array [2], seed and offset")
        more |= {"dropout_p": options.dropout_p}
    if len(extra["alibi_slopes"].shape if "alibi_slopes" in extra else ()) == 2:
        more |= {"alibi_batch": heads}
    if d_head_v != d_head:
        more |= {"d_head_v": d_head_v}
    if options.window is not None:
        left, right = (min(side, 1 << 30) for side in options.window)
        more |= {"windowed": 1, "window_left": left, "window_right": right}
    if in_bytes:
        more |= {"kv_dtype": KINDS_OF_BYTES[k.dtype]}
    if all_e4m3:
        more |= {"q_dtype": KIND_E4M3, "sums": int(options.accurate), "scale_keys": options.scale_keys}
        more |= {"o_dtype": KIND_E4M3} if options.dtype == E4M3 else {}
    more |= {"softcap": options.softcap, "split_keys": split_keys(options, rows_q * heads // max(1, kv_heads), arrays)}
    contiguous = (rows_q * heads * d_head_v, heads * d_head_v, d_head_v)
    o_strides = contiguous if call.out is None else layouts["out"].strides[:3]
    dtype = q.dtype if options.dtype is None else options.dtype if options.dtype in DTYPES else "bfloat16"
    problem = None
    if rows_k or not (is_packed or arrays or options.window or options.softcap):
        problem = _launch.problem(
            DTYPES[dtype],
            q.gpu,
            (batch, heads, kv_heads, seq_q, seq_k, d_head),
            (*(layouts[name].strides[:3] for name in "qkv"), o_strides),
            options.causal,
            options.scale,
            options.version,
            None,
            tuple(more.items()),
        )
    lse_shape = (heads, rows_q) if is_packed else (batch, heads, rows_q)
    return Plan(
        problem,
        0 if problem is None else ctypes.addressof(problem),
        lse_shape,
        q.gpu,
        _seconds(problem) if q.gpu is None and problem is not None else 0.0,
        (q, k, layouts["v"]),
        layouts.get("out"),
        is_packed or "seqlens_q" in arrays,
    )


def _check_e4m3(framework: Framework, q: Any, layouts: dict[str, Layout], all_e4m3: bool) -> None:
    if not all_e4m3:
        return
    if type(framework) not in (Torch, JAX, NumPy):
        raise NotImplementedError(f"q is {kind_of(q)}: must be a PyTorch, JAX or NumPy array")
    for name, layout in layouts.items():
        if layout.dtype != E4M3:
            raise ValueError(f"{name} is {layout.dtype}: float8_e4m3fn is needed")


def _unpacked(name: str, layout: Layout, is_packed: bool) -> Layout:
    """With a first axis of one sample where the sequences are packed."""
    if not is_packed:
        return layout
    if len(layout.shape) != 3:
        raise ValueError(f"{name} has the shape {layout.shape}: three dimensions are needed, {PACKED}")
    return layout._replace(shape=(1, *layout.shape), strides=(0, *layout.strides))


def refuse_scales(arrays: Any, is_packed: bool, dtype: Any) -> None:
    """ValueError for factors of K and V if K and V are not of bytes."""
    if "k_scales" in arrays or "v_scales" in arrays:
        names, name = ("k and v", "k") if is_packed else ("caches", "k_cache")
        raise ValueError(f"k_scale and v_scale are for {names} of float8_e4m3fn or int8: {name} is {dtype}")


def _seconds(problem: Problem) -> float:
    """About how long the emulator computes; 0 where a GPU does."""
    if not _emulates():
        return 0.0
    pairs: int = problem.batch * problem.heads * problem.seq_q * problem.seq_k
    elements = problem.d_head + (problem.d_head_v or problem.d_head)
    operations: int = 2 * pairs * elements // (2 if problem.causal else 1)
    return operations / EMULATED / (os.cpu_count() or 1)


@functools.lru_cache
def _emulates() -> bool:
    """True if arrays in host memory are computed by the emulator."""
    found = Description(size=ctypes.sizeof(Description))
    check(LIBRARY.fl_describe(handle(), ctypes.addressof(found)))
    return bool(found.backend == EMULATOR)


_warned = False


def _warn(seconds: float) -> None:
    """Say once that the emulator will take long, where attention() is called."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"no GPU: the emulator computes this, which takes about {seconds / 60:.0f} minutes "
            "(flashladder.backend().why_no_gpu says more)",
            RuntimeWarning,
            stacklevel=LEVELS,
        )


def _check_device(name: str, layout: Layout, q: Layout) -> None:
    if layout.device != q.device and TRACED not in (layout.device, q.device):
        raise ValueError(f"{name} is on {layout.device} and q on {q.device}: pass both on one device")


def _check(name: str, layout: Layout, q: Layout, dtype: str = "") -> None:
    """The error of one array, by itself or compared with q. `dtype` is what it must have; "" is that of q."""
    if layout.device not in (HOST, TRACED) and layout.gpu is None:
        raise ValueError(f"{name} is on {layout.device}: must be in host memory or on a CUDA GPU")
    if layout.gpu is not None and _emulates():
        raise ValueError(
            f"{name} is on {layout.device}, but flashladder found no GPU (flashladder.backend().why_no_gpu gives the "
            "reason): pass arrays in host memory"
        )
    _check_device(name, layout, q)
    if layout.dtype != dtype and layout.dtype not in DTYPES:
        raise ValueError(f"{name} is {layout.dtype}: float16 or bfloat16 is needed")
    if layout.dtype != (dtype or q.dtype):
        other = f"k {dtype}" if dtype else f"q {q.dtype}"
        raise ValueError(f"{name} is {layout.dtype} and {other}: they must be of one type")
    if len(layout.shape) != 4:
        raise ValueError(f"{name} has the shape {layout.shape}: four dimensions are needed, {AXES}")
    if layout.strides[3] != 1 and layout.shape[3] > 1 and 0 not in layout.shape:
        raise ValueError(
            f"{name} has the stride {layout.strides[3]} along d_head, its last dimension: a row must be contiguous"
        )


def _check_shapes(layouts: dict[str, Layout], axes: str, same_batch: bool = True) -> None:
    q, k, v = (layouts[name].shape for name in "qkv")
    if v[:3] != k[:3]:
        raise ValueError(f"v has the shape {v} and k {k}: only the last axis may differ, d_head")
    for axis in (0, 3) if same_batch else (3,):
        if k[axis] != q[axis]:
            what = ("batch", "", "", "d_head")[axis]
            raise ValueError(f"{what} of k is {k[axis]} and of q {q[axis]}: they must be equal; the axes are {axes}")
    if k[2] and q[2] % k[2]:
        raise ValueError(f"heads of k are {k[2]} and of q {q[2]}: k must divide q; the axes are {axes}")
    if v[3] == 0 and q[3]:
        raise ValueError(f"v has the shape {v}: d_head, its last axis, must be at least 8")
    of_out = (*q[:3], v[3])
    if "out" in layouts and layouts["out"].shape != of_out:
        raise ValueError(f"out has the shape {layouts['out'].shape}: {of_out} is needed, the rows of q and d_head of v")
    if "out" in layouts and overlaps_itself(layouts["out"].shape, layouts["out"].strides):
        raise ValueError(f"out has the strides {layouts['out'].strides}, so that rows of it overlap: pass another one")


def _check_apart(plan: Plan, o: int, inputs: tuple[int, ...]) -> None:
    """ValueError where out, at the address o, shares memory with an input."""
    out = plan.out
    assert out is not None
    first, last = span(out.shape, out.strides)
    for name, address, layout in zip("qkv", inputs, plan.inputs):
        distance = (address - o) // 2  # in elements; that an address is odd the library says
        low, high = span(layout.shape, layout.strides)
        if distance + low < last and first < distance + high and overlap(distance, out, layout):
            raise ValueError(f"out shares memory with {name}: it must not overlap q, k or v")


def _check_arrays(extra: dict[str, Layout], q: Layout, batch: int, heads: int, kv_heads: int, blocks: int = 0) -> None:
    """`blocks` are those of keys that have factors of their own."""
    starts = f", while cu_seqlens_q has {batch + 1} entries" if "cu_seqlens_q" in extra else ""
    needed: dict[str, tuple[tuple[int, ...], str]] = {
        "cu_seqlens_q": ((batch + 1,), "one more than sequences"),
        "cu_seqlens_k": ((batch + 1,), f"one more than sequences{starts}"),
        "sinks": ((heads,), "one for each head of q"),
        "q_scales": ((heads,), "one for each head of q"),
        "o_scales": ((heads,), "one for each head of q"),
        "max_logits": ((batch, heads), "one for each sequence and head"),
        "rng_state": ((2,), "seed and offset"),
    }
    of_keys = (
        ((batch, kv_heads, blocks), "one for each block of keys") if blocks else ((kv_heads,), "one for each KV head")
    )
    needed |= {"k_scales": of_keys, "v_scales": of_keys}
    for name, layout in extra.items():
        floats = name in ("sinks", "max_logits") or name.endswith(("_scales", "_slopes"))
        dtype = "float32" if floats else "int64" if name == "rng_state" else "int32"
        _check_device(name, layout, q)
        if name in ("bias", "block_mask"):
            continue
        if layout.dtype != dtype:
            raise ValueError(f"{name} is {layout.dtype}: {dtype} is needed")
        if name == "alibi_slopes":
            needed[name] = ((batch, heads) if len(layout.shape) == 2 else (heads,), "one for each head of q")
        shape, why = needed.get(name, ((batch,), f"one for each sequence of q{starts}"))
        if name == "cu_seqlens_q" and len(layout.shape) != 1:
            raise ValueError(f"{name} has the shape {layout.shape}: one dimension is needed, [batch + 1]")
        if name == "block_table":
            if len(layout.shape) != 2 or layout.shape[0] != batch or not layout.shape[1]:
                raise ValueError(
                    f"{name} has the shape {layout.shape}: ({batch}, pages of a sequence) is needed{starts}"
                )
        elif layout.shape != shape:
            raise ValueError(f"{name} has the shape {layout.shape}: {shape} is needed, {why}")
        if batch and not _lies_well(name, layout):
            raise ValueError(f"{name} has the strides {layout.strides}: copy it to a contiguous one")


def _bias(layout: Layout, q: Layout, sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    """The fields of a bias of four dimensions. Sizes of 1 repeat its rows."""
    kinds = {"bool": BIAS_BYTES, q.dtype: BIAS_DTYPE, "float32": BIAS_FLOAT}
    if layout.dtype not in kinds:
        raise ValueError(f"bias is {layout.dtype}: bool, float32 or {q.dtype}, the type of q, is needed")
    fits = len(layout.shape) == 4 and layout.shape[3] == sizes[3]
    if not fits or any(size not in (1, most) for size, most in zip(layout.shape, sizes)):
        wanted = ", ".join(f"{size} or 1" if size > 1 else "1" for size in sizes[:3])
        raise ValueError(
            f"bias has the shape {layout.shape}: ({wanted}, {sizes[3]}) is needed, [batch, heads, seq_q, seq_k]"
        )
    strides = [0 if size == 1 else stride for size, stride in zip(layout.shape, layout.strides)]
    if (strides[3] != 1 and sizes[3] > 1) or min(strides) < 0:
        raise ValueError(
            f"bias has the strides {layout.strides}: the last must be 1 and none negative; copy it to a contiguous one"
        )
    return {"bias_dtype": kinds[layout.dtype], "bias": (strides[0], strides[2], strides[1])}


def _blocks(layout: Layout, sizes: tuple[int, int, int, int], block_size: tuple[int, int]) -> dict[str, Any]:
    """The fields of a block mask of four dimensions."""
    if layout.dtype not in ("bool", "uint8"):
        raise ValueError(f"block_mask is {layout.dtype}: bool or uint8 is needed")
    rows, columns = (-(-size // of_block) for size, of_block in zip(sizes[2:], block_size))
    fits = len(layout.shape) == 4 and layout.shape[2:] == (rows, columns)
    if not fits or any(size not in (1, most) for size, most in zip(layout.shape, sizes[:2])):
        wanted = ", ".join(f"{size} or 1" if size > 1 else "1" for size in sizes[:2])
        raise ValueError(
            f"block_mask has the shape {layout.shape}: ({wanted}, {rows}, {columns}) is needed, [batch, heads, blocks "
            f"of queries, blocks of keys], with block_size {block_size}"
        )
    strides = [0 if size == 1 else stride for size, stride in zip(layout.shape, layout.strides)]
    if (strides[3] != 1 and columns > 1) or min(strides) < 0:
        raise ValueError(
            f"block_mask has the strides {layout.strides}: the last must be 1 and none negative; copy it to a "
            "contiguous one"
        )
    queries, keys = block_size
    return {"mask_queries": queries, "mask_keys": keys, "block_mask": (strides[0], strides[2], strides[1])}


def _lies_well(name: str, layout: Layout) -> bool:
    """True if the elements are contiguous; rows of a block table may have gaps. An axis of size 1 has any stride."""
    step = 1
    for axis in reversed(range(len(layout.shape))):
        found = layout.strides[axis]
        apart = name == "block_table" and axis == 0 and found >= step
        if layout.shape[axis] > 1 and found != step and not apart:
            return False
        step *= layout.shape[axis]
    return True


def _stream_of(framework: Framework, plan: Plan, chosen: int | None, stream: Any) -> int:
    """The stream of a call: `chosen`, the handle of `stream`, or the framework's; 0 for host memory."""
    if plan.gpu is not None:
        return framework.current_stream(plan.gpu) if chosen is None else chosen
    if chosen is not None:
        raise ValueError(f"stream is {stream!r}, but the arrays are in host memory: leave stream out")
    if plan.seconds > LONG:
        _warn(plan.seconds)
    return 0
