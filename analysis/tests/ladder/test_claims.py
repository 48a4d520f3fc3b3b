"""The claims of header blocks: ranges, places, and what is refused."""

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.claims import QUANTITIES, parse_claims
from analysis.ladder.headers import load_all


@pytest.mark.parametrize(
    ("text", "quantity", "place", "low", "high"),
    [
        ("loop@sm_80=700±2%", "loop", "sm_80", 686, 714),
        ("loop_change@sm_90a=-62±20", "loop_change", "sm_90a", -82, -42),
        ("loop_change@sm_80=-50±10%", "loop_change", "sm_80", -55, -45),
        ("registers_change@sm_80=10..20", "registers_change", "sm_80", 10, 20),
        ("loop_change@sm_80=-20..-10", "loop_change", "sm_80", -20, -10),
        ("code_ratio@sm_80=1.4±0.05", "code_ratio", "sm_80", 1.35, 1.45),
        ("fa2@4096=0.16±0.02", "fa2", "4096", 0.14, 0.18),
        ("speedup@512=1±0", "speedup", "512", 1, 1),
    ],
)
def test_a_claim_is_read(text: str, quantity: str, place: str, low: float, high: float) -> None:
    (claim,) = parse_claims(text)
    assert (claim.text, claim.quantity, claim.place) == (text, quantity, place)
    assert (claim.low, claim.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loop@sm_80=700", "expected QUANTITY@PLACE=VALUE±TOLERANCE"),
        ("loop=700±2%", "expected QUANTITY@PLACE=VALUE±TOLERANCE"),
        ("loop@sm_80=700±", "expected QUANTITY@PLACE=VALUE±TOLERANCE"),
        ("speed@4096=1±0.1", "no quantity 'speed'; there are loop, "),
        ("fa2@sm_80=1±0.1", "fa2 is claimed at a length, not at 'sm_80'"),
        ("loop@4096=1±0.1", "loop is claimed at an architecture such as sm_80, not at '4096'"),
        ("registers@sm_80=20..10", "the range is empty: 20 is above 10"),
        ("registers@sm_80=20±-1", "the range is empty: 21 is above 19"),
        ("speedup@4096=1.02", "expected QUANTITY@PLACE=VALUE±TOLERANCE"),
        ("fa3@4096=1.02±0.01", "no quantity 'fa3'"),
        ("speedup[d64]@4096=1.02±0.01", "expected QUANTITY@PLACE=VALUE±TOLERANCE"),
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
