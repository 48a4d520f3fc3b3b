"""The kernels of real_faults.cu: how each is launched, and what the emulator says of the faulty one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parent / "real_faults.cu"


@dataclass(frozen=True)
class Fault:
    name: str  # of the kernels: followed by _faulty or _repaired
    found: str  # the class of the finding
    says: str
    block: int
    args: str  # as ptxrun takes them: TYPE:VALUE, out:TYPE:COUNT or buf:TYPE:COUNT[:ramp]
    grid: int = 1
    options: tuple[str, ...] = ()  # of ptxrun
    right: Callable[[], Any] | None = None  # the output, where a wrong one is all that is found
    overlaps: bool = False  # the kernel NAME_before, which is launched first, with the same arguments


def product() -> Any:
    """Return A B, whose elements are 0, 1, 2, ..."""
    A, B = (
        np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) for rows, columns in ((64, 16), (16, 24))
    )
    return A @ B


FAULTS = [
    Fault("store_ring", "race", "another thread read", 128, "out:u32:512"),
    Fault("zero_state", "missing-proxy-fence", "without a fence.proxy.async in between", 128, "out:u32:128"),
    Fault("staged_copy", "async-in-flight", "a bulk copy may still read it", 32, "out:u32:256 buf:u32:256:ramp"),
    Fault(
        "stage_read",
        "missing-proxy-fence",
        "an ordinary instruction has read it",
        32,
        "out:u32:128 buf:u32:128:ramp",
        options=("--fence-behind-reads",),
    ),
    Fault("next_tensor", "async-in-flight", "changes the tensor map", 32, "out:u32:64 buf:u32:32"),
    Fault("polled_copy", "missing-proxy-fence", "global memory", 32, "buf:u32:32 buf:u32:32 buf:i32:1", grid=2),
    Fault("lanes_arrive", "barrier-misuse", "mbarrier.init announced fewer", 32, "out:u32:32 buf:u32:32:ramp"),
    Fault("histogram_rounds", "race", "another thread", 128, "out:u32:128"),
    Fault("maximum_scratch", "race", "another thread", 128, "out:f32:256 buf:f32:256:ramp"),
    Fault("sum_over_maximum", "race", "another thread read", 128, "out:f32:128 buf:f32:128:ramp"),
    Fault("cleared_sums", "race", "another thread", 128, "out:f32:128 buf:f32:128:ramp"),
    Fault("early_commit", "race", "another thread wrote", 64, "out:u32:64 buf:u32:64:ramp"),
    Fault("warp_list", "race", "within a warp", 32, "out:u32:32 buf:u32:32:ramp"),
    Fault("scales_behind", "race", "within a warp", 32, "out:u32:18 buf:u32:16:ramp"),
    Fault("leader_rewrites", "race", "another thread", 64, "out:u32:64"),
    Fault("offset_fill", "race", "another thread", 64, "out:u32:64 buf:u32:64:ramp"),
    Fault("sum_of_one", "race", "bar.sync", 128, "out:u32:128 buf:u32:128:ramp"),
    Fault("barrier_of_some", "race", "bar.sync", 128, "out:u32:128 buf:u32:128:ramp"),
    Fault("barrier_in_branch", "divergent-sync", "took another path", 64, "out:u32:64 buf:u32:64:ramp i32:40"),
    Fault("hoisted_barrier", "race", "bar.sync", 64, "out:u32:64 buf:u32:64:ramp"),
    Fault("guard_of_48", "race", "another thread", 64, "out:u32:48 buf:u32:64:ramp"),
    Fault("group_arrival", "race", "global memory", 64, "out:u32:128 buf:u32:128 buf:u32:1", grid=2),
    Fault("counter_reset", "race", "global memory", 32, "out:u32:2 buf:u32:1", grid=2),
    Fault("peer_store", "cta-not-started", "may not have started", 32, "out:u32:64", grid=2),
    Fault("late_init", "barrier-misuse", "nothing orders its mbarrier.init before that", 32, "out:u32:64", grid=2),
    Fault("relaxed_barrier", "race", "another thread", 64, "out:u32:128 buf:u32:1:ramp", grid=2),
    Fault("cleared_mailbox", "race", "of the CTA with rank", 32, "out:u32:64", grid=2),
    Fault("missed_phase", "deadlock", "none can free another", 64, "out:u32:256"),
    Fault("no_arrival", "deadlock", "needs 1 of 1 arrivals", 32, "out:u32:32 buf:u32:32:ramp"),
    Fault("early_partition", "race", "griddepcontrol.wait", 64, "out:u32:64 buf:u32:64:ramp buf:u32:64", overlaps=True),
    Fault("constant_load", "race", "ld.global.nc", 64, "out:f32:64 buf:f32:64"),
    Fault("table_read_back", "race", "global memory", 64, "out:u32:64 buf:u32:64"),
    Fault(
        "single_buffer", "async-in-flight", "a wgmma or a bulk copy may still read it", 128, "out:f32:512 buf:u32:512"
    ),
    Fault("two_groups", "async-in-flight", "a wgmma", 256, "out:f32:1024 buf:u32:512"),
    Fault(
        "stored_tiles", "missing-proxy-fence", "without a fence.proxy.async in between", 128, "out:f32:512 buf:u32:512"
    ),
    Fault(
        "narrow_tile",
        "elements differ",
        "--expect",
        128,
        "out:f32:1536 buf:f16:1024:ramp buf:f16:384:ramp",
        right=product,
    ),
    Fault("retired_early", "race", "global memory", 64, "out:u32:64 buf:u32:2 buf:u32:1", grid=2),
    Fault("neighbor_adds", "race", "another thread", 64, "out:u32:64"),
    Fault("copied_too_early", "race", "another thread read", 64, "out:u32:64 buf:u32:256:ramp"),
    Fault("one_lane_tells", "race", "within a warp", 64, "out:u32:128"),
]
