"""The GPU that a program finds under `emulated-gpu python3 -m pytest`."""

import ctypes


def test_there_is_a_device() -> None:
    cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGetCount(ctypes.byref(number)) == 0
    assert number.value == 1
