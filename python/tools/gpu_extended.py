"""Head sizes, biases, dropout, largest scores and block masks on a GPU, next to PyTorch and cuDNN, as CSV.

    PYTHONPATH=python python3 python/tools/gpu_extended.py [--rounds 7] [--out FILE.csv] [GROUP …]    # needs a GPU

Groups: features masks sizes decode mla exact; without one all. As in gpu_sm80.py, subjects of a case are CUDA graphs
that take turns, times are medians, and the first subject is what the others are divided by: PyTorch's flash attention,
FlexAttention or cuDNN, where they compute the case, or a kernel that only reads K and V. `exact` measures no time: it
compares results with float64, and prints errors of more than 0.03. In bf16 an O of 4 to 8 is rounded by up to 0.016,
and P costs as much again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from gpu_sm80 import GPU, Bench, Call, fa2, reader_of, run_groups, tensors
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

import flashladder
import flashladder.torch
from flashladder import _composed

SEQ, BATCH = 4096, 4
HEADS = {128: 16, 64: 32, 256: 8}  # by d_head
SEED = (1, 2)


def features(bench: Bench) -> None:
    """Time plain attention, shorter rows, and each feature by itself."""
    state = torch.tensor(SEED, device=GPU)
    for d, heads in HEADS.items():
        slopes, bias = torch.ones(heads, device=GPU), torch.zeros(SEQ, SEQ, device=GPU, dtype=torch.bfloat16)
        more: dict[str, dict[str, Any]] = {
            "plain": {},
            "largest": {"return_max_logits": True},
            "dropout": {"dropout_p": 0.1, "rng_state": state},
            "bias": {"bias": bias},
            "mask": {"bias": bias == 0},
            "ALiBi": {"alibi_slopes": slopes},
        }
        for causal in (False, True):
            q, k, v = tensors(BATCH, SEQ, heads, d)
            short = [one[..., : d - 8].contiguous() for one in (q, k, v)]
            subjects: dict[str, Call] = {
                "fa2": lambda q=q, k=k, v=v, causal=causal: fa2(q, k, v, causal),
                "fa2 dropout": lambda q=q, k=k, v=v, causal=causal: torch.ops.aten._flash_attention_forward(
                    q, k, v, None, None, SEQ, SEQ, 0.1, causal, False
                )[0],
                "shorter rows": lambda short=short, causal=causal: flashladder.attention(*short, causal=causal),
            }
            for name, asked in more.items():
                subjects[name] = lambda q=q, k=k, v=v, causal=causal, asked=asked: flashladder.attention(
                    q, k, v, causal=causal, **asked
                )
            flops = 4e-6 * BATCH * heads * SEQ * SEQ * d * (0.5 if causal else 1)
            bench.compare(f"features d{d} {causal=}", ("TFLOP/s", flops), subjects, equal=False)


def masks(bench: Bench) -> None:
    """Time block masks. Speed counts only the visible blocks: it equals the speed without a mask if hiding is free."""
    seq, batch = 8192, 2
    documents = torch.arange(seq, device=GPU) // 1024

    def window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024)

    def document(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (documents[q] == documents[k])

    flex = torch.compile(flex_attention.flex_attention)
    for d in (128, 64):
        heads = HEADS[d]
        q, k, v = tensors(batch, seq, heads, d)
        turned = [one.transpose(1, 2).contiguous() for one in (q, k, v)]
        for name, visible in (("window of 1024", window), ("causal documents", document)):
            mask = flex_attention.create_block_mask(visible, None, None, seq, seq, device=GPU)
            whole = flashladder.torch._kinds(mask)
            blocks = (whole > 0).float().mean().item()
            flops = 4e-6 * batch * heads * seq * seq * d
            bench.compare(
                f"masks d{d}, no mask",
                ("TFLOP/s", flops),
                {"plain": lambda q=q, k=k, v=v: flashladder.attention(q, k, v)},
            )
            subjects: dict[str, Call] = {
                "flex": lambda turned=turned, mask=mask: flex(*turned, block_mask=mask).transpose(1, 2),
                "block mask": lambda q=q, k=k, v=v, mask=mask: flashladder.torch.attention(q, k, v, block_mask=mask),
                "blocks alone": lambda q=q, k=k, v=v, whole=whole: flashladder.attention(q, k, v, block_mask=whole),
            }
            bench.compare(f"masks d{d} {name}", ("TFLOP/s", flops * blocks), subjects, equal=False)


def sizes(bench: Bench) -> None:
    """Prefill with V of another size."""
    for d, d_v, heads in ((192, 128, 16), (128, 128, 16), (96, 96, 16), (80, 80, 16), (512, 512, 8)):
        for batch, seq in ((4, 4096), (1, 16384)):
            for causal in (False, True):
                q, k = tensors(batch, seq, heads, d, count=2)
                (v,) = tensors(batch, seq, heads, d_v, count=1)
                subjects: dict[str, Call] = {}
                if d <= 256:
                    turned = [one.transpose(1, 2) for one in (q, k, v)]
                    subjects["cudnn"] = lambda turned=turned, causal=causal: cudnn(turned, causal)
                subjects["flashladder"] = lambda q=q, k=k, v=v, causal=causal: flashladder.attention(
                    q, k, v, causal=causal
                )
                flops = 2e-6 * batch * heads * seq * seq * (d + d_v) * (0.5 if causal else 1)
                bench.compare(f"sizes d{d} dv{d_v} {batch}x{seq} {causal=}", ("TFLOP/s", flops), subjects)


def cudnn(turned: list[Any], causal: bool) -> Any:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)


def decode(bench: Bench) -> None:
    """One query for each sequence, 16 heads on 4, of sizes that attention/decode lacks."""
    reader = reader_of()
    for d in (256, 512, 96):
        for batch, seq in ((1, 4096), (1, 32768), (8, 8192), (32, 8192), (128, 2048)):
            (q,), (k, v) = tensors(batch, 1, 16, d, count=1), tensors(batch, seq, 4, d, count=2)
            lengths = torch.full((batch,), seq, device=GPU, dtype=torch.int32)
            subjects: dict[str, Call] = {
                "read": reader(k, v),
                "flashladder": lambda q=q, k=k, v=v, lengths=lengths: flashladder.attention_with_cache(
                    q, k, v, lengths
                ),
            }
            bench.compare(f"decode d{d} {batch}x{seq}", ("GB/s", 2e-3 * (k.numel() + v.numel())), subjects)


def mla(bench: Bench) -> None:
    """Decoding with one latent head of 576, whose first 512 elements are V, in pages of 64."""
    reader = reader_of()
    for heads in (64, 128):
        for batch, seq in ((1, 4096), (1, 32768), (8, 8192), (32, 8192), (66, 8192), (128, 4096), (128, 32768)):
            (q,) = tensors(batch, 1, heads, 576, count=1)
            (cache,) = tensors(batch * seq // 64, 64, 1, 576, count=1)
            pages = torch.randperm(batch * seq // 64, device=GPU).to(torch.int32).view(batch, -1)
            lengths = torch.full((batch,), seq, device=GPU, dtype=torch.int32)
            subjects: dict[str, Call] = {
                "read": reader(*cache.view(2, -1)),
                "flashladder": lambda q=q, cache=cache, lengths=lengths, pages=pages: flashladder.attention_with_cache(
                    q, cache, cache[..., :512], lengths, pages
                ),
            }
            bench.compare(f"mla {heads} heads {batch}x{seq}", ("GB/s", 2e-3 * cache.numel()), subjects)
            flops = 2e-6 * batch * heads * seq * (576 + 512)
            bench.rows.append(
                {**bench.rows[-1], "unit": "TFLOP/s", "speed": f"{flops / float(bench.rows[-1]['us']):.1f}"}
            )


def exact_decoding(bench: Bench) -> None:
    """Keys that several CTAs share out, of sequences of several lengths; with 576 V is a part of K."""
    for d, d_v, heads, group in ((256, 256, 2, 8), (512, 512, 1, 16), (80, 80, 3, 5), (576, 512, 1, 128)):
        for dtype in (torch.bfloat16, torch.float16):
            (q,), (k, v) = (
                tensors(5, 1, heads * group, d, count=1, dtype=dtype),
                tensors(5, 6000, heads, d, count=2, dtype=dtype),
            )
            v = k[..., :d_v] if d_v < d else v
            lengths = torch.tensor([6000, 1, 0, 777, 4096], device=GPU, dtype=torch.int32)
            found, lse = flashladder.attention_with_cache(q, k, v, lengths, return_lse=True)
            scores = torch.einsum("bhgd,bkhd->bhgk", q.view(5, heads, group, d).double(), k.double()) * d**-0.5
            scores.masked_fill_(torch.arange(6000, device=GPU) >= lengths[:, None, None, None], -torch.inf)
            out = torch.einsum("bhgk,bkhd->bhgd", scores.softmax(-1).nan_to_num(0), v.double())
            label = f"exact decoding d{d} dv{d_v} {str(dtype)[6:]}"
            bench.note_error(label, "out", (found.double() - out.view(found.shape)).abs().max().item(), 0.02)
            right = scores.logsumexp(-1).view(5, -1)
            difference = (lse.double().view(5, -1) - right).nan_to_num(0, posinf=9, neginf=9).abs().max().item()
            bench.note_error(label, "lse", difference, 0.02)


def exact(bench: Bench) -> None:
    """The largest difference from float64, of results that are about 1."""
    exact_decoding(bench)
    state = torch.tensor(SEED, device=GPU)
    seq, keys, heads = 700, 900, 4
    position = torch.arange(seq, device=GPU)[:, None] + keys - seq
    bias = torch.randn(2, heads, seq, keys, device=GPU)
    slopes = torch.rand(heads, device=GPU)
    kinds = torch.randint(0, 3, (2, heads, 6, 8), device=GPU, dtype=torch.uint8)
    each = torch.repeat_interleave(torch.repeat_interleave(kinds, 128, 2), 128, 3)[:, :, :seq, :keys] > 0
    cases: dict[str, dict[str, Any]] = {
        "nothing": {},
        "plain": {},
        "bias": {"bias": bias},
        "mask": {"bias": bias > 0},
        "ALiBi": {"alibi_slopes": slopes},
        "dropout": {"dropout_p": 0.3, "rng_state": state},
        "all": {"bias": bias, "alibi_slopes": slopes, "dropout_p": 0.3, "rng_state": state, "softcap": 5.0},
        "blocks": {"block_mask": kinds, "dropout_p": 0.1, "rng_state": state},
    }
    for d, d_v in ((64, 64), (128, 128), (256, 256), (80, 80), (192, 128), (512, 512)):
        for dtype in (torch.bfloat16, torch.float16):
            (q,), (k,) = (
                tensors(2, seq, heads, d, count=1, dtype=dtype),
                tensors(2, keys, heads, d, count=1, dtype=dtype),
            )
            (v,) = tensors(2, keys, heads, d_v, count=1, dtype=dtype)
            for causal in (False, True):
                for name, asked in cases.items():
                    wanted = name not in ("nothing", "blocks")
                    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * d**-0.5
                    if "softcap" in asked:
                        scores = asked["softcap"] * torch.tanh(scores / asked["softcap"])
                    hidden = torch.zeros_like(scores, dtype=torch.bool)
                    if causal:
                        hidden |= torch.arange(keys, device=GPU) > position
                    if name == "blocks":
                        hidden |= ~each
                    added = asked.get("bias", torch.zeros((), device=GPU))
                    if added.dtype == torch.bool:
                        hidden, added = hidden | ~added, torch.zeros((), device=GPU)
                    largest = scores.masked_fill(hidden, -torch.inf).amax((2, 3))
                    scores = scores + added.double()
                    if "alibi_slopes" in asked:
                        distance = (position - torch.arange(keys, device=GPU)).abs()
                        scores -= asked["alibi_slopes"].double()[:, None, None] * distance
                    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(0)
                    if "dropout_p" in asked:
                        p = asked["dropout_p"]
                        rows = torch.arange(seq, device=GPU)
                        weights = weights * _composed.kept(state, p, 2, heads, rows, keys) / (1 - p)
                    out = torch.einsum("bhqk,bkhd->bqhd", weights, v.double())
                    found = flashladder.attention(q, k, v, causal=causal, return_max_logits=wanted, **asked)
                    errors = {"out": found[0] if wanted else found} | ({"largest": found[1]} if wanted else {})
                    for what, made in errors.items():
                        difference = (made.double() - {"out": out, "largest": largest}[what]).abs().max().item()
                        label = f"exact d{d} dv{d_v} {str(dtype)[6:]} {causal=} {name}"
                        bench.note_error(label, what, difference, 0.03)


if __name__ == "__main__":
    groups = {
        "features": features, "masks": masks, "sizes": sizes, "decode": decode, "mla": mla, "exact": exact,
    }  # fmt: skip
    run_groups(__doc__, groups)
