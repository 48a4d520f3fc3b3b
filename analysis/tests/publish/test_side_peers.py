"""Tables of attention/backward and attention/fp8 beside libraries: which runs count, and what is divided by what."""

import json
import re
from pathlib import Path

from analysis.files import root
from analysis.publish.side_peers import LENGTHS, backward_peers, fp8_peers, in_order_table, row


def compared(folder: Path, cases: dict[str, dict[str, dict[str, float]]]) -> Path:
    path = folder / "logs/backward/compared.h200.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"TFLOP/s": cases}))
    return folder


def test_the_faster_of_two_runs_counts_and_ours_is_divided_by_it(tmp_path: Path) -> None:
    subjects = {
        "attention/backward": {"512": 1.0, "4096": 2.0},
        "its form before, with rotated starts": {"512": 300.0, "4096": 500.0},
        "FlashAttention-3": {"512": 200.0, "4096": 400.0},
        "FlashAttention-3, again": {"512": 150.0, "4096": 600.0},
        "attention/backward, in_order": {"512": 90.0, "4096": 100.0},
        "FlashAttention-3, deterministic": {"512": 180.0, "4096": 80.0},
        "a trial": {"512": 1.0, "4096": 1.0},
    }
    table = backward_peers(compared(tmp_path, {"d128 full": subjects, "d64 causal": {"cuDNN 9.19": {"512": 7.0}}}))
    assert [list(each[:3]) for each in table.rows] == [
        [128, "", "attention/backward, an earlier build"],
        [128, "", "FlashAttention-3"],
        [128, "", "in_order, an earlier build"],
        [128, "", "FlashAttention-3, deterministic"],
        [64, "causal", "cuDNN 9.19"],
    ]
    at = 3 + LENGTHS.index(4096)
    assert [each[3] for each in table.rows] == ["300", "200 (1.50)", "90", "180 (0.50)", "7"]
    assert [each[at] for each in table.rows] == ["500", "600 (0.83)", "100", "80 (1.25)", ""]


def test_what_was_not_measured_stays_empty() -> None:
    assert row("x", {512: 10.0, 1024: 20.0}, {512: 5.0, 2048: 1.0}) == ["x", "10 (0.50)", "20", "", "", "", ""]


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


def test_gradients_in_order_are_divided_by_those_of_the_same_build() -> None:
    rows = {tuple(each[:3]): each[3:] for each in in_order_table(root()).rows}
    at = LENGTHS.index(4096)
    for d_head, mask in ((128, ""), (128, "causal"), (64, ""), (64, "causal")):
        ours = rows[d_head, mask, "attention/backward, in_order"][at]
        speed, ratio = re.fullmatch(r"(\d+) \((.*)\)", str(rows[d_head, mask, "in any order"][at])).groups()  # type: ignore[union-attr]
        assert abs(int(str(ours)) / int(speed) - float(ratio)) < 0.01 and 0.85 < float(ratio) < 1.2
    assert (256, "", "FlashAttention-3, deterministic") not in rows


def test_the_page_says_what_accurate_sums_have_of_cudnn() -> None:
    full = json.loads((root() / "logs/fp8/states.h200.json").read_text())["TFLOP/s"]["full"]
    shares = {
        (int(keys), state): of["attention/fp8, accurate"][state] / of["cuDNN, O in e4m3"][state]
        for keys, of in full.items()
        for state in ("first", "sustained")
    }
    long = [share for (keys, _), share in shares.items() if keys >= 1024]
    said = f"{min(long):.2f} to {max(long):.2f} from 1024 keys on, and {shares[512, 'sustained']:.2f} sustained at 512"
    assert said in (root() / "kernels/fp8/README.md").read_text() and shares[512, "first"] > 1
