"""Caches of float8_e4m3fn and int8, on a GPU or the emulator: results against float64, and what is refused."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
import flashladder  # noqa: E402
from flashladder import torch as fl  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, HEADS, KV_HEADS, KEYS, D = 2, 4, 2, 200, 128
LENGTHS = (KEYS, 77)


def arrays(dtype: Any = torch.bfloat16, quantize: Any = flashladder.quantize_e4m3) -> dict[str, Any]:
    torch.manual_seed(1)
    q = torch.randn(BATCH, 2, HEADS, D).to(DEVICE, dtype)
    k, v = (torch.randn(BATCH, KEYS, KV_HEADS, D, device=DEVICE) * (1 + torch.arange(2.0)[:, None].to(DEVICE))
            for _ in range(2))  # fmt: skip
    (k_cache, k_scale), (v_cache, v_scale) = quantize(k), quantize(v + 1)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device=DEVICE)
    caches = {"k_cache": k_cache, "v_cache": v_cache, "k_scale": k_scale, "v_scale": v_scale}
    return {"q": q, "seqlens_k": lengths, **caches}


def right(given: dict[str, Any], out: Any, lse: Any) -> bool:
    """Compared with float64 of the same bytes."""
    k, v = (given[f"{name}_cache"].double() * given[f"{name}_scale"][:, None] for name in "kv")
    for b, length in enumerate(LENGTHS):
        keys, values = (x[b, :length].repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", given["q"][b].double(), keys) * D**-0.5
        expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
        allowed = 2 * torch.finfo(out.dtype).eps * values.abs().max()
        if (out[b].double() - expected).abs().max() > allowed:
            return False
        if (lse[b] - scores.logsumexp(-1)).abs().max() > 1e-4:
            return False
    return True


VERSIONS = ("attention/decode", "attention/decode_mma_sync")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("quantize", [flashladder.quantize_e4m3, flashladder.quantize_int8])
def test_rows_and_pages(dtype: Any, version: str, quantize: Any) -> None:
    given = arrays(dtype, quantize) | {"version": version}
    out, lse = flashladder.attention_with_cache(**given, return_lse=True)
    assert right(given, out, lse)
    order = torch.randperm(BATCH * KEYS // 8 * 8 // 16 + 2)[: BATCH * 13].to(DEVICE)
    table = order.reshape(BATCH, 13).int().contiguous()
    paged = dict(given, block_table=table)
    for name in ("k_cache", "v_cache"):
        pool = torch.full((32, 16, KV_HEADS, D), 0x7F, dtype=torch.uint8, device=DEVICE).view(given[name].dtype)
        rows = torch.nn.functional.pad(given[name].view(torch.uint8), (0, 0, 0, 0, 0, 13 * 16 - KEYS))
        pool.view(torch.uint8)[order] = rows.reshape(-1, 16, KV_HEADS, D)
        paged[name] = pool
    again, again_lse = fl.attention_with_cache(**paged, return_lse=True)
    assert right(given, again, again_lse)


def test_a_number_is_the_scale_of_all_heads() -> None:
    given = arrays() | {"k_scale": None, "v_scale": None}
    plain = flashladder.attention_with_cache(**given, scale=2 * D**-0.5)
    scaled = flashladder.attention_with_cache(**(given | {"k_scale": 2.0, "v_scale": torch.tensor(4.0, device=DEVICE)}))
    assert torch.equal(4 * plain, scaled)


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_of_any_size_have_the_bits_of_small_ones(version: str) -> None:
    """bf16 has more exponents than fp16, to which the kernel converts Q."""
    given = arrays() | {"version": version}
    plain = flashladder.attention_with_cache(**given)
    for exponent in (70, -70):
        scaled = given | {"q": given["q"] * 2.0**exponent}
        assert torch.equal(flashladder.attention_with_cache(**scaled, scale=D**-0.5 * 2.0**-exponent), plain)


@pytest.mark.parametrize("version", VERSIONS)
def test_NaN_reaches_what_sees_it_alone(version: str) -> None:
    given = arrays() | {"version": version}
    given["k_cache"][1, LENGTHS[1] :] = given["v_cache"][1, LENGTHS[1] :] = float("nan")
    whole = flashladder.attention_with_cache(**given)
    assert torch.isfinite(whole).all()
    given["k_cache"].view(torch.uint8)[1, 5, 1, 7] = 0xFF
    out = flashladder.attention_with_cache(**given)
    assert torch.isnan(out[1, :, 2:]).all()
    assert torch.equal(out[0], whole[0]) and torch.equal(out[1, :, :2], whole[1, :, :2])
    given = arrays() | {"version": version}
    for sign, column in ((0x7F, 3), (0xFF, 88)):
        given["v_cache"].view(torch.uint8)[1, 9, 1, column] = sign
    out = flashladder.attention_with_cache(**given)
    hit = torch.tensor([3, 88], device=DEVICE)
    assert torch.isnan(out[1, :, 2:, hit]).all() and torch.isfinite(out).sum() == out.numel() - 2 * 2 * 2


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k_scale": 0.0}, ValueError, "k_scale is 0.0: it must be a positive number"),
        ({"sinks": torch.zeros(HEADS, device=DEVICE)}, NotImplementedError, "sinks: cannot be combined with kv_dtype"),
    ],
)
def test_bad_input_gets_a_sentence(change: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        flashladder.attention_with_cache(**(arrays() | change))


def test_scales_beside_a_cache_of_16_bits_are_refused() -> None:
    given = arrays()
    given["k_cache"], given["v_cache"] = (given[name].to(torch.bfloat16) for name in ("k_cache", "v_cache"))
    with pytest.raises(
        ValueError, match="k_scale and v_scale are for caches of float8_e4m3fn or int8: k_cache is bfloat16"
    ):
        flashladder.attention_with_cache(**given)


def test_quantised_numbers_are_the_nearest() -> None:
    x = torch.randn(1, 50, 3, 16) * torch.tensor([1e-3, 0.0, 1e4])[:, None]
    values, scale = flashladder.quantize_e4m3(x)
    back = values.float() * scale[:, None]
    assert ((back - x).abs() <= x.abs() / 16 + scale[:, None] * 2**-10).all()
    assert values.float()[:, :, 0].abs().max() == 448 and (back[:, :, 1] == 0).all()
    same, _ = flashladder.quantize_e4m3(100 * x, scale)
    assert torch.isfinite(same.float()).all() and same.float().abs().max() == 448
    values, scale = flashladder.quantize_int8(x)
    back = values.float() * scale[:, None]
    assert values.dtype == torch.int8 and ((back - x).abs() <= scale[:, None] * 0.501).all()
    assert values.abs().amax((0, 1, 3)).tolist() == [127, 0, 127] and (back[:, :, 1] == 0).all()
    assert flashladder.quantize_int8(torch.full_like(x, float("nan")), scale)[0].eq(0).all()
