"""The worker that runs the peers, with NumPy instead of PyTorch: inputs, checks, times and answers."""

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.measure import inputs, peers_worker, records
from analysis.tests.support.numpy_torch import NumpyTorch

PROBLEM: dict[str, Any] = {
    **{"kind": "attention", "dtype": "fp16", "batch": 2, "heads": 3, "seq": 32},
    **{"d_head": 16, "dist": "normal"},
}
MATMUL = PROBLEM | {"kind": "matmul", "seq": 48, "batch": 1, "heads": 1}
RULE = {"warmup": 2, "min_samples": 5, "max_noise": 0.5, "min_time": 0.0, "timeout": 5.0}


def request(peer: str = "fa2", problem: dict[str, Any] = PROBLEM, **changed: Any) -> dict[str, Any]:
    return {"peer": peer, "problem": problem, "seed": 3, "timing": RULE, "check_rows": 40, "energy": False} | changed


def driver_of(log: list[str], limited: int, reset: int) -> Any:
    """A driver that writes down its calls, and answers with these statuses."""

    def limit(which: int, size: Any) -> int:
        log.append(f"limit {which} of {size.value}")
        return limited

    def forget() -> int:
        log.append("reset")
        return reset

    return SimpleNamespace(cuCtxSetLimit=limit, cuCtxResetPersistingL2Cache=forget)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> NumpyTorch:
    made = NumpyTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setitem(sys.modules, "torch.nn.attention", made.attention_module)
    monkeypatch.setattr(peers_worker, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(peers_worker, "CHUNK", 1 << 8)
    monkeypatch.setattr(peers_worker, "open_driver", lambda: driver_of([], 0, 0))
    return made


@pytest.fixture
def worker(torch: NumpyTorch) -> peers_worker.Worker:
    return peers_worker.Worker()


def test_what_is_here(worker: peers_worker.Worker) -> None:
    device = {"name": "NumPy", "cc": "9.1", "sms": 132, "l2_bytes": 4096, "driver": worker.driver}
    missing = {"fa2": "", "cudnn": "", "efficient": "", "cublas": ""}
    assert worker.hello() == {"library": "PyTorch 0.1", "device": device, "peers": missing}
    assert worker.flush.numel() == 2 * 4096, "the buffer is larger than the L2"


def test_inputs_are_those_of_the_executables(worker: peers_worker.Worker) -> None:
    """An answer of several chunks, kept for the next request with the same problem."""
    tensors = worker.tensors(PROBLEM, 3)
    for which, made in enumerate(tensors):
        expected = inputs.elements(np, "normal", 3, which, 0, made.size).astype(np.float32).astype(np.float16)
        assert made.shape == (2, 32, 3, 16) and made.size > peers_worker.CHUNK
        assert np.array_equal(made.reshape(-1), expected)
    assert worker.tensors(dict(PROBLEM), 3)[0] is tensors[0]
    assert not np.array_equal(worker.tensors(PROBLEM, 4)[0], tensors[0])
    assert worker.tensors(PROBLEM | {"dtype": "bf16"}, 3)[0].dtype == np.float32
    assert worker.tensors(MATMUL, 3)[1].shape == (48, 48)


@pytest.mark.parametrize(
    ("peer", "problem", "backends", "ns", "flop"),
    [
        ("fa2", PROBLEM, ["FLASH_ATTENTION"], 2e6, 4 * 2 * 3 * 32**2 * 16),
        ("cudnn", PROBLEM, ["CUDNN_ATTENTION"], 2e6, 4 * 2 * 3 * 32**2 * 16),
        ("cublas", MATMUL, [], 3e6, 2 * 48**3),
    ],
)
def test_a_record(
    worker: peers_worker.Worker, peer: str, problem: dict[str, Any], backends: list[str], ns: float, flop: int
) -> None:
    record = worker.measure(request(peer, problem))
    assert record["peer"] == peer and record["schema"] == 1 and record["problem"] == problem | {"seed": 3}
    assert record["device"] == worker.device() and record["library"] == "PyTorch 0.1"
    check = record["check"]
    assert check["rows"] == 40 and check["pass"] and not check["nan"] and 0 < check["max_error_over_bound"] <= 1
    timing = record["timing"]
    assert timing["samples_ns"] == pytest.approx([ns] * 5), "without the buffer that is overwritten"
    assert timing["mode"] == "cold" and timing["discarded"] == 0 and timing["sm_clock_hz"] == []
    assert all(timing[name] == pytest.approx(ns) for name in ("median", "q1", "q3", "min"))
    assert record["derived"]["tflops"] == pytest.approx(flop / ns / 1e3)
    assert worker.torch.backends == backends


@pytest.mark.parametrize(
    ("case", "flop"),
    [
        ({"causal": True}, 4 * 2 * 3 * (32 * 33 // 2) * 16),
        ({"heads": 4, "kv_heads": 2}, 4 * 2 * 4 * 32**2 * 16),
        ({"causal": True, "heads": 4, "kv_heads": 2}, 4 * 2 * 4 * (32 * 33 // 2) * 16),
    ],
)
def test_a_mask_and_shared_kv_heads(worker: peers_worker.Worker, case: dict[str, Any], flop: int) -> None:
    """PyTorch is asked for them, and the reference has them too."""
    asked = PROBLEM | case
    record = worker.measure(request(problem=asked))
    assert record["problem"] == asked | {"seed": 3} and record["check"]["pass"]
    assert record["derived"]["tflops"] == pytest.approx(flop / 2e6 / 1e3)
    assert worker.inputs[1].shape == worker.inputs[2].shape == (2, 32, case.get("kv_heads", 3), 16)
    plain = worker.torch.nn.functional.scaled_dot_product_attention
    worker.torch.nn.functional.scaled_dot_product_attention = lambda *views, **words: plain(
        *views, **{key: value for key, value in words.items() if key != "is_causal"}
    )
    assert worker.measure(request(problem=asked))["check"]["pass"] is not case.get("causal", False)


BACKWARD = PROBLEM | {"backward": True}


@pytest.mark.parametrize(
    ("case", "pairs"),
    [
        ({}, 3 * 32**2),
        ({"causal": True}, 3 * (32 * 33 // 2)),
        ({"heads": 4, "kv_heads": 2}, 4 * 32**2),
        ({"causal": True, "heads": 4, "kv_heads": 2, "dtype": "bf16"}, 4 * (32 * 33 // 2)),
    ],
)
def test_gradients_have_the_record_of_an_executable(
    worker: peers_worker.Worker, case: dict[str, Any], pairs: int
) -> None:
    """The gradient alone is timed, 2.5 times the operations are counted, and all three are compared."""
    asked = BACKWARD | case
    raw = worker.measure(request("cudnn", asked))
    record = records.parse(json.loads(json.dumps(raw)))
    assert record.problem.backward and record.passed and record.subject == "cudnn"
    assert raw["problem"] == PROBLEM | case | {"seed": 3, "pass": "backward"}
    assert raw["timing"]["samples_ns"] == pytest.approx([5e6] * 5)
    assert raw["derived"]["tflops"] == pytest.approx(10 * 2 * pairs * 16 / 5e6 / 1e3)
    check, group = raw["check"], asked["heads"] // asked.get("kv_heads", asked["heads"])
    assert check["rows"] == 32 * group + 32 and 0 < check["max_error_over_bound"] <= 1
    assert all(0 < check[f"d{name}_relative_error"] < 2**-11 for name in "qkv")
    assert worker.torch.backends == ["CUDNN_ATTENTION"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_a_wrong_gradient_is_found(worker: peers_worker.Worker, which: int, causal: bool) -> None:
    """In the last row of the last head, with as many rows compared as there are heads for."""

    def spoil(found: Any) -> Any:
        if isinstance(found, list):
            found[which][1, 2, 31] += np.float16(0.25)
        return found

    worker.torch.spoil = spoil
    check = worker.measure(request("cudnn", BACKWARD | {"causal": causal}, check_rows=32 * 6))["check"]
    assert not check["pass"] and check["max_error_over_bound"] > 1 and check["rows"] == 6 * 64
    assert worker.measure(request("cudnn", BACKWARD | {"causal": causal}, check_rows=32))["check"]["pass"]


def test_nan_is_wrong_and_said(worker: peers_worker.Worker) -> None:
    worker.torch.spoil = lambda out: out * np.float16(np.nan)
    check = worker.measure(request())["check"]
    assert check == {"rows": 40, "max_error_over_bound": 0.0, "nan": True, "pass": False}


def test_one_wrong_row_among_all_is_found(worker: peers_worker.Worker) -> None:
    """Every index of an output is drawn: batch, row and head."""

    def spoil(out: Any) -> Any:
        out[1, 2, 31] = 9
        return out

    worker.torch.spoil = spoil
    assert worker.measure(request(check_rows=800))["check"]["pass"] is False


def test_requests_are_answered_line_by_line(
    torch: NumpyTorch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*tensors: Any) -> Any:
        raise RuntimeError("\nno kernel for this\nand more")

    lines = [request(), request("cublas", MATMUL)]
    torch.nn.functional.scaled_dot_product_attention = refuse
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in lines)))
    assert peers_worker.main() == 0
    hello, first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert hello["peers"]["fa2"] == "" and first == {"error": "no kernel for this"} and second["check"]["pass"]
