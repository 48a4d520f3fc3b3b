"""Queries: the back end, the embedded versions, the version for a problem.

flashladder.backend().name                          # "gpu" or "emulator"
[v.name for v in flashladder.versions() if v.causal]
flashladder.supports(q, k, v, causal=True)          # true, with .version; or false, with .reason
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, NoReturn

from flashladder import _library as library
from flashladder._call import Call, made_for, present, with_max_logits
from flashladder._frameworks import DTYPES, framework_of
from flashladder._options import options, positive_scale, refuse_unknown


class Device(NamedTuple):
    """A GPU."""

    name: str
    compute_capability: tuple[int, int]
    sms: int
    memory_bytes: int
    usable: bool  # the library has machine code for it


class Backend(NamedTuple):
    """The back end that computes arrays in host memory."""

    name: str  # "gpu" or "emulator"
    devices: tuple[Device, ...]
    why_no_gpu: str  # "" where there is one
    library: str  # the path of libflashladder.so
    release: str  # of the library, with its revision


class Version(NamedTuple):
    """An embedded kernel: a version, or one that is changed by commits; the tuples hold what its instances have."""

    name: str  # "attention/wgmma", "v37"
    title: str  # "any length"
    dtypes: tuple[str, ...]  # "float16", "bfloat16"
    d_heads: tuple[int, ...]
    any_length: bool  # any seq_q and seq_k, strides, a scale, log-sum-exp
    causal: bool
    grouped: bool  # fewer heads of K and V than of Q
    machine_code: tuple[str, ...]  # "sm_90a"
    configs: tuple[str, ...]  # short forms


class Support(NamedTuple):
    """True if a problem can be computed: true or false."""

    version: str  # "attention/wgmma"; "" where nothing computes the problem
    config: str
    measured: bool  # "best" follows times measured on this kind of GPU and problem
    reason: str  # why this version, or why none

    def __bool__(self) -> bool:
        return self.version != ""


def _filled(struct: Any, call: Any, *arguments: int) -> Any:
    """A struct that a call of the library fills."""
    made = struct(size=ctypes.sizeof(struct))
    library.check(call(library.handle(), *arguments, ctypes.addressof(made)))
    return made


def backend() -> Backend:
    """The GPUs that the library found when it was first used, or the reason why there is none."""
    found = _filled(library.Description, library.LIBRARY.fl_describe)
    name = {library.GPU: "gpu", library.EMULATOR: "emulator"}[found.backend]
    infos = [_filled(library.DeviceInfo, library.LIBRARY.fl_device, i) for i in range(found.devices)]
    devices = tuple(
        Device(info.name.decode(), (info.major, info.minor), info.sms, info.memory_bytes, bool(info.usable))
        for info in infos
    )
    return Backend(name, devices, found.why_no_gpu.decode(), str(library.PATH), library.RELEASE)


def versions() -> list[Version]:
    """The versions that the library embeds, in their order."""
    count = _filled(library.Description, library.LIBRARY.fl_describe).kernels
    instances: dict[str, list[Any]] = {}
    for i in range(count):
        info = _filled(library.KernelInfo, library.LIBRARY.fl_kernel, i)
        instances.setdefault(info.kernel.decode(), []).append(info)
    return [_version(name, instances[name]) for name in sorted(instances)]


def _version(name: str, infos: list[Any]) -> Version:
    features = infos[0].features
    for info in infos:
        features &= info.features
    dtypes = {library.DTYPES[short]: full for full, short in DTYPES.items()}
    return Version(
        name,
        infos[0].name.decode(),
        tuple(dtypes[dtype] for dtype in sorted({info.dtype for info in infos})),
        tuple(sorted({info.d_head for info in infos})),
        bool(features & library.ANY_LENGTH),
        bool(features & library.CAUSAL),
        bool(features & library.GROUPED),
        tuple(sorted({arch for info in infos for arch in info.archs.decode().split()})),
        tuple(info.config.decode() for info in infos),
    )


def supports(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    seqlens_k: Any = None,
    seqlens_q: Any = None,
    deterministic: Any = None,
    version: str = "best",
    bias: Any = None,
    alibi_slopes: Any = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Any = None,
    block_mask: Any = None,
    block_size: tuple[int, int] = (128, 128),
    **unknown: NoReturn,
) -> Support:
    """The version that attention() would run with these arguments; or false, with the reason."""
    try:
        if unknown:
            refuse_unknown(supports, unknown)
        results = (False, version, return_max_logits, dropout_p)
        chosen = options(causal, scale, window, softcap, deterministic, *results, block_size)
        framework_of("q", q)
        more = {
            "sinks": sinks,
            "bias": bias,
            "alibi_slopes": alibi_slopes,
            "rng_state": rng_state,
            "block_mask": block_mask,
        }
        given = present(seqlens_q=seqlens_q, seqlens_k=seqlens_k, **more)
        arrays = with_max_logits(q, q.shape[0], made_for(q, k, q.shape[0], given), chosen)
        q, chosen = positive_scale(q, chosen)
        problem = Call(q, k, v, chosen, arrays).problem()
        found = library.Support(size=ctypes.sizeof(library.Support))
        if problem is not None:
            library.check(
                library.LIBRARY.fl_query(library.handle(), ctypes.addressof(problem), ctypes.addressof(found))
            )
    except Exception as error:
        return Support("", "", False, str(error) or type(error).__name__)
    if problem is None:
        return Support("no kernel", "", False, "there are no keys: O is 0")
    return Support(found.kernel.decode(), found.config.decode(), bool(found.measured), found.order.decode())
