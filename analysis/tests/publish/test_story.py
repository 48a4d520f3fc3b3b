"""Results of ncu and the tensor cores for the steps; the blocks of the story."""

from analysis.files import root
from analysis.measure.profile import kept
from analysis.publish.overview import LENGTHS, read_steps
from analysis.publish.story import MISSING, busy, busy_table, held_up


def test_the_largest_stalls_come_first() -> None:
    share, first, second = held_up(root(), "v16").split(", ")
    assert share.endswith(" %") and float(first.split()[1]) >= float(second.split()[1]) > 0
    assert "selected" not in first + second and held_up(root(), "v98") == MISSING


def test_the_tensor_cores_are_as_busy_as_ncu_says() -> None:
    """Within 3 percent of all cycles: ncu's launch is another one, at another clock."""
    steps = {step.name: step for step in read_steps(root())}
    for name, profile in kept(root()).items():
        share = busy(steps[name], 4096)
        assert share and abs(100 * share - profile.pipes["tensor"]) < 3, name
    share, ghz = busy(steps["v02"], 4096), steps["v02"].speeds["h200"].sm_ghz
    assert share and ghz
    assert busy_table([*steps.values()], ["v02"]).rows[0][2 + LENGTHS.index(4096)] == (
        f"{100 * share:.1f} %, {ghz:.2f} GHz"
    )
