"""The picture of both states of the GPU, and joules beside speed in the table of versions."""

from analysis.files import root
from analysis.ladder.headers import load_all
from analysis.publish import pictures
from analysis.publish.overview import HEADLINE, Step
from analysis.publish.readme import ladder_table
from analysis.table import Table


def test_a_line_leads_from_cool_to_hot() -> None:
    """Of the standard problem alone; a library's clock is not known."""
    rows = [
        ("v37", "fp16", 16, 786, 675, 1533, 1315),
        ("cuDNN", "fp16", 16, 642, 555, None, None),
        ("v37", "bf16", 16, 800, 700, 1500, 1300),
        ("v37", "fp16", 4, 700, 600, 1500, 1300),
        ("v05", "fp16", 16, 321, 287, 1798, 1611),
    ]
    axes = pictures.states(Table(("",) * 7, rows)).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[786, 675], [642, 555]]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["v37  786, 1533 MHz", "675, 1315 MHz", "cuDNN  642", "555"]


def test_joules_stand_beside_speed() -> None:
    """Twice the floating-point operations of a launch in terajoules: two per joule; another version has no record."""
    versions = load_all(root())
    steps = [Step(versions[name], None, None, {}, {}, None) for name in ("v01", "v02")]
    table = ladder_table(steps, archs=["sm_80"], joules={"v01": (HEADLINE.flop() / 2e12, 600.0)})
    column = list(table.columns).index("TFLOP/J, H200")
    assert [row[column] for row in table.rows] == ["2.000", "–"]
    assert "TFLOP/J, H200" not in ladder_table(steps, archs=["sm_80"]).columns
