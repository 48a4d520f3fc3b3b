"""True if rows of arrays share memory: exactly, as views of one buffer may interleave without it.

    overlaps_itself(shape, strides)
    overlap(distance, one, other) # of two layouts; the first element of `other` is `distance` after the other's

Shapes and strides have four axes, counted in elements; the elements of a row, the last axis, are contiguous.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

MOST_STEPS = 10_000  # of a search; views of a real buffer take a few dozen

Terms = list[tuple[int, int]]  # stride ≥ 0 and how often it is taken, at most


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The byte range of an array, from its first element on; empty for no elements."""
    if 0 in shape:
        return 0, 0
    ends = [(size - 1) * step for size, step in zip(shape[:3], strides)]
    return sum(min(0, end) for end in ends), sum(max(0, end) for end in ends) + shape[3]


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if two rows of an array share an element."""
    if 0 in shape:
        return False
    axes = sorted((abs(step), size - 1) for size, step in zip(shape[:3], strides) if size > 1)
    extent = shape[3]
    for step, count in axes:
        if step < extent:
            break
        extent += step * count
    else:
        return False  # each axis steps over all that the smaller ones reach
    for i, (step, count) in enumerate(axes):  # two rows differ: take the first axis along which they do
        both_ways = [(other, 2 * times) for other, times in axes[i + 1 :]]
        start = step - sum(other * times for other, times in axes[i + 1 :])
        if _reaches(start, [(step, count - 1), *both_ways], shape[3]):
            return True
    return False


def overlap(distance: int, one: Any, other: Any) -> bool:
    """True if a row of a layout shares an element with a row of another."""
    return _overlap(distance, one.shape, one.strides, other.shape, other.strides)


@functools.lru_cache(maxsize=1024)
def _overlap(
    distance: int, shape: Sequence[int], strides: Sequence[int], other_shape: Sequence[int], other: Sequence[int]
) -> bool:
    if 0 in shape or 0 in other_shape:
        return False
    steps = [*zip(strides[:3], shape), *((-step, size) for step, size in zip(other[:3], other_shape))]
    start = -distance + sum(step * (size - 1) for step, size in steps if step < 0)
    return _reaches(start, [(abs(step), size - 1) for step, size in steps], shape[3])


def _reaches(start: int, terms: Terms, width: int) -> bool:
    """True if start + Σ stride · n, 0 ≤ n ≤ count, comes nearer to 0 than `width`. True if that is too long to find."""
    counts: dict[int, int] = {}
    for step, count in terms:
        counts[step] = counts.get(step, 0) + count
    merged = sorted(((step, count) for step, count in counts.items() if step and count), reverse=True)
    rest = [sum(step * count for step, count in merged[i:]) for i in range(len(merged) + 1)]
    steps = 0
    waiting = [(start, 0)]
    while waiting:
        value, i = waiting.pop()
        steps += 1
        if steps > MOST_STEPS:
            return True
        if value >= width or value + rest[i] <= -width:
            continue
        if i == len(merged):
            return True
        step, count = merged[i]
        least = max(0, (-width - value - rest[i + 1]) // step + 1)
        most = min(count, (width - value - 1) // step)
        waiting += [(value + step * n, i + 1) for n in range(least, min(most, least + MOST_STEPS) + 1)]
    return False
