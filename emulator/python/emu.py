"""Runs CUDA and PTX kernels on the emulator from Python: NumPy arrays in and out, findings as exceptions, no GPU.

    import emu
    module = emu.Module("saxpy.cu")                     # or PTX: a file or its text
    launched = module["saxpy"][grid, block](x, y, 2.0)  # arrays are copied in, and back when the launch has ended
    launched.counters.total.wavefronts                  # what it cost, by the rules of docs/emulator.md

A launch that finds something raises FindingsError: its text is the messages, its `findings` are records. Needed are
NumPy, and next to this file `libflemu.so` and `emu.h`, where `make emu-lib` puts them. A module and its buffers serve
one thread at a time.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffer", "Counters", "Counts", "EmuError", "Fault", "Finding", "FindingsError", "Kernel", "Launched",
           "Module", "Output", "Refused", "Variables"]  # fmt: skip

Array = npt.NDArray[Any]
Extent = int | Sequence[int]

# ---- the library -----------------------------------------------------------------------------------------------------

FOLDER = Path(__file__).resolve().parent
TOOLKITS = (FOLDER.parent / ".venv/toolkit", FOLDER.parent / "nvidia/cu13")  # of a checkout, of NVIDIA's wheels
OK, FINDINGS, REFUSED, FAULT = range(4)
SIMPLE: dict[str, Any] = {
    "bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int, "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "uint8_t": ctypes.c_uint8, "float": ctypes.c_float, "FILE": None, "void": None,
}  # fmt: skip


def _structs(header: str) -> dict[str, Any]:
    """The structs of emu.h as ctypes classes, read from its text, so that the two cannot differ."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    known = dict(SIMPLE)
    numbers = {name: int(value) for name, value in re.findall(r"\b(\w+) = (\d+)\b", text)}  # of enums
    for body, name in re.findall(r"typedef (?:struct|enum) \w+ \{(.*?)\} (\w+);", text, re.S):
        if ";" not in body:
            known[name] = ctypes.c_int  # an enum
            continue
        members: list[tuple[str, Any]] = []
        for statement in filter(None, map(str.strip, body.split(";"))):
            typename, declarators = re.fullmatch(r"(?:const )?(?:struct )?(\w+) (.*)", statement, re.S).groups()  # type: ignore[union-attr]
            for declarator in declarators.split(","):
                stars, member, size = re.fullmatch(r"\s*((?:\*|const |\s)*)(\w+)(?:\[(.*)\])?", declarator).groups()  # type: ignore[union-attr]
                made: Any = known.get(typename)
                for _ in range(stars.count("*")):
                    pointer: Any = ctypes.POINTER(made) if made else ctypes.c_void_p
                    made = ctypes.c_char_p if made is ctypes.c_char else pointer
                members.append((member, made * _sum(size, numbers) if size else made))
        known[name] = type(name, (ctypes.Structure,), {"_fields_": members})
    return known


def _sum(expression: str, numbers: dict[str, int]) -> int:
    """A size such as "3" or "RANK - 1"."""
    terms = re.findall(r"([+-]?)\s*(\w+)", expression)
    return sum((-1 if sign == "-" else 1) * (numbers[word] if word in numbers else int(word)) for sign, word in terms)


class _Library:
    """libflemu.so, with the types of the functions that are called."""

    def __init__(self) -> None:
        path = FOLDER / "libflemu.so"
        if not path.exists():
            raise ImportError(f"{path} is missing: `make emu-lib` builds it and puts this module next to it")
        self.structs = _structs((FOLDER / "emu.h").read_text(encoding="utf-8"))
        self.c = ctypes.CDLL(str(path))
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
        error = ctypes.POINTER(self.structs["emu_error"])
        info, finding = (ctypes.POINTER(self.structs[f"emu_{name}"]) for name in ("entry_info", "finding"))
        size = ctypes.POINTER(ctypes.c_size_t)
        for name, result, arguments in (
            ("emu_compile", ctypes.c_bool, [text, pointer, text, ctypes.c_size_t, error]),
            ("emu_load", pointer, [text, ctypes.c_size_t, error]),
            ("emu_decode", ctypes.c_bool, [pointer, ctypes.c_int, error]),
            ("emu_unload", None, [pointer]),
            ("emu_entry_count", ctypes.c_int, [pointer]),
            ("emu_entry", info, [pointer, ctypes.c_int]),
            ("emu_device_new", pointer, []),
            ("emu_device_free", None, [pointer]),
            ("emu_alloc", number, [pointer, text, number, ctypes.c_int]),
            ("emu_free", ctypes.c_bool, [pointer, number]),
            ("emu_host_bytes", pointer, [pointer, number]),
            ("emu_variable_at", ctypes.c_bool, [pointer, ctypes.c_size_t, pointer]),
            ("emu_reset_variables", ctypes.c_bool, [pointer, pointer]),
            ("emu_run", ctypes.c_int, [pointer, pointer, pointer, error]),
            ("emu_findings", finding, [pointer, size]),
            ("emu_counts", ctypes.POINTER(self.structs["emu_counters"]), [pointer]),
            ("emu_class_name", text, [ctypes.c_int]),
        ):
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self.libc = ctypes.CDLL(None)
        self.libc.open_memstream.restype = pointer
        self.libc.fclose.argtypes = self.libc.free.argtypes = [pointer]

    def error(self) -> Any:
        return self.structs["emu_error"]()


_library = _Library()


# ---- errors and findings ---------------------------------------------------------------------------------------------


class EmuError(Exception):
    """Whatever the emulator has to say against a kernel or a launch."""


class Refused(EmuError):
    """PTX, a CUDA file or a launch that is not accepted; `line` is that of the PTX, 0 where it is about none."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True)
class Location:
    """An instruction: line and text in the PTX; the innermost line of the kernel's own file, "" and 0 if unknown."""

    ptx_line: int
    ptx: str
    file: str
    line: int


@dataclass(frozen=True)
class Finding:
    """One thing found: `kind` is its class, such as "race" (docs/emulator.md); -1 where it is about no warp or lane."""

    kind: str
    count: int
    here: Location
    other: Location
    cta: tuple[int, int, int]
    warp: int
    lane: int
    address: int
    message: str


class FindingsError(EmuError):
    """The launch ran to its end, and something is wrong. Arrays have been copied back."""

    def __init__(self, findings: Sequence[Finding], launched: Launched) -> None:
        super().__init__("\n" + "\n".join(finding.message for finding in findings))
        self.findings = tuple(findings)
        self.launched = launched


class Fault(FindingsError):
    """A CTA could not continue: deadlock, livelock, step limit, trap or assert."""


def _location(raw: Any) -> Location:
    frame = raw.own.contents if raw.own else None
    file, line = ((frame.file or b"").decode(), int(frame.line)) if frame else ("", 0)
    return Location(int(raw.ptx_line), (raw.ptx or b"").decode(), file, line)


def _finding(raw: Any) -> Finding:
    kind = _library.c.emu_class_name(raw.class_).decode()
    here, other, cta = _location(raw.here), _location(raw.other), (raw.cta[0], raw.cta[1], raw.cta[2])
    return Finding(kind, int(raw.count), here, other, cta,
                   int(raw.warp), int(raw.lane), int(raw.address), raw.message.decode(errors="replace"))  # fmt: skip


# ---- counters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Counters of instructions, summed over all warps; docs/emulator.md defines each."""

    executed: int = 0
    lanes: int = 0
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    requests: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Counts)))


@dataclass(frozen=True)
class Row:
    """One PTX instruction and what it did; `group` is "mma", "ldmatrix", "cp.async", "memory" and so on."""

    location: Location
    group: str
    counts: Counts


def _counts(raw: Any) -> Counts:
    return Counts(*(int(getattr(raw, each.name)) for each in fields(Counts)))


class Counters:
    """The counters of one launch."""

    def __init__(self, raw: Any, module: Module) -> None:
        self.total = _counts(raw.total)
        self._module = module  # its text is what the rows name
        self._rows = (type(raw.rows.contents) * raw.count)()
        if raw.count:
            ctypes.memmove(self._rows, raw.rows, ctypes.sizeof(self._rows))

    @property
    def rows(self) -> list[Row]:
        """In program order."""
        return [Row(_location(raw.location), raw.group.decode(), _counts(raw)) for raw in self._rows]

    def lines(self) -> dict[tuple[str, int], Counts]:
        """Sums by file and line of the source, in order."""
        sums: dict[tuple[str, int], Counts] = {}
        for row in self.rows:
            if row.counts.executed:
                key = (row.location.file, row.location.line)
                sums[key] = sums.get(key, Counts()) + row.counts
        return dict(sorted(sums.items()))


@dataclass(frozen=True)
class Launched:
    """Results of a launch besides its arrays: counters, and the text that device printf wrote."""

    counters: Counters
    printed: str


# ---- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Output:
    """An array argument of which every byte is expected to be written exactly once: the launch reports others."""

    array: Array


def _free_buffer(module: Module, address: int) -> None:
    _library.c.emu_free(module._device, address)


class Buffer:
    """Memory of the device that stays from launch to launch: `array` is its bytes, `address` its device address."""

    def __init__(self, module: Module, like: Array, name: str = "buffer", output: bool = False) -> None:
        self._module, self._dtype, self._shape = module, like.dtype, like.shape
        if not like.nbytes:
            raise ValueError(f"{name}: an array without elements has no address")
        self.address = int(_library.c.emu_alloc(module._device, name.encode(), like.nbytes, int(output)))
        if not self.address:
            raise MemoryError(f"{name}: no room on the device for {like.nbytes} bytes")
        self._free = weakref.finalize(self, _free_buffer, module, self.address)
        self.array[...] = like

    @property
    def array(self) -> Array:
        """A view of the bytes, as the kernel sees them; it keeps the buffer."""
        count = int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize
        raw: Any = (ctypes.c_char * count).from_address(_library.c.emu_host_bytes(self._module._device, self.address))
        raw.owner = self
        view: Array = np.frombuffer(raw, self._dtype)
        return view.reshape(self._shape)


class Variables:
    """The __device__ and __constant__ variables of a module by name, or by the only mangled name with it as a part.

    Reading gives a copy as an array, of bytes where the PTX has no other type (nvcc writes most arrays so); assigning
    takes what NumPy makes an array of. Values stay from launch to launch.
    """

    def __init__(self, module: Module) -> None:
        self._module = module

    def _all(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            variable = _library.structs["emu_variable"]()
            if not _library.c.emu_variable_at(self._module._module, len(found), ctypes.byref(variable)):
                return found
            found[variable.name.decode()] = variable

    def _bytes(self, name: str) -> tuple[Any, Any]:
        """The variable, and its bytes on the device until the next launch."""
        module, variables = self._module, self._all()
        variable = variables[_only(name, variables, "variable")]
        if not module._has_variables and not _library.c.emu_reset_variables(module._device, module._module):
            raise MemoryError(f"no room for the variables of {module.path or 'the module'}")
        module._has_variables = True
        address = _library.c.emu_host_bytes(module._device, variable.address)
        return variable, (ctypes.c_char * variable.bytes).from_address(address)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __getitem__(self, name: str) -> Array:
        variable, raw = self._bytes(name)
        return np.frombuffer(bytes(raw), _dtype(variable.type.decode()))

    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        variable, raw = self._bytes(name)
        kind = variable.type.decode()
        given = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value, _dtype(kind))
        data = given.tobytes()
        if len(data) != variable.bytes:
            raise ValueError(f"{name} has {variable.bytes} bytes of type {kind}, and the value has {len(data)}")
        raw[:] = data


def _dtype(kind: str) -> np.dtype[Any]:
    """The NumPy type of a PTX type: "f32", "s16", "b8"."""
    return np.dtype(f"{'u' if kind[0] == 'b' else {'s': 'i'}.get(kind[0], kind[0])}{int(kind[1:]) // 8}")


def _only(name: str, names: Iterable[str], what: str) -> str:
    """The name itself, or the only one that has it as a part."""
    names = list(names)
    found = [each for each in names if each == name] or [each for each in names if name in each]
    if len(found) != 1:
        which = f"no {what} has" if not found else f"{len(found)} {what}s have"
        raise KeyError(f"{which} '{name}' in its name; there are: {', '.join(found or names) or 'none'}")
    return found[0]


# ---- modules and kernels ---------------------------------------------------------------------------------------------


def _compile(file: Path, flags: Sequence[str]) -> Path:
    """The PTX file that nvcc makes of a CUDA file, from a cache where nothing has changed."""
    words = (ctypes.c_char_p * (len(flags) + 1))(*(flag.encode() for flag in flags), None)
    compiler = _library.structs["emu_compiler"]()
    compiler.toolkit = str(next((path for path in TOOLKITS if path.is_dir()), TOOLKITS[0])).encode()
    compiler.flags = ctypes.cast(words, type(compiler.flags))
    path, error = ctypes.create_string_buffer(4096), _library.error()
    done = _library.c.emu_compile(str(file).encode(), ctypes.byref(compiler), path, len(path), ctypes.byref(error))
    log = "" if done or not path.value else "\n" + Path(path.value.decode()).read_text(errors="replace")
    if not done:
        raise Refused(error.text.decode(errors="replace") + log)
    return Path(path.value.decode())


def _release(device: int, module: int) -> None:
    _library.c.emu_device_free(device)
    _library.c.emu_unload(module)


class Module:
    """A CUDA file, a PTX file or PTX text (a str with a line break), with a device of its own.

    `module[name]` is a kernel. `flags` are for nvcc: include folders, macros, another architecture.
    """

    def __init__(self, source: str | Path, flags: Sequence[str] = ()) -> None:
        self.path: Path | None = None
        if isinstance(source, str) and "\n" in source:
            self._text = source.encode()
        else:
            self.path = Path(source)
            if self.path.suffix == ".cu":
                self.path = _compile(self.path, flags)
            self._text = self.path.read_bytes()
        if flags and (self.path is None or Path(source).suffix != ".cu"):
            raise ValueError("flags are for nvcc, and PTX is not compiled")
        error = _library.error()
        self._module = _library.c.emu_load(self._text, len(self._text), ctypes.byref(error))
        if not self._module:
            raise self._refused(error)
        self._device = _library.c.emu_device_new()
        if not self._device:
            raise MemoryError("no memory for a device")
        self._has_variables = False  # on the device
        weakref.finalize(self, _release, self._device, self._module)

    def _refused(self, error: Any) -> Refused:
        where = f"{self.path or 'PTX'}:{error.line}: " if error.line else ""
        return Refused(where + error.text.decode(errors="replace"), int(error.line))

    def __iter__(self) -> Iterator[str]:
        """Names of the entries, as in the PTX."""
        for index in range(_library.c.emu_entry_count(self._module)):
            yield _library.c.emu_entry(self._module, index).contents.name.decode()

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of this name, or the only one whose mangled name has it as a part."""
        names = list(self)
        return Kernel(self, names.index(_only(name, names, "kernel")))

    @property
    def variables(self) -> Variables:
        """`module.variables["scale"] = 2.0` sets a __constant__ or __device__ variable."""
        return Variables(self)

    def buffer(self, like: npt.ArrayLike, name: str = "buffer", output: bool = False) -> Buffer:
        """Memory of the device with the shape, type and values of an array."""
        return Buffer(self, np.ascontiguousarray(like), name, output)


def _three(extent: Extent, what: str) -> tuple[int, int, int]:
    sizes = (extent,) if isinstance(extent, int | np.integer) else tuple(extent)
    if not 1 <= len(sizes) <= 3 or not all(0 <= int(size) < 2**32 for size in sizes):
        raise ValueError(f"{what} {extent!r}: expected 1 to 3 sizes, each from 1 up")
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    return x, y, z


def _scalar(value: Any, kind: str, size: int, what: str) -> bytes:
    """The bytes of a number for a parameter of a PTX type; a NumPy number, struct or bytes as they are."""
    if isinstance(value, float | int | np.bool_) and not isinstance(value, np.generic):
        if kind in ("f32", "f64"):
            return np.array(value, f"<f{size}").tobytes()
        if isinstance(value, int) and kind != "b8" and kind[0] in "usb":
            if not -(1 << (8 * size - 1)) <= value < 1 << 8 * size:
                raise ValueError(f"{what}: {value} does not fit into {kind}")
            return (value % (1 << 8 * size)).to_bytes(size, "little")
        if isinstance(value, int) and size == 1:
            return bytes([value % 256])
    elif isinstance(value, np.floating) and kind in ("f32", "f64"):
        return np.array(value, f"<f{size}").tobytes()
    elif isinstance(value, np.integer | np.bool_) and (value.nbytes == size or kind in ("f32", "f64")):
        return _scalar(int(value), kind, size, what)
    elif isinstance(value, np.generic | np.ndarray | bytes | bytearray | ctypes.Structure):
        raw = bytes(value) if not isinstance(value, np.generic | np.ndarray) else value.tobytes()
        if len(raw) == size:
            return raw
        raise TypeError(f"{what}: {type(value).__name__} has {len(raw)} bytes, and the parameter, {kind}, has {size}")
    raise TypeError(f"{what}: {value!r} is no value for a parameter of type {kind} with {size} bytes")


class _Arguments:
    """The arguments of one launch: its parameter block, and the arrays that are on the device meanwhile."""

    def __init__(self, module: Module, info: Any) -> None:
        self._module, self._info = module, info
        self._arrays: list[tuple[Array, Buffer]] = []
        self.block = bytearray(info.param_bytes)

    def add(self, arguments: Sequence[Any]) -> None:
        info, name = self._info, self._info.name.decode()
        if len(arguments) != info.params:
            types = ", ".join(info.param_types[i].decode() for i in range(info.params))
            raise TypeError(f"{name} takes {info.params} arguments ({types}), not {len(arguments)}")
        for i, value in enumerate(arguments):
            kind, size, at = info.param_types[i].decode(), int(info.param_sizes[i]), int(info.param_offsets[i])
            self.block[at : at + size] = self._pack(value, kind, size, f"argument {i} of {name}")

    def free(self) -> None:
        """At once: an exception may keep this, and the next launch would check these outputs too."""
        for _, buffer in self._arrays:
            buffer._free()

    def _pack(self, value: Any, kind: str, size: int, what: str) -> bytes:
        if value is None or isinstance(value, Buffer | Output) or (isinstance(value, np.ndarray) and value.ndim):
            if size != 8:
                raise TypeError(f"{what}: the parameter is {kind} with {size} bytes, no pointer")
            if value is None:
                return bytes(8)
            if isinstance(value, Buffer):
                return value.address.to_bytes(8, "little")
            array, output = (value.array, True) if isinstance(value, Output) else (value, False)
            return self._on_device(array, output, what).address.to_bytes(8, "little")
        return _scalar(value, kind, size, what)

    def _on_device(self, array: Array, output: bool, what: str) -> Buffer:
        if not array.flags.c_contiguous:
            raise ValueError(f"{what}: the array is not contiguous; pass np.ascontiguousarray() of it")
        for other, buffer in self._arrays:
            if other.ctypes.data == array.ctypes.data and other.nbytes == array.nbytes:
                return buffer
            if np.may_share_memory(other, array):
                raise ValueError(f"{what}: the array overlaps another argument; pass a Buffer, and addresses within it")
        made = Buffer(self._module, array, what.split(" of ")[0], output)
        self._arrays.append((array, made))
        return made

    def copy_back(self) -> None:
        for array, buffer in self._arrays:
            if array.flags.writeable:
                np.copyto(array, buffer.array)
            elif array.tobytes() != buffer.array.tobytes():
                raise ValueError("the kernel wrote to an array that is read-only in Python")


class Kernel:
    """An entry of a module: `kernel[grid, block](...)` or `kernel[grid, block, bytes](...)` launches it.

    The third number is the dynamic shared memory.
    Arguments are NumPy arrays, Output(array), buffers, device addresses as int, numbers, and for structs bytes, ctypes
    structures or NumPy records. Numbers are converted to the type of the parameter; a __half is np.float16(...). Other
    settings are keywords named as the members of emu_launch: checks=False, schedule=7, ignore="race@12", threads=1,
    cluster=(2, 1, 1).
    """

    def __init__(self, module: Module, index: int) -> None:
        self._module, self._index = module, index
        error = _library.error()
        if not _library.c.emu_decode(module._module, index, ctypes.byref(error)):
            raise module._refused(error)
        self._info = _library.c.emu_entry(module._module, index).contents

    @property
    def name(self) -> str:
        return str(self._info.name.decode())

    def __getitem__(self, extents: tuple[Extent, Extent] | tuple[Extent, Extent, int]) -> Configured:
        if not isinstance(extents, tuple) or not 2 <= len(extents) <= 3:
            raise ValueError("expected kernel[grid, block] or kernel[grid, block, bytes of dynamic shared memory]")
        shared = extents[2] if len(extents) == 3 else 0
        return Configured(self, _three(extents[0], "grid"), _three(extents[1], "block"), int(shared))


@dataclass(frozen=True)
class Configured:
    """A kernel with its grid, block and dynamic shared memory: calling it launches."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int

    def __call__(self, *arguments: Any, **settings: Any) -> Launched:
        packed = _Arguments(self.kernel._module, self.kernel._info)
        try:
            packed.add(arguments)
            return self._launch(packed, settings)
        finally:
            packed.free()

    def _launch(self, packed: _Arguments, settings: dict[str, Any]) -> Launched:
        module = self.kernel._module
        launch = _library.structs["emu_launch"](entry=self.kernel._index, dynamic_shared=self.shared, checks=True)
        launch.grid[:], launch.block[:] = self.grid, self.block
        own = {"entry", "grid", "block", "dynamic_shared", "params", "param_bytes", "output", "trace"}
        allowed = {name for name, _ in launch._fields_} - own
        for name, value in settings.items():
            if name not in allowed:
                raise TypeError(f"no setting {name!r}; there are {', '.join(sorted(allowed))}")
            if name == "cluster":
                launch.cluster[:] = _three(value, "cluster")
            else:
                setattr(launch, name, value.encode() if isinstance(value, str) else value)
        block = (ctypes.c_char * len(packed.block)).from_buffer(packed.block)
        launch.params, launch.param_bytes = ctypes.cast(block, ctypes.c_void_p), len(packed.block)
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        launch.output = _library.libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
        error = _library.error()
        module._has_variables = True
        status = _library.c.emu_run(module._device, module._module, ctypes.byref(launch), ctypes.byref(error))
        _library.libc.fclose(launch.output)
        printed = (text.value or b"").decode(errors="replace")
        _library.libc.free(text)
        if status == REFUSED:
            raise Refused(f"{self.kernel.name}: {error.text.decode(errors='replace')}")
        packed.copy_back()
        launched = Launched(Counters(_library.c.emu_counts(module._device).contents, module), printed)
        if status == OK:
            return launched
        count = ctypes.c_size_t()
        raw = _library.c.emu_findings(module._device, ctypes.byref(count))
        findings = [_finding(raw[i]) for i in range(count.value)]
        raise (Fault if status == FAULT else FindingsError)(findings, launched)
