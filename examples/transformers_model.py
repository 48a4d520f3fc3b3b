"""A Hugging Face model with attn_implementation="flashladder": right logits, and the time of a prefill.

    python examples/transformers_model.py                                    # on a GPU, or small on the emulator
    python examples/transformers_model.py --bench --record transformers.jsonl    # 8192 tokens, on a GPU
    python examples/transformers_model.py --generate --cache static              # 16 x 4096 tokens, then 256 more

The model is Llama's architecture with random weights: 8 layers, 32 heads on 8, d_head 128. Prefill and decoding, token
by token, are compared with the same model in fp32. flashladder's logits may differ from it by as much as those of
"sdpa" do in bf16, times two. --bench times whole prefills of "flashladder" and "sdpa" in turns.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import record
import torch
from torch.nn.attention import SDPBackend
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import flashladder.transformers

OURS, THEIRS = flashladder.transformers.NAME, "sdpa"
DECODED = 4


def make(layers: int, heads: int, kv_heads: int, d_head: int, device: str) -> Any:
    width = heads * d_head
    config = LlamaConfig(
        vocab_size=32000 if device == "cuda" else 512,
        hidden_size=width,
        intermediate_size=width * 7 // 2,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=1 << 16,
        initializer_range=1.3 / width**0.5,  # scores of queries and keys that spread as a trained model's do
        attn_implementation=OURS,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return LlamaForCausalLM(config).eval().to(torch.bfloat16)


def logits(model: Any, implementation: str, tokens: Any) -> tuple[Any, Any]:
    """The logits of a prefill of all tokens, and of the last few when they arrive one at a time."""
    model.set_attn_implementation(implementation)
    whole = model(tokens).logits
    cache = DynamicCache(config=model.config)
    model(tokens[:, :-DECODED], past_key_values=cache)
    steps = [model(tokens[:, [i]], past_key_values=cache).logits for i in range(-DECODED, 0)]
    return whole.float(), torch.cat(steps, dim=1).float()


def check(model: Any, tokens: Any) -> bool:
    exact = logits(copy.deepcopy(model).float(), THEIRS, tokens)
    theirs, ours = logits(model, THEIRS, tokens), logits(model, OURS, tokens)
    right = True
    for what, reference, their, our in zip(("prefill", "decoding"), exact, theirs, ours, strict=True):
        allowed, off = 2 * (their - reference).abs().max().item(), (our - reference).abs().max().item()
        right = right and off <= allowed
        print(f"{what}: largest logit {reference.abs().max():.3f}, off by {off:.4f} of {allowed:.4f} allowed")
    return right


def prefill_times(model: Any, tokens: Any, rounds: int) -> Iterator[tuple[str, float]]:
    """Milliseconds of whole prefills, in turns; the first round warms up and is left out."""
    for i in range(rounds + 1):
        for implementation in (OURS, THEIRS) if i % 2 else (THEIRS, OURS):
            model.set_attn_implementation(implementation)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            model(tokens, logits_to_keep=1)
            end.record()
            end.synchronize()
            if i:
                yield implementation, begin.elapsed_time(end)


def bench(model: Any, arguments: argparse.Namespace) -> None:
    config = model.config
    tokens = torch.randint(config.vocab_size, (1, arguments.bench_seq), device="cuda")
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for implementation, ms in prefill_times(model, tokens, arguments.rounds):
        times[implementation].append(ms)
    medians = {name: statistics.median(values) for name, values in times.items()}
    shapes = [(1, heads, arguments.bench_seq, arguments.d_head) for heads in (arguments.heads, arguments.kv_heads)]
    q, k = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    kernel = SDPBackend(torch._fused_sdp_choice(q, k, k, is_causal=True, enable_gqa=True)).name
    ratio = medians[THEIRS] / medians[OURS]
    print(f"prefill of {arguments.bench_seq} tokens: {OURS} {medians[OURS]:.2f} ms, {THEIRS} ({kernel})", end=" ")
    print(f"{medians[THEIRS]:.2f} ms: {ratio:.3f} times as fast, {arguments.rounds} rounds")
    if arguments.record:
        record.append(
            arguments.record,
            "prefill",
            model=f"{config.num_hidden_layers} layers, {arguments.heads} heads on {arguments.kv_heads}, "
            f"d_head {arguments.d_head}, hidden {config.hidden_size}, feed-forward {config.intermediate_size}",
            seq=arguments.bench_seq,
            dtype="bf16",
            ms=times,
            median_ms=medians,
            sdpa_kernel=kernel,
            speedup=ratio,
        )


def generate_times(model: Any, tokens: Any, new: int, cache: str, rounds: int) -> Iterator[tuple[str, float]]:
    """Milliseconds of `new` tokens after `tokens`, in turns; the first round warms up and is left out."""
    for i in range(rounds + 1):
        for implementation in (OURS, THEIRS) if i % 2 else (THEIRS, OURS):
            model.set_attn_implementation(implementation)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            model.generate(tokens, max_new_tokens=new, min_new_tokens=new, do_sample=False, cache_implementation=cache)
            torch.cuda.synchronize()
            if i:
                yield implementation, 1e3 * (time.perf_counter() - begin)


def bench_generate(model: Any, arguments: argparse.Namespace) -> None:
    config = model.config
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    tokens = torch.randint(config.vocab_size, (arguments.batch, arguments.generate_seq), device="cuda")
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for implementation, ms in generate_times(model, tokens, arguments.new, arguments.cache, arguments.rounds):
        times[implementation].append(ms)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians[THEIRS] / medians[OURS]
    print(f"batch {arguments.batch}, {arguments.generate_seq} + {arguments.new} tokens, {arguments.cache} cache:")
    print(f"{OURS} {medians[OURS]:.1f} ms, {THEIRS} {medians[THEIRS]:.1f} ms: {ratio:.3f} times as fast, {times}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--layers", type=int, default=8 if cuda else 2)
    parser.add_argument("--heads", type=int, default=32 if cuda else 4)
    parser.add_argument("--kv-heads", type=int, default=8 if cuda else 2)
    parser.add_argument("--d-head", type=int, default=128 if cuda else 64)
    parser.add_argument("--seq", type=int, default=1000 if cuda else 40, help="tokens whose logits are checked")
    parser.add_argument("--bench", action="store_true", help="then time prefills; needs a GPU")
    parser.add_argument("--bench-seq", type=int, default=8192)
    parser.add_argument("--generate", action="store_true", help="then time generate(); needs a GPU")
    parser.add_argument("--generate-seq", type=int, default=4096)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cache", choices=("dynamic", "static"), default="dynamic")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--record", type=record.file, help="append what --bench measures to a file, as a line of JSON")
    arguments = parser.parse_args()
    if arguments.bench and not cuda:
        parser.error("--bench needs a GPU: on the emulator times mean nothing")
    device = "cuda" if cuda else "cpu"
    model = make(arguments.layers, arguments.heads, arguments.kv_heads, arguments.d_head, device)
    with torch.no_grad():
        right = check(model, torch.randint(model.config.vocab_size, (1, arguments.seq), device=device))
        print("the logits agree" if right else "the logits are WRONG")
        if right and arguments.bench:
            bench(model, arguments)
        if right and arguments.generate:
            bench_generate(model, arguments)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
