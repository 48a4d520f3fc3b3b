"""The ladder's machine code on sm_80: what the algorithm fixes, and what v07 holds."""

import os
import subprocess
from collections import Counter
from functools import cache

import pytest

from analysis.files import root
from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import Version, load_all
from analysis.machine_code.counts import count_instructions
from analysis.machine_code.regions import split
from analysis.machine_code.sass import Listing, parse_listing
from analysis.machine_code.subjects import resolve
from analysis.tests.support.compiled import read_listings

KV_LOOP = "loop"
SIXTEEN = [version for version in load_all(root()).values() if "v01" <= version.version <= "v16"]


@cache
def loop_counts(name: str, config: KernelConfig) -> Counter[str]:
    """Opcode families in the KV loop, dummies that are never executed included; "TOTAL" is their sum."""
    return counted(listing_of(name, config))


def listing_of(name: str, config: KernelConfig) -> Listing:
    """Of a version's own config the committed listing, which the gate compares with the build; else what is built."""
    own = parse_listing((root() / f"sass/{name}.sm_80.sass").read_text(), name)[0]
    if own.config == config:
        return own
    subject = resolve(name, "sm_80", config)
    return read_listings(subject.path)[subject.symbol]


def counted(listing: Listing) -> Counter[str]:
    code = split(listing).regions[KV_LOOP]
    counts = count_instructions(KV_LOOP, code)
    families: Counter[str] = Counter(TOTAL=counts.total)
    for opcode, n in counts.by_name.items():
        families[opcode.split(" ")[0]] += n
    return families


def own_loop(version: Version) -> Counter[str]:
    return loop_counts(version.version, version.header.config)


@pytest.mark.parametrize("version", SIXTEEN, ids=lambda version: version.version)
def test_the_algorithm_fixes_these_counts(version: Version) -> None:
    """Per warp and KV block: matrix instructions, shared-memory reads, copies, exponentials, maxima, shuffles."""
    config = version.header.config
    rows = config.B_r // config.n_warps
    scores, own_rows = rows * config.B_c // 32, rows // 8  # of one thread
    counts = own_loop(version)
    Q_reads = 0 if config.Q_mma_load_K_tiles == 0 else (rows // 16) * (config.d_head // 16)
    expected = {
        "HMMA": (rows // 16) * (config.B_c // 8) * (config.d_head // 16) * 2,
        "LDSM": (config.B_c // 16) * (config.d_head // 16) + Q_reads,
        "LDSM.MT88": (config.B_c // 16) * (config.d_head // 16),
        "LDGSTS": 2 * config.B_c * config.d_head * 2 // 16 // config.threads(),
        "MUFU.EX2": scores + own_rows,
        "FMNMX": scores + 2 * own_rows,
        "SHFL": 2 * own_rows,
        "F2F/F2FP": scores // 2,
        "BAR": 2 if config.eager_load_blocks else 3,
    }
    if config.optimized_softmax:
        expected |= {"FFMA": scores + own_rows, "FMUL": rows * config.d_head // 32 + 2 * own_rows, "FADD": scores}
    else:
        expected |= {"FADD": 2 * scores}
    assert {name: counts[name] for name in expected} == expected


@pytest.mark.parametrize("version", SIXTEEN, ids=lambda version: version.version)
def test_local_memory_stays_out_of_the_loop(version: Version) -> None:
    """No load or store of spilled values in a KV loop of the version's own configuration, in either type."""
    for dtype in Dtype:
        _, kernel = resolve(version.version, "sm_80", version.header.config.replace(dtype=dtype)).cubin_or_refuse("it")
        if kernel.ldl == kernel.stl == 0:
            continue  # nowhere, so not in the loop
        counts = loop_counts(version.version, version.header.config.replace(dtype=dtype))
        assert counts["LDL"] == counts["STL"] == 0


def test_the_autotuned_version_holds_all_before_it() -> None:
    """Built with the configuration of an earlier version, v07 has that version's main loop."""
    earlier = [version for version in SIXTEEN if version.version < "v07"]
    configs = [version.header.config for version in earlier]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = [
        "make",
        "cubins",
        "VER=v07",
        "ARCHS=80",
        "KERNELS=" + ";".join(config.short_form() for config in configs),
    ]
    subprocess.run(command, cwd=root(), env=environment, check=True, capture_output=True)
    for version, config in zip(earlier, configs, strict=True):
        assert loop_counts("v07", config) == own_loop(version), version.version
