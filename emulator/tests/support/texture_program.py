"""Reads textures, reads and writes surfaces, by the driver API and PTX of its own, for test_textures.py.

python texture_program.py JOBS RESULTS     two files of JSON, lists: a job says what a texture is over and where it is
                                           read; a result is the words that each lane got, or the error of a call
"""

import ctypes
import json
import struct
import sys
from pathlib import Path

import numpy as np

cuda = ctypes.CDLL("libcuda.so.1")
FORMATS = {"u1": 1, "u2": 2, "u4": 3, "i1": 8, "i2": 9, "i4": 10, "f2": 16, "f4": 32}
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
COORDINATES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 2, "a2d": 3, "cube": 3}


class CallError(Exception):
    pass


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise CallError(f"{name}: {code}")


def u64(value):
    return ctypes.c_uint64(value)


def to_device(array):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), u64(max(array.nbytes, 16)))
    call("cuMemcpyHtoD_v2", address, array.ctypes.data_as(ctypes.c_void_p), u64(array.nbytes))
    return address.value


def launch(text, parameters, threads):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), (HEADER + text).encode())
    call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    values = [u64(each) for each in parameters]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    call("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, None, pointers, None)


def kernel(instruction, form, coordinates, loads, registers):
    """Lane i takes four words of coordinates; what the instruction leaves in `registers` goes to four words."""
    padded = ["%c0", "%c1", "%c2", "%c2"][: {"3d": 4, "a2d": 4, "cube": 4}.get(form, COORDINATES[form])]
    coordinates = f"[%object, {{{', '.join(padded)}}}]"
    stores = "\n".join(f"st.global.b32 [%out+{4 * i}], {each};" for i, each in enumerate(registers))
    return f"""
.visible .entry k(.param .u64 o, .param .u64 at, .param .u64 result) {{
.reg .b64 %object, %at, %out, %w; .reg .b32 %t, %c<3>, %d<4>, %v<4>; .reg .b16 %h<4>;
ld.param.u64 %object, [o]; ld.param.u64 %at, [at]; ld.param.u64 %out, [result];
mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 16; add.s64 %at, %at, %w; add.s64 %out, %out, %w;
ld.global.b32 %c0, [%at]; ld.global.b32 %c1, [%at+4]; ld.global.b32 %c2, [%at+8];
{loads}
{instruction.replace("AT", coordinates)}
{stores}
ret;
}}
"""


def resource(job):
    """The description of what a texture is over, and the array where it is one."""
    texels = np.array(job["texels"], job["type"])
    channels, format_ = job.get("channels", 1), FORMATS[job["type"]]
    sizes = job["sizes"]
    if job["over"] == "linear":
        given = struct.pack("<QIIQ", to_device(texels), format_, channels, texels.nbytes)
        return struct.pack("<ii", 2, 0) + given, None
    row = sizes[0] * channels * texels.itemsize
    if job["over"] == "pitch":
        pitch = (row + 31) // 32 * 32
        padded = np.full((sizes[1], pitch), 0xEE, np.uint8)
        padded[:, :row] = texels.view(np.uint8).reshape(sizes[1], row)
        given = struct.pack("<QIIQQQ", to_device(padded), format_, channels, sizes[0], sizes[1], pitch)
        return struct.pack("<ii", 3, 0) + given, None
    width, height, depth = [*sizes, 0, 0][:3]
    flags = {"array": 2, "layers": 3, "cube": 6}[job["over"]]
    array = ctypes.c_void_p()
    form = struct.pack("<QQQIIII", width, height, depth, format_, channels, flags, 0)
    call("cuArray3DCreate_v2", ctypes.byref(array), form)
    copy_array(texels, array, row, max(height, 1), max(depth, 1), to_array=True)
    return struct.pack("<iiQ", 0, 0, array.value), array


def copy_array(texels, array, row, height, depth, to_array):
    host = struct.pack("<QQQQIIQQQQQQ", 0, 0, 0, 0, 1, 0, texels.ctypes.data, 0, 0, 0, row, height)
    there = struct.pack("<QQQQIIQQQQQQ", 0, 0, 0, 0, 3, 0, 0, 0, array.value, 0, 0, 0)
    both = host + there if to_array else there + host
    call("cuMemcpy3D_v2", both + struct.pack("<QQQ", row, height, depth))


def texture(job, given):
    object_ = ctypes.c_uint64()
    edges = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
    flags = job.get("integer", 0) | job.get("normalized", 0) << 1 | job.get("more_flags", 0)
    wanted = struct.pack("<iiiiIIifffffff", *[edges[job.get("edge", "clamp")]] * 3, job.get("linear", 0), flags, 0,
                         0, 0, 0, 0, *job.get("border", [0] * 4))  # fmt: skip
    call("cuTexObjectCreate", ctypes.byref(object_), given.ljust(144, b"\0"), wanted.ljust(104, b"\0"), None)
    if job.get("destroyed"):
        call("cuTexObjectDestroy", object_)
    return object_.value


def read_texture(job):
    form, kind, points = job["form"], job["instruction"], job["at"]
    at = np.zeros((len(points), 4), np.uint32)
    integers = 4 if kind.endswith("s32") else 1 if form in ("a1d", "a2d") else 0
    for i, point in enumerate(points):
        for j, each in enumerate(point):
            at[i, j] = np.int32(each).view(np.uint32) if j < integers else np.float32(each).view(np.uint32)
    names = ["%d0", "%d1", "%d2", "%d3"]
    level = ", %c0" if kind.startswith("level") else ""
    kind = kind.removeprefix("level ")
    first = f"tex{'.level' if level else ''}.{form}.v4.{kind} {{{', '.join(names)}}}, AT{level};"
    out = to_device(np.zeros((len(points), 4), np.uint32))
    given, _ = resource(job)
    stores = "" if "stores" not in job else "mov.b64 %w, {%c1, %c2}; st.global.b32 [%w], %c1;"
    if stores:  # to the first texel
        at[:, 1:3] = np.frombuffer(given[8:16], np.uint32)
    parameters = (texture(job, given), to_device(at), out)
    launch(kernel(first, form, COORDINATES[form], stores, names), parameters, len(points))
    return words_at(out, len(points))


def words_at(address, count):
    words = np.zeros((count, 4), np.uint32)
    call("cuMemcpyDtoH_v2", words.ctypes.data_as(ctypes.c_void_p), u64(address), u64(words.nbytes))
    return words.tolist()


def use_surface(job):
    """Each lane reads an element of 32 bits and stores it plus one; the array follows what was read."""
    given, array = resource(job)
    object_, points = ctypes.c_uint64(), job["at"]
    call("cuSurfObjectCreate", ctypes.byref(object_), given.ljust(144, b"\0"))
    at = np.zeros((len(points), 4), np.int32)
    for i, point in enumerate(points):
        at[i, : len(point)] = point
    form, mode, bits = job["form"], job["mode"], job.get("bits", "b32")
    register = "%d0" if bits == "b32" else "%h0"
    code = f"mov.b32 %d0, 0; suld.b.{form}.{bits}.{mode} {{{register}}}, AT;"
    code += "cvt.u32.u16 %d0, %h0; add.u16 %h1, %h0, 1;" if register == "%h0" else "add.u32 %v0, %d0, 1;"
    code += f"sust.b.{form}.{bits}.{mode} AT, {{{'%v0' if register == '%d0' else '%h1'}}};"
    out = to_device(np.zeros((len(points), 4), np.uint32))
    text = kernel(code, form, COORDINATES[form], "mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;",
                  ["%d0", "%d1", "%d2", "%d3"])  # fmt: skip
    launch(text, (object_.value, to_device(at.view(np.uint32)), out), len(points))
    after = np.zeros_like(np.array(job["texels"], job["type"]))
    width, height, depth = [*job["sizes"], 0, 0][:3]
    row = width * job.get("channels", 1) * after.itemsize
    copy_array(after, array, row, max(height, 1), max(depth, 1), to_array=False)
    return [[each[0] for each in words_at(out, len(points))], after.tolist()]


def main():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    results = []
    for job in json.loads(Path(sys.argv[1]).read_text()):
        try:
            results.append(use_surface(job) if "mode" in job else read_texture(job))
        except CallError as error:
            results.append(str(error))
    Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
