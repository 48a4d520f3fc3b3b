"""New keys and values into caches, by the array functions of their package: no kernel, and nothing waits for lengths.

    seqlens_k = append(k_cache, v_cache, seqlens_k, block_table, k_new, v_new)      # seqlens_k + seq_new

A row that does not fit is written nowhere: instead, one that fits is written a second time, with the same value.
"""

from __future__ import annotations

from typing import Any

from flashladder._frameworks import HOST, JAX, DLPack, attribute, common, framework_of, kind_of


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
        capacity = _capacity(k_cache, block_table)
        for b, length in enumerate(seqlens_k.tolist()):
            if not 0 <= length <= capacity - new:
                raise ValueError(
                    f"seqlens_k[{b}] is {length}: {new} new rows need a length from 0 to {capacity - new}, because the "
                    f"cache has {capacity} rows for a sequence"
                )
        wrong = block_table[(block_table < 0) | (block_table >= k_cache.shape[0])]
        raise ValueError(f"block_table has {int(wrong[0])}: new rows need pages from 0 to {k_cache.shape[0] - 1}")
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
    # Older versions of torch.compile do not trace a | b of dictionaries.
    arrays = {"k_cache": k_cache, "v_cache": v_cache, "k_new": k_new, "v_new": v_new}
    whole = {"seqlens_k": seqlens_k, **({} if block_table is None else {"block_table": block_table})}
    dimensions = {**dict.fromkeys(arrays, 4), "seqlens_k": 1, "block_table": 2}
    framework, device = framework_of("k_cache", k_cache), attribute(k_cache, "device", None)
    for name, array in {**arrays, **whole}.items():
        if framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {kind_of(array)} and k_cache {kind_of(k_cache)}: pass arrays of one package")
        if attribute(array, "device", None) != device:
            raise ValueError(f"{name} is on {array.device} and k_cache on {device}: pass both on one device")
        if array.ndim != dimensions[name]:
            raise ValueError(
                f"{name} has the shape {tuple(array.shape)}: the number of dimensions must be {dimensions[name]}"
            )
        if name in whole and str(array.dtype).rpartition(".")[2] != "int32":
            raise ValueError(f"{name} is {array.dtype}: int32 is needed")
        if name in arrays and array.dtype != k_cache.dtype:
            raise ValueError(f"{name} is {array.dtype} and k_cache {k_cache.dtype}: they must be of one type")
    batch, kv_heads, d_head_v = seqlens_k.shape[0], k_cache.shape[2], v_cache.shape[3]
    of_new = (batch, k_new.shape[1], kv_heads)
    for name, wanted, why in (
        ("v_cache", (*k_cache.shape[:3], d_head_v), "that of k_cache, where only the last axis may differ"),
        ("k_new", (*of_new, k_cache.shape[3]), "a row of k_cache for each entry of seqlens_k"),
        ("v_new", (*of_new, d_head_v), "a row of v_cache for each row of k_new"),
    ):
        found = tuple(arrays[name].shape)
        if found != wanted:
            raise ValueError(f"{name} has the shape {found}: {wanted} is needed, {why}")
    name, array = ("k_cache", k_cache) if block_table is None else ("block_table", block_table)
    if array.shape[0] != batch:
        raise ValueError(f"{name} has the shape {tuple(array.shape)}: seqlens_k has {batch} entries, one per sequence")
