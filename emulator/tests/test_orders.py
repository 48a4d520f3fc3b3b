"""The statement of one run about all interleavings of its warps and copies: docs/internals.md."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.defects import Defect, check_silent, run
from vectors.defects_orders import BYTES, ORDERS, POINTER, arrive, init, warps

LOOP = "again:\nmbarrier.test_wait.parity.shared.b64 %done, [%s+512], 0;\n"
ASKS = {  # how warp 1 waits for warp 0, and what the run does not say because of it
    LOOP + "@!%done bra again;": "no race, no deadlock in any order",
    LOOP + "selp.u32 %x, 1, 0, %done;\nsetp.eq.u32 %is, %x, 0;\n@%is bra again;": "no race, no deadlock in any order",
    LOOP + "add.u32 %x, %x, 1;\n@!%done bra again;": "a wait whose answer no does more than ask again",
    LOOP + "@!%done bra end;": "a wait whose answer no does more than ask again",
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_wait_that_only_asks_again(asks: str, tmp_path: Path) -> None:
    defect = Defect("", "", warps([arrive(0)], [asks], start=init(1) + "\nmov.u32 %x, 0;"), options=["--orders"])
    status, _, text = run(defect, defect.good, tmp_path)
    assert status == 0 and ASKS[asks] in text, text


@pytest.mark.parametrize(("use", "says"), [("", "no race"), ("mov.u32 %x, %x;", "flags, counters or sums")])
def test_a_sum_that_nothing_reads_asks_nothing(use: str, says: str, tmp_path: Path) -> None:
    body = f"{POINTER}.reg .b32 %x;\natom.global.add.u32 %x, [%p], 1;\n{use}"
    status, _, text = run(Defect("", "", body, options=["--orders"], **BYTES), body, tmp_path)
    assert status == 0 and says in text, text


CLUSTERS = [defect for defect in ORDERS if "--cluster" in defect.options]


@pytest.mark.parametrize("defect", CLUSTERS, ids=str)
def test_one_run_of_a_cluster_stands_for_all(defect: Defect, tmp_path: Path) -> None:
    for more, says in ([], "no race, no deadlock in any order"), (["all"], "1 class"):
        asks = replace(defect, options=[*defect.options, "--orders", *more])
        assert run(asks, asks.good, tmp_path)[2] == f"orders: {says}\n"


DEADLOCKS = [defect for defect in ORDERS if "looks on" in defect.label or "another pair" in defect.label]


@pytest.mark.parametrize("defect", DEADLOCKS, ids=str)
def test_the_delay_that_a_finding_names_shows_the_fault(defect: Defect, tmp_path: Path) -> None:
    delay = re.search(r"ptxrun (--delay) (\d+@\d+)", run(defect, defect.bad, tmp_path)[2])
    assert delay
    late = replace(defect, options=[*defect.options, *delay.groups()])
    status, _, text = run(late, late.bad, tmp_path)
    assert status == 3 and "1 finding: deadlock" in text, text
    check_silent(late, tmp_path)


@pytest.mark.parametrize("delay", ["2", "-1@3", "2@0", "2@7x", "@7"])
def test_a_delay_that_is_none_is_refused(delay: str, tmp_path: Path) -> None:
    status, _, text = run(replace(ORDERS[0], options=["--delay", delay]), ORDERS[0].good, tmp_path)
    assert status == 2 and f"--delay {delay}: must be WARP@LINE" in text
