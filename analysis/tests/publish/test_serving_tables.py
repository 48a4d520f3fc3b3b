"""Tables of what servers call: what is divided by what, and what stays empty."""

from pathlib import Path

from analysis.publish.serving_tables import NONE, decode_table, pages_table, whole_table

LINES = '''case,subject,us,us_least,us_most,rate,unit,of_first,mJ
"16 x 32768, 32 heads on 8",read,1,1,1,4000,GB/s,1.000,
"16 x 32768, 32 heads on 8",flashladder,1,1,1,3600,GB/s,0.900,
"16 x 32768, 32 heads on 8","flashladder, ""batch""",1,1,1,3200,GB/s,0.800,
"16 x 32768, 32 heads on 8",FlashAttention-3,1,1,1,3000,GB/s,0.750,
"16 x 32768, 32 heads on 8, 64 rows, pages of 64, d_head 64",read,1,1,1,4000,GB/s,1.000,
"16 x 32768, 32 heads on 8, 64 rows, pages of 64, d_head 64",flashladder,1,1,1,2000,GB/s,0.500,
"8 ragged sequences, 16384 tokens, causal, d_head 128",flashladder,1,1,1,610.4,TFLOP/s,1.000,
"8 ragged sequences, 16384 tokens, causal, d_head 128",FlashAttention-3,1,1,1,500,TFLOP/s,0.819,
"8 x 2048, causal, d_head 128",flashladder,1,1,1,670,TFLOP/s,1.000,
"window 1024 at 16384, causal, d_head 128",flashladder,1,1,1,550,TFLOP/s,1.000,
"16384, causal, d_head 128",flashladder,1,1,1,720,TFLOP/s,1.000,
'''


def folder_with(path: Path) -> Path:
    (path / "logs/decode").mkdir(parents=True)
    (path / "logs/decode/serving.h200.csv").write_text(LINES)
    (path / "logs/decode/serving.h100.csv").write_text(LINES.replace("610.4", "305.2"))
    return path


def test_speeds_are_divided_by_reading_and_by_libraries(tmp_path: Path) -> None:
    rows = {row[0]: row[1:] for row in decode_table(folder_with(tmp_path)).rows}
    assert rows["16 × 32768"] == ["0.900", "0.800", NONE, "1.200", NONE, NONE, NONE]
    assert rows["16 × 32768, 64 rows, d_head 64"] == [*[NONE] * 4, f"{NONE} / 0.500 / {NONE}", NONE, NONE]
    assert rows["1 × 32768"] == [NONE] * 7


def test_whole_sequences(tmp_path: Path) -> None:
    first, *others = whole_table(folder_with(tmp_path)).rows
    assert first == ["8 ragged sequences, 16384 tokens", "610", "1.221", "305", "0.610"]
    assert others[0] == ["8 × 2048", "670", NONE, "670", NONE]
    assert others[-1] == ["1 × 16384, one length", NONE, NONE, NONE, NONE]


def test_pages(tmp_path: Path) -> None:
    lines = "".join(
        f'"8 ragged sequences, 16384 tokens, 16 heads on 16, pages of 64, causal","{subject}",1,1,1,{rate},TFLOP/s,1,\n'
        for subject, rate in (("flashladder, packed keys", 500), ("flashladder", 450), ("FlashAttention-3", 300))
    )
    (folder_with(tmp_path) / "logs/decode/serving.h100.csv").write_text(LINES + lines)
    rows = pages_table(tmp_path).rows
    assert rows[0][1:3] == [f"{NONE} ({NONE})", "0.900 (1.500)"]
