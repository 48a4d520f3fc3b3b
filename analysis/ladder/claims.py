"""The numbers that a header block predicts, such as `loop@sm_80=676±2% fa2@4096=0.16±0.02 registers@sm_80=190..210`.

    for claim in parse_claims(text): claim.quantity, claim.place, claim.low, claim.high

A claim is QUANTITY@PLACE=RANGE. PLACE is an architecture for figures of machine code and a sequence length for speeds;
RANGE is VALUE±TOLERANCE, VALUE±PERCENT% or LOW..HIGH. The prose of `predict` stands beside them and is not parsed.

Speeds are of d_head 128 without a mask. Another case stands in brackets, and behind a slash what it is compared with,
another version or another case: `speedup[d256,causal]@512=1.35`, `speedup[causal/v42,full]@512=0.45`. A claim with
brackets may be a VALUE alone: it is not scored, but shown beside what was measured.
"""

import re
from dataclasses import dataclass, replace

from analysis.errors import AnalysisError

# v07; v00a and v00b lie between v00 and v01; b07 is one of the backward pass, f03 one of fp8
RUNG = r"[vbf][0-9]{2}[a-z]?"
CODE = {
    "loop": "loop instructions",
    "loop_change": "loop instructions, change",
    "registers": "registers",
    "registers_change": "registers, change",
    "code_ratio": "kernel size / parent's",
}
SPEED = {"fa2": "speed / FA2", "speedup": "speed / parent's"}
CASES = {"speedup": SPEED["speedup"], "fa3": "speed / FA3", "tflops": "TFLOP/s"}  # of a claim with brackets
QUANTITIES = CODE | SPEED
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_CLAIM = re.compile(
    r"(?P<quantity>\w+)(?P<brackets>\[(?P<case>[\w,]*)(?:/(?P<against>[\w,]+))?\])?@(?P<place>\w+)="
    rf"(?P<value>{_NUMBER})(?:±(?P<tolerance>{_NUMBER})(?P<percent>%?)|\.\.(?P<high>{_NUMBER}))?"
)


@dataclass(frozen=True)
class Setting:
    """What a claim is about, or is compared with: heads of a size, with the causal mask or without."""

    d_head: int = 128
    causal: bool = False
    version: str = ""  # "": the claim's own, or its parent


@dataclass(frozen=True)
class Claim:
    """One predicted number. What came is a hit within low … high; the comparison with the parent is the child's."""

    text: str  # "loop@sm_80=676±2%"
    quantity: str  # a key of QUANTITIES
    place: str  # "sm_80", or "4096" for speeds
    low: float
    high: float
    case: Setting | None = None  # of a claim with brackets
    against: Setting | None = None

    @property
    def scored(self) -> bool:
        """Whether hit or miss is said of it."""
        return self.case is None


def parse_claims(text: str) -> tuple[Claim, ...]:
    """The claims of a line; AnalysisError names the one that is not understood."""
    return tuple(_parse(word) for word in text.split())


def _parse(word: str) -> Claim:
    match = _CLAIM.fullmatch(word)
    if not match:
        raise AnalysisError(f"claim {word!r}: expected QUANTITY@PLACE=VALUE±TOLERANCE or =LOW..HIGH")
    quantity, place, brackets = match["quantity"], match["place"], match["brackets"]
    known = CASES if brackets else QUANTITIES
    if quantity not in known:
        what = "quantity with brackets" if brackets else "quantity"
        raise AnalysisError(f"claim {word!r}: no {what} {quantity!r}; there are {', '.join(known)}")
    if not (brackets or match["tolerance"] or match["high"]):
        raise AnalysisError(f"claim {word!r}: expected QUANTITY@PLACE=VALUE±TOLERANCE or =LOW..HIGH")
    form, example = (
        (r"sm_[0-9]+[af]?", "an architecture such as sm_80") if quantity in CODE else (r"[0-9]+", "a length")
    )
    if not re.fullmatch(form, place):
        raise AnalysisError(f"claim {word!r}: {quantity} is claimed at {example}, not at {place!r}")
    value = float(match["value"])
    if match["high"] is not None:
        low, high = value, float(match["high"])
    else:
        tolerance = float(match["tolerance"] or 0) * (abs(value) / 100 if match["percent"] else 1)
        low, high = value - tolerance, value + tolerance
    if low > high:
        raise AnalysisError(f"claim {word!r}: the range is empty: {low:g} is above {high:g}")
    if not brackets:
        return Claim(word, quantity, place, low, high)
    if match["against"] and quantity != "speedup":
        raise AnalysisError(f"claim {word!r}: only speedup is compared with another version or case")
    case = _setting(word, match["case"], Setting())
    if case.version:
        raise AnalysisError(f"claim {word!r}: a claim is about its own version; another stands behind a slash")
    return Claim(word, quantity, place, low, high, case, _setting(word, match["against"] or "", case))


def _setting(claim: str, words: str, setting: Setting) -> Setting:
    """`setting` with what the words say: "d64", "causal", "full" for no mask, "v42"."""
    for word in filter(None, words.split(",")):
        if re.fullmatch(r"d[1-9][0-9]*", word):
            setting = replace(setting, d_head=int(word[1:]))
        elif re.fullmatch(RUNG, word):
            setting = replace(setting, version=word)
        elif word in ("causal", "full"):
            setting = replace(setting, causal=word == "causal")
        else:
            raise AnalysisError(f"claim {claim!r}: no case {word!r}; there are causal, full and such as d64 and v42")
    return setting
