"""Shared memory as its banks see it: where a block's chunks lie, and how often an access must be repeated.

    groups = [bank_group(row, 3, swizzled=True) for row in range(8)]     # eight different ones
    conflict_ways(groups)                                                # 1

A row of d_head 16-bit elements is 256 bytes: 16 chunks of 16 bytes. The 32 banks of 4 bytes deliver 8 chunks at once
(CUDA C++ Programming Guide, "Shared Memory"): a chunk lies in one of 8 groups of 4 banks. A phase of ldmatrix reads
8 chunks; those of one group come one after another.
"""

from collections import Counter
from collections.abc import Iterable

GROUPS = 8  # of 4 banks
CHUNKS_IN_ROW = 16


def place_of(row: int, chunk: int, swizzled: bool) -> int:
    """The position in its row at which a chunk is kept; v02's header says why."""
    return chunk ^ row % GROUPS if swizzled else chunk


def bank_group(row: int, chunk: int, swizzled: bool) -> int:
    """The group of 4 banks that holds a chunk of a block of rows."""
    return (row * CHUNKS_IN_ROW + place_of(row, chunk, swizzled)) % GROUPS


def conflict_ways(groups: Iterable[int]) -> int:
    """The number of wavefronts of an access to these groups: 1 means no conflicts."""
    return max(Counter(groups).values())


def ldmatrix_ways(chunk: int, swizzled: bool) -> int:
    """The banks of one phase of ldmatrix: the same chunk of eight rows."""
    return conflict_ways(bank_group(row, chunk, swizzled) for row in range(GROUPS))
