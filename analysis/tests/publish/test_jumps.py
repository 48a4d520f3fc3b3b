"""The story's steps: lines that their differences hold, figures that are those of one run, pictures from records."""

import re
from dataclasses import replace
from functools import cache

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
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


def test_a_line_that_no_difference_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jumps, "STEPS", {"v02": jumps.Told("", "", (("no such line", 1),))})
    with pytest.raises(AnalysisError, match="v02: no line of its difference to v01 holds 'no such line'"):
        jumps.code_of(steps()["v02"])


def test_gains_are_those_of_one_run() -> None:
    step = replace(steps()["v02"], gains={"h200": {HEADLINE.seq: 4.5, 512: 9.0}})
    assert "4.500 × v01 at 4096" in jumps.measured(root(), step)
    assert "at 512" not in jumps.measured(root(), step)  # nobody predicted it
    bare = replace(step, gains={}, speeds={}, parts={}, traffic=None)
    assert jumps.measured(root() / "nowhere", bare) == "nothing yet"
