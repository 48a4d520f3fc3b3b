"""The number of CTAs and warps of a kernel that an SM holds, by architecture.

occupancy("sm_80", registers=168, threads=128, smem_bytes=49152).ctas
"""

from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.ladder.config import KernelConfig

WARP = 32
REGISTERS_PER_SM = 65536
REGISTER_UNIT = 256  # registers that a warp is given at a time
WARP_LIMIT = {"sm_80": 64, "sm_86": 48, "sm_89": 48, "sm_90": 64, "sm_100": 64, "sm_120": 48}
# Shared memory an SM can give its CTAs, in bytes, and what each CTA takes in addition to its own ("Compute
# Capabilities" in the CUDA C++ Programming Guide).
SMEM_PER_SM = {"sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228, "sm_100": 228, "sm_120": 100}
SMEM_RESERVED = 1024
LARGEST = 255


@dataclass(frozen=True)
class Occupancy:
    """CTAs of one kernel that fit on an SM."""

    arch: str
    registers: int
    threads: int
    smem_bytes: int
    by_registers: int
    by_smem: int
    by_warps: int

    @property
    def ctas(self) -> int:
        return min(self.by_registers, self.by_smem, self.by_warps)

    @property
    def limit(self) -> str:
        limits = {"registers": self.by_registers, "shared memory": self.by_smem, "warps": self.by_warps}
        return min(limits, key=lambda name: limits[name])


def ctas_by_registers(registers: int, warps: int) -> int:
    """CTAs that the registers of an SM hold: each of its four sub-partitions gives whole warps their registers."""
    per_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    return REGISTERS_PER_SM // 4 // per_warp * 4 // warps


def occupancy(arch: str, registers: int, threads: int, smem_bytes: int) -> Occupancy:
    base = arch.rstrip("af")
    if base not in WARP_LIMIT:
        raise AnalysisError(f"{arch}: occupancy is known for {', '.join(WARP_LIMIT)}")
    warps = -(-threads // 32)
    smem = smem_bytes + SMEM_RESERVED
    return Occupancy(
        arch,
        registers,
        threads,
        smem_bytes,
        ctas_by_registers(registers, warps),
        SMEM_PER_SM[base] * 1024 // smem,
        WARP_LIMIT[base] // warps,
    )


def occupancy_of(arch: str, registers: int, config: KernelConfig) -> Occupancy:
    return occupancy(arch, registers, config.threads(), config.smem_bytes())


def register_steps(threads: int) -> list[tuple[int, int]]:
    """(CTAs per SM, most registers per thread) where one more register would cost a CTA, most CTAs first."""
    warps = -(-threads // 32)
    steps: dict[int, int] = {}
    for registers in range(8, LARGEST + 1):
        steps[ctas_by_registers(registers, warps)] = registers
    return sorted(((ctas, most) for ctas, most in steps.items() if ctas), reverse=True)


def most_warps(arch: str, registers: int | None, threads: int | None, smem_bytes: int) -> int | None:
    """Warps of an SM that registers, static shared memory and the largest CTA allow; None where that is not known.

    A kernel that does not state its CTA size is assumed to have one warp.
    """
    if not registers or arch.rstrip("af") not in WARP_LIMIT:
        return None
    warps = -(-(threads or WARP) // WARP)
    return occupancy(arch, registers, warps * WARP, smem_bytes if threads else 0).ctas * warps
