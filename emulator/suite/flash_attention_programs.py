# mypy: ignore-errors
"""The forward pass of FlashAttention-4 for Blackwell, which the CuTe DSL compiles, against NumPy.

python flash_attention_programs.py FOLDER     FOLDER: a checkout; CUTE_DSL_LIBS: cute_dsl_runtime.c as a library
"""

import ctypes
import math
import os
import sys
import tempfile
import types
from pathlib import Path

DUMPS = tempfile.TemporaryDirectory()
os.environ.update(CUTE_DSL_DUMP_DIR=DUMPS.name, CUTE_DSL_KEEP_PTX="1", CUTE_DSL_ARCH=os.environ["EMULATED_GPU_ARCH"])
for name in ("flash_attn", "flash_attn.cute"):  # without what they import for PyTorch
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(Path(sys.argv[1], *name.split(".")))]

import cuda.bindings.driver as cuda  # noqa: E402
import cuda.bindings.runtime as runtime  # noqa: E402
import cutlass  # noqa: E402
import numpy as np  # noqa: E402
from cutlass import Float16, Float32, Int32, cute  # noqa: E402
from cutlass.cute.runtime import make_ptr  # noqa: E402
from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100  # noqa: E402

# Name to queries, keys, heads and KV heads, d_head, and options of the kernel.
CASES = {
    "plain": (256, 512, 2, 2, 128, {}),
    "odd": (300, 500, 3, 3, 64, {}),
    "packed": (256, 256, 4, 1, 64, {"pack_gqa": True}),
    "d96": (256, 384, 2, 2, 96, {}),
    "pair": (512, 512, 2, 2, 128, {"use_2cta_instrs": True}),
    "causal": (300, 500, 2, 2, 64, {"is_causal": True}),
    "window": (512, 512, 4, 2, 128, {"is_local": True}),
}
WINDOW = 100


def checked(result):
    if result[0]:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


def load(compiled):
    """Give the driver the PTX that the DSL has left, and its host code the library."""
    path = next(path for path in Path(DUMPS.name).glob("*.ptx") if compiled.function_name in path.name)
    text = path.read_text().rstrip("\0")
    path.unlink()
    library = ctypes.c_void_p(int(checked(cuda.cuLibraryLoadData(text.encode() + b"\0", [], [], 0, [], [], 0))))
    device, status = ctypes.c_int32(), ctypes.c_int32()
    values = (ctypes.pointer(ctypes.pointer(library)), ctypes.pointer(device), ctypes.pointer(status))
    compiled._get_cuda_init_and_load()[1]((ctypes.c_void_p * 3)(*(ctypes.cast(x, ctypes.c_void_p) for x in values)))
    return [runtime.cudaLibrary_t(library.value)]


def device_copy(array):
    at = checked(cuda.cuMemAlloc(array.nbytes))
    checked(cuda.cuMemcpyHtoD(at, array.ctypes.data, array.nbytes))
    return int(at)


def expected(q, k, v, causal, window):
    rows = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    keys = np.arange(k.shape[2])
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[3])
    hidden = (causal & (keys > rows)) | (window & (np.abs(keys - rows) > WINDOW))
    weights = np.exp(np.where(hidden, -np.inf, scores))
    return weights @ v / weights.sum(-1, keepdims=True), np.log(weights.sum(-1))


def run(queries, keys, heads, kv_heads, d, options):
    """The largest errors of O and of the log-sum-exp."""
    rng = np.random.default_rng(0)
    shapes = [(1, queries, heads, d), *[(1, keys, kv_heads, d)] * 2]
    inputs = [rng.normal(size=shape).astype(np.float16) for shape in shapes]
    out, lse = np.zeros(shapes[0], np.float16), np.zeros((1, heads, queries), np.float32)
    at = [device_copy(x) for x in (*inputs, out, lse)]
    causal, window = options.get("is_causal", False), options.get("is_local", False)
    side = Int32(WINDOW) if window else None
    kernel = FlashAttentionForwardSm100(
        d, d, qhead_per_kvhead=heads // kv_heads, is_static_persistent=not (causal or window), **options
    )

    @cute.jit
    def host(
        q: cute.Pointer, k: cute.Pointer, v: cute.Pointer, o: cute.Pointer, sums: cute.Pointer, scale: Float32,
        m: Int32, n: Int32, h: Int32, h_k: Int32, stream: cuda.CUstream,
    ):  # fmt: skip
        rows_of_q = cute.make_layout((1, m, h, d), stride=(m * h * d, h * d, d, 1))
        rows_of_k = cute.make_layout((1, n, h_k, d), stride=(n * h_k * d, h_k * d, d, 1))
        kernel(
            cute.make_tensor(q, rows_of_q), cute.make_tensor(k, rows_of_k), cute.make_tensor(v, rows_of_k),
            cute.make_tensor(o, rows_of_q), cute.make_tensor(sums, cute.make_layout((1, h, m), stride=(h * m, m, 1))),
            scale, window_size_left=side, window_size_right=side, stream=stream,
        )  # fmt: skip

    pointers = [make_ptr(Float16, x, cute.AddressSpace.gmem, assumed_align=16) for x in at[:4]]
    pointers.append(make_ptr(Float32, at[4], cute.AddressSpace.gmem, assumed_align=4))
    sizes = [Int32(x) for x in (queries, keys, heads, kv_heads)]
    arguments = (*pointers, Float32(1 / math.sqrt(d)), *sizes, cuda.CUstream(0))
    cute.compile(host, *arguments)(*arguments)
    checked(cuda.cuCtxSynchronize())
    for x, to in ((at[3], out), (at[4], lse)):
        checked(cuda.cuMemcpyDtoH(to.ctypes.data, x, to.nbytes))
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in inputs)
    wide = [np.repeat(x, heads // kv_heads, 1) for x in (k, v)]
    want, sums = expected(q, *wide, causal, window)
    return np.abs(want.transpose(0, 2, 1, 3) - out).max(), np.abs(sums - lse).max()


def main():
    checked(cuda.cuInit(0))
    checked(cuda.cuCtxSetCurrent(checked(cuda.cuDevicePrimaryCtxRetain(0))))
    cutlass.cutlass_dsl.cuda_jit_executor.CudaDialectJitCompiledFunction._load_cuda_library = load
    for name, case in CASES.items():
        try:
            errors = run(*case)
            verdict = "right" if max(errors) < 2e-3 else "wrong"
        except RuntimeError as error:
            errors, verdict = (error,), "failed"
        print("SUITE", name, verdict, *errors, flush=True)


if __name__ == "__main__":
    main()
