"""True if the NVIDIA driver has a GPU here: make asks before it builds what needs one.

python3 -m analysis.measure.driver      # prints why there is none, or nothing
"""

import ctypes

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def why_none() -> str:
    """Why no GPU can be used; "" where one can."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    count = ctypes.c_int()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status in (0, NO_DEVICE) and not count.value:
        return "there is an NVIDIA driver, but no GPU that it may use"
    return f"the NVIDIA driver fails with status {status}" if status else ""


if __name__ == "__main__":
    print(why_none())
