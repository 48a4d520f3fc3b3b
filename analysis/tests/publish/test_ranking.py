"""library/ranking.h: the order that records say, and a file that the compiler takes."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.files import read_text, root
from analysis.ladder.headers import load_all, load_attention
from analysis.measure.records import Record, Served, records_in
from analysis.publish.ranking import FILE, embedded, held_code, measured, ranked, ranking_text, scores

LIVING = load_attention(root())
KERNELS = load_all(root()) | LIVING


@pytest.fixture(scope="module")
def one() -> Record:
    """A record of v46, of which others are made."""
    return next(record for record in records_in(root() / "logs/general/h200.jsonl") if record.subject == "v46")


def of(record: Record, subject: str, ns: float, seq: int = 1024, **fields: object) -> Record:
    problem = replace(record.problem, seq=seq, causal=False, d_head=128, **fields)  # type: ignore[arg-type]
    return replace(record, subject=subject, samples_ns=(ns, ns, 9 * ns), problem=problem)


def test_times_are_compared_within_a_run_alone(one: Record) -> None:
    """On a slow day both take three times as long. v42 is twice as fast as v46, which is twice as fast as v38."""
    run = [of(one, "v38", 200), of(one, "v46", 100)]
    slow = [replace(of(one, name, ns), run_id="slow") for name, ns in (("v46", 300), ("v42", 150))]
    assert scores([*run, *slow])["9.0", 128, False] == {"v42": 1.0, "v46": 0.5, "v38": 0.25}


def test_runs_that_disagree_are_weighed_alike(one: Record) -> None:
    pair = [of(one, "v38", 200), of(one, "v46", 100), of(one, "v38", 100, 2048), of(one, "v46", 100, 2048)]
    assert scores(pair)["9.0", 128, False]["v38"] == pytest.approx(0.5**0.5, abs=1e-6)


def test_a_library_ties_runs_together(one: Record) -> None:
    peer = [replace(of(one, "fa2", ns), is_peer=True, run_id=run) for ns, run in ((100, "a"), (200, "b"))]
    runs = [replace(of(one, name, 100), run_id=run) for name, run in (("v38", "a"), ("v46", "b"))]
    assert scores([*runs, *peer])["9.0", 128, False] == {"v46": 1.0, "v38": 0.5}
    assert sorted(scores(runs)["9.0", 128, False].values()) == [0.0, 1.0], "nothing compares them"


def test_a_problem_of_one_version_says_nothing_unless_it_is_all_there_is(one: Record) -> None:
    pair = [of(one, "v38", 200), of(one, "v46", 100)]
    assert scores([*pair, of(one, "v38", 1, 4096)]) == scores(pair)
    assert scores([of(one, "v46", 100)]) == {("9.0", 128, False): {"v46": 1.0}}


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
    """A cache in e4m3 is read in half the time: beside the same peer it would make its kernel the fastest."""
    peer = replace(of(one, "fa3", 100, **other), is_peer=True)
    assert measured([of(one, "v46", 50, **other), peer], KERNELS, {}) == []


def test_a_record_counts_for_each_kernel_with_its_machine_code(one: Record) -> None:
    code = one.raw["code_hash"]
    held = {"v46": {code}, "attention/wgmma": {code, "another"}, "v38": {"another"}}
    assert [record.subject for record in measured([one], KERNELS, held)] == ["v46", "attention/wgmma"]
    assert measured([replace(one, config="(FP16, 64)")], KERNELS, held) == []


def test_code_is_held_in_the_configurations_of_a_header_alone() -> None:
    """Smaller configurations, for other GPUs, are no kernel's own."""
    held = held_code(root(), KERNELS)
    (header,) = {kernel.header for name, kernel in LIVING.items() if name == "attention/mma_sync"}
    own = 2 * len((header.config, *header.others))
    assert header.smaller and len(held["attention/mma_sync"]) == 2 * own  # of sm_80 and of sm_90


def test_of_two_that_are_equally_fast_the_living_one_comes_first_then_the_newer_one() -> None:
    case = ("9.0", 128, False)
    order = {"v38": 0.5, "v46": 0.75, "attention/wgmma": 0.75, "v52": 0.75, "v25": 1.0}
    assert ranked({case: order}) == {case: ["v25", "attention/wgmma", "v52", "v46", "v38"]}
    close = {"v46": 1.0, "v52": 1 / 1.02, "attention/wgmma": 1 / 1.005}
    assert ranked({case: close}) == {case: ["attention/wgmma", "v46", "v52"]}
    assert ranked({case: close | {"attention/wgmma": 1 / 1.015}}) == {case: ["v46", "attention/wgmma", "v52"]}


def test_the_library_embeds_what_is_fastest_somewhere() -> None:
    """And v38 for the emulator. v25 computes whole blocks alone, and v52 has the code of attention/wgmma."""
    held = {"attention/wgmma": {"one"}, "v52": {"one"}, "v42": {"two"}}
    first = ["v25", "v52", "v42", "attention/wgmma"]
    assert embedded([first], KERNELS, held) == [*LIVING, "v38", "v42"]
    assert embedded([first[::-1]], KERNELS, held) == [*LIVING, "v38"]
    assert embedded([["v25", "v52"]], KERNELS, held) == [*LIVING, "v38"]


@pytest.mark.whole_ladder
def test_the_committed_file_is_fresh_and_causal_attention_is_led_by_a_living_kernel() -> None:
    text = ranking_text(root(), KERNELS)
    assert read_text(root() / FILE) == text
    rows = " ".join(text.split())
    assert '{9, 0, 128, true, "attention/wgmma ' in rows and '{9, 0, 256, true, "attention/wgmma ' in rows
    assert all(len(line) <= 120 for line in text.splitlines())
