"""New keys and values into caches, by the array functions of their package: no kernel, and nothing waits for lengths.

    seqlens_k = append(k_cache, v_cache, seqlens_k, block_table, k_new, v_new)      # seqlens_k + seq_new

A row that does not fit is written nowhere: instead, one that fits is written a second time, with the same value.
"""

from __future__ import annotations

from typing import Any

from flashladder._frameworks import HOST, JAX, DLPack, common, kind_of


def append(k_cache: Any, v_cache: Any, seqlens_k: Any, block_table: Any, k_new: Any, v_new: Any) -> Any:
    """Write rows after the lengths, and the new lengths. ValueError if the shapes do not fit together."""
    _check_shapes(k_cache, v_cache, seqlens_k, block_table, k_new, v_new)
    framework = common(k_cache, v_cache, k_new, v_new)
    if type(framework) in (JAX, DLPack):
        raise NotImplementedError(f"k_new is {kind_of(k_new)}: new rows are written for PyTorch, CuPy and NumPy")
    package, host = framework.package(), framework.layout(k_cache).device == HOST
    new = k_new.shape[1]
    if not k_new.shape[0] or not new:
        return seqlens_k
    sample, row, fits = _places(package, framework, k_cache, seqlens_k, block_table, new)
    if host and not framework.is_traced() and not bool(fits.all()):
        pages = "" if block_table is None else ", and block_table must name pages of it"
        raise ValueError(
            f"{new} rows after seqlens_k do not fit: the cache has {_capacity(k_cache, block_table)} rows for a "
            f"sequence{pages}"
        )
    # A row that does not fit is replaced by the first that does; if none does, by the first row of the cache.
    order = package.arange(fits.shape[0], **framework.same_device(fits))
    first = package.argmax(fits + 0)
    source = package.where(fits, order, first)
    sample, row = sample[source], row[source]
    for cache, rows in ((k_cache, k_new), (v_cache, v_new)):
        values = rows.reshape(-1, *rows.shape[2:])[source]
        cache[sample, row] = package.where(fits.any(), values, cache[sample, row])
    return seqlens_k + new


def _capacity(cache: Any, block_table: Any) -> int:
    return int(cache.shape[1] if block_table is None else cache.shape[1] * block_table.shape[1])


def _places(
    package: Any, framework: Any, cache: Any, seqlens_k: Any, block_table: Any, new: int
) -> tuple[Any, Any, Any]:
    """Sample or page and row of each new row, and whether it fits; 0 where it does not."""
    numbers = package.arange(max(seqlens_k.shape[0], new), **framework.same_device(seqlens_k))
    at = (seqlens_k[:, None] + numbers[None, :new]).reshape(-1)  # the row of its sequence
    sequence = (numbers[: seqlens_k.shape[0], None] + 0 * numbers[None, :new]).reshape(-1)
    fits = (at >= 0) & (at < _capacity(cache, block_table))
    at = package.where(fits, at, 0 * at)
    if block_table is None:
        return sequence, at, fits
    page = block_table[sequence, at // cache.shape[1]] + 0 * at  # as wide an integer as the others
    fits = fits & (page >= 0) & (page < cache.shape[0])
    return package.where(fits, page, 0 * page), at % cache.shape[1], fits


def _check_shapes(k_cache: Any, v_cache: Any, seqlens_k: Any, block_table: Any, k_new: Any, v_new: Any) -> None:
    for name, array in (("k_cache", k_cache), ("v_cache", v_cache), ("k_new", k_new), ("v_new", v_new)):
        if array.ndim != 4:
            raise ValueError(f"{name} has {array.ndim} dimensions, not 4")
        if array.dtype != k_cache.dtype:
            raise ValueError(f"{name} is {array.dtype} and k_cache {k_cache.dtype}: they must be of one type")
    if seqlens_k.ndim != 1 or (block_table is not None and block_table.ndim != 2):
        raise ValueError("seqlens_k must have one dimension and block_table two")
    batch, wanted = seqlens_k.shape[0], tuple(k_cache.shape[2:])
    samples = k_cache.shape[0] if block_table is None else block_table.shape[0]
    if samples != batch:
        raise ValueError(f"seqlens_k has {batch} lengths for {samples} sequences: pass one length per sequence")
    if tuple(v_cache.shape) != tuple(k_cache.shape) or tuple(v_new.shape) != tuple(k_new.shape):
        raise ValueError("k and v must have equal shapes, both the caches and the new rows")
    if k_new.shape[0] != batch or tuple(k_new.shape[2:]) != wanted:
        raise ValueError(
            f"k_new has the shape {tuple(k_new.shape)}: ({batch}, seq_new, {wanted[0]}, {wanted[1]}) is needed"
        )
