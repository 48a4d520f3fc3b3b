"""Tables of attention/backward and attention/fp8 next to libraries: which runs count, and what is divided by what."""

import json
from pathlib import Path

from analysis.files import read_text, root
from analysis.measure.records import records_in
from analysis.measure.stats import median
from analysis.publish.overview import LENGTHS
from analysis.publish.side_ladders import backward_forms, backward_peers, fp8_peers


def compared(folder: Path, cases: dict[str, dict[str, dict[str, float]]]) -> Path:
    path = folder / "logs/backward/compared.h200.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"TFLOP/s": cases}))
    return folder


def test_ours_is_divided_by_the_libraries_of_the_run(tmp_path: Path) -> None:
    subjects = {
        "FlashAttention-3": {"512": 200.0, "4096": 600.0},
        "attention/backward": {"512": 300.0, "4096": 500.0},
        "FlashAttention-2": {"512": 1.0, "4096": 1.0},
    }
    table = backward_peers(compared(tmp_path, {"d128 full": subjects, "d64 causal": {"cuDNN 9.19": {"512": 7.0}}}))
    assert [list(each[:3]) for each in table.rows] == [
        [128, "", "attention/backward"],
        [128, "", "FlashAttention-3"],
        [64, "causal", "cuDNN 9.19"],
    ]
    at = 3 + LENGTHS.index(4096)
    assert [each[3] for each in table.rows] == ["300", "200 (1.50)", "7"]
    assert [each[at] for each in table.rows] == ["500", "600 (0.83)", ""]


def test_forms_are_divided_by_flash_attention_2(tmp_path: Path) -> None:
    cases = {"d64 causal": {"FlashAttention-2": {"512": 100.0}, "99 KB": {"512": 110.0}}}
    path = compared(tmp_path, {}).joinpath("logs/backward/mma_sync.h200.json")
    path.write_text(json.dumps({"TFLOP/s": cases}))
    rows = [list(each[:4]) for each in backward_forms(tmp_path).rows]
    assert rows == [[64, "causal", "FlashAttention-2", "100"], [64, "causal", "99 KB", "110 (1.10)"]]


def test_the_committed_records_have_both_runs() -> None:
    table = fp8_peers(root())
    rows = {(each[0], each[1]): each for each in table.rows}
    assert {name for run, name in rows if run == "1"} >= {
        "attention/fp8",
        "FlashAttention-3",
        "FlashAttention-3, causal",
    }
    at = 2 + LENGTHS.index(4096)
    fast, accurate = rows["1", "attention/fp8"][at], rows["1", "attention/fp8, accurate sums"][at]
    assert isinstance(fast, str) and isinstance(accurate, str) and int(fast) > int(accurate.split()[0])
    assert rows["2", "cuDNN"][at] != rows["2", "cuDNN, back to back"][at]


def test_the_page_states_the_speed_of_gradients_in_order() -> None:
    """Speed of the newest build on an H100, divided by the speed in any order."""
    records = [record for record in records_in(root() / "logs/backward/h100.jsonl") if record.passed]
    build = next(each.raw["revision"] for each in reversed(records) if "in_order" in each.config)
    own = [record for record in records if record.raw.get("revision") == build]
    times = {(one.problem, "in_order" in one.config): median(one.samples_ns) for one in own if "wgmma" in one.config}
    ratios: dict[bool, list[float]] = {}
    for (problem, in_order), ns in times.items():
        if in_order:
            ratios.setdefault(problem.d_head == 256, []).append(times[problem, False] / ns)
    small, large = (f"{min(found):.2f} to {max(found):.2f} ×" for found in (ratios[False], ratios[True]))
    page = " ".join(read_text(root() / "kernels/backward/README.md").split())
    assert f"run at {small} the speed of those in any order at d_head 64 and 128, and at {large} at 256" in page
