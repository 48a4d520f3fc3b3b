# mypy: ignore-errors
"""Calls a submission on decoys, in the jail: run_submission.py REQUEST.json

The judge believes nothing that this process says. Its only effect is the recording of what reached the emulated GPU,
which later runs on other inputs. `mark` puts into that recording which buffers are inputs and outputs, and where a
call begins and ends.
"""

import ctypes
import importlib.util
import json
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent


def mark(text):
    gpu.cuda.cuEmulatedGpuMark(text.encode())


def mark_buffer(kind, name, address, size, described):
    mark(f"{kind} {name} {address} {size} {json.dumps(described)}")


def imports(path, package):
    """Return True if a file of the submission imports the package."""
    files = (each for each in path.parent.rglob("*.py") if each.is_file() and each.parent != HERE)
    texts = (each.read_text(errors="replace") for each in files)
    return any(re.search(rf"^\s*(import|from)\s+{package}\b", text, re.M) for text in texts)


def needs_torch():
    """Return True if Triton asks PyTorch for its GPU, as versions before 3.9 do."""
    try:
        return tuple(map(int, version("triton").split(".")[:2])) < (3, 9)
    except (PackageNotFoundError, ValueError):
        return False


class WithoutTorch:
    """Hides PyTorch from packages such as Triton, which would ask it for a GPU."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


def load_python(path):
    sys.path.insert(0, str(path.parent))
    given_tensors = imports(path, "torch")
    if given_tensors or (imports(path, "triton") and needs_torch()):
        ctypes.CDLL("libcudart.so.13", ctypes.RTLD_GLOBAL)  # the emulated one, before PyTorch loads NVIDIA's
        import torch_tensors  # before PyTorch's own functions are called

        torch_tensors.are_given = given_tensors
    else:
        sys.meta_path.insert(0, WithoutTorch())
    spec = importlib.util.spec_from_file_location("submission", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    if "triton" in sys.modules:
        sys.modules["triton.testing"].do_bench = gpu.time_once
    if not hasattr(module, "custom_kernel"):
        raise SystemExit(f"{path.name} defines no function custom_kernel(data)")
    return module.custom_kernel


def load_cuda(path, contract):
    """A .cu with extern "C" void launch(inputs..., outputs..., sizes as int..., scalars as float..., cudaStream_t).

    The sizes are the shape and then the strides of each input, in order.
    """
    arch = gpu.compute()
    flags = ("-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", f"-I{path.parent}")
    code = f"arch={arch},code={arch}"
    library = gpu.nvcc(path, "submission.so", *flags, "-gencode", code)
    launch = ctypes.CDLL(str(Path(library).absolute())).launch

    def custom_kernel(data):
        made = {name: gpu.empty(each["shape"], each["kind"]) for name, each in contract["outputs"].items()}
        inputs = [data[name] for name in contract["inputs"]]
        pointers = [ctypes.c_void_p(array.address) for array in (*inputs, *made.values())]
        sizes = [ctypes.c_int(size) for array in inputs for size in (*array.shape, *array.strides)]
        scalars = [ctypes.c_float(value) for value in contract["scalars"].values()]
        launch(*pointers, *sizes, *scalars, ctypes.c_void_p(0))
        return made

    return custom_kernel


def described(output):
    """Address, and form in elements, of a returned array."""
    if isinstance(output, gpu.Array):
        form = {"kind": output.kind, "shape": output.shape, "strides": output.strides}
        return int(output.address), output.nbytes, form
    interface = output.__cuda_array_interface__
    item = gpu.np.dtype(interface["typestr"]).itemsize
    strides = interface.get("strides")
    array = gpu.Array(interface["data"][0], interface["shape"], strides=strides and [each // item for each in strides])
    kinds = {gpu.np.dtype(numpy).str: kind for kind, (_, numpy) in reversed(gpu.TYPES.items())}
    form = {
        "kind": kinds.get(interface["typestr"], interface["typestr"]),
        "shape": array.shape,
        "strides": array.strides,
    }
    return int(array.address), array.span * item, form


def mark_outputs(returned, names):
    if not isinstance(returned, dict):
        returned = dict(zip(names, returned if isinstance(returned, (tuple, list)) else [returned], strict=False))
    for name, output in returned.items():
        if hasattr(output, "__cuda_array_interface__"):
            mark_buffer("output", name, *described(output))
        else:
            mark_buffer("output", name, 0, 0, {"kind": type(output).__name__})


def main():
    request = json.loads(Path(sys.argv[1]).read_text())
    contract, path = request["contract"], Path(request["submission"]).absolute()
    decoys = [{name: Path(file).absolute() for name, file in each.items()} for each in request["decoys"]]
    os.chdir(path.parent)  # so that it can open files of its own folder
    gpu.start()
    submitted = load_cuda(path, contract) if path.suffix == ".cu" else load_python(path)
    data = {}
    for name, each in contract["inputs"].items():
        data[name] = gpu.empty(each["shape"], each["kind"], each["strides"])
        mark_buffer("input", name, data[name].address, each["bytes"], each)
    for files in decoys:
        for name, file in files.items():
            data[name].write(file.read_bytes())
        mark("call")
        returned = submitted({name: gpu.tensor(array) for name, array in data.items()} | contract["scalars"])
        gpu.cuda.cuCtxSynchronize()
        mark_outputs(returned, contract["outputs"])
        mark("return")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import gpu

    main()
