"""The numbers that a header block predicts, such as `loop@sm_80=676±2% fa2@4096=0.16±0.02 registers@sm_80=190..210`.

    for claim in parse_claims(text): claim.quantity, claim.location, claim.low, claim.high

A claim is QUANTITY@LOCATION=RANGE. LOCATION is an architecture for figures of machine code and a sequence length for
speeds; RANGE is VALUE±TOLERANCE, VALUE±PERCENT% or LOW..HIGH. The prose of `predict` is not parsed.

Speeds are of d_head 128 without a mask.
"""

import re
from dataclasses import dataclass

from analysis.errors import AnalysisError

# v07; v00a and v00b come between v00 and v01; b07 is one of the backward pass, f03 one of fp8
RUNG = r"[vbf][0-9]{2}[a-z]?"
CODE = {
    "loop": "loop instructions",
    "loop_change": "loop instructions, change",
    "registers": "registers",
    "registers_change": "registers, change",
    "code_ratio": "kernel size / parent's",
}
SPEED = {"fa2": "speed / FA2", "speedup": "speed / parent's"}
QUANTITIES = CODE | SPEED
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_CLAIM = re.compile(
    rf"(?P<quantity>\w+)@(?P<location>\w+)=(?P<value>{_NUMBER})"
    rf"(?:±(?P<tolerance>{_NUMBER})(?P<percent>%?)|\.\.(?P<high>{_NUMBER}))"
)


@dataclass(frozen=True)
class Claim:
    """One predicted number. A measured value is a hit within low … high; the child contains the comparison with its
    parent."""

    text: str  # "loop@sm_80=676±2%"
    quantity: str  # a key of QUANTITIES
    location: str  # "sm_80", or "4096" for speeds
    low: float
    high: float


def parse_claims(text: str) -> tuple[Claim, ...]:
    """The claims of a line; AnalysisError names the one that is not understood."""
    return tuple(_parse(word) for word in text.split())


def _parse(word: str) -> Claim:
    match = _CLAIM.fullmatch(word)
    if not match:
        raise AnalysisError(f"claim {word!r}: expected QUANTITY@LOCATION=VALUE±TOLERANCE or =LOW..HIGH")
    quantity, location = match["quantity"], match["location"]
    if quantity not in QUANTITIES:
        raise AnalysisError(f"claim {word!r}: no quantity {quantity!r}; there are {', '.join(QUANTITIES)}")
    form, example = (
        (r"sm_[0-9]+[af]?", "an architecture such as sm_80") if quantity in CODE else (r"[0-9]+", "a length")
    )
    if not re.fullmatch(form, location):
        raise AnalysisError(f"claim {word!r}: {quantity} is claimed at {example}, not at {location!r}")
    value = float(match["value"])
    if match["high"] is not None:
        low, high = value, float(match["high"])
    else:
        tolerance = float(match["tolerance"]) * (abs(value) / 100 if match["percent"] else 1)
        low, high = value - tolerance, value + tolerance
    if low > high:
        raise AnalysisError(f"claim {word!r}: the range is empty: {low:g} is above {high:g}")
    return Claim(word, quantity, location, low, high)
