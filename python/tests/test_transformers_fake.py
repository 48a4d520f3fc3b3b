"""flashladder.transformers on fake transformers: what is registered, and what is refused by name.

test_transformers.py runs a real model, where the package is installed.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_frameworks import Recorded, Tensor, fake_torch, fake_transformers

CAUSAL, BOTH_WAYS = SimpleNamespace(is_causal=True), SimpleNamespace(is_causal=False)


@pytest.fixture(scope="module")
def made(package: Recorded) -> Iterator[Any]:
    transformers = fake_transformers()
    with package.on(torch=fake_torch(), transformers=transformers) as load:
        load("transformers")
        yield transformers


def layer(made: Any, module: Any = CAUSAL, mask: Any = None, keys: int = 7, **options: Any) -> Any:
    """The function that a layer calls, with its tensors."""
    query, key, value = (Tensor((2, heads, rows, 64)) for heads, rows in ((4, 5), (2, keys), (2, keys)))
    out, weights = made.attention["flashladder"](module, query, key, value, mask, **options)
    assert weights is None
    return query, key, value, out


def mask_of(made: Any, **options: Any) -> Any:
    """Arguments that a model passes once per forward pass: 5 queries after 7 - 5 cached keys."""
    sizes = {"batch_size": 2, "q_length": 5, "kv_length": 7, "q_offset": 2, "kv_offset": 0}
    return made.masks["flashladder"](**(sizes | options))


def test_a_layer_hands_everything_on(package: Recorded, made: Any) -> None:
    query, key, value, out = layer(made, scaling=0.5)
    problem, given = package.last.problem, package.last.tensors
    assert (problem.batch, problem.heads, problem.kv_heads, problem.seq_q, problem.seq_k) == (2, 4, 2, 5, 7)
    assert (problem.causal, problem.scale) == (1, 0.5) and package.steps("q") == (4 * 5 * 64, 64, 5 * 64)
    assert [given.q, given.k, given.v, given.o] == [one.data_ptr() for one in (query, key, value, out)]
    assert out.shape == (2, 5, 4, 64) and given.lse is None


@pytest.mark.parametrize(
    ("module", "asked", "causal"),
    [(CAUSAL, None, 1), (BOTH_WAYS, None, 0), (SimpleNamespace(), None, 1), (CAUSAL, False, 0), (BOTH_WAYS, True, 1)],
)
def test_whether_a_layer_is_causal(package: Recorded, made: Any, module: Any, asked: Any, causal: int) -> None:
    """The argument, else the module's own, else yes."""
    layer(made, module, is_causal=asked)
    assert package.last.problem.causal == causal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": Tensor((2, 7), "bool")}, r'mask of the shape \(2, 7\) for 7 keys .*"sdpa" serves it'),
        ({"mask": Tensor((2, 1, 5, 6), "int32")}, r'mask of the shape \(2, 1, 5, 6\) for 7 keys .*"sdpa" serves it'),
        ({"sliding_window": 6, "is_causal": False}, "a sliding window of 6 over 7 keys, without a causal mask"),
        ({"output_attentions": True}, 'output_attentions=True is not served; attn_implementation="eager" serves it'),
        ({"position_bias": 1}, r"position_bias \(a bias of the scores\)"),
        ({"head_mask": 1}, r"head_mask \(a mask of heads\)"),
        ({"block_table": 1}, r"block_table \(a table of pages\)"),
        ({"cache": 1}, "cache=int is not served"),
    ],
)
def test_a_layer_refuses_by_name(package: Recorded, made: Any, options: Any, message: str) -> None:
    calls = package.last.calls
    with pytest.raises(NotImplementedError, match=message):
        layer(made, **options)
    assert package.last.calls == calls


def test_what_asks_for_nothing_more_is_served(package: Recorded, made: Any) -> None:
    calls = package.last.calls
    layer(made, sliding_window=7, dropout=0.0, output_attentions=False, softcap=None, use_cache=True)
    layer(made, sliding_window=None, s_aux=None)
    assert package.last.calls == calls + 2


def test_windows_and_caps_are_handed_on(package: Recorded, made: Any) -> None:
    """A row sees itself and the 5 keys before it."""
    layer(made, sliding_window=6, softcap=30.0)
    problem = package.last.problem
    assert (problem.windowed, problem.window_left, problem.window_right, problem.softcap) == (1, 5, -1, 30.0)


PADDED = np.array([[False] + 6 * [True], 7 * [True]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow_is_causal_skip": False}, "a mask of the model's own"),
        ({"local_size": 6}, "a window or chunks of 6 over 7 keys"),
        (
            {"local_size": 9, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": True},
            "chunks of 9 over 7 keys",
        ),
    ],
)
def test_a_mask_that_the_kernels_lack_is_refused_by_name(made: Any, options: Any, message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        mask_of(made, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention_mask": np.ones((2, 7), bool)},
        {"attention_mask": np.hstack([PADDED, np.ones((2, 7), bool)])},  # padding before the keys that are there
        {"local_size": 7},
        {"q_offset": 3, "kv_offset": 1},
        {"q_offset": 0, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": True},
    ],
)
def test_no_mask_is_made_where_the_kernels_need_none(made: Any, options: Any) -> None:
    assert mask_of(made, **options) is None


def test_no_package_of_that_name_is_imported(made: Any) -> None:
    """transformers imports what an implementation with "flash" in its name is called."""
    load = made.modeling_utils.lazy_import_flash_attention
    assert load("flashladder", True, kernels=None) is None
    assert load("flash_attention_2", 1, kernels=2) == ("imported", "flash_attention_2", (1,), {"kernels": 2})
