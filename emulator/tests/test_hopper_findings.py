"""Every finding about wgmma, bulk copies and setmaxnreg: a small PTX that has the defect, and a legal twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.defects import Defect, check_reported, check_silent
from support.hopper_defects import HOPPER


@pytest.mark.parametrize("defect", HOPPER, ids=str)
def test_defect_is_reported(defect: Defect, tmp_path: Path) -> None:
    check_reported(defect, tmp_path)


@pytest.mark.parametrize("defect", HOPPER, ids=str)
def test_legal_twin_is_silent(defect: Defect, tmp_path: Path) -> None:
    check_silent(defect, tmp_path)


@pytest.mark.parametrize("defect", [each for each in HOPPER if each.options == ["--wgmma-wait-per-warp"]], ids=str)
def test_a_wgmma_wait_is_one_of_the_warpgroup_unless_asked(defect: Defect, tmp_path: Path) -> None:
    check_silent(replace(defect, good=defect.bad, options=[]), tmp_path)
