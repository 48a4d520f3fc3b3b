"""library/ranking.h: the order that records say, and a file that the compiler takes."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.files import read_text, root
from analysis.ladder.headers import load_attention
from analysis.measure.records import Record, Served, records_in
from analysis.publish.ranking import FILE, measured, ranked, ranking_text, scores, with_present_names

KERNELS = load_attention(root())


@pytest.fixture(scope="module")
def one() -> Record:
    """A record of attention/wgmma, of which others are made."""
    records = records_in(root() / "logs/general/h200.jsonl")
    return next(record for record in records if record.subject == "attention/wgmma")


def of(record: Record, subject: str, ns: float, seq: int = 1024, **fields: object) -> Record:
    problem = replace(record.problem, seq=seq, causal=False, d_head=128, **fields)  # type: ignore[arg-type]
    return replace(record, subject=subject, samples_ns=(ns, ns, 9 * ns), problem=problem)


def test_times_are_compared_within_a_run_alone(one: Record) -> None:
    """On a slow day both take three times as long. v35 is twice as fast as v37, which is twice as fast as v33."""
    run = [of(one, "v33", 200), of(one, "v37", 100)]
    slow = [replace(of(one, name, ns), run_id="slow") for name, ns in (("v37", 300), ("v35", 150))]
    assert scores([*run, *slow])["9.0", 128, False] == {"v35": 1.0, "v37": 0.5, "v33": 0.25}


def test_wrong_results_and_other_configurations_do_not_count(one: Record) -> None:
    assert measured([one], KERNELS, {}) == [one]
    wrong = [replace(one, passed=False), replace(one, config=one.config + "+swizzled"), replace(one, samples_ns=())]
    assert measured(wrong, KERNELS, {}) == []
    peer = replace(one, subject="fa3", is_peer=True)
    assert measured([peer, replace(peer, passed=False)], KERNELS, {}) == [peer]


@pytest.mark.parametrize(
    "other",
    [{"cache_dtype": "e4m3"}, {"output_dtype": "bf16"}, {"backward": True}, {"served": Served(seqlens_k=(5, 7))}],
)
def test_another_kind_of_problem_does_not_count(one: Record, other: Any) -> None:
    """A cache in e4m3 is read in half the time: next to the same peer it would make its kernel the fastest."""
    peer = replace(of(one, "fa3", 100, **other), is_peer=True)
    assert measured([of(one, "attention/wgmma", 50, **other), peer], KERNELS, {}) == []


def test_records_of_a_removed_version_count_for_the_kernel_with_its_machine_code(one: Record) -> None:
    old = replace(one, subject="v52", config="a configuration that no longer exists")
    held = {"attention/wgmma": {one.raw["code_hash"], "another"}, "attention/mma_sync": {"another"}}
    assert [record.subject for record in measured([old, one], KERNELS, held)] == ["attention/wgmma"] * 2
    assert [*with_present_names([old, one], {"attention/wgmma": {"another"}})] == [one]
    assert measured([replace(old, passed=False)], KERNELS, held) == []
    assert measured([replace(old, subject="v37")], KERNELS, held) == [], "v37 was not removed"


def test_the_fastest_comes_first_and_equally_fast_ones_by_name() -> None:
    case = ("9.0", 128, False)
    order = {"attention/mma_sync": 0.5, "attention/wgmma": 1.0, "attention/decode": 0.5}
    assert ranked({case: order}) == {case: ["attention/wgmma", "attention/decode", "attention/mma_sync"]}


@pytest.mark.whole_ladder
def test_the_committed_file_is_fresh() -> None:
    text = ranking_text(root(), KERNELS)
    assert read_text(root() / FILE) == text
    rows = " ".join(text.split())
    assert '{9, 0, 128, true, "attention/wgmma ' in rows and '{9, 0, 256, true, "attention/wgmma ' in rows
    assert all(len(line) <= 120 for line in text.splitlines())
