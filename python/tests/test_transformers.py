"""attn_implementation="flashladder" of Hugging Face transformers, on a tiny model with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
from flashladder.transformers import NAME  # noqa: E402

WINDOW = 24
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="module")
def model() -> Any:
    """One layer with a window that is longer than most prompts here."""
    config = transformers.MistralConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=WINDOW,
        pad_token_id=0,
        attn_implementation=NAME,
    )
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(config).eval().to(DEVICE, torch.bfloat16)


@pytest.fixture
def tokens() -> Any:
    torch.manual_seed(1)
    return torch.randint(1, 64, (2, 20), device=DEVICE)


def close(ours: Any, theirs: Any) -> bool:
    return bool((ours - theirs).abs().max() <= 0.02 * theirs.abs().max())


@torch.no_grad()
def test_prefill_pieces_and_decoding_agree_with_sdpa(model: Any, tokens: Any) -> None:
    cache = transformers.DynamicCache(config=model.config)
    pieces = [model(tokens[:, part], past_key_values=cache).logits for part in (slice(0, 12), slice(12, 19), [19])]
    whole = model(tokens, attention_mask=torch.ones_like(tokens)).logits
    model.set_attn_implementation("sdpa")
    expected = model(tokens).logits
    model.set_attn_implementation(NAME)
    assert close(whole, expected)
    assert close(torch.cat(pieces, dim=1), expected)


@torch.no_grad()
def test_decoding_goes_on_beyond_the_window(model: Any, tokens: Any) -> None:
    """A cache of the last keys holds what the window allows, so nothing is left to mask."""
    generate = {"attention_mask": torch.ones_like(tokens), "do_sample": False, "output_logits": True}
    generate |= {"max_new_tokens": 8, "return_dict_in_generate": True}
    ours = model.generate(tokens, **generate)
    model.set_attn_implementation("sdpa")
    theirs = model.generate(tokens, **generate)
    model.set_attn_implementation(NAME)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert close(torch.stack(ours.logits), torch.stack(theirs.logits))


def packed(model: Any, tokens: Any) -> Any:
    return model(tokens, position_ids=torch.arange(20, device=DEVICE)[None] % 10, use_cache=False)


def padded(tokens: Any) -> Any:
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    return mask


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, tokens: model(tokens, attention_mask=padded(tokens)), "padding"),
        (lambda model, tokens: model(tokens, attention_mask=torch.ones(2, 1, 20, 20, device=DEVICE)), "attention mask"),
        (lambda model, tokens: model(tokens.repeat(1, 2)), f"{WINDOW} over 40 keys"),
        (lambda model, tokens: model(tokens, output_attentions=True), "output_attentions"),
        (lambda model, tokens: model(tokens, softcap=30.0), "softcap"),
        (packed, "packed sequences"),
        (lambda model, tokens: model.generate(tokens, max_new_tokens=2, cache_implementation="static"), "DynamicCache"),
    ],
)
@torch.no_grad()
def test_what_the_kernels_lack_is_refused_by_name(
    model: Any, tokens: Any, call: Callable[[Any, Any], Any], words: str
) -> None:
    with pytest.raises(NotImplementedError, match=words):
        call(model, tokens)


def test_training_is_refused(model: Any, tokens: Any) -> None:
    with pytest.raises(NotImplementedError, match="no backward"):
        model(tokens)
    model.config.attention_dropout = model.model.layers[0].self_attn.attention_dropout = 0.1
    try:
        with torch.no_grad(), pytest.raises(NotImplementedError, match=r"dropout of 0\.1"):
            model.train()(tokens)
    finally:
        model.eval()
