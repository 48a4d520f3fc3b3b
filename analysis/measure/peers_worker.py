"""The process that runs the peers that are called through PyTorch: its attention back ends and cuBLAS.

    python3 -m analysis.measure.peers_worker       # reads one JSON request a line, answers one JSON line each

It stays alive for a whole bench, so that peers interleave with the executables without paying for PyTorch's start.
Its first line says what is here. A request is {"peer", "problem", "seed", "timing", "check_rows", "energy"}, an answer
a record (records.py) or {"error": sentence}. Inputs are the executables' own, value for value (inputs.py); each library
reads them in place, as strided views. With "backward" in the problem the gradient alone is timed: autograd.grad of an
output that was computed before.

Each sample: let no line of the L2 persist, overwrite a buffer larger than it, record an event, run the peer, record an
event. The overwrite also keeps the GPU busy while the launch is queued, so the time between the events holds no time of
the host.
"""

import contextlib
import ctypes
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from analysis.measure import gradients, inputs, nvml, stats
from analysis.measure.records import Problem

SDPA = {"fa2": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
FLUSH_BYTES = 256 << 20
CHUNK = 1 << 24  # elements drawn at once; a multiple of 4
LIMIT_OF_PERSISTING, UNSUPPORTED = 6, (215, 801)  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE; what a GPU without it answers
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
HALF_LEAST = {"fp16": 2.0**-25, "bf16": 2.0**-134}


def driver_version() -> str:
    """The driver's version through NVML, which comes with it; "" where it can't be had."""
    text = ctypes.create_string_buffer(96)
    with contextlib.suppress(OSError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() == 0 and library.nvmlSystemGetDriverVersion(text, 96) == 0:
            return text.value.decode()
    return ""


def open_driver() -> Any:
    """The driver that PyTorch has opened, too."""
    return ctypes.CDLL("libcuda.so.1")


class Bursts:
    """Launches that follow each other in the stream, between two events for each burst."""

    def __init__(self, torch: Any, launch: Callable[[], Any], launches: int) -> None:
        self.torch, self.launch, self.launches = torch, launch, launches
        self.queued: list[tuple[Any, Any]] = []
        self.last_end: Any = None

    def queue(self) -> None:
        """A burst after those that are queued."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(self.launches):
            self.launch()
        end.record()
        self.queued.append((start, end))

    def take(self) -> nvml.Burst | None:
        """The oldest burst, if it has ended."""
        start, end = self.queued[0]
        if not end.query():
            return None
        idle_ns = self.last_end.elapsed_time(start) * 1e6 if self.last_end else 0.0
        del self.queued[0]
        self.last_end = end
        return nvml.Burst(self.launches, start.elapsed_time(end) * 1e6, idle_ns)


class Worker:
    """PyTorch on the first GPU, with the inputs of the last problem kept."""

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        if not self.torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no GPU")
        self.properties = self.torch.cuda.get_device_properties(0)
        self.driver = driver_version()
        self.cuda = open_driver()
        l2 = int(getattr(self.properties, "L2_cache_size", 0))
        self.flush = self.torch.empty(max(FLUSH_BYTES, 2 * l2), dtype=self.torch.uint8, device="cuda")
        self.key: tuple[Any, ...] = ()
        self.inputs: tuple[Any, ...] = ()

    def device(self) -> dict[str, Any]:
        """The device as records describe it."""
        return {
            "name": self.properties.name,
            "cc": f"{self.properties.major}.{self.properties.minor}",
            "sms": self.properties.multi_processor_count,
            "l2_bytes": int(getattr(self.properties, "L2_cache_size", 0)),
            "driver": self.driver,
        }

    def hello(self) -> dict[str, Any]:
        """The environment: device, library, and for each baseline why it cannot be used, "" if it can."""
        missing = {name: "" for name in (*SDPA, "cublas")}
        return {"library": f"PyTorch {self.torch.__version__}", "device": self.device(), "peers": missing}

    def tensors(self, problem: dict[str, Any], seed: int) -> tuple[Any, ...]:
        """Q, K and V as (batch, seq, heads, d), for gradients dO; for the matmul two square matrices and nothing."""
        key = (*sorted(problem.items()), seed)
        if key != self.key:
            torch = self.torch
            self.inputs = ()
            dtype = torch.float16 if problem["dtype"] == "fp16" else torch.bfloat16
            shapes: list[tuple[int, ...]] = [(problem["seq"], problem["seq"])] * 3
            if problem["kind"] == "attention":
                heads, kv_heads = problem["heads"], problem.get("kv_heads") or problem["heads"]
                shapes = [(problem["batch"], problem["seq"], n, problem["d_head"]) for n in (heads, kv_heads, kv_heads)]
            made = [self.tensor(problem["dist"], seed, which, shape, dtype) for which, shape in enumerate(shapes)]
            if problem.get("backward"):  # of moderate size also where scores are large
                dist = "normal" if problem["dist"] == "large" else problem["dist"]
                made.append(self.tensor(dist, seed, 3, shapes[0], dtype))
            self.key, self.inputs = key, tuple(made)
        return self.inputs

    def tensor(self, dist: str, seed: int, which: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The very values that the executables draw, rounded as they round them."""
        torch = self.torch
        flat = torch.empty(math.prod(shape), dtype=dtype, device="cuda")
        with torch.device("cuda"):
            for first in range(0, flat.numel(), CHUNK):
                count = min(CHUNK, flat.numel() - first)
                values = inputs.elements(torch, dist, seed, which, first, count)
                flat[first : first + count] = values.to(torch.float32).to(dtype)
        return flat.reshape(shape)

    @contextlib.contextmanager
    def launcher(self, peer: str, problem: dict[str, Any], seed: int) -> Iterator[Callable[[], Any]]:
        """A function that runs the peer once and returns its output as (batch, seq, heads, d), or dQ, dK and dV."""
        torch = self.torch
        q, k, v, *dout = self.tensors(problem, seed)
        if peer == "cublas":
            yield lambda: torch.matmul(q, k)
        else:
            attention = importlib.import_module("torch.nn.attention")
            views = [tensor.transpose(1, 2) for tensor in (q, k, v)]
            run = torch.nn.functional.scaled_dot_product_attention
            with attention.sdpa_kernel(getattr(attention.SDPBackend, SDPA[peer])):
                words: dict[str, Any] = {"is_causal": True} if problem.get("causal") else {}
                words |= {"enable_gqa": True} if problem.get("kv_heads") else {}
                if dout:
                    leaves = [view.requires_grad_() for view in views]
                    out, of_out = run(*leaves, **words), dout[0].transpose(1, 2)
                    yield lambda: torch.autograd.grad(out, leaves, of_out, retain_graph=True)
                else:
                    yield lambda: run(*views, **words).transpose(1, 2)

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """One record."""
        peer, problem, seed = request["peer"], request["problem"], int(request["seed"])
        backward = problem.get("backward", False)
        mode, check_of = self.torch.inference_mode(not backward), self.check_gradients if backward else self.check
        with mode, self.launcher(peer, problem, seed) as launch:
            output = launch()
            self.torch.cuda.synchronize()
            rows = int(request["check_rows"])
            check = check_of(output, problem, rows) if rows else None
            del output
            timing = self.time(launch, request["timing"])
            energy = self.energy(launch, timing["median"]) if request["energy"] else None
        return {
            "schema": 1,
            "peer": peer,
            "library": f"PyTorch {self.torch.__version__}",
            "device": self.device(),
            "problem": named(problem) | {"seed": seed},
            "check": check,
            "timing": timing,
            "energy": energy,
            "derived": {"tflops": Problem(**problem).flop() / timing["median"] / 1e3},
        }

    def end_persistence(self) -> None:
        """Let no line persist in the L2, whoever asked for it, and set no part of it aside: a flush reaches neither."""
        for name, arguments in (
            ("cuCtxSetLimit", (LIMIT_OF_PERSISTING, ctypes.c_size_t(0))),
            ("cuCtxResetPersistingL2Cache", ()),
        ):
            status = getattr(self.cuda, name)(*arguments)
            if status and status not in UNSUPPORTED:
                raise RuntimeError(f"{name} fails with status {status}")

    def time(self, launch: Callable[[], Any], rule: dict[str, Any]) -> dict[str, Any]:
        """Samples until the median is known well enough, with the stopping rule of the executables."""
        torch = self.torch
        for _ in range(int(rule["warmup"])):
            launch()
        samples: list[float] = []
        begin, timed = time.monotonic(), 0.0
        reason, look = "", 0.0
        while not reason:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.end_persistence()
            self.flush.zero_()
            start.record()
            launch()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) * 1e6)
            timed += samples[-1] / 1e9
            enough = len(samples) >= rule["min_samples"] and timed >= rule["min_time"]
            if enough and len(samples) >= look:
                look = 1.05 * len(samples)  # sorting all samples after each one would cost more than they do
                reason = "converged" if stats.noise(samples) <= rule["max_noise"] / 100 else ""
            if not reason and time.monotonic() - begin > rule["timeout"]:
                reason = "timeout"
        return {
            "mode": "cold",
            "samples_ns": samples,
            "sm_clock_hz": [],  # NVML's clock lags and differs from that of the running kernel: none is better
            "discarded": 0,
            "stop_reason": reason,
            "median": stats.median(samples),
            "q1": stats.quantile(samples, 0.25),
            "q3": stats.quantile(samples, 0.75),
            "min": min(samples),
        }

    def energy(self, launch: Callable[[], Any], launch_ns: float) -> dict[str, Any] | None:
        """Joules of a launch, while launches follow each other; None without NVML."""
        counter = nvml.EnergyCounter.of(f"GPU-{getattr(self.properties, 'uuid', '')}")
        if counter is None:
            return None
        with contextlib.closing(counter):
            return nvml.between_moves(counter, Bursts(self.torch, launch, nvml.launches_of_a_burst(launch_ns)))

    def check(self, output: Any, problem: dict[str, Any], rows: int) -> dict[str, Any]:
        """Sampled output rows against float64, with the executables' bound on each element."""
        torch = self.torch
        q, k, v = self.inputs
        unit = UNIT_ROUNDOFF[problem["dtype"]]
        draw = torch.Generator().manual_seed(1)
        worst, bad = 0.0, False
        for _ in range(rows):
            if problem["kind"] == "matmul":
                row = int(torch.randint(problem["seq"], (1,), generator=draw))
                weights, values, got = q[row].double(), k.double(), output[row].double()
                # cuBLAS sums in fp32 in an order of its own
                slack = 1e-6 * (weights.abs() @ values.abs())
                reference = weights @ values
                bound = unit * reference.abs() * 1.05 + slack
            else:
                batch, row, head = (
                    int(torch.randint(problem[name], (1,), generator=draw)) for name in ("batch", "seq", "heads")
                )
                keys = row + 1 if problem.get("causal") else problem["seq"]
                shared = head // (problem["heads"] // (problem.get("kv_heads") or problem["heads"]))
                scores = k[batch, :keys, shared].double() @ q[batch, row, head].double() / math.sqrt(problem["d_head"])
                weights, values = torch.softmax(scores, 0), v[batch, :keys, shared].double()
                got = output[batch, row, head].double()
                reference = weights @ values
                bound = unit * (weights @ values.abs() + reference.abs()) * 1.05 + 1e-6
            share = float(((got - reference).abs() / bound).max())
            bad = bad or not math.isfinite(share)
            worst = max(worst, share) if math.isfinite(share) else worst
        return {"rows": rows, "max_error_over_bound": worst, "nan": bad, "pass": not bad and worst <= 1.0}

    def check_gradients(self, found: Any, problem: dict[str, Any], rows: int) -> dict[str, Any]:
        """dQ, dK and dV against float64, with the executables' bound on each element."""
        dtype, kv_heads = problem["dtype"], problem.get("kv_heads") or problem["heads"]
        limits = gradients.Limits(UNIT_ROUNDOFF[dtype], HALF_LEAST[dtype], bool(problem.get("causal")))
        with self.torch.inference_mode(), self.torch.device("cuda"):
            return gradients.check(self.torch, self.inputs, found, kv_heads, limits, rows)


def named(problem: dict[str, Any]) -> dict[str, Any]:
    """The problem as a record has it: "pass" says that it is of the backward pass."""
    others = {name: value for name, value in problem.items() if name != "backward"}
    return others | ({"pass": "backward"} if problem.get("backward") else {})


def answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request; a failure of the library is an answer too."""
    try:
        return worker.measure(request)
    except RuntimeError as error:
        worker.torch.cuda.empty_cache()
        return {"error": str(error).strip().splitlines()[0]}


def main() -> int:
    """Answer requests until the input ends."""
    try:
        worker = Worker()
    except (ImportError, RuntimeError) as error:
        sentence = str(error).strip().splitlines()[0]
        print(json.dumps({"error": sentence, "no_gpu": isinstance(error, RuntimeError)}), flush=True)
        return 0
    print(json.dumps(worker.hello()), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(worker, json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
