"""bin/emulated-gpu: findings at the program's own lines, exit statuses, and arguments that are wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import DRIVER, ROOT

TOOL = ROOT / "bin/emulated-gpu"
EMULATED = ROOT / "lib/emulated"
TOOLKIT = ROOT / ".venv/toolkit"

# A program as Python packages call the driver: launches the entry `k` of a text of PTX.
PROGRAM = """
import os

major = ctypes.c_int()
call("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
print("major", major.value, flush=True)
call("cuDeviceGetAttribute", ctypes.byref(major), 16, 0)
print("multiprocessors", major.value, flush=True) if "EMULATED_GPU_MODEL" in os.environ else None
call("cuModuleLoadData", ctypes.byref(module), open(sys.argv[1], "rb").read())
call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, None, None)
call("cuCtxSynchronize")
raise SystemExit(int(sys.argv[2]))
"""

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
RACE = (
    HEADER
    + '.visible .entry k()\n{\n.shared .b32 s;\n.reg .b32 %r;\n.file 1 "own.py"\n.loc 1 17 3\n'
    + "mov.u32 %r, %tid.x;\nst.shared.u32 [s], %r;\nret;\n}\n"
)
ENDLESS = HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nmov.u32 %r, 0;\nAGAIN:\nadd.u32 %r, %r, 1;\nbra AGAIN;\n}\n"
# The first warp stores what tcgen05.ld loads, and executes tcgen05.wait::ld only then.
UNWAITED = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k()
{
.reg .b32 %a, %r, %s;
.reg .pred %second;
.shared .b32 slot;
.shared .b32 out[64];
mov.u32 %s, %tid.x;
setp.ge.u32 %second, %s, 32;
@%second exit;
mad.lo.u32 %s, %s, 4, out;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
bar.warp.sync -1;
ld.shared.b32 %a, [slot];
tcgen05.st.sync.aligned.32x32b.x1.b32 [%a], {%s};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r}, [%a];
st.shared.b32 [%s], %r;
tcgen05.wait::ld.sync.aligned;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %a, 32;
ret;
}
"""
REFUSED = HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nfrobnicate.u32 %r, 1;\n}\n"
RIGHT = HEADER + ".visible .entry k()\n{\nret;\n}\n"


def run(
    text: str, folder: Path, *options: str, status: int = 0, name: str = "k", **environment: str
) -> subprocess.CompletedProcess[str]:
    assert TOOL.exists(), "bin/emulated-gpu is missing: run `make libcuda`"
    (folder / "program.py").write_text(DRIVER + PROGRAM.replace('b"k"', f'b"{name}"'))
    (folder / "k.ptx").write_text(text)
    command = [str(TOOL), *options, sys.executable, str(folder / "program.py"), str(folder / "k.ptx"), str(status)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "TMPDIR": str(folder), **environment}
    )


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_is_the_program_s(status: int, tmp_path: Path) -> None:
    done = run(RIGHT, tmp_path, "--arch", "sm_80", status=status)
    assert (done.returncode, done.stdout, done.stderr) == (status, "major 8\n", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["k.ptx", "program.py"]


def test_a_program_sees_the_named_gpu_and_is_recorded(tmp_path: Path) -> None:
    """A100 chooses sm_80, so no --arch is needed; an unknown name ends cuInit."""
    recording = tmp_path / "recording"
    done = run(RIGHT, tmp_path, "--gpu", "A100", "--record", str(recording))
    assert (done.returncode, done.stdout) == (0, "major 8\nmultiprocessors 108\n")
    assert recording.read_bytes().startswith(b"flashladder-recording 1 0\n")
    refused = run(RIGHT, tmp_path, "--gpu", "A1000")
    assert refused.returncode == 1 and "A1000 is none of small, A100, " in refused.stderr


def test_a_race_is_printed_at_the_program_s_line(tmp_path: Path) -> None:
    done = run(RACE, tmp_path, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1 and done.stdout == "major 9\n"
    assert done.stderr.startswith("kernel k: race at own.py:17, PTX line 11: st.shared.u32 [s], %r;\n")
    assert done.stderr.endswith("\nemulated-gpu: 1 finding\n")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["status"] == 0 and len(found["notes"]) == 1
    note = found["notes"][0]
    assert (note["finding"], note["kernel"], note["here"]["file"], note["here"]["line"]) == ("race", "k", "own.py", 17)


def test_strict_rules_of_tcgen05_are_an_option(tmp_path: Path) -> None:
    assert run(UNWAITED, tmp_path, "--arch", "sm_100a").returncode == 0
    done = run(UNWAITED, tmp_path, "--strict-tcgen05", "--arch", "sm_100a")
    assert done.returncode == 1 and "kernel k: register-in-flight at PTX line 20" in done.stderr


def test_a_kernel_that_never_ends_is_stopped(tmp_path: Path) -> None:
    done = run(ENDLESS, tmp_path, EMULATED_GPU_STEPS="100000")
    assert done.returncode == 1 and "cuCtxSynchronize: 702" in done.stderr
    assert "step-limit" in done.stderr and "100000" in done.stderr


def test_a_refusal_names_line_and_instruction(tmp_path: Path) -> None:
    done = run(REFUSED, tmp_path, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1 and "cuModuleGetFunction: 218" in done.stderr
    assert "kernel k is refused at PTX line 7: opcode 'frobnicate'" in done.stderr
    assert "frobnicate" in json.loads((tmp_path / "found.json").read_text())["notes"][0]["note"]
    name = "_ZN7cutlass" + 2000 * "x"
    assert (
        "xxx... is refused at PTX line 7: opcode"
        in run(REFUSED.replace("k()", f"{name}()"), tmp_path, name=name).stderr
    )


def test_a_program_that_dies_is_told_by_its_signal(tmp_path: Path) -> None:
    command = [str(TOOL), sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert subprocess.run(command, timeout=60).returncode == 128 + 9


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "PROGRAM: missing"),
        (["--arch", "sm_70", "true"], 2, "--arch sm_70: must be sm_80, sm_86"),
        (["--arch"], 2, "--arch: requires a value"),
        (["--schedule", "-1", "true"], 2, "--schedule -1: must be a number from 0 on"),
        (["--fast", "1", "true"], 2, "--fast: no such option; see --help"),
        (["--json", "/nowhere/found.json", "true"], 2, "--json /nowhere/found.json: cannot be written"),
        (["/nowhere/program"], 127, "cannot start /nowhere/program: No such file"),
    ],
)
def test_arguments_that_are_wrong(arguments: list[str], status: int, text: str) -> None:
    done = subprocess.run([str(TOOL), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status and text in done.stderr, done.stderr


def test_the_stand_in_for_ptxas_hands_ptx_through(tmp_path: Path) -> None:
    ptxas = ROOT / "lib/emulated/ptxas"
    (tmp_path / "k.ptx").write_text(RIGHT)
    subprocess.run([ptxas, "-lineinfo", "--gpu-name=sm_80", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)
    assert (tmp_path / "k.cubin").read_bytes() == RIGHT.encode() + b"\0"
    assert "release 12.9" in subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout
    assert subprocess.run([ptxas, "k.ptx"], capture_output=True).returncode == 1


COUNTING = (
    HEADER
    + ".visible .global .u32 n = 0;\n.visible .entry k()\n{\n.reg .u64 %p;\n.reg .u32 %r;\nmov.u64 %p, n;\n"
    + "ld.global.u32 %r, [%p];\nadd.u32 %r, %r, 1;\nst.global.u32 [%p], %r;\nret;\n}\n"
)


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert (EMULATED / "libcudart.so.13").exists(), "lib/emulated is not complete: run `make libcuda`"
    return tmp_path_factory.mktemp("programs")


def run_c(body: str, folder: Path, ptx: str, *linked: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.c").write_text(body)
    (folder / "k.ptx").write_text(ptx)
    flags = ["-std=gnu11", "-Wall", "-Werror", "-isystem", str(TOOLKIT / "include"), "-pthread"]
    command = ["cc", *flags, "-o", folder / "program", folder / "program.c", *linked]
    subprocess.run(command, check=True)
    return subprocess.run(
        [TOOL, "--arch", "sm_80", folder / "program", folder / "k.ptx"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(folder), **environment},
    )


# The output of nvcc for a kernel and a variable, by hand: a fatbin is PTX here, as image.c takes it, too.
RUNTIME = r"""
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
static void kernel(void) {}
static char variable;
static int other;
static int failed(const char *what, cudaError_t error) {
    if (error) printf("%s: %s: %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
    return error != cudaSuccess;
}
#define CALL(call) if (failed(#call, call)) return 1
int main(int count, char **arguments) {
    static char ptx[4096];
    FILE *from = fopen(arguments[count - 1], "r");
    if (!fread(ptx, 1, sizeof ptx - 1, from)) return 99;
    void **handle = __cudaRegisterFatBinary(ptx);
    __cudaRegisterFunction(handle, (const char *)kernel, 0, "k", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, &variable, 0, "n", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    int host[8] = {0}, launches = 5, *at, back[8];
    const dim3 one = {1, 1, 1}, none = {0, 1, 1};
    struct cudaDeviceProp p;
    CALL(cudaGetDeviceProperties(&p, 0));
    CALL(cudaMemcpyToSymbol(&variable, &launches, 4, 0, cudaMemcpyHostToDevice));
    CALL(cudaLaunchKernel(kernel, one, one, 0, 0, 0));
    CALL(cudaDeviceSynchronize());
    CALL(cudaMemcpyFromSymbol(&launches, &variable, 4, 0, cudaMemcpyDeviceToHost));
    printf("%d.%d n %d\n", p.major, p.minor, launches);
    for (int i = 0; i < 8; i++) host[i] = i;
    CALL(cudaMalloc((void **)&at, 32));
    CALL(cudaMemset(at, 1, 32));
    CALL(cudaMemcpy2D(at, 16, host, 16, 8, 2, cudaMemcpyHostToDevice));
    CALL(cudaMemcpy(back, at, 32, cudaMemcpyDefault));
    printf("%d %d %x %d %d\n", back[0], back[1], back[2], back[4], back[5]);
    cudaLaunchAttribute two = {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {2, 1, 1}};
    const cudaLaunchConfig_t pairs = {{2, 1, 1}, {1024, 1, 1}, 0, 0, &two, 1};
    int clusters = 0, size = 0;
    size_t bytes = 0;
    CALL(cudaOccupancyMaxActiveClusters(&clusters, kernel, &pairs));
    CALL(cudaOccupancyMaxPotentialClusterSize(&size, kernel, &pairs));
    CALL(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 2, 1024));
    printf("%d clusters of at most %d, %zu bytes\n", clusters, size, bytes);
    const struct cudaChannelFormatDesc ints = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindSigned);
    const struct cudaChannelFormatDesc odd = cudaCreateChannelDesc(32, 16, 0, 0, cudaChannelFormatKindSigned);
    struct cudaChannelFormatDesc got;
    struct cudaResourceDesc over = {.resType = cudaResourceTypeArray};
    const struct cudaTextureDesc form = {.readMode = cudaReadModeElementType};
    struct cudaMemcpy3DParms out = {.extent = {3, 2, 1}, .dstPtr = {back, 16, 12, 2}};
    cudaTextureObject_t texture;
    CALL(cudaMallocArray(&over.res.array.array, &ints, 4, 2, 0));
    CALL(cudaMemcpy2DToArray(over.res.array.array, 4, 0, host, 16, 12, 2, cudaMemcpyHostToDevice));
    CALL(cudaGetChannelDesc(&got, over.res.array.array));
    out.srcArray = over.res.array.array, out.srcPos.x = 1;
    CALL(cudaMemcpy3D(&out));
    printf("%d bits: %d %d %d, %d %d %d\n", got.x + got.y, back[0], back[1], back[2], back[4], back[5], back[6]);
    CALL(cudaCreateTextureObject(&texture, &over, &form, 0));
    CALL(cudaDestroyTextureObject(texture));
    CALL(cudaFreeArray(over.res.array.array));
    failed("texture", cudaDestroyTextureObject(texture));
    failed("channels", cudaMallocArray(&over.res.array.array, &odd, 4, 2, 0));
    failed("no kernel", cudaOccupancyMaxActiveClusters(&clusters, &other, &pairs));
    failed("configuration", cudaLaunchKernel(kernel, none, one, 0, 0, 0));
    failed("kernel", cudaLaunchKernel(&other, one, one, 0, 0, 0));
    failed("last", cudaGetLastError());
    failed("last again", cudaGetLastError());
    failed("symbol", cudaMemcpyToSymbol(&other, &launches, 4, 0, cudaMemcpyHostToDevice));
    failed("part", cudaMemcpyToSymbol(&variable, &launches, 4, 1, cudaMemcpyHostToDevice));
    failed("bytes", cudaMalloc((void **)&at, 100ull << 30));
    failed("device", cudaSetDevice(1));
    failed("refused", cudaFreeMipmappedArray(0));
    __cudaUnregisterFatBinary(handle);
    return 0;
}
"""
SAID_BY_RUNTIME = """8.0 n 6
0 1 1010101 4 5
8 clusters of at most 8, 82944 bytes
32 bits: 0 1 2, 4 5 6
texture: cudaErrorInvalidValue: invalid argument
channels: cudaErrorInvalidChannelDescriptor: invalid channel descriptor
no kernel: cudaErrorInvalidDeviceFunction: invalid device function
configuration: cudaErrorInvalidConfiguration: invalid configuration argument
kernel: cudaErrorInvalidDeviceFunction: invalid device function
last: cudaErrorInvalidDeviceFunction: invalid device function
symbol: cudaErrorInvalidSymbol: invalid device symbol
part: cudaErrorInvalidValue: invalid argument
bytes: cudaErrorMemoryAllocation: out of memory
device: cudaErrorInvalidDevice: invalid device ordinal
refused: cudaErrorNotSupported: not supported
"""


def test_a_program_that_calls_the_runtime(compiler: Path) -> None:
    libraries = (str(EMULATED / "libcudart.so.13"), f"-Wl,-rpath-link,{EMULATED}")
    done = run_c(RUNTIME, compiler, COUNTING, *libraries)
    assert (done.returncode, done.stdout) == (0, SAID_BY_RUNTIME), done.stderr
    assert "cudaFreeMipmappedArray is not supported: it returns cudaErrorNotSupported" in done.stderr


GRAPHS = r"""
#include <cuda_runtime_api.h>
#include <stdio.h>
#define CALL(call) if (call) return printf("%s\n", #call)
static void add(cudaStream_t stream, cudaError_t error, void *to) { *(int *)to += error ? 100 : 1; }
static void twice(void *number) { *(int *)number *= 2; }
int main(void) {
    cudaStream_t s;
    cudaMemPool_t pool;
    cudaGraph_t captured, made;
    cudaGraphExec_t ready;
    cudaGraphNode_t node, host, nodes[4];
    const cudaGraphNode_t *last;
    const cudaGraphEdgeData *edges;
    enum cudaStreamCaptureStatus status;
    enum cudaGraphNodeType type;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int priority = 9, called = 0, words[4];
    unsigned flags;
    size_t count = 0, all = 4;
    unsigned long long id, threshold = 0;
    char bus[32];
    void *at, *none;
    const struct cudaHostNodeParams doubling = {twice, &called};
    CALL(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0));
    CALL(cudaStreamGetPriority(s, &priority) || cudaStreamGetFlags(s, &flags));
    CALL(cudaDeviceGetPCIBusId(bus, sizeof bus, 0) || cudaThreadExchangeStreamCaptureMode(&mode));
    printf("%d %u %s %d\n", priority, flags, bus, mode);
    CALL(cudaDeviceGetDefaultMemPool(&pool, 0) || cudaMallocFromPoolAsync(&at, 16, pool, s));
    CALL(cudaMallocAsync(&none, 0, s) || none || cudaFreeAsync(none, s));
    CALL(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) || cudaMemPoolTrimTo(pool, 0));
    CALL(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) || cudaMemsetAsync(at, 1, 16, s));
    CALL(cudaStreamGetCaptureInfo(s, &status, &id, &captured, &last, &edges, &count));
    CALL(cudaGraphNodeGetType(last[0], &type));
    printf("%d %zu %d\n", status == cudaStreamCaptureStatusActive, count, type == cudaGraphNodeTypeMemset);
    CALL(cudaStreamEndCapture(s, &captured) || cudaGraphGetNodes(captured, nodes, &all));
    CALL(cudaGraphCreate(&made, 0) || cudaGraphAddChildGraphNode(&node, made, NULL, 0, captured));
    CALL(cudaGraphAddHostNode(&host, made, &node, 1, &doubling) || cudaGraphGetRootNodes(made, NULL, &count));
    printf("%zu node, %zu root\n", all, count);
    CALL(cudaStreamAddCallback(s, add, &called, 0) || cudaGraphInstantiateWithFlags(&ready, made, 0));
    CALL(cudaGraphUpload(ready, s) || cudaGraphLaunch(ready, s));
    CALL(cudaMemcpyAsync(words, at, 16, cudaMemcpyDeviceToHost, s) || cudaFreeAsync(at, s));
    CALL(cudaStreamSynchronize(s));
    printf("%x %d\n", words[3], called);
    return 0;
}
"""


def test_streams_pools_and_graphs_of_the_runtime(compiler: Path) -> None:
    libraries = (str(EMULATED / "libcudart.so.13"), f"-Wl,-rpath-link,{EMULATED}")
    done = run_c(GRAPHS, compiler, RIGHT, *libraries)
    lines = ["0 1 0000:00:00.0 0", "1 1 1", "1 node, 1 root", "1010101 2"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, lines, "")


def names(library: Path) -> set[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r" [TW] (\w+)@", listed))


def test_each_function_of_the_runtime_is_served_or_refused() -> None:
    ours, theirs = names(EMULATED / "libcudart.so.13"), names(TOOLKIT / "lib/libcudart.so.13")
    assert len(theirs) > 400 and ours == theirs


def test_the_toolkit_s_own_runtime_is_told_why_it_cannot_start(compiler: Path) -> None:
    body = "#include <cuda_runtime_api.h>\nint main(void) { int n; return cudaGetDeviceCount(&n) ? 3 : 4; }\n"
    theirs = TOOLKIT.resolve() / "lib/libcudart.so.13"
    done = run_c(body, compiler, RIGHT, str(theirs), LD_PRELOAD=str(theirs))
    assert done.returncode == 3 and f"{theirs} brings NVIDIA's CUDA runtime, which cannot start here" in done.stderr


def test_a_path_of_a_program_to_another_runtime_does_not_matter(compiler: Path) -> None:
    """As PyTorch has, by an RPATH, which comes before LD_LIBRARY_PATH."""
    body = "#include <cuda_runtime_api.h>\nint main(void) { int n; return cudaGetDeviceCount(&n) ? 3 : 4; }\n"
    theirs = TOOLKIT.resolve() / "lib/libcudart.so.13"
    done = run_c(body, compiler, RIGHT, str(theirs), f"-Wl,--disable-new-dtags,-rpath,{theirs.parent}")
    assert (done.returncode, done.stderr) == (4, "")


def test_jax_is_told_why_it_takes_the_cpu(tmp_path: Path) -> None:
    plugin = tmp_path / "jax_cuda12_plugin/_versions.so"
    plugin.parent.mkdir()
    (tmp_path / "asks.c").write_text("int cuInit(unsigned); int asks(void) { return cuInit(0) + cuInit(0); }")
    library = EMULATED / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", plugin, tmp_path / "asks.c", library], check=True)
    asks = f"import ctypes; raise SystemExit(ctypes.CDLL({str(plugin)!r}).asks())"
    done = subprocess.run([TOOL, sys.executable, "-c", asks], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.count(f"{plugin} is of JAX, which cannot run here") == 1, done.stderr


@pytest.mark.long
def test_what_nvcc_links_with_the_shared_runtime_runs(tmp_path: Path) -> None:
    source = Path(__file__).parent / "support/kernels/saxpy.cu"
    flags = ["-gencode", "arch=compute_80,code=compute_80", "-cudart", "none"]
    flags += ["-Xlinker", EMULATED / "libcudart.so.13", "-Xlinker", f"-rpath-link={EMULATED}"]
    subprocess.run([TOOLKIT / "bin/nvcc", *flags, "-o", tmp_path / "saxpy", source], check=True)
    done = subprocess.run([TOOL, tmp_path / "saxpy"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right: 1000 elements, 1 launch\n", "")


CUBIN_KERNEL = """
__device__ int shared_by_both = 3;
extern "C" __device__ int twice(int);
extern "C" __global__ void k(void) { if (threadIdx.x == 0) printf("%d\\n", twice(shared_by_both)); }
"""
CUBIN_FUNCTION = """
extern "C" __device__ int twice(int x) { return 2 * x; }
"""


@pytest.mark.parametrize(
    ("flags", "parts", "works"),
    [
        (["-lineinfo"], 1, True),
        (["-G"], 1, True),
        (["-lineinfo", "-rdc=true"], 2, True),
        ([], 1, False),
        (["-rdc=true"], 2, False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_cubin_with_its_ptx_runs(flags: list[str], parts: int, works: bool, tmp_path: Path) -> None:
    """Compiled with -lineinfo or -G it holds its PTX, and what nvlink makes of several holds that of each."""
    texts = ["#include <cstdio>" + CUBIN_KERNEL, CUBIN_FUNCTION]
    if parts == 1:
        texts = [CUBIN_FUNCTION + texts[0]]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.cu").write_text(text)
        command = [str(TOOLKIT / "bin/nvcc"), "-cubin", "-arch=sm_80", *flags, "-o", str(tmp_path / f"{i}.cubin")]
        subprocess.run([*command, str(tmp_path / f"{i}.cu")], check=True)
    cubin = tmp_path / "0.cubin"
    if parts > 1:
        cubins = [str(tmp_path / f"{i}.cubin") for i in range(parts)]
        cubin = tmp_path / "linked.cubin"
        subprocess.run([str(TOOLKIT / "bin/nvlink"), "-arch=sm_80", *cubins, "-o", str(cubin)], check=True)
    (tmp_path / "program.py").write_text(DRIVER + PROGRAM)
    done = subprocess.run(
        [str(TOOL), "--arch", "sm_80", sys.executable, str(tmp_path / "program.py"), str(cubin), "0"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if works:
        assert (done.returncode, done.stdout, done.stderr) == (0, "major 8\n6\n", "")
    else:
        assert "cuModuleLoadData: 209" in done.stderr and "only with -lineinfo or -G" in done.stderr


COMPILING = """
import subprocess, sys
subprocess.run([sys.argv[1], "-cubin", "-arch=sm_80", "0.cu", "-o", "0.cubin"], check=True)
raise SystemExit(subprocess.call([sys.executable, "program.py", "0.cubin", "0"]))
"""


def test_a_program_that_compiles_cubins_by_nvcc(tmp_path: Path) -> None:
    """As PyCUDA's SourceModule does: nvcc takes -lineinfo from the environment, so the cubins hold their PTX."""
    (tmp_path / "program.py").write_text(DRIVER + PROGRAM)
    (tmp_path / "0.cu").write_text('extern "C" __global__ void k(void) {}')
    done = subprocess.run(
        [str(TOOL), "--arch", "sm_80", sys.executable, "-c", COMPILING, str(TOOLKIT / "bin/nvcc")],
        capture_output=True, text=True, timeout=300, cwd=tmp_path, env={**os.environ, "NVCC_APPEND_FLAGS": "-O1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "major 8\n", "")


SEPARATE = """
#include <cstdio>
extern __device__ int f(int);
extern __device__ int counted;
__global__ void k(int *x) { x[threadIdx.x] = f(threadIdx.x) + counted; }
int main() {
    int *x, h[32], seven = 7;
    cudaMalloc(&x, sizeof h);
    cudaMemcpyToSymbol(counted, &seven, sizeof seven);
    k<<<1, 32>>>(x);
    cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
    printf("%s %d\\n", cudaGetErrorString(cudaGetLastError()), h[31]);
}
"""


def test_separate_compilation_runs(tmp_path: Path) -> None:
    """nvcc -rdc=true: the driver joins the PTX of all parts, as nvlink links machine code only."""
    (tmp_path / "a.cu").write_text(SEPARATE)
    (tmp_path / "b.cu").write_text("__device__ int counted;\n__device__ int f(int x) { return 3 * x; }")
    (tmp_path / "libcudart.so").symlink_to(EMULATED / "libcudart.so.13")
    options = ["-w", "-rdc=true", "-cudart", "shared", "-gencode", "arch=compute_80,code=compute_80"]
    options += [f"-L{tmp_path}", "-Xlinker", f"-rpath-link={EMULATED}"]
    sources = [str(tmp_path / "a.cu"), str(tmp_path / "b.cu")]
    subprocess.run([str(TOOLKIT / "bin/nvcc"), *options, "-o", str(tmp_path / "program"), *sources], check=True)
    command = [str(TOOL), "--arch", "sm_80", str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no error 100\n", "")


@pytest.mark.parametrize(
    ("name", "lines", "hints"),
    [
        ("_ZN6cudapy8__main__4permB2v1", "", True),
        ("_ZN6cudapy8__main__4permB2v1", ".loc 1 17 3\n", False),
        ("k", "", False),
    ],
)
def test_findings_of_numba_hint_at_its_option_for_lines(name: str, lines: str, hints: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DRIVER + PROGRAM.replace('b"k"', f'b"{name}"'))
    (tmp_path / "k.ptx").write_text(RACE.replace("k()", f"{name}()").replace(".loc 1 17 3\n", lines))
    command = [str(TOOL), sys.executable, str(tmp_path / "program.py"), str(tmp_path / "k.ptx"), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and f"kernel {name}: race" in done.stderr
    assert ("@cuda.jit(lineinfo=True)" in done.stderr) == hints
