"""The claims of header blocks: ranges, locations, and what is rejected."""

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.claims import QUANTITIES, parse_claims
from analysis.ladder.headers import load_all


@pytest.mark.parametrize(
    ("text", "quantity", "location", "low", "high"),
    [
        ("loop@sm_80=700±2%", "loop", "sm_80", 686, 714),
        ("loop_change@sm_90a=-62±20", "loop_change", "sm_90a", -82, -42),
        ("registers_change@sm_80=10..20", "registers_change", "sm_80", 10, 20),
        ("fa2@4096=0.16±0.02", "fa2", "4096", 0.14, 0.18),
    ],
)
def test_a_claim_is_read(text: str, quantity: str, location: str, low: float, high: float) -> None:
    (claim,) = parse_claims(text)
    assert (claim.text, claim.quantity, claim.location) == (text, quantity, location)
    assert (claim.low, claim.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loop@sm_80=700", "expected QUANTITY@LOCATION=VALUE±TOLERANCE"),
        ("speed@4096=1±0.1", "no quantity 'speed'; there are loop, "),
        ("fa2@sm_80=1±0.1", "fa2 is claimed at a length, not at 'sm_80'"),
        ("registers@sm_80=20..10", "the range is empty: 20 is above 10"),
    ],
)
def test_another_form_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(AnalysisError) as error:
        parse_claims(f"loop@sm_80=1±1 {text}")
    assert f"claim {text!r}: " in str(error.value) and words in str(error.value)


def test_every_quantity_is_claimed() -> None:
    """By some version; a version may claim nothing."""
    claims = [claim for version in load_all(root()).values() for claim in version.header.claims]
    assert {claim.quantity for claim in claims} == {*QUANTITIES}
