"""The emulator in WebAssembly is the native one: results, findings, counters and the order of steps, bit by bit.

It needs `make build/wasm/emulator.wasm`, and the wasmtime that is installed with its compiler.
"""

import ctypes
import importlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis.files import root
from analysis.ladder.headers import kernel_files
from analysis.tests.support.kinds import one_of_each_kind

WASM, TWIN = root() / "build/wasm/emulator.wasm", root() / "build/wasm/page.so"
if not WASM.exists() or not TWIN.exists():
    pytest.skip("run `make build/wasm/emulator.wasm`", allow_module_level=True)
sys.path.append(str(root() / ".venv/wasm"))
pytest.importorskip("wasmtime", reason="run `make build/wasm/emulator.wasm`")
REFUSED = 1
NEVER = 0xFFFFFFFF
STEPS = 20  # bits of a step that are its instruction


class Left(Exception):
    """The module left through its import."""

    def __init__(self, why: int) -> None:
        super().__init__(why)
        self.why = why


class Module:
    """The calls that a page makes, in wasmtime."""

    def __init__(self) -> None:
        wasmtime = importlib.import_module("wasmtime")
        engine, compiled = compiled_module()
        self.store = wasmtime.Store(engine)
        linker = wasmtime.Linker(engine)
        leave = wasmtime.FuncType([wasmtime.ValType.i32()], [])
        linker.define_func("env", "leave", leave, self.leave)
        self.exports = linker.instantiate(self.store, compiled).exports(self.store)
        self.bytes = self.exports["memory"]
        self.call("_initialize")

    def leave(self, why: int) -> None:
        self.left = why
        raise Left(why)

    def call(self, name: str, *arguments: int) -> int:
        self.left = -1
        try:
            return self.exports[name](self.store, *arguments) or 0
        except Exception:
            if self.left < 0:
                raise
            raise Left(self.left) from None

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.bytes.read(self.store, at, at + size))

    def write(self, data: bytes) -> int:
        at = self.call("emu_view_memory", len(data))
        self.bytes.write(self.store, data, at)
        return at

    def text(self) -> Any:
        at, end = self.call("emu_view_text"), self.bytes.data_len(self.store)
        data = self.read(at, min(1 << 22, end - at))
        return json.loads(data[: data.index(0)].decode())


class Twin:
    """Make the same calls in the native build."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(TWIN))
        self.kept: list[Any] = []

    def call(self, name: str, *arguments: int) -> int:
        function = getattr(self.library, name)
        address = name in ("emu_view_text", "emu_view_steps", "page_tensor")
        function.restype = ctypes.c_void_p if address else ctypes.c_int
        words = [ctypes.c_void_p(one) if one > NEVER else ctypes.c_uint32(one & NEVER) for one in arguments]
        return function(*words) or 0

    def read(self, at: int, size: int) -> bytes:
        return ctypes.string_at(at, size)

    def write(self, data: bytes) -> int:
        self.kept.append(ctypes.create_string_buffer(data, len(data)))
        return ctypes.addressof(self.kept[-1])

    def text(self) -> Any:
        return json.loads(ctypes.string_at(self.call("emu_view_text")).decode())


@cache
def compiled_module() -> tuple[Any, Any]:
    wasmtime = importlib.import_module("wasmtime")
    config = wasmtime.Config()
    config.wasm_simd = config.wasm_bulk_memory = True
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module.from_file(engine, str(WASM))


def ptx_of(version: str) -> bytes:
    path = root() / f"build/{version}/{version}.ptx"
    if not path.exists():
        pytest.skip(f"{path.name} is not built")
    return path.read_bytes()


def load(machine: Module | Twin, ptx: bytes) -> list[str]:
    assert machine.call("emu_view_load", machine.write(ptx), len(ptx)) == 0
    return list(machine.text())


def start(machine: Module | Twin, ptx: bytes, schedule: int = 0) -> None:
    """The first entry of a version, on 256 rows of one head."""
    load(machine, ptx)
    if machine.call("page_problem", 0, 256, 0, 0, 0, 1, schedule):
        machine.call("emu_view_refusal")
        raise AssertionError(machine.text()["text"])


def outcome(machine: Module | Twin) -> dict[str, Any]:
    """All that a launch left."""
    found: dict[str, Any] = {"O": machine.read(machine.call("page_tensor", 3), machine.call("page_tensor_bytes", 3))}
    for name in ("findings", "counters", "code"):
        machine.call(f"emu_view_{name}")
        found[name] = machine.text()
    steps = machine.call("emu_view_step_count")
    found["steps"] = machine.read(machine.call("emu_view_steps"), 4 * steps)
    return found


@pytest.mark.parametrize("version", one_of_each_kind(sorted(kernel_files(root()))))
@pytest.mark.parametrize("schedule", [0, pytest.param(7, marks=pytest.mark.long)], ids=["plain", "seeded"])
def test_a_version_runs_as_natively(version: str, schedule: int) -> None:
    ptx = ptx_of(version)
    found = []
    for machine in (Module(), Twin()):
        start(machine, ptx, schedule)
        status = machine.call("emu_view_run", NEVER)
        found.append({"status": status, **outcome(machine)})
    assert found[0] == found[1]
    assert found[0]["status"] == 0 and found[0]["counters"]["executed"] > 1000
    assert len(set(found[0]["O"])) > 100 and len(found[0]["steps"]) >= 4 * found[0]["counters"]["executed"] / 2


def test_a_refused_text_says_where(tmp_path: Path) -> None:
    ptx = ptx_of("v07").replace(b"ldmatrix.sync", b"ldmatrix.sink", 1)
    line = ptx[: ptx.index(b"ldmatrix.sink")].count(b"\n") + 1
    module = Module()
    with pytest.raises(Left) as left:
        start(module, ptx)
    assert left.value.why == REFUSED
    module.call("emu_view_refusal")
    refusal = module.text()
    assert refusal["line"] == line and "sink" in refusal["text"]


def test_a_lost_barrier_is_found_at_its_line() -> None:
    ptx = ptx_of("v02")
    at = ptx.index(b"bar.sync")
    lost = ptx[:at] + b"//" + ptx[at:]
    module = Module()
    start(module, lost)
    assert module.call("emu_view_run", NEVER) == 1
    module.call("emu_view_findings")
    findings = module.text()
    assert findings and {one["class"] for one in findings} <= {"race", "async-in-flight", "uninitialised-shared"}
    assert all(one["here"]["line"] > 0 and one["here"]["ptx_line"] > 0 for one in findings)


def test_a_problem_that_a_version_does_not_compute_is_refused() -> None:
    module = Module()
    load(module, ptx_of("v07"))
    assert module.call("page_problem", 0, 100, 0, 0, 0, 1, 0) == -1
    module.call("emu_view_refusal")
    assert "100" in module.text()["text"]
