"""The story's steps: lines that their differences hold, figures that are those of one run, pictures from records."""

import re
from dataclasses import replace
from functools import cache

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.folding import folded_body
from analysis.ladder.headers import source_diff
from analysis.publish import jumps
from analysis.publish.overview import HEADLINE, Step, read_steps


@cache
def steps() -> dict[str, Step]:
    return {step.name: step for step in read_steps(root())}


def test_the_story_has_a_section_for_each_step_in_their_order() -> None:
    text = (root() / "docs/story.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (v\d\d)(?: and (v\d\d))?: ", text, re.MULTILINE)
    assert [name for pair in titles for name in pair if name] == list(jumps.STEPS)
    pictures = re.findall(r"^!\[[^]]+\]\((\S+)\)$", text, re.MULTILINE)
    assert len(pictures) == len(titles)  # one each
    assert {path.name for path in (root() / "docs/story").iterdir()} == {
        name.rpartition("/")[2] for name in pictures if name.startswith("story/")
    }


@pytest.mark.parametrize("name", [name for name, told in jumps.STEPS.items() if told.pieces])
def test_lines_shown_are_those_of_the_difference(name: str) -> None:
    language, lines = jumps.code_of(steps()[name])
    parent = steps()[name].parent
    assert language == "diff" and parent and 1 <= len(lines) <= 13
    whole = {jumps.plain(line[0] + line[1:].strip()) for line in source_diff(parent, steps()[name].version) if line}
    assert {line[0] + line[1:].strip() for line in lines} <= whole
    assert any(line[0] in "+-" for line in lines)


@pytest.mark.parametrize("name", ["v02", "v19", "v37"])
def test_lines_are_those_that_make_read_prints(name: str) -> None:
    _, lines = jumps.code_of(steps()[name])
    printed = {" ".join(line.split()) for line in folded_body(steps()[name].version).splitlines()}
    assert {" ".join(line[1:].split()) for line in lines if line[0] == "+"} <= printed
    assert not any("cfg" in line for line in lines)


def test_a_line_that_no_difference_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jumps, "STEPS", {"v02": jumps.Told("", "", (("no such line", 1),))})
    with pytest.raises(AnalysisError, match="v02: no line of its difference to v01 holds 'no such line'"):
        jumps.code_of(steps()["v02"])


def test_without_pieces_the_loop_is_shown() -> None:
    language, lines = jumps.code_of(steps()["v01"])
    assert language == "cpp" and lines[0].startswith("for (int block = 0;")
    assert not [line for line in lines if "dump_" in line]


def test_gains_are_those_of_one_run() -> None:
    step = replace(steps()["v02"], gains={"h200": {HEADLINE.seq: 4.5, 512: 9.0}})
    assert "v01 × 4.500 at 4096" in jumps.measured(root(), step)
    assert "at 512" not in jumps.measured(root(), step)  # nobody predicted it
    bare = replace(step, gains={}, speeds={}, parts={}, traffic=None)
    assert jumps.measured(root() / "nowhere", bare) == "nothing yet"


def test_a_bar_is_what_a_pass_issues() -> None:
    drawn = jumps.mix([steps()["v16"], steps()["v17"]])
    executed = steps()["v17"].executed_per_matrix("sm_80")
    assert executed and f">{executed:.2f}<" in drawn and ">v16<" in drawn and "each HMMA" in drawn
    assert "each HGMMA" in jumps.mix([steps()["v35"]])


def test_wgmma_reads_no_Q_from_shared_memory_in_v37() -> None:
    drawn = jumps.operands(steps()["v36"], steps()["v37"])
    assert drawn.count("Q: 16 KB") == 1 and drawn.count("K: 32 KB") == 2
    sources = [steps()[name].version.source for name in ("v36", "v37")]
    assert ["wgmma_m64n128k16_f16(S, Q[k]" in source for source in sources] == [False, True]
