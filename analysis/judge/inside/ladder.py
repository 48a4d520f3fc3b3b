# mypy: ignore-errors
"""The host program of a kernel of the ladder: ladder.json says how it is compiled and launched."""

import ctypes
import json
import struct
from pathlib import Path

import gpu

SPEC = json.loads(Path("ladder.json").read_text())
FORMATS = {"int64_t": "q", "int32_t": "i", "float": "f"}  # any other member is a pointer
SWIZZLE_128B, L2_NONE, TYPE_F16 = 3, 0, 6  # as cuTensorMapEncodeTiled numbers them


def loaded():
    ptx = gpu.nvcc(SPEC["source"], "kernel.ptx", *SPEC["flags"])
    return gpu.Module(Path(ptx).read_bytes())[SPEC["symbol"]]


def parameters(arrays, tickets):
    """The bytes of forward_args or attention_args, each member aligned to its size."""
    batch, seq, heads, d_head = arrays["Q"].shape
    values = {"seq": seq, "seq_q": seq, "seq_k": seq, "heads": heads, "KV_heads": heads, "batch": batch}
    values |= {name: array.address for name, array in arrays.items()}
    values |= {"softmax_scale": d_head**-0.5, "tickets": tickets}
    for name, stride in zip(("batch", "seq", "head"), arrays["Q"].strides, strict=False):
        values |= {f"{name}_stride": stride} | {f"{tensor}_strides.{name}": stride for tensor in "QKVO"}
    data = b""
    for kind, name in SPEC["members"]:
        form = FORMATS.get(kind, "Q")
        size = struct.calcsize(form)
        data += bytes(-len(data) % size) + struct.pack(form, values.get(name, 0))
    return data + bytes(-len(data) % 8)


def tensor_maps(arrays):
    """The second parameter: maps {64, seq, d_head / 64, heads, batch} with boxes of rows, swizzled by 128 bytes."""
    batch, seq, heads, d_head = arrays["Q"].shape
    row = 2 * heads * d_head
    maps = b""
    for name, rows in zip("QKVO", SPEC["boxes"], strict=True):
        sizes = (ctypes.c_uint64 * 5)(64, seq, d_head // 64, heads, batch)
        strides = (ctypes.c_uint64 * 4)(row, 128, 2 * d_head, row * seq)
        box, steps = (ctypes.c_uint32 * 5)(64, rows, d_head // 64, 1, 1), (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
        buffer = ctypes.create_string_buffer(128 + 64)
        at = -ctypes.addressof(buffer) % 64
        target = ctypes.c_void_p(ctypes.addressof(buffer) + at)
        address = ctypes.c_void_p(arrays[name].address)
        gpu.check(
            gpu.cuda.cuTensorMapEncodeTiled(
                target, TYPE_F16, 5, address, sizes, strides, box, steps, 0, SWIZZLE_128B, L2_NONE, 0
            )
        )
        maps += buffer.raw[at : at + 128]
    return maps


kernel = loaded()
state = {}


def custom_kernel(data):
    arrays = {name: data[name] for name in "QKV"}
    arrays["O"] = gpu.empty(data["Q"].shape, "f16")
    if SPEC["tickets"] and not state:
        state["tickets"] = gpu.zeros((SPEC["tickets"],), "u8")
    arguments = [parameters(arrays, state["tickets"].address if state else 0)]
    if SPEC["boxes"]:
        arguments.append(tensor_maps(arrays))
    batch, seq, heads, _ = data["Q"].shape
    grid = SPEC["grids"][f"{batch} {seq} {heads}"]
    kernel(grid, (SPEC["threads"],), *arguments, shared=SPEC["smem"])
    return arrays["O"]
