"""The opcodes of sm_75 to sm_121 by execution pipe, and the families that counts are made of.

Names are those of the instruction set tables in NVIDIA's "CUDA Binary Utilities". Pipes: tensor, fma (fp32, fp16 and
integer multiply), alu (integer, logic, moves, compares, conversions that pack), xu (MUFU and other conversions), fp64,
tmem (tensor memory to and from registers), lsu (other memory, shuffles), uniform, control. An opcode that is in no
table is read like any other and counts as "other": its pipe is not known, nor whether it branches.
"""

from collections.abc import Iterable
from functools import cache

_PIPES = {
    "tensor": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA "
    "UTCBMMA WARPGROUP WARPGROUPSET",
    "fma": "FADD FMUL FFMA FADD32I FMUL32I FFMA32I FADD2 FMUL2 FFMA2 FSWZADD HADD2 HMUL2 HFMA2 HADD2_32I HFMA2_32I "
    "HMUL2_32I IMAD IMAD32I IMUL IMUL32I IDP IDP4A IMADSP XMAD HADD2F",
    "alu": "IADD3 IADD IADD32I IADD2 LOP3 LOP LOP32I SHF SHL SHR LEA MOV MOV32I SEL FSEL PRMT ISETP FSETP HSETP2 "
    "HSET2 FSET FMNMX FMNMX3 HMNMX2 HMNMX2_3 IMNMX VIMNMX VIMNMX3 VIADD VIADDMNMX VABSDIFF VABSDIFF4 IABS PLOP3 "
    "PSETP PSET P2R R2P CS2R BMSK SGXT F2FP I2IP FCHK ISCADD LEPC VHMNMX SCATTER GATHER VOTE MOVM I2FP F2IP "
    "IADD64 ISETP64 MOV64 SHF64 HMNMX VIADD2 VIMNMX2 REDUX CREDUX WARPSYNC_ALU FSWZ SPMETADATA GENMETADATA "
    "F2FPX IDE FTZ",
    "xu": "MUFU F2F F2I I2F FRND POPC FLO BREV I2I F2F2 UF2F",
    "fp64": "DADD DMUL DFMA DSETP DMNMX",
    "tmem": "LDTM STTM",
    "lsu": "LDS STS LDSM STSM LDG STG LDGSTS LDL STL LD ST LDC LDGMC ATOM ATOMS ATOMG RED REDG REDAS REDS MATCH SHFL "
    "LDGDEPBAR ARRIVES CCTL CCTLL CCTLT QSPC PIXLD SUATOM SULD SURED SUST TEX TLD TLD4 TMML TXD TXQ AL2P ALD AST "
    "OUT ISBERD ISBEWR IPA FOOTPRINT LDT STT SYNCS ST_ASYNC STAS LD_ASYNC UTMALDG UTMASTG UTMAREDG "
    "UTMAPF UTMACCTL UTMACMDFLUSH UBLKCP UBLKPF UBLKRED UTCCP UTCSHIFT UTCBAR UTCATOMSWS UTCLDSWS UTCSTSWS S2R "
    "S2UR R2UR LDTRAM MULTIMEM LDGA UCGABAR_ARV UCGABAR_WAIT UGETNEXTWORKID GETLMEMBASE SETLMEMBASE CGABAR",
    "control": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BAR DEPBAR MEMBAR ERRBAR CGAERRBAR FENCE BSSY BSYNC BREAK BMOV "
    "WARPSYNC YIELD NANOSLEEP KILL BPT RTT NOP RPCMOV SETCTAID CS2UR B2R B2U R2B PMTRIG SSY SYNC PBK BRK PCNT CONT "
    "PRET ACQBULK ACQSHMINIT DEPBAR_ALL ELECT ENDCOLLECTIVE ENDCOLL PREEXIT USETMAXREG SETMAXREG USETSHMSZ "
    "SETSMEMSIZE CCTLX UVIRTCOUNT VIRTCOUNT LDDEPBAR VOTEU_CTRL PLEA SETPRIO UCLEA",
    "uniform": "UIADD3 UIADD ULOP3 ULOP USHF USHL USHR ULEA UMOV USEL UPRMT UISETP UPLOP3 UPSETP UP2UR UR2UP UBREV "
    "UFLO UPOPC UBMSK USGXT UIMAD UIMNMX UVIMNMX UVIADD UIABS ULDC LDCU VOTEU UF2FP UF2I UI2F UI2FP UFADD UFMUL "
    "UFFMA UFSET UFSETP UFSEL UFMNMX UFRND UF2IP UMEMSETS UREDGR UCREDUX UREDUX USTGR UIADD3X UIADD64 UIADD3_64 "
    "USETP UF2F16 UISETP64 UIMAD64 UFCHK UMUFU UCS2R USCLE UTMAPREF USTS UI2I UI2IP",
}
PIPE_OF = {opcode: pipe for pipe, opcodes in _PIPES.items() for opcode in opcodes.split()}
KNOWN = frozenset(PIPE_OF)
OTHER = "other"  # pipe and family of an opcode that is not known
PIPES = (*_PIPES, OTHER)

# Instructions that multiply matrices, one for each warp, warp group or CTA.
WARP_GROUP = frozenset({"HGMMA", "IGMMA", "BGMMA", "QGMMA"})  # wgmma of sm_90a
# tcgen05.mma of sm_100a
TENSOR_MEMORY = frozenset({"UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA", "UTCBMMA"})
MATRIX = frozenset({"HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA"}) | WARP_GROUP | TENSOR_MEMORY
COPY_ENGINE = frozenset({"UTMALDG", "UBLKCP"})  # copies that one thread starts, mostly into shared memory

# The result of a fixed-latency instruction is ready when the stall counts say so; the others release a scoreboard.
_FIXED = (
    "FADD FMUL FFMA FADD32I FMUL32I FFMA32I IMAD HADD2 HMUL2 HFMA2 IADD3 LOP3 SHF LEA MOV SEL FSEL PRMT ISETP FSETP "
    "FMNMX IMNMX VIMNMX VIADD IABS PLOP3 BMSK SGXT UIADD3 ULOP3 USHF ULEA UMOV USEL UPRMT UISETP UPLOP3"
)
FIXED_LATENCY = frozenset(_FIXED.split())


def main_matrix(bases: Iterable[str]) -> frozenset[str]:
    """The matrix opcodes that a kernel's work is counted in: tcgen05.mma or wgmma where it has any, else all.

    Next to these, the others do what is rare, such as a slow path.
    """
    there = set(bases)
    return next((each for each in (TENSOR_MEMORY, WARP_GROUP) if each & there), MATRIX)


def pipe_of(base: str) -> str:
    """The pipe of an opcode without modifiers."""
    return PIPE_OF.get(base, OTHER)


# Families that keep a modifier, because the modifier is what the versions differ in.
_SPLIT_IMAD = {"MOV", "WIDE", "SHL", "IADD"}


@cache
def family(opcode: str) -> str:
    """The row an opcode is counted in: IADD3.X counts as IADD3, every LOP3.LUT as LOP3, MUFU stays split."""
    base, *modifiers = opcode.split(".")
    if base not in KNOWN:
        return OTHER
    if base == "IMAD" and modifiers and modifiers[0] in _SPLIT_IMAD:
        return "IMAD.MOV.U32" if modifiers[0] == "MOV" else f"IMAD.{modifiers[0]}"
    if base == "LDSM" and "MT88" in modifiers:
        return "LDSM.MT88"
    if base == "MUFU" and modifiers:
        return f"MUFU.{modifiers[0]}"
    if base in ("F2F", "F2FP"):
        return "F2F/F2FP"
    if PIPE_OF.get(base) == "uniform":
        return "uniform(U*)"
    return base
