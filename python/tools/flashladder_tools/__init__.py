"""Programs that read machine code, and an emulator that runs CUDA without a GPU: `flashladder-tools --help`.

`from flashladder_tools import emu` runs kernels from Python; it needs NumPy, and nvcc where they are CUDA.
"""
