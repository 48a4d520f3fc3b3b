"""Advisories on wgmma and setmaxnreg: each has its sentence, and the build of a version with one of them fails."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.machine_code.losses import LOSSES, loss_sentence, losses
from analysis.machine_code.ptxas_log import Note, read_log

FOLDER = Path(__file__).parents[1] / "fixtures/ptxas"
LOG = FOLDER / "cuda13_wgmma.sm_90a.log"  # four kernels that read early, call a function, lack __launch_bounds__


def test_each_advisory_has_a_place_a_cost_and_something_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", str(LOG), "--exit-code"]) == 1
    assert [line.removeprefix(f"{LOG}:") for line in capsys.readouterr().out.splitlines()[::2]] == [
        "1: C7517 in fn(float (&) [64], unsigned long, unsigned long): ptxas waits where the source does not, and what "
        "should overlap does not; look at this: an instruction uses registers of a wgmma before its group is "
        "waited for",
        "2: C7510 in infunction: each wgmma waits for the one before it, which can halve the speed; look at this: "
        "a call between wgmma.fence and wgmma.wait_group: inline the function",
        "3: C7514 in touched: each wgmma waits for the one before it, which can halve the speed; look at this: an "
        "accumulator is read before wgmma.wait_group",
        "4: C7508 in a kernel: no register moves between warpgroups: the consumers keep the few of the entry; look at "
        "this: __launch_bounds__ must give the threads of the launch, and each count must hold what its warps need",
    ]


def test_what_ptxas_says_follows_without_the_symbol(capsys: pytest.CaptureFixture[str]) -> None:
    main(["losses", str(LOG)])
    said = capsys.readouterr().out.splitlines()[1::2]
    assert said[0] == (
        "    wgmma.wait_group is injected in around line 103 by compiler to allow use of registers defined by GMMA"
    )
    assert said[1].endswith("due to wgmma pipeline crossing function boundary at a function call in line 1348")


def test_an_advisory_that_no_row_knows_is_a_loss_too() -> None:
    note = Note(7, "Potential Performance Loss: wgmma does something new in the function 'k'", "C7533", "k")
    assert loss_sentence(note).startswith("C7533 in k: a loss that this table does not know")
    assert all(cost and look for _, cost, look in LOSSES) and not LOSSES[-1][0]


def test_other_advisories_and_warnings_are_no_losses(capsys: pytest.CaptureFixture[str]) -> None:
    clean = FOLDER / "cuda11.sm_80.log"
    assert read_log(clean).notes and not losses(read_log(clean))
    assert main(["losses", str(clean), "--exit-code"]) == 0
    assert capsys.readouterr().out == f"{clean}: nothing is lost\n"
    assert main(["losses", str(LOG), "--json"]) == 0
    assert [note["code"] for note in json.loads(capsys.readouterr().out)["rows"]] == [
        "C7517",
        "C7510",
        "C7514",
        "C7508",
    ]
