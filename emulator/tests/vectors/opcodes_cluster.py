"""Vectors of instructions on the shared memory of another CTA: they run as one cluster of two CTAs.

Each thread has the word or words number (5 t + 3) mod 128 of the other CTA as its partner's.
"""

import itertools
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import THREADS, Array, Case, entry
from vectors.opcodes import CASES, SIZE

ORDERED = itertools.cycle(["barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
    "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n",
    "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire;\n",
    "fence.sc.gpu;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.aligned;\n"])  # fmt: skip
# %o: the thread's own 16 bytes of shared memory, %f: those of the partner, as an address of the own CTA; %r: its rank.
PLACES = """.reg .b32 %o, %f, %r;
.reg .b64 %o8, %f8;
mov.u32 %o, smem; mad.lo.u32 %f, %t, 5, 3; and.b32 %f, %f, 127; mad.lo.u32 %f, %f, 16, %o;
mad.lo.u32 %o, %t, 16, %o; mov.u32 %r, %cluster_ctarank; xor.b32 %r, %r, 1; cvt.u64.u32 %o8, %o;
cvt.u64.u32 %f8, %f;
"""
# To where an address is mapped: 32 bits, 64 bits, and a generic one.
MAPS = {
    "u32": ("mapa.shared::cluster.u32 %f, %f, %r;\n", ".shared::cluster", "%f"),
    "u64": ("mapa.shared::cluster.u64 %f8, %f8, %r;\n", ".shared::cluster", "%f8"),
    "generic": ("cvta.shared::cluster.u64 %f8, %f8;\nmapa.u64 %f8, %f8, %r;\n", "", "%f8"),
    "to and from generic": (
        "cvta.shared::cta.u64 %f8, %f8;\nmapa.u64 %f8, %f8, %r;\ncvta.to.shared::cluster.u64 %f8, %f8;\n",
        ".shared::cluster",
        "%f8",
    ),
}
STORE = "st.shared.v4.u32 [%o], {%a, %b, %c, %h};\n"


def partners() -> Array:
    """The thread whose words each thread touches."""
    t = np.arange(THREADS)
    source = (5 * t + 3) % THREADS
    return np.concatenate([THREADS + source, source])


def from_partner(array: Array) -> Array:
    result: Array = array[partners()]
    return result


def to_partner(array: Array) -> Array:
    moved = np.empty_like(array)
    moved[partners()] = array
    return moved


def add(name: str, body: str, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
    """Barriers of the cluster stand ahead of the body and behind it: the cases share memory."""
    CASES.append(Case(name, f"{PLACES}{body}{next(ORDERED)}", inputs, outputs))


def access_cases(words: dict[str, Array]) -> None:
    for label, (mapped, space, address) in MAPS.items():
        code = f"{STORE}{next(ORDERED)}{mapped}"
        for count, load in ((1, "u32 %d"), (2, "v2.u32 {%d, %e}"), (4, "v4.b32 {%d, %e, %f1, %g}")):
            body = f"{code}ld{space}.{load}, [{address}];\n".replace("%f1", "%k")
            wanted = {x: from_partner(words[y]) for x, y in zip("dekg"[:count], "abch", strict=False)}
            add(f"ld{space} of {count} by {label}", body, words, wanted)
        body = (
            f"{STORE}{next(ORDERED)}{mapped}st{space}.v2.u32 [{address}+8], {{%c, %a}};\n{next(ORDERED)}"
            "ld.shared.v4.u32 {%d, %e, %k, %g}, [%o];\n"
        )
        wanted = {"d": words["a"], "e": words["b"], "k": to_partner(words["c"]), "g": to_partner(words["a"])}
        add(f"st{space} by {label}", body, words, wanted)
    rank = (np.arange(SIZE) // THREADS).astype(np.uint32)
    code = "".join(mapped for mapped, _, _ in list(MAPS.values())[:2])
    body = f"{code}getctarank.shared::cluster.u32 %d, %f;\ngetctarank.shared::cluster.u64 %e, %f8;\n"
    body += "cvta.shared::cluster.u64 %f8, %f8;\ngetctarank.u64 %k, %f8;\ngetctarank.shared::cluster.u32 %g, %o;\n"
    add("getctarank", body, {}, {"d": 1 - rank, "e": 1 - rank, "k": 1 - rank, "g": rank})
    body = f"{MAPS['generic'][0]}cvta.shared.u64 %o8, %o8;\n.reg .pred %p;\n"
    for register, space, address in (("d", "cluster", "f8"), ("e", "cta", "f8"), ("k", "cluster", "o8"),
                                     ("g", "cta", "o8")):  # fmt: skip
        body += f"isspacep.shared::{space} %p, %{address};\nselp.u32 %{register}, 1, 0, %p;\n"
    add("isspacep", body, {}, {x: np.full(SIZE, x != "e", np.uint32) for x in "dekg"})


def signed(x: Array) -> Array:
    return x.view(np.int32)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {"add.u32": lambda a, b: a + b, "min.s32": lambda a,
    b: np.minimum(signed(a), signed(b)).view(np.uint32), "max.u32": np.maximum, "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b, "inc.u32": lambda a, b: np.where(a >= b, 0, a
    + 1).astype(np.uint32), "dec.u32": lambda a, b: np.where((a == 0) | (a > b), b, a - 1).astype(np.uint32),
    "exch.b32": lambda a, b: b}  # fmt: skip


def signed_max(a: Array, b: Array) -> Array:
    return np.maximum(signed(a), signed(b)).view(np.uint32)


def atomic_cases(words: dict[str, Array]) -> None:
    for (operation, model), (label, (mapped, space, address)) in zip(
        OPERATIONS.items(), itertools.cycle(MAPS.items()), strict=False
    ):
        old = from_partner(words["a"])
        after = to_partner(model(old, words["b"]))
        start = f"{STORE}{next(ORDERED)}{mapped}"
        behind = f"{next(ORDERED)}ld.shared.u32 %e, [%o];\n"
        body = f"{start}atom.relaxed.cluster{space}.{operation} %d, [{address}], %b;\n{behind}"
        add(f"atom{space}.{operation} by {label}", body, words, {"d": old, "e": after})
        if operation != "exch.b32":
            body = f"{start}red.release.cluster{space}.{operation} [{address}], %b;\n{behind}"
            add(f"red{space}.{operation} by {label}", body, words, {"e": after})
    # one thread in three meets what it expects
    expected = np.where(np.arange(SIZE) % 3 == 0, from_partner(words["a"]), words["b"])
    mapped, space, address = MAPS["u32"]
    body = (
        f"{STORE}{next(ORDERED)}{mapped}atom{space}.cas.b32 %d, [{address}], %b, %c;\n{next(ORDERED)}"
        "ld.shared.u32 %e, [%o];\n"
    )
    old = from_partner(words["a"])
    after = to_partner(np.where(old == expected, words["c"], old))
    add("atom.shared::cluster.cas.b32", body, words | {"b": expected}, {"d": old, "e": after})
    # all threads of a CTA count in one word of the other; no thread sees the same number
    body = (
        f"st.shared.u32 [%o], 0;\n{next(ORDERED)}mov.u32 %f, smem;\n{mapped}atom{space}.add.u32 %d, [%f], 1;\n"
        f"{next(ORDERED)}ld.shared.u32 %e, [smem];\n"
    )
    CASES.append(Case("atom.shared::cluster of one word", f"{PLACES}{body}{next(ORDERED)}", {}, {"d": np.arange(SIZE,
                 dtype=np.uint32) % THREADS, "e": np.full(SIZE, THREADS, np.uint32)}, lambda got,
                 want: np.sort(got.reshape(-1, THREADS), 1).reshape(-1) == want))  # fmt: skip


def mbarrier_cases(words: dict[str, Array]) -> None:
    """Threads store for the other CTA and arrive at its mbarrier, at which that waits; bytes are expected and come."""
    body = f""".reg .b32 %m, %x;
.reg .pred %first, %done;
setp.eq.u32 %first, %t, 0; mov.u32 %m, smem; add.u32 %m, %m, 2048;
@%first mbarrier.init.shared.b64 [%m], 418;
fence.mbarrier_init.release.cluster;
{next(ORDERED)}mapa.shared::cluster.u32 %x, %m, %r;
{MAPS["u32"][0]}st.shared::cluster.u32 [%f], %a;
mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%x], 16;
mbarrier.complete_tx.shared::cluster.b64 [%x], 12;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%m], 4;
mbarrier.complete_tx.shared.b64 [%m], 8;
setp.lt.u32 %done, %lane, 8;
@%done mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%x], 32;
@%done mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%x], 32;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%x];
mbarrier.arrive.release.cta.shared::cluster.b64 _, [%m], 2;
@%first mbarrier.arrive_drop.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%x], 0;
@%first mbarrier.arrive_drop.relaxed.cluster.shared::cluster.b64 _, [%x];
waits:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;
@!%done bra waits;
ld.shared.u32 %d, [%o];
{next(ORDERED)}@%first mbarrier.inval.shared.b64 [%m];
"""
    add("mbarrier.arrive.shared::cluster", body, {"a": words["a"]}, {"d": to_partner(words["a"])})


# An mbarrier in %m, in each CTA; %x: that of the other CTA; COPY brings BYTES to each.
COPY = """.shared .align 128 .b8 inbox[4096];
.shared .align 8 .b64 arrived;
.reg .b32 %m, %x, %i1; .reg .b64 %from; .reg .pred %first, %done;
setp.eq.u32 %first, %t, 0; mov.u32 %m, arrived; mov.u32 %i1, inbox;
@%first mbarrier.init.shared.b64 [%m], 1;
fence.mbarrier_init.release.cluster;
START
MEET@!%first bra waits;
mbarrier.arrive.expect_tx.release.cta.shared::cluster.b64 _, [%m], BYTES;
COPY
waits:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;
@!%done bra waits;
mad.lo.u32 %i1, %t, 16, %i1; ld.shared.u32 %d, [%i1];
MEET@%first mbarrier.inval.shared.b64 [%m];
"""


def copy_code(bytes_: int, start: str, copy: str) -> str:
    code = COPY.replace("COPY", copy).replace("START", start).replace("BYTES", str(bytes_))
    return code.replace("MEET", next(ORDERED))


def copy_cases(words: dict[str, Array]) -> None:
    """The words of a CTA go to the other, or those of both to both."""
    start = f"{STORE}fence.proxy.async.shared::cta;\n{MAPS['u32'][0].replace('%f, %f', '%x, %m')}"
    start += MAPS["u32"][0].replace("%f, %f", "%f, %i1")
    copy = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%f], [%o], 2048, [%x];"
    add("cp.async.bulk to the other CTA", copy_code(2048, start, copy), words,
        {"d": np.roll(words["a"], THREADS)})  # fmt: skip
    start = "mov.u64 %from, board;\nmad.wide.u32 %from, %i, 16, %from;\nst.global.u32 [%from], %a;\n"
    start += "fence.proxy.async.global;"
    for hint, policy in (("", ""), (".L2::cache_hint", ", %f8")):
        copy = (
            "mad.lo.u32 %i1, %block, 2048, %i1;\n.reg .b16 %mask;\nmov.b16 %mask, 3;\nmov.b64 %f8, 0;\n"
            f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{hint} "
            f"[%i1], [%from], 2048, [%m], %mask{policy};\nmov.u32 %i1, inbox;"
        )
        code = copy_code(4096, start, copy).replace(
            "ld.shared.u32 %d, [%i1];", "ld.shared.u32 %d, [%i1];\nld.shared.u32 %e, [%i1+2048];"
        )
        first, second = words["a"].reshape(2, THREADS)
        add(f"cp.async.bulk multicast{hint}", code, words, {"d": np.tile(first, 2), "e": np.tile(second, 2)})


# Each thread of a CTA sends its words to the partner, whose mbarrier counts them.
ASYNC = """.shared .align 8 .b64 counted;
.reg .b32 %m, %x; .reg .pred %first, %done;
setp.eq.u32 %first, %t, 0; mov.u32 %m, counted; @%first mbarrier.init.shared.b64 [%m], 1;
fence.mbarrier_init.release.cluster;
STORE
MEETmapa.shared::cluster.u32 %x, %m, %r;
MAP@%first mbarrier.arrive.expect_tx.shared.b64 _, [%m], BYTES;
SEND
waits:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;
@!%done bra waits;
ld.shared.v4.u32 {%d, %e, %k, %g}, [%o];
MEET@%first mbarrier.inval.shared.b64 [%m];
"""


def async_code(size: int, send: str) -> str:
    code = ASYNC.replace("SEND", send).replace("BYTES", str(size * THREADS)).replace("STORE", STORE)
    return code.replace("MAP", MAPS["u32"][0]).replace("MEET", next(ORDERED))


def wide(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def store_async_cases(words: dict[str, Array]) -> None:
    a, b, c, h = (to_partner(words[x]) for x in "abch")
    kept = [words[x] for x in "abch"]
    for kind, count, values, wanted in (
        ("b32", 1, "%b", [b]), ("u32", 2, "{%c, %a}", [c, a]), ("s32", 4, "{%h, %c, %b, %a}", [h, c, b, a]),
        ("f32", 1, "%single", [a]),
    ):  # fmt: skip
        weak = ".weak" if count == 2 else ""
        vector = f".v{count}" if count > 1 else ""
        send = f".reg .f32 %single;\nmov.b32 %single, %a;\nst.async{weak}.shared::cluster"
        send += f".mbarrier::complete_tx::bytes{vector}.{kind} [%f], {values}, [%x];"
        outputs = dict(zip("dekg", wanted + kept[count:], strict=True))
        add(f"st.async{vector}.{kind}", async_code(4 * count, send), words, outputs)
    for kind, count in (("b64", 1), ("u64", 2), ("s64", 1), ("f64", 1)):
        vector, values = (f".v{count}", "{%w, %v}") if count == 2 else ("", "%w" if kind != "f64" else "%double")
        send = ".reg .b64 %w, %v;\n.reg .f64 %double;\nmov.b64 %w, {%c, %h};\nmov.b64 %v, {%a, %b};\n"
        send += f"mov.b64 %double, %w;\nst.async.shared::cluster.mbarrier::complete_tx::bytes{vector}.{kind} "
        send += f"[%f], {values}, [%x];"
        wanted = [c, h, a, b][: 2 * count] + kept[2 * count :]
        add(f"st.async{vector}.{kind}", async_code(8 * count, send), words, dict(zip("dekg", wanted, strict=True)))
    # a generic address
    send = "cvt.u64.u32 %f8, %f;\ncvta.shared::cluster.u64 %f8, %f8;\n.reg .b64 %x8;\ncvt.u64.u32 %x8, %x;\n"
    send += "cvta.shared::cluster.u64 %x8, %x8;\nst.async.mbarrier::complete_tx::bytes.b32 [%f8], %b, [%x8];"
    add("st.async to a generic address", async_code(4, send), words, dict(zip("dekg", [b, *kept[1:]], strict=True)))


def red_async_cases(words: dict[str, Array]) -> None:
    kept = [words[x] for x in "abch"]
    for operation, model in (OPERATIONS | {"add.s32": OPERATIONS["add.u32"], "max.s32": signed_max,
                                           "min.u32": np.minimum}).items():  # fmt: skip
        if operation == "exch.b32":
            continue
        send = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation} [%f], %b, [%x];"
        after = to_partner(model(from_partner(words["a"]), words["b"]))
        add(f"red.async.{operation}", async_code(4, send), words, dict(zip("dekg", [after, *kept[1:]], strict=True)))
    for kind in ("u64", "s64"):
        send = ".reg .b64 %w;\nmov.b64 %w, {%c, %h};\n"
        send += f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.{kind} [%f], %w, [%x];"
        sums = wide(words["a"], words["b"]) + to_partner(wide(words["c"], words["h"]))
        halves = sums.view(np.uint32).reshape(-1, 2)
        wanted = [halves[:, 0].copy(), halves[:, 1].copy(), *kept[2:]]
        add(f"red.async.add.{kind}", async_code(8, send), words, dict(zip("dekg", wanted, strict=True)))


# The copy engine reduces 16 bytes of each thread into what its partner, or all of global memory, has.
REDUCE_GLOBAL = """.reg .b64 %to;
mov.u64 %to, board; mad.wide.u32 %to, %i, 16, %to; st.global.v4.u32 [%to], {%a, %b, %c, %h};
mov.u32 %x, %c; st.shared.v4.u32 [%o], {%h, %x, %b, %a}; fence.proxy.async;
PAUSE
cp.reduce.async.bulk.global.shared::cta.bulk_groupHINT.WHAT [%to], [%o], 16POLICY;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.v4.u32 {%d, %e, %k, %g}, [%to];
"""


def columns(words: dict[str, Array], order: str) -> Array:
    return np.stack([words[x] for x in order], 1)


def reduced(kind: str, old: Array, new: Array) -> Array:
    """Element by element, of rows of 16 bytes."""
    operation, letters, bits = kind.split(".")[0], kind.split(".")[-1].rstrip("0123456789"), int(kind[-2:])
    types = {"u": "u", "b": "u", "s": "i", "f": "f"}
    if letters in ("f", "bf") and bits == 16:
        of = exact.HALF if letters == "f" else exact.BFLOAT
        pairs = zip(old.view(np.uint16).reshape(-1), new.view(np.uint16).reshape(-1), strict=True)
        out = [half_reduced(operation, of, int(x), int(y)) for x, y in pairs]
        return np.array(out, np.uint16).reshape(len(old), -1).view(np.uint32)
    x, y = (side.copy().view(f"{types[letters]}{bits // 8}") for side in (old, new))
    with np.errstate(all="ignore"):
        result = {
            "add": lambda: x + y, "min": lambda: np.minimum(x, y), "max": lambda: np.maximum(x, y),
            "and": lambda: x & y, "or": lambda: x | y, "xor": lambda: x ^ y,
            "inc": lambda: np.where(x >= y, 0, x + 1), "dec": lambda: np.where((x == 0) | (x > y), y, x - 1),
        }[operation]()  # fmt: skip
    return result.astype(x.dtype).view(np.uint32)


def half_reduced(operation: str, of: exact.Format, x: int, y: int) -> int:
    a, b = exact.decode(x, of), exact.decode(y, of)
    return exact.convert(a + b if operation == "add" else min(a, b) if operation == "min" else max(a, b), of)


GLOBAL_KINDS = [
    *(f"add.{kind}" for kind in ("u32", "s32", "u64", "f32", "f64")), "add.noftz.f16", "add.noftz.bf16",
    *(f"{which}.{kind}" for which in ("min", "max") for kind in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    "inc.u32", "dec.u32", *(f"{which}.{kind}" for which in ("and", "or", "xor") for kind in ("b32", "b64")),
]  # fmt: skip
CLUSTER_KINDS = ["add.u32", "add.s32", "add.u64", "min.u32", "min.s32", "max.u32", "max.s32", "inc.u32", "dec.u32",
                 "and.b32", "or.b32", "xor.b32"]  # fmt: skip


def finite(kind: str, words: dict[str, Array]) -> dict[str, Array]:
    """For floats numbers of like magnitude, none of them subnormal."""
    if kind.split(".")[-1] not in ("f32", "f64", "f16", "bf16"):
        return words
    high = {"f32": 0x3F800000, "f64": 0x3FF00000, "f16": 0x3C003C00, "bf16": 0x3F803F80}[kind.split(".")[-1]]
    low = {"f32": 0x80FFFFFF, "f64": 0x800FFFFF, "f16": 0x87FF87FF, "bf16": 0x80FF80FF}[kind.split(".")[-1]]
    if kind.endswith("f64"):
        return {x: (y & np.uint32(low)) | np.uint32(high) if x in "bha" else y for x, y in words.items()}
    return {x: (y & np.uint32(low)) | np.uint32(high) for x, y in words.items()}


def reduce_cases(words: dict[str, Array]) -> None:
    for turn, kind in enumerate(GLOBAL_KINDS):
        data = finite(kind, words)
        hint, policy = (".L2::cache_hint", ", %o8") if turn % 4 == 0 else ("", "")
        code = REDUCE_GLOBAL.replace("WHAT", kind).replace("HINT", hint).replace("POLICY", policy)
        order = "habc" if kind.endswith("f64") else "hcba"
        code = ".reg .b32 %x;\n" + code.replace("PAUSE", "mov.u64 %o8, 0;")
        code = code.replace("{%h, %x, %b, %a}", "{%" + ", %".join(order) + "}")
        after = reduced(kind, columns(data, "abch"), columns(data, order))
        add(f"cp.reduce.async.bulk.global.{kind}", code, data, {x: after[:, i].copy() for i, x in enumerate("dekg")})
    for kind in CLUSTER_KINDS:
        send = (
            ".shared .align 16 .b8 outbox[2048];\n.reg .b32 %own;\nmov.u32 %own, outbox;\n"
            "mad.lo.u32 %own, %t, 16, %own;\nst.shared.v4.u32 [%own], {%h, %c, %b, %a};\n"
            "fence.proxy.async.shared::cta;\n"
            f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{kind} "
            "[%f], [%own], 16, [%x];"
        )
        after = reduced(kind, columns(words, "abch"), to_partner(columns(words, "hcba")))
        add(f"cp.reduce.async.bulk.shared::cluster.{kind}", async_code(16, send), words,
            {x: after[:, i].copy() for i, x in enumerate("dekg")})  # fmt: skip


# Each of two CTAs fetches half of 64 numbers for both, and writes all of them.
BOX_FOR_BOTH = entry(
    """.reg .b32 %s, %t, %x, %rank, %at;
.reg .b16 %mask; .reg .b64 %map, %out; .reg .pred %first, %done;
mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %s, smem; setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared.b64 [%s+512], 1; @%first fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
@!%first bra waits;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+512], 256;
mov.b64 %map, map; cvta.param.u64 %map, %map; mov.b16 %mask, 3; mul.lo.u32 %at, %rank, 32;
mad.lo.u32 %x, %rank, 128, %s;
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster \
[%x], [%map, {%at}], [%s+512], %mask;
waits:
mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;
@!%done bra waits;
mad.lo.u32 %x, %t, 4, %s; ld.shared.u32 %x, [%x]; ld.param.u64 %out, [out];
mad.lo.u32 %t, %rank, 64, %t; mad.wide.u32 %out, %t, 4, %out; st.global.u32 [%out], %x;
barrier.cluster.arrive;
barrier.cluster.wait;""",
    ".param .align 64 .b8 map[128], .param .u64 out",
    directives=".shared .align 128 .b8 smem[1024];",
)


def cluster_cases() -> None:
    rng = np.random.default_rng(120)
    words = {name: rng.integers(0, 1 << 32, SIZE, dtype=np.uint32) for name in "abch"}
    access_cases(words)
    atomic_cases(words)
    mbarrier_cases(words)
    copy_cases(words)
    store_async_cases(words)
    red_async_cases(words)
    reduce_cases(words)
