# mypy: ignore-errors
"""Triton's own tutorials, from a checkout of it: each runs to its end with its own checks, but for what it measures.

python triton_tutorials.py FOLDER    FOLDER: of the checkout; the tutorials are in python/tutorials

Four things are changed: tables of speeds are not made, an autotuner tries at most nine of its configurations, once
each, products have smaller sizes, and layer_norm of halves, whose gradients PyTorch sums in halves on the CPU, is
computed in floats. Tutorial 09 has some two hundred on Hopper, and to compile them takes minutes.
"""

import contextlib
import io
import os
import runpy
import sys
import tempfile
import types
from pathlib import Path

import torch
import torch_on_host  # noqa: F401  before Triton
import triton
from device import report
from triton.backends.compiler import GPUTarget

TUTORIALS = Path(sys.argv[1]) / "python/tutorials"
plain_layer_norm = torch.nn.functional.layer_norm
plain_autotune = triton.autotune


def once(function, *_, quantiles=None, **__):
    function()
    return [1.0 for _ in quantiles] if quantiles else 1.0


def autotune(configs, *arguments, **named):
    """With a few that differ in all that the list varies: an odd step does not keep to the same pairs."""
    return plain_autotune(configs[:: len(configs) // 5 | 1], *arguments, **named)


def layer_norm(x, shape, weight, bias, eps=1e-5):
    return plain_layer_norm(x.float(), shape, weight.float(), bias.float(), eps).to(x.dtype)


def prepare():
    os.environ["PYTEST_VERSION"] = "0"  # tutorial 06: one configuration
    triton.testing.perf_report = lambda _: lambda _: types.SimpleNamespace(run=lambda **_: None)
    triton.testing.do_bench = once
    triton.autotune = autotune
    torch.nn.functional.layer_norm = layer_norm
    GPUTarget.is_cuda_backend = lambda self: self.backend == "cuda"  # of the fork's Triton
    sys.modules.setdefault("tabulate", types.SimpleNamespace(tabulate=lambda rows: str(rows)))
    sys.argv = sys.argv[:1]


def run(name, main="__main__", then=None, sizes=("", "")):
    """A tutorial as a program; `then` gets its names. sizes: a text in it, and its replacement."""

    def program():
        text = (TUTORIALS / name).read_text(encoding="utf-8")
        if sizes[0] not in text:
            raise ValueError(f"{name} has no {sizes[0]}")
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            smaller = Path(folder) / name
            smaller.write_text(text.replace(*sizes), encoding="utf-8")
            names = runpy.run_path(str(smaller if sizes[0] else TUTORIALS / name), run_name=main)
            if then:
                then(names)
        if "❌" in said.getvalue():
            print(said.getvalue(), file=sys.stderr)
        return said.getvalue().count("❌"), 0

    program.__name__ = f"tutorial_{name.split('-')[0]}"
    return program


def attention(names):
    for causal in (False, True):
        names["test_op"](1, 2, 128, 64, causal, False, "bwd", "triton-fp16")
    names["test_op"](1, 2, 128, 64, True, False, "fwd", "triton-fp8")


def products(names):
    names["validate"].__globals__["device_blas"] = None  # cuBLAS is machine code
    names["validate"](256, 256, 256, torch.float16)


PROGRAMS = [
    run("01-vector-add.py"),
    run("02-fused-softmax.py"),
    run("03-matrix-multiplication.py", sizes=("(512, 512)", "(256, 256)")),
    run("04-low-memory-dropout.py"),
    run("05-layer-norm.py"),
    run("06-fused-attention.py", "tutorial", attention),
    run("07-extern-functions.py"),
    run("08-grouped-gemm.py", sizes=("[1024, 512, 256, 128]", "[256, 128]")),
    run("09-persistent-matmul.py", "tutorial", products),
    run("11-programmatic-dependent-launch.py"),
]

if __name__ == "__main__":
    prepare()
    report(PROGRAMS)
