"""Attention by the kernels of flashladder, on the arrays of PyTorch, JAX, CuPy and NumPy.

    import flashladder
    o = flashladder.attention(q, k, v, causal=True)      # q: [batch, seq, heads, d_head]
    o = flashladder.attention_varlen(q, k, v, cu_seqlens, cu_seqlens, longest, longest)     # q: [tokens, heads, d_head]
    o = flashladder.attention_with_cache(q, k_cache, v_cache, seqlens_k, block_table)
    o = flashladder.attention_e4m3(q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)      # float8_e4m3fn

On a GPU the arrays are used in place, on the framework's current stream. NumPy arrays are copied to the GPU and
back; without a GPU the emulator computes them, slowly. flashladder.torch.attention has gradients.
"""

import importlib
from typing import Any

from flashladder._frameworks import JAX
from flashladder._functions import attention, attention_e4m3, attention_varlen, attention_with_cache
from flashladder._library import RELEASE
from flashladder._quantize import quantize_e4m3, quantize_int8
from flashladder._queries import Backend, Device, Support, Version, backend, supports, versions

__version__ = RELEASE.split()[0]
__all__ = [
    "Backend",
    "Device",
    "Support",
    "Version",
    "attention",
    "attention_e4m3",
    "attention_varlen",
    "attention_with_cache",
    "backend",
    "quantize_e4m3",
    "quantize_int8",
    "supports",
    "versions",
]


def _in_xla(call: Any) -> tuple[Any, Any]:
    """Run a Call by flashladder.jax, which is imported when the first array of JAX comes."""
    found: tuple[Any, Any] = importlib.import_module("flashladder.jax").run(call)
    return found


JAX.in_xla = staticmethod(_in_xla)
