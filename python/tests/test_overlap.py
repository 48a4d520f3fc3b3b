"""Arrays that share memory: against sets of addresses, and NumPy's own answer for views of one buffer."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashladder import _overlap
from flashladder._frameworks import Layout

shapes = st.tuples(*[st.integers(0, 3)] * 3, st.integers(1, 4))
strides = st.tuples(*[st.integers(-14, 14)] * 3, st.just(1))


def layout(shape: tuple[int, ...], steps: tuple[int, ...]) -> Layout:
    return Layout(shape, steps, "float16", "host memory", None)


def rows(shape: tuple[int, ...], steps: tuple[int, ...], first: int = 0) -> list[int]:
    """Return the start of each row."""
    positions = itertools.product(*(range(size) for size in shape[:3]))
    return [first + sum(i * step for i, step in zip(index, steps, strict=False)) for index in positions]


def elements(shape: tuple[int, ...], steps: tuple[int, ...], first: int = 0) -> list[int]:
    return [row + i for row in rows(shape, steps, first) for i in range(shape[3])]


@given(shape=shapes, steps=strides)
@example(shape=(2, 2, 1, 4), steps=(8, 4, 0, 1))
@example(shape=(2, 2, 1, 4), steps=(8, 3, 0, 1))
@example(shape=(3, 3, 1, 1), steps=(3, 2, 0, 1))  # 2 · 3 = 3 · 2, but one axis has no third step
@example(shape=(1, 1, 1, 4), steps=(0, 0, 0, 1))
def test_an_array_that_overlaps_itself(shape: tuple[int, ...], steps: tuple[int, ...]) -> None:
    mine = elements(shape, steps)
    assert _overlap.overlaps_itself(shape, steps) == (len(set(mine)) < len(mine))


@given(shape=shapes, steps=strides, other_shape=shapes, other=strides, distance=st.integers(-60, 60))
@example(shape=(1, 2, 1, 4), steps=(0, 8, 0, 1), other_shape=(1, 2, 1, 4), other=(0, 8, 0, 1), distance=4)
def test_arrays_that_overlap(
    shape: tuple[int, ...], steps: tuple[int, ...], other_shape: tuple[int, ...], other: tuple[int, ...], distance: int
) -> None:
    other_shape = (*other_shape[:3], shape[3])
    shared = set(elements(shape, steps)) & set(elements(other_shape, other, distance))
    assert _overlap.overlap(distance, layout(shape, steps), layout(other_shape, other)) == bool(shared)


@given(shape=shapes, steps=strides)
def test_the_span_holds_all_elements(shape: tuple[int, ...], steps: tuple[int, ...]) -> None:
    mine = elements(shape, steps)
    assert _overlap.span(shape, steps) == ((min(mine), max(mine) + 1) if mine else (0, 0))


def test_views_of_a_packed_buffer() -> None:
    """q, k, v and out side by side in each row, of sizes that are really used; NumPy knows which share memory."""
    packed: Any = np.empty((16, 4096, 4, 32, 128), np.float16)
    views = {name: packed[:, :, i] for i, name in enumerate("qkvo")} | {
        "late": packed[:, 1:, 1],
        "half": packed[8:, :, 2],
    }
    for one, other in itertools.combinations(views.values(), 2):
        a, b = (layout(view.shape, tuple(step // 2 for step in view.strides)) for view in (one, other))
        distance = (other.ctypes.data - one.ctypes.data) // 2
        assert _overlap.overlap(distance, a, b) == np.shares_memory(one, other)
        assert not _overlap.overlaps_itself(a.shape, a.strides)


def test_a_search_that_takes_too_long_finds_an_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may write where another may read."""
    shape, steps = (40, 40, 40, 1), (402, 202, 100, 1)
    odd = layout(shape, tuple(2 * step for step in steps))
    assert not _overlap.overlap(201, odd, odd)
    _overlap._overlap.cache_clear()
    monkeypatch.setattr(_overlap, "MOST_STEPS", 5)
    assert _overlap.overlap(201, odd, odd)
    _overlap._overlap.cache_clear()
