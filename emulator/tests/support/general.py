"""Problems of the kernels that take attention_args (common/abi.h): any lengths, a mask, grouped heads, log-sum-exp.

launch = General(symbol, seq=35, seq_k=135, heads=4, KV_heads=2, causal=True, lse=True)
error, findings = launch.worst(ptx, folder)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from support.versions import DTYPES, Launch, widen

from analysis.emulate.online_softmax import output_bound
from analysis.machine_code.loops import PTXRUN_TYPES, parameter_members

MEMBERS = [name for _, name in parameter_members(any_length=True)]
LSE, TICKETS = (f"0.{MEMBERS.index(name)}" for name in ("LSE", "tickets"))  # as ptxrun numbers them
LSE_BOUND = 2e-5  # of an fp32 sum and logarithm, of 1 + its absolute value


@dataclass(frozen=True)
class General(Launch):
    """`seq` rows of Q and O, `seq_k` of K and V. The grid has `ctas` CTAs in each of its rows."""

    seq_k: int = 0
    KV_heads: int = 1
    causal: bool = False
    lse: bool = False
    scale: float = 0  # of the scores; 0: 1 / sqrt(d_head)
    grid_rows: int = 1

    def grid(self) -> tuple[int, int, int]:
        if self.config.shares_keys:  # as many CTAs for each KV head
            return (-(-(self.ctas or 1) // self.KV_heads) * self.KV_heads, 1, 1)
        return (self.ctas or 1, self.grid_rows, 1)

    def shape(self, tensor: int) -> tuple[int, int, int, int]:
        """Of Q, K, V or O."""
        rows, heads = (self.seq, self.heads) if tensor in (0, 3) else (self.seq_k, self.KV_heads)
        return self.batch, rows, heads, self.config.d_head

    def arguments(self) -> str:
        given, values = self.given(), self.values()
        fields = [given.get(name) or PTXRUN_TYPES[kind].format(values.get(name, 0)) for kind, name in self.members()]
        return f"struct:[{','.join(fields)}]"

    def members(self) -> list[tuple[str, str]]:
        """Of the first parameter: type and name."""
        return parameter_members(any_length=True)

    def given(self) -> dict[str, str]:
        """Buffers, as ptxrun takes them, by the member that has their address."""
        kind = "f16" if self.config.dtype == DTYPES["fp16"] else "bf16"
        counts = [f"{kind}:{prod(self.shape(tensor))}" for tensor in range(4)]
        tensors = [*(f"buf:{count}:{self.inputs}" for count in counts[:3]), f"out:{counts[3]}"]
        given = dict(zip("QKVO", tensors, strict=True)) | self.tickets()
        if self.lse:
            given["LSE"] = f"out:f32:{prod(self.shape(3)[:3])}"
        return given

    def values(self) -> dict[str, float]:
        """Of the other members, where they are not 0."""
        values: dict[str, float] = {"seq_q": self.seq, "seq_k": self.seq_k, "batch": self.batch}
        values |= {"heads": self.heads, "KV_heads": self.KV_heads, "causal": int(self.causal)}
        values["softmax_scale"] = self.scale or self.config.d_head**-0.5
        for t, tensor in enumerate("QKVO"):
            _, rows, heads, d_head = self.shape(t)
            strides = {"batch": rows * heads * d_head, "seq": heads * d_head, "head": d_head}
            values |= {f"{tensor}_strides.{name}": stride for name, stride in strides.items()}
        return values

    def tickets(self) -> dict[str, str]:
        words = self.config.tickets_bytes(self.grid()[0]) // 4
        return {"tickets": f"buf:i32:{words}"} if self.config.tickets else {}

    def tensor_maps(self) -> str:
        """As runtime/tensor_maps.h describes them."""
        boxes, maps = self.config.box_rows(), []
        for tensor, rows in enumerate(boxes):
            batch, seq, heads, d_head = self.shape(tensor)
            sizes = f"64x{seq}x{d_head // 64}x{heads}x{batch}"
            strides = f"{2 * heads * d_head}x128x{2 * d_head}x{2 * seq * heads * d_head}"
            maps.append(f"tmap:{sizes}/{strides}:64x{rows}x{d_head // 64}x1x1:128B:of:0.{tensor}")
        return f"struct:[{','.join(maps)}]"

    def options(self) -> list[str]:
        config = self.config
        shape = ["--grid", ",".join(map(str, self.grid())), "--block", config.threads(), "--smem", config.smem_bytes()]
        parameters = [self.arguments(), *([self.tensor_maps()] if config.tensor_copies else [])]
        return ["--entry", self.symbol, *map(str, shape), *(word for one in parameters for word in ("--arg", one))]

    def worst(self, ptx: Path, folder: Path, *options: object) -> tuple[float, str]:
        """As of a Launch; an error of the log-sum-exp, by its own bound, and a counter that is not 0 count, too."""
        config = self.config
        members = [*(f"0.{i}" for i in range(4)), *self.dumps()[1:]]
        files = {member: folder / f"{member}.bin" for member in members}
        done = self.run(ptx, *(f"--dump={member}={file}" for member, file in files.items()), *options)
        if done.returncode != 0:
            return float("inf"), f"status {done.returncode}\n{done.stderr}"
        counters = files[TICKETS].read_bytes()[: config.counter_bytes()] if TICKETS in files else b""
        if any(counters):
            return float("inf"), f"tickets are not 0 after the launch: {counters.hex()}"
        dtype = int(self.config.dtype)
        shaped = [widen(np.fromfile(files[f"0.{i}"], np.uint16), dtype).reshape(self.shape(i)) for i in range(4)]
        q, k, v, o = (tensor.swapaxes(1, 2) for tensor in shaped)  # [batch, head, row, column]
        k, v = (np.repeat(tensor, self.heads // self.KV_heads, axis=1) for tensor in (k, v))
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = q @ k.swapaxes(2, 3) * (self.scale or self.config.d_head**-0.5)
            if self.causal:
                seen = np.arange(self.seq_k) <= np.arange(self.seq)[:, None] + self.seq_k - self.seq
                scores = np.where(seen, scores, -np.inf)
            top = np.maximum(scores.max(-1, keepdims=True), np.finfo(float).min)
            p = np.exp(scores - top)
            sums = p.sum(-1, keepdims=True)
            p = np.divide(p, sums, out=np.zeros_like(p), where=sums > 0)
            lse = (np.log(sums) + top)[..., 0]
        name = "fp16" if dtype == DTYPES["fp16"] else "bf16"
        want = p @ v
        ratios = [np.abs(o - want) / output_bound(want, p @ np.abs(v), name)]
        if self.lse:
            got = np.fromfile(files[LSE], np.float32).astype(np.float64).reshape(lse.shape)
            none = np.isinf(lse)
            if not np.array_equal(got[none], lse[none]):
                return float("inf"), "log-sum-exp of a row that sees no key is not -inf"
            ratios.append(np.abs(got[~none] - lse[~none]) / (LSE_BOUND * (1 + np.abs(lse[~none]))))
        worst = max(
            (float(np.where(np.isnan(ratio), np.inf, ratio).max()) for ratio in ratios if ratio.size), default=0.0
        )
        return worst, done.stderr

    def dumps(self) -> tuple[str, ...]:
        return ("0.3", *([LSE] if self.lse else []), *([TICKETS] if self.config.tickets else []))


def problems(symbol: str) -> list[General]:
    """Small problems that execute all of a kernel that can be executed, the cheapest first.

    A few rows of Q leave most warps without any. One KV block and a part of one; as many as go through the ring twice.
    More Q blocks of one KV block on a CTA than twice its places. Then two Q blocks of each head, the second partly
    filled: without a mask, with one, and with so few keys that the first Q block sees none. And one Q block of each
    head, whose first half sees a KV block less than the second, with scores that outgrow m.
    """
    config = Launch(symbol).config
    blocks, few = 2 * max(config.stages, 2), config.B_r // config.n_warps + 3

    def heads(count: int) -> dict[str, int]:
        return {"heads": count, "KV_heads": count // 2 if config.grouped_heads else count}

    found = [General(symbol, few, seq_k=keys, lse=True) for keys in (config.B_c + 5, blocks * config.B_c)]
    found.append(General(symbol, few, seq_k=5, lse=True, **heads(20 if config.packed_heads else 10)))
    pair = General(symbol, config.B_r + few, seq_k=4 * config.B_c - 5, lse=True, **heads(2))
    found.append(pair)
    if config.causal:
        half = config.B_r - 5
        found += [
            replace(pair, seq_k=5, causal=True, **heads(4)),
            replace(pair, seq_k=config.B_c + 3, causal=True, ctas=2),
            replace(pair, seq_k=pair.seq + 2 * config.B_c - config.B_r // 4, causal=True),
            replace(pair, seq=half, seq_k=half + config.B_c - config.B_r // 2, causal=True, scale=3.0, **heads(4)),
        ]
    if config.shares_keys:
        found += shared(symbol)
    return [*found, *sliced(symbol)]


def shared(symbol: str) -> list[General]:
    """Problems in which several CTAs have keys of a row block, and combine what they have stored.

    Three CTAs have two row blocks: the second of them ends one and begins the other. More CTAs than are combined at a
    time have one row block. And one has only keys that no row sees.
    """
    B_c = Launch(symbol).config.B_c
    pair = General(symbol, 9, seq_k=4 * B_c - 5, heads=4, KV_heads=2, lse=True, ctas=6)
    return [
        pair,
        replace(pair, seq=2, seq_k=20 * B_c, heads=1, KV_heads=1, ctas=19),
        replace(pair, seq=16, seq_k=2 * B_c, heads=1, KV_heads=1, ctas=2, causal=True, scale=3.0),
        replace(pair, seq=100, seq_k=3 * B_c, heads=1, KV_heads=1, ctas=7, causal=True, batch=2),
    ]


def sliced(symbol: str) -> list[General]:
    """Problems in which CTAs have slices of a Q block: they lie in further rows of the grid, or the kernel decides.

    In the second case (groups_of() in slices.cuh) one CTA has the slices of three heads, one has a slice and then a Q
    block, and there is a CTA for each slice, of which some have no rows.
    """
    config = Launch(symbol).config
    if not config.split_tail:
        return []
    warps, rows = config.n_warps, config.B_r // config.n_warps
    few = General(symbol, rows + 3, seq_k=config.B_c - 3, lse=True)
    if not config.tickets:
        in_rows = replace(few, ctas=2, grid_rows=1 + warps // 2)
        return [replace(in_rows, causal=bool(config.causal)), replace(in_rows, seq_k=2 * warps * config.B_c)]
    enough = next(n for n in range(1, 1 << 10) if 4 * (n + warps) < warps * n) * config.B_c
    return [
        replace(few, seq_k=enough, ctas=warps),
        replace(few, seq=rows - 5, heads=3, KV_heads=3, seq_k=enough - 3, causal=True),
        replace(few, seq=config.B_r + rows - 5, seq_k=enough),
    ]
