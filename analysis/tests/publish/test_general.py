"""The tables of general attention say what their records hold."""

from analysis.files import root
from analysis.measure.stats import median
from analysis.publish.general import general_text, run_table, runs, title


def test_a_cell_is_the_speed_of_its_records() -> None:
    records = runs(root())[0]
    mine = [r for r in records if r.subject == "v44" and (r.problem.dtype, r.problem.seq) == ("bf16", 512)]
    time = median([median(record.samples_ns) for record in mine])
    (row,) = [row for row in run_table(records).rows if row[:2] == ("v44", "bf16")]
    assert str(row[2]).split(" ")[0] == f"{mine[0].problem.flop() / time / 1e3:.0f}"


def test_every_run_has_a_title_of_its_own_case() -> None:
    titles = [title(records) for records in runs(root())]
    assert len(set(titles)) == len(titles)
    assert "causal" in titles[0] and "non-causal" not in titles[0]
    assert general_text(root()).count("in brackets") == len(titles)
