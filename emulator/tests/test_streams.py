"""Operations of two streams that nothing orders, though they run one after the other here: races between them."""

from pathlib import Path

import pytest
from test_driver_memory import run

START = """
NON_BLOCKING, LEGACY, PER_THREAD = 1, ctypes.c_void_p(1), ctypes.c_void_p(2)

def stream(flags=NON_BLOCKING):
    made = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(made), flags)
    return made

def event():
    made = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(made), 0)
    return made

def record(on):
    made = event()
    call("cuEventRecord", made, on)
    return made

def wait(on, what):
    call("cuStreamWaitEvent", on, what, 0)

def zero(to, on):
    call("cuMemsetD8Async", to, 0, BYTES, on)

def set_all(to):
    call("cuMemsetD8_v2", to, 0, BYTES)

def graph(body, *more):
    a = stream()
    call("cuStreamBeginCapture_v2", a, 0)
    body(a)
    made, ready = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuStreamEndCapture", a, ctypes.byref(made))
    call("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_ulonglong(0))
    return ready

def fork(a, b, first, second, rest=None):
    wait(b, record(a))
    first(a)
    second(b)
    wait(a, record(b))
    rest and rest(a)

def taken(bytes_, on):
    address = ctypes.c_uint64()
    call("cuMemAllocAsync", ctypes.byref(address), bytes_, on)
    return address

a, b, blocking = stream(), stream(), stream(0)
r, s = memory(), memory()
for each in (p, q, r, s):
    set_all(each)
call("cuCtxSynchronize")
host = (ctypes.c_char * 4096)()
pinned = ctypes.c_void_p()
call("cuMemHostAlloc", ctypes.byref(pinned), BYTES, 0)
table = ctypes.c_void_p()
call("cuModuleGetGlobal_v2", ctypes.byref(table), ctypes.byref(ctypes.c_size_t()), module, b"table")
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
"""

RACES = {
    "a kernel reads what another writes": "write(p, q, on=a); copy(p, r, on=b)",
    "a kernel writes what another reads": "copy(p, q, on=a); write(p, r, on=b)",
    "two kernels write": "write(p, q, on=a); write(p, r, on=b)",
    "an atomic and a plain load": "launch('add', p, q, on=a); copy(p, r, on=b)",
    "an event of before": "e = record(a); write(p, q, on=a); wait(b, e); copy(p, r, on=b)",
    "an event that the wrong stream waits for": "write(p, q, on=a); wait(blocking, record(a)); copy(p, r, on=b)",
    "a wait that comes too late": "write(p, q, on=a); e = record(a); copy(p, r, on=b); wait(b, e)",
    "the host waits for the wrong stream": "write(p, q, on=a); call('cuStreamSynchronize', b); copy(p, r, on=b)",
    "the default stream": "write(p, q); copy(p, r, on=a)",
    "a memset that does not wait": "set_all(p); copy(p, r, on=a)",
    "a copy within the device": "memcpy(p, q); copy(p, r, on=a)",
    "a memset over what is read": "copy(p, q, on=a); zero(p, b)",
    "a copy to pinned memory, and one from it":
        "call('cuMemcpyDtoHAsync_v2', pinned, p, BYTES, a); call('cuMemcpyHtoDAsync_v2', q, pinned, BYTES, b)",
    "constants that the host copies": "launch('look_up', p, q, on=a); call('cuMemcpyHtoD_v2', table, host, BYTES)",
    "constants that a kernel writes": "write(table, q, on=a); launch('look_up', p, r, on=b)",
    "the stream of each thread": "write(p, q, on=PER_THREAD); copy(p, r, on=a)",
    "branches of a graph":
        "g = graph(lambda s0: fork(s0, b, lambda x: write(p, q, on=x), lambda x: copy(p, r, on=x)));"
        "call('cuGraphLaunch', g, a)",
    "a graph and a kernel": "g = graph(lambda x: write(p, q, on=x)); call('cuGraphLaunch', g, a); copy(p, r, on=b)",
    "memory that another stream allocates": "m = taken(4096, a); write(m, q, on=b)",
    "memory that is freed while it is read": "m = taken(4096, a); copy(p, m, on=a); wait(b, record(a)); "
                                              "copy(m, r, on=b); call('cuMemFreeAsync', m, a)",
    "two streams that wait for a third": "wait(a, record(blocking)); wait(b, record(blocking)); write(p, q, on=a); "
                                         "copy(p, r, on=b)",
}  # fmt: skip
SILENT = {
    "one stream": "write(p, q, on=a); copy(p, r, on=a)",
    "an event": "write(p, q, on=a); wait(b, record(a)); copy(p, r, on=b)",
    "events over a third stream":
        "write(p, q, on=a); wait(blocking, record(a)); wait(b, record(blocking)); copy(p, r, on=b)",
    "the host waits for the stream": "write(p, q, on=a); call('cuStreamSynchronize', a); copy(p, r, on=b)",
    "the host asks the stream": "write(p, q, on=a); call('cuStreamQuery', a); copy(p, r, on=b)",
    "the host waits for the event": "write(p, q, on=a); call('cuEventSynchronize', record(a)); copy(p, r, on=b)",
    "the host waits for all": "write(p, q, on=a); call('cuCtxSynchronize'); copy(p, r, on=b)",
    "the default stream before": "write(p, q); copy(p, r, on=blocking)",
    "the default stream after": "write(p, q, on=blocking); copy(p, r)",
    "the default stream between": "c = stream(0); write(p, q, on=blocking); copy(s, r); copy(p, r, on=c)",
    "a memset, and a blocking stream": "set_all(p); copy(p, r, on=blocking)",
    "a copy to the host": "write(p, q, on=blocking); call('cuMemcpyDtoH_v2', host, p, BYTES); copy(p, r, on=a)",
    "a copy to memory that is not pinned":
        "write(p, q, on=a); call('cuMemcpyDtoHAsync_v2', host, q, BYTES, a); copy(p, r, on=b)",
    "other bytes": "write(p, q, on=a); write(r, s, on=b)",
    "both read": "copy(p, q, on=a); copy(p, r, on=b)",
    "both add": "launch('add', p, q, on=a); launch('add', p, q, on=b)",
    "constants that the host copies first":
        "call('cuMemcpyHtoD_v2', table, host, BYTES); launch('look_up', p, q, on=a)",
    "constants that both read": "launch('look_up', p, q, on=a); launch('look_up', p, r, on=b)",
    "constants that a kernel writes before an event":
        "write(table, q, on=a); wait(b, record(a)); launch('look_up', p, r, on=b)",
    "a callback tells the host":
        "write(p, q, on=a); call('cuLaunchHostFunc', a, CALLBACK, None); copy(p, r, on=b)",
    "memory is freed": "m = memory(); write(p, q, on=a); call('cuMemFree_v2', m); copy(p, r, on=b)",
    "branches of a graph that meet":
        "g = graph(lambda s0: fork(s0, b, lambda x: write(p, q, on=x), lambda x: write(r, s, on=x),"
        "lambda x: copy(p, r, on=x))); call('cuGraphLaunch', g, a)",
    "a graph on two streams": "g = graph(lambda x: write(p, q, on=x)); call('cuGraphLaunch', g, a); "
                              "call('cuGraphLaunch', g, b)",
    "what follows a graph":
        "g = graph(lambda s0: fork(s0, b, lambda x: write(p, q, on=x), lambda x: write(r, s, on=x)));"
        "call('cuGraphLaunch', g, a); copy(p, r, on=a)",
    "memory of another stream behind an event":
        "m = taken(4096, a); wait(b, record(a)); write(m, q, on=b); wait(a, record(b)); call('cuMemFreeAsync', m, a)",
    "the stream of each thread and the default": "write(p, q, on=PER_THREAD); copy(p, r)",
    "a value that a stream waits for":
        "write(p, q, on=a); call('cuStreamWriteValue32_v2', a, s, 1, 0);"
        "call('cuStreamWaitValue32_v2', b, s, 1, 1); copy(p, r, on=b)",
    "a stream that was destroyed, and the default":
        "write(p, q, on=blocking); call('cuStreamDestroy_v2', blocking); copy(p, r)",
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_what_may_overlap(name: str, tmp_path: Path) -> None:
    done = run(START + RACES[name], tmp_path)
    assert done.returncode == 1 and "emulated-gpu: 1 finding" in done.stderr, done.stderr
    assert "race" in done.stderr and "no stream, event or wait orders the two" in done.stderr


def test_several_cases_of_what_is_ordered(tmp_path: Path) -> None:
    """One program for all: each begins when all work is done."""
    steps = "\n".join(f"{text}\ncall('cuCtxSynchronize')\nblocking = stream(0)" for text in SILENT.values())
    done = run(START + steps, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_race_is_described(tmp_path: Path) -> None:
    done = run(START + "write(p, q, on=a); zero(p, b)", tmp_path)
    assert done.stderr.startswith("kernel cuMemset: race\n  A race in global memory at 0x"), done.stderr
    assert "this operation writes what kernel write wrote before" in done.stderr
    assert "The other instruction is at PTX line" in done.stderr and "st.global.u32 [%p], 7;" in done.stderr
