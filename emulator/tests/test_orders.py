"""What one run says of every order of its warps and copies: docs/orders.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.defects import Defect, check_reported, check_silent, run
from support.order_defects import ORDERS, arrive, init, warps


@pytest.mark.parametrize("defect", ORDERS, ids=str)
def test_defect_is_reported(defect: Defect, tmp_path: Path) -> None:
    check_reported(defect, tmp_path)


@pytest.mark.parametrize("defect", ORDERS, ids=str)
def test_legal_twin_is_silent(defect: Defect, tmp_path: Path) -> None:
    check_silent(defect, tmp_path)


LOOP = "again:\nmbarrier.test_wait.parity.shared.b64 %done, [%s+512], 0;\n"
ASKS = {  # how warp 1 waits for warp 0, and what the run does not say because of it
    LOOP + "@!%done bra again;": "no race, no deadlock in any order",
    LOOP + "selp.u32 %x, 1, 0, %done;\nsetp.eq.u32 %is, %x, 0;\n@%is bra again;": "no race, no deadlock in any order",
    LOOP + "add.u32 %x, %x, 1;\n@!%done bra again;": "a wait whose answer no does more than ask again",
    LOOP + "@!%done bra end;": "a wait whose answer no does more than ask again",
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_wait_that_only_asks_again(asks: str, tmp_path: Path) -> None:
    defect = Defect("", "", "", warps([arrive(0)], [asks], start=init(1) + "\nmov.u32 %x, 0;"), options=["--orders"])
    status, _, text = run(defect, defect.good, tmp_path)
    assert status == 0 and ASKS[asks] in text, text
