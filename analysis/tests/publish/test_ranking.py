"""library/ranking.h: the order that records say, and a file that the compiler takes."""

from dataclasses import replace

import pytest

from analysis.files import read_text, root
from analysis.ladder.headers import load_all
from analysis.measure.records import Record
from analysis.publish.overview import records_in
from analysis.publish.ranking import FILE, measured, ranking_text, scores

VERSIONS = load_all(root())


@pytest.fixture(scope="module")
def one() -> Record:
    """A record of v46, of which others are made."""
    return next(record for record in records_in(root() / "logs/general/h200.jsonl") if record.subject == "v46")


def of(record: Record, subject: str, ns: float, seq: int = 1024, **fields: object) -> Record:
    problem = replace(record.problem, seq=seq, causal=False, d_head=128, **fields)  # type: ignore[arg-type]
    return replace(record, subject=subject, samples_ns=(ns, ns, 9 * ns), problem=problem)


def test_a_score_is_the_mean_share_of_the_fastest_speed(one: Record) -> None:
    records = [of(one, "v38", 200), of(one, "v46", 100), of(one, "v38", 100, 2048), of(one, "v46", 200, 2048)]
    found = scores([*records, of(one, "v42", 50, 2048)])["9.0", 128, False]
    assert found["v38"] == pytest.approx((0.5 * 0.5) ** 0.5) and found["v46"] == pytest.approx((1 * 0.25) ** 0.5)


def test_a_problem_of_one_version_says_nothing_unless_it_is_all_there_is(one: Record) -> None:
    pair = [of(one, "v38", 200), of(one, "v46", 100)]
    assert scores([*pair, of(one, "v38", 1, 4096)]) == scores(pair)
    assert scores([of(one, "v46", 100)]) == {("9.0", 128, False): {"v46": 1.0}}


def test_wrong_results_and_other_configurations_do_not_count(one: Record) -> None:
    assert measured([one], VERSIONS) == [one]
    wrong = [replace(one, passed=False), replace(one, config=one.config + "+swizzled"), replace(one, samples_ns=())]
    assert measured([*wrong, replace(one, subject="fa3", is_peer=True)], VERSIONS) == []


@pytest.mark.whole_ladder
def test_the_committed_file_is_fresh_and_causal_attention_is_led_by_the_last_version() -> None:
    text = ranking_text(root(), VERSIONS)
    assert read_text(root() / FILE) == text
    rows = " ".join(text.split())
    assert '{9, 0, 128, true, "v52 ' in rows and '{9, 0, 256, true, "v52' in rows
    assert all(len(line) <= 120 for line in text.splitlines())
