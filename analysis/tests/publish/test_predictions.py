"""Claims against what is recorded: where each figure comes from, and the scores."""

from dataclasses import replace
from functools import cache

import pytest

from analysis.files import root
from analysis.ladder.claims import parse_claims
from analysis.measure.stats import Interval
from analysis.publish import predictions
from analysis.publish.overview import Lengths, Speed, Step, read_steps
from analysis.publish.predictions import HIT, MISS, NEAR, OPEN, Judged, measured_for


@cache
def steps() -> list[Step]:
    return read_steps(root())


def with_speeds(step: Step, ratios: dict[int, float]) -> Step:
    """The step, measured on a made-up H200 at these lengths as speed / FA2's."""
    speeds = {seq: Speed("H200", 1.0, Interval(ratio, ratio, ratio)) for seq, ratio in ratios.items()}
    return replace(step, lengths={"h200": speeds})


def test_speeds_are_those_at_the_length_that_is_claimed() -> None:
    """A gain is Step.gain(), whatever the two ratios are."""
    step = replace(with_speeds(steps()[1], {512: 0.6, 4096: 0.76}), gains={"h200": {512: 1.2, 4096: 0.95}})
    fa2, short, long, longer = parse_claims("fa2@4096=1±1 speedup@512=1±1 speedup@4096=1±1 speedup@8192=1±1")
    assert measured_for(fa2, step, None) == pytest.approx(0.76)
    assert [measured_for(claim, step, None) for claim in (short, long, longer)] == [1.2, 0.95, None]


def test_figures_of_machine_code_are_those_of_the_architecture() -> None:
    """sass/ holds the code for sm_90; the lengths of the code for sm_80 come from the record of the loops."""
    parent, step = steps()[1:3]
    for arch in ("sm_80", "sm_90"):
        loop, change, registers, code = parse_claims(
            f"loop@{arch}=1±1 loop_change@{arch}=1±1 registers_change@{arch}=1±1 code_ratio@{arch}=1±1"
        )
        before, after = (each.lengths_of_code[arch] for each in (parent, step))
        assert measured_for(loop, step, parent) == after.loop
        assert measured_for(change, step, parent) == after.loop - before.loop
        assert measured_for(registers, step, parent) == step.rows[arch].registers - parent.rows[arch].registers
        assert measured_for(code, step, parent) == after.kernel / before.kernel
        assert measured_for(code, step, replace(parent, lengths_of_code={})) is None
    listed = step.parts["sm_90"]
    assert list(step.parts) == ["sm_90"] and step.lengths_of_code["sm_80"] == Lengths(857, 128, 1163)
    assert step.lengths_of_code["sm_90"] == Lengths(len(listed.loop), 128, len(listed.listing.body))


def test_scores_are_added_up() -> None:
    (claim,) = parse_claims("registers@sm_80=10..20")
    judged = [Judged("v01", claim, measured) for measured in (10, 20, 9.6, 21, 22, None)]
    assert [one.score for one in judged] == [HIT, HIT, NEAR, NEAR, MISS, OPEN]
    (change,) = parse_claims("registers_change@sm_80=-3..-1")
    assert [Judged("v01", change, measured).score for measured in (-5, 1, 2)] == [NEAR, NEAR, MISS]
    (ratio,) = parse_claims("speedup@4096=1.02±0.01")
    assert [Judged("v01", ratio, measured).score for measured in (0.995, 0.98)] == [NEAR, MISS]
    (wide,) = parse_claims("speedup@4096=4±0.4")
    assert [Judged("v02", wide, measured).score for measured in (4.6, 5.0)] == [NEAR, MISS]
    assert predictions.tally(judged).rows == [("registers", 2, 2, 1, 1)]


def test_every_claim_of_the_ladder_is_judged_once() -> None:
    judged = predictions.judge(steps())
    assert [(one.version, one.claim) for one in judged] == [
        (step.name, claim) for step in steps() for claim in step.version.header.claims
    ]
    first = judged[0]
    assert (first.version, first.claim.quantity, first.measured) == ("v00", "loop", steps()[0].loop("sm_80"))
