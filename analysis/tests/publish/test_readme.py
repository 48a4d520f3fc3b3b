"""The table of the ladder: figures from files, missing ones shown as missing, and the committed page up to date."""

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.emulate.traffic import emulate
from analysis.emulate.traffic import to_csv as traffic_csv
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import Version, load, load_all
from analysis.machine_code.regs import Row, registers_path, registers_text
from analysis.machine_code.traffic import Traffic, read_traffic
from analysis.measure.records import Problem, Record, parse
from analysis.measure.stats import Interval
from analysis.publish import energy, pictures, published, readme
from analysis.publish.libraries import lead_table, libraries_at, libraries_table, records_of, standing
from analysis.publish.overview import (
    HEADLINE,
    LENGTHS,
    Speed,
    Step,
    newest_rows,
    problem_at,
    problem_of_tokens,
    read_steps,
    speeds_at,
)
from analysis.publish.published import differences, listings, nearest_listing, percent_on_h200, speeds
from analysis.publish.readme import (
    PARTS,
    ladder_page,
    ladder_table,
    outcome,
    parts_printed,
    published_table,
    readme_text,
)
from analysis.tests.support.kinds import one_of_each_kind

V01 = load(root(), "v01")


def listing_text(config: str, hmma: int, moves: int) -> str:
    """A listing in the form of sass/, its loop made of `hmma` and `moves` and a branch back."""
    lines = ["\t.target\tsm_80", f"//--------------------- kernel {config} ---------------------"]
    code = [("", "S2R", "R0, SR_TID.X"), *[("", "HMMA.16816.F32", "R4, R8, R12, R4")] * hmma]
    code += [*[("", "MOV", "R1, R2")] * moves, ("@P0", "BRA", "0x10"), ("", "EXIT", "")]
    for index, (predicate, opcode, operands) in enumerate(code):
        lines.append(
            f"        /*{16 * index:04x}*/  B------:R-:W-:-:S01  {predicate:>6} {opcode} {operands}".rstrip() + " ;"
        )
    return "\n".join(lines) + "\n"


def row(version: Version, registers: int) -> Row:
    return Row(str(version.header.config), "sm_80", registers, 0, 0, 0, 0, 1, "424[0]", "12ab", 0, 0)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """v01 and v02 with figures of their own for sm_80."""
    for part in ("kernels/mma_sync", "regs", "sass", "logs/bench"):
        (tmp_path / part).mkdir(parents=True)
    rows = {}
    for name, registers, hmma, moves in (("v01", 200, 4, 5), ("v02", 210, 4, 3)):
        version = load(root(), name)
        shutil.copy(version.path, tmp_path / "kernels/mma_sync")
        rows[name] = [row(version, registers)]
        (tmp_path / f"sass/{name}.sm_80.sass").write_text(listing_text(str(version.header.config), hmma, moves))
    registers_path(tmp_path).write_text(registers_text(rows, {}))
    traffic = [Traffic("v01", "c", 10, 64, 10, 5), Traffic("v02", "c", 10, 10, 10, 5)]
    (tmp_path / "regs/traffic.csv").write_text(traffic_csv(traffic))
    return tmp_path


def step(steps: list[Step], name: str) -> Step:
    return next(each for each in steps if each.name == name)


def test_figures_come_from_the_files(checkout: Path) -> None:
    steps = read_steps(checkout)
    first, second = step(steps, "v01"), step(steps, "v02")
    assert (first.loop("sm_80"), second.loop("sm_80")) == (10, 8)
    assert second.loop_per_matrix("sm_80") == 2.0
    assert (second.registers("sm_80"), second.registers("sm_90")) == (210, None)
    assert first.changed is None and second.changed and second.changed > 0
    assert outcome(second, first) == (
        "sm_80: loop 10 -> 8 instructions (2.50 -> 2.00 per HMMA); registers 200 -> 210; "
        "wavefronts / ideal 6.40 -> 1.00; speed: not measured; the config changed too"
    )
    assert outcome(first, None) == "sm_80: loop 10 instructions (2.50 per HMMA); registers 200; speed: not measured"


def test_missing_figures_are_shown_as_missing(checkout: Path) -> None:
    for path in [*checkout.glob("regs/*"), *checkout.glob("sass/*")]:
        path.unlink()
    steps = read_steps(checkout)
    table = ladder_table(steps)
    assert dict(zip(table.columns, table.rows[1], strict=True))["registers sm_80"] == readme.MISSING
    assert outcome(step(steps, "v02"), step(steps, "v01")) == "nothing recorded yet"
    assert "nothing recorded yet" in readme_text(steps)


def test_a_register_file_of_another_config_is_refused(checkout: Path) -> None:
    other = Row("(other)", "sm_80", 1, 0, 0, 0, 0, 1, "n/a", None, 0, 0)
    registers_path(checkout).write_text(registers_text({"v01": [other]}, {}))
    with pytest.raises(AnalysisError, match="make regs VER=v01"):
        read_steps(checkout)


def record(
    subject: str,
    ns: float,
    run: str,
    passed: bool = True,
    config: str = "",
    dtype: str = HEADLINE.dtype,
    problem: Problem = HEADLINE,
    at: int = 0,
    **more: Any,
) -> Record:
    raw: dict[str, Any] = {
        "schema": 1,
        "device": {"name": "NVIDIA H200"},
        "problem": {
            "dtype": dtype,
            "batch": problem.batch,
            "heads": problem.heads,
            "seq": problem.seq,
            "d_head": HEADLINE.d_head,
            "dist": HEADLINE.dist,
        },
        "timing": {"samples_ns": [ns, ns * 1.01, ns * 0.99]},
        "check": {"pass": passed},
        "run": {"id": run, "round": at},
        "version" if subject.startswith("v") else "peer": subject,
        "library": "PyTorch 9",
        "config": config,
    }
    return parse(raw | more)


def test_speed_is_that_of_the_newest_run_with_the_peer() -> None:
    own = str(V01.header.config)
    records = (
        record("v01", 200.0, "2026-01-01", config=own),
        record("fa2", 100.0, "2026-01-01"),
        record("v01", 400.0, "2026-01-02", config=own),
        record("fa2", 100.0, "2026-01-02"),
        record("v01", 100.0, "2026-01-03", config=own),
    )
    speed = speed_of_v01(*records)
    assert speed and speed.ratio and speed.ratio.mid == pytest.approx(0.25, rel=0.01)
    assert speed_of_v01(records[0]) is None
    assert speed_of_v01(record("v01", 200.0, "r", config="(other)"), record("fa2", 100.0, "r")) is None
    wrong = (record("v01", 200.0, "r", passed=False, config=own), record("fa2", 100.0, "r"))
    assert speed_of_v01(*wrong) is None


def test_a_version_in_bf16_is_its_configuration_with_another_type() -> None:
    own = str(V01.header.config)
    records = [record("fa2", 100.0, "r", dtype="bf16")]
    records.append(record("v01", 200.0, "r", dtype="bf16", config=own.replace("FP16", "BF16")))
    assert list(speeds_at(records, problem_at(4096, "bf16"), {"v01": V01})) == ["v01"]
    assert not speeds_at(records, HEADLINE, {"v01": V01})


def speed_of_v01(*records: Record) -> Speed | None:
    return speeds_at(records, HEADLINE, {"v01": V01}).get("v01")


def bench(checkout: Path, *records: Record) -> list[Step]:
    """The steps of the checkout with these records of an H200."""
    lines = "".join(json.dumps(one.raw) + "\n" for one in records)
    (checkout / "logs/bench/h200.jsonl").write_text(lines)
    return read_steps(checkout)


def test_what_is_faster_is_named_first(checkout: Path) -> None:
    own = str(load(root(), "v02").header.config)
    ns = HEADLINE.flop() / 1e3  # of 1 TFLOP/s
    measured = [record("v02", ns / 400, "r", config=own), record("fa2", ns / 320, "r"), record("cudnn", ns / 600, "r")]
    text = standing(checkout, bench(checkout, *measured))
    assert text.startswith(
        "On an H200, in fp16 at seq 4096: cuDNN reaches 600 TFLOP/s and is 1.50 times as fast as v02"
    )
    assert "v02, which reaches 400." in text
    assert "FlashAttention-2 reaches 320." in text and "PyTorch 9" in text
    slower = standing(checkout, bench(checkout, *measured[:2], record("cudnn", ns / 310, "r")))
    assert "v02 reaches 400 TFLOP/s. FlashAttention-2 reaches 320. cuDNN reaches 310." in slower
    text = standing(checkout, bench(checkout, *measured[:2]))
    assert "v02 reaches 400 TFLOP/s." in text and "cuDNN" not in text
    assert standing(checkout, bench(checkout, measured[1])) == "v02 is not measured on an H200.\n"
    first = record("v01", ns / 60, "r", config=str(V01.header.config))
    assert "v01 reaches 60 TFLOP/s." in standing(checkout, bench(checkout, first, record("fa2", ns / 30, "r")))


def test_the_page_names_what_is_faster_at_every_length() -> None:
    """The sentence of docs/performance.md that no generator writes, held by the records."""
    sentence = "cuDNN is faster than every version that multiplies by `mma.sync`, at every length."
    assert sentence in (root() / "docs/performance.md").read_text(encoding="utf-8")
    steps, records, compared = read_steps(root()), records_of(root()), 0
    versions = {step.name: step.version for step in steps if not step.version.one_arch}
    for dtype in ("fp16", "bf16"):
        for seq in LENGTHS:
            rows = newest_rows(records, problem_at(seq, dtype), versions, ["cudnn", *versions])
            ours = [row.tflops for name, row in rows.items() if name in versions]
            assert ours and rows["cudnn"].tflops > max(ours), (dtype, seq)
            compared += len(ours)
    assert compared > 2 * len(LENGTHS)


def test_libraries_stand_beside_the_last_version(checkout: Path) -> None:
    own = str(load(root(), "v02").header.config)
    ns = HEADLINE.flop() / 1e3
    steps = bench(checkout, record("v02", ns / 400, "r", config=own), record("fa2", ns / 320, "r"))
    rows = [list(row) for row in libraries_table(checkout, steps).rows]
    assert rows == [
        ["v02", "fp16", *["not measured"] * 3, "400 (1.25)", *["not measured"] * 2],
        ["FlashAttention-2", "fp16", *["not measured"] * 3, "320", *["not measured"] * 2],
    ]
    first, second = ladder_table(steps, archs=["sm_80"]).rows
    assert list(first[2:5]) == ["not measured", readme.MISSING, "not measured"]
    assert list(second[2:4]) == ["400", "40"]


def test_every_table_prints_one_interval_of_a_comparison(checkout: Path) -> None:
    """Each interval has the scatter of the whole run, whichever of its subjects a table is about."""
    own = {name: str(load(root(), name).header.config) for name in ("v01", "v02")}
    times = {
        "v01": (100.0, 101.0, 99.0),
        "v02": (50.0, 50.5, 53.0),
        "fa2": (80.0, 79.0, 83.0),
        "fa3": (60.0, 61.0, 60.0),
    }
    made = [
        record(subject, ns, run, config=own.get(subject, ""), problem=problem_at(seq), at=at)
        for run, subjects in {"r": times.keys(), "s": ("v01", "fa2")}.items()
        for seq in LENGTHS
        for subject in subjects
        for at, ns in enumerate(times[subject])
    ]
    steps = bench(checkout, *made)
    row = next(row for row in lead_table(checkout, steps).rows if row[0] == "v02 / FlashAttention-2")
    in_ladder = steps[1].speeds["h200"]
    assert in_ladder.ratio and row[3:] == (readme.ratio(in_ladder),) * len(LENGTHS)
    assert {speed.ratio for speed in steps[1].lengths["h200"].values()} == {in_ladder.ratio}


def test_a_library_built_from_its_source_is_named_with_its_version(checkout: Path) -> None:
    own = str(load(root(), "v02").header.config)
    ns = HEADLINE.flop() / 1e3
    mine, fa2 = record("v02", ns / 400, "r", config=own), record("fa2", ns / 320, "r")
    fa3 = record("fa3", ns / 500, "r", library="FlashAttention-3 3.0.0")
    steps = bench(checkout, mine, fa2, fa3)
    text = standing(checkout, steps)
    assert "FlashAttention-3 reaches 500 TFLOP/s and is 1.25 times as fast as v02" in text
    assert text.count("called through") == 1 and "through PyTorch 9." in text
    assert "FlashAttention-3 is FlashAttention-3 3.0.0, built from its own source." in text
    lines = pictures.progress(steps, libraries_at(records_of(checkout), steps)).axes[0].texts
    assert [line.get_text() for line in lines] == ["FlashAttention-2", "FlashAttention-3"]
    assert lines[1].xy[1] == pytest.approx(100 * 500 / 320, rel=0.01)
    assert [line.get_text() for line in pictures.progress(steps).axes[0].texts] == ["FlashAttention-2"]


def test_the_lead_over_each_library_at_both_sizes(checkout: Path) -> None:
    """The second size has a row of its own once a problem of its own was measured: 16 of 1024 belong to both."""
    own = str(load(root(), "v02").header.config)
    records = [record("v02", 80.0, "r", config=own), record("fa2", 100.0, "r")]
    for problem, name, ns in (
        (problem_at(1024), "a", 50.0),
        (problem_of_tokens(512), "b", 40.0),
        (HEADLINE, "b", 160.0),
        (HEADLINE, "c", 120.0),
    ):
        records += [record("v02", 2 * ns, name, config=own, problem=problem), record("fa3", ns, name, problem=problem)]
    rows = [[str(cell).split(" ±")[0] for cell in row] for row in lead_table(checkout, bench(checkout, *records)).rows]
    none = "not measured"
    assert rows == [
        ["v02 / FlashAttention-3", "fp16", "16, 8, 4", none, "0.500", none, "0.500", none, none],
        ["v02 / FlashAttention-3", "fp16", "16384 / length", "0.500", "0.500", *[none] * 4],
        ["v02 / FlashAttention-2", "fp16", "16, 8, 4", none, none, none, "1.250", none, none],
    ]
    without = [one for one in records if one.problem != problem_of_tokens(512)]
    assert len(lead_table(checkout, bench(checkout, *without)).rows) == 2


def test_joules_are_those_of_the_newest_run_that_measured_them(checkout: Path) -> None:
    own = str(load(root(), "v02").header.config)
    figures = {
        "joules": 1.25,
        "watts": 650.0,
        "launches": 9,
        "seconds": 1.1,
        "sm_clock_hz": 1.5e9,
        "celsius": 60,
        "idle": 0.0012,
        "first_ns": HEADLINE.flop() / 800e3,
        "first_sm_clock_hz": 1.7e9,
    }
    records = [record("v02", 80.0, "r", config=own), record("fa2", 100.0, "r")]
    assert energy.energy_text(checkout, bench(checkout, *records)) == energy.NOTHING
    assert energy.states_sentence(checkout, bench(checkout, *records)) == ""
    records += [record("v02", 80.0, "s", config=own, energy=figures | {"joules": 9.0})]
    records += [record("v02", 80.0, "t", config=own, energy=figures | {"joules": 1e3 + 9.0}, passed=False)]
    records += [record("v02", 80.0, "s2", config=own, energy=figures), record("v02", 80.0, "x", config=own)]
    records += [record("fa3", 70.0, "s", energy={"joules": 2.5, "launches": 3})]
    sustained = round(HEADLINE.flop() / 1.25 * 650 / 1e12)
    assert [list(row) for row in energy.energy_table(checkout, bench(checkout, *records)).rows] == [
        ["v02", "fp16", 16, 800, sustained, 1700, 1500, "1.25", f"{HEADLINE.flop() / 1.25e12:.3f}", 650, 60, "0.12 %"],
        ["FlashAttention-3", "fp16", 16, *[None] * 4, "2.5", f"{HEADLINE.flop() / 2.5e12:.3f}", *[None] * 3],
    ]
    steps = bench(checkout, *records)
    assert [list(row) for row in energy.states_table(checkout, steps).rows] == [
        ["v02", 800, sustained, f"{HEADLINE.flop() / 1.25e12:.3f}"],
        ["FlashAttention-3", None, None, f"{HEADLINE.flop() / 2.5e12:.3f}"],
    ]
    said = energy.states_sentence(checkout, steps)
    assert "(v02 800) and sustained" in said and f"(v02 {sustained})" in said
    broken = record("v02", 80.0, "y", config=own, energy={"launches": 3})
    with pytest.raises(AnalysisError, match="no joules"):
        energy.energy_table(checkout, bench(checkout, *records, broken))


def test_the_pages_say_what_the_kernels_compute() -> None:
    """Each sentence of the scope holds for the sources."""
    sources = {name: version.source for name, version in load_all(root()).items()}
    for page in ("README.md", "docs/performance.md"):
        text = " ".join((root() / page).read_text().split())
        for word in ("forward", "non-causal", "mask", "dropout", "d_head 128", "multiple", "backward"):
            assert word in text, (page, word)
    assert "versions up to v37 compute nothing else" in " ".join((root() / "docs/performance.md").read_text().split())
    assert not [name for name, source in sources.items() if "dropout" in source]
    assert all("static_assert(cfg.d_head == 128" in source for name, source in sources.items() if name < "v38")
    assert not [name for name, source in sources.items() if name < "v38" and "causal" in source]
    hopper = [name for name, version in load_all(root()).items() if version.one_arch]
    assert [name for name, source in sources.items() if "wgmma" in source] == hopper
    assert hopper[: hopper.index("v37") + 1] == [name for name in sources if "v26" <= name <= "v37"]
    assert "From v26 on the versions use `wgmma`" in (root() / "README.md").read_text()


def test_a_half_width_is_never_shown_as_zero() -> None:
    assert readme.ratio(Speed("H200", 1.0, Interval(1.104, 1.1041, 1.1042))) == "1.104 ± < 0.0005"
    assert readme.ratio(Speed("H200", 1.0, Interval(1.09, 1.1, 1.11))) == "1.100 ± 0.010"


def test_no_interval_of_the_repository_is_a_coincidence() -> None:
    """Subjects of one run share their scatter: no interval is a fraction of what is usual. A wide one may be a
    subject's own."""
    steps = read_steps(root())
    halves = [(s.ratio.high - s.ratio.low) / s.ratio.mid / 2 for step in steps for s in step.speeds.values() if s.ratio]
    assert min(halves) > 0.3 * statistics.median(halves)


def test_a_peak_that_does_not_follow_from_its_factors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sparse figure of a data sheet, which is twice the dense one, is the likely mistake."""
    text = (published.FOLDER / "peaks.csv").read_text()
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    (tmp_path / "peaks.csv").write_text(text)
    assert published.peaks.__wrapped__()["h200"] == 989
    (tmp_path / "peaks.csv").write_text(text.replace("h200,989,", "h200,1979,"))
    with pytest.raises(AnalysisError, match=r"dense_fp16_tflops is 1979; .* give 989\.4"):
        published.peaks.__wrapped__()


def test_published_counts_add_up() -> None:
    assert len(listings()) == 29
    for listing in listings():
        counted = {name: count for name, count in listing.opcodes.items() if name != "predicated"}
        assert sum(counted.values()) == listing.loop, listing.name
        assert listing.opcodes["HMMA"] == listing.loop_hmma
    assert sorted(speeds()) == sorted(percent_on_h200()) == list(range(1, 17))
    assert speeds()[9].a100_4096 == 95.3 and percent_on_h200()[9] == 101.7


def test_the_nearest_published_listing() -> None:
    winner = parse_short_form("(FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles")
    names = {"v01": "1", "v09": "9_A100", "v16": "16_A100"}
    configs = {"v01": V01.header.config, "v09": winner, "v16": winner}
    for version, name in names.items():
        found = nearest_listing(configs[version], version)
        assert found and found.name == name
    assert nearest_listing(winner, "v17") is None
    listing = nearest_listing(V01.header.config, "v01")
    assert listing
    ours = dict(listing.opcodes) | {"LOP3": 1, "PRMT": 2}
    assert differences(ours, listing) == [("LOP3", 1, 12), ("PRMT", 2, 0)]


def test_only_the_largest_differences_are_named(checkout: Path) -> None:
    (row, _) = published_table(read_steps(checkout)).rows
    assert row[6] == "other block sizes: compare per HMMA"
    path = checkout / "sass/v01.sm_80.sass"
    path.write_text(listing_text(str(V01.header.config), 128, 100))
    (row, _) = published_table(read_steps(checkout)).rows
    named = str(row[6]).split(", ")
    assert named[0] == "FMUL 0/130" and len(named) == readme.MOST_DIFFERENCES
    assert named[-1].endswith(" more")


def test_ladder_command(checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(readme, "root", lambda: checkout)
    assert main(["ladder", "--json"]) == 0
    assert [entry["loop"] for entry in json.loads(capsys.readouterr().out)["rows"]] == [{"sm_80": 10}, {"sm_80": 8}]
    assert main(["ladder", "--exit-code"]) == 1
    assert main(["ladder", "--write"]) == 0
    assert main(["ladder", "--exit-code"]) == 0
    path = registers_path(checkout)
    path.write_text(path.read_text().replace(",210,", ",211,"))
    assert main(["ladder", "--exit-code"]) == 1


def test_a_loop_without_matrix_instructions_has_no_figure_per_hmma() -> None:
    (plain,) = (each for each in read_steps(root()) if each.name == "v00")
    assert plain.loop("sm_80") and plain.loop_per_matrix("sm_80") is None
    assert plain.executed_per_matrix("sm_80") is None
    assert f"sm_80: loop {plain.loop('sm_80')} instructions;" in outcome(plain, None)


def test_a_damaged_traffic_file_is_refused(checkout: Path) -> None:
    assert read_traffic(checkout)["v01"].wavefronts == 64
    path = checkout / "regs/traffic.csv"
    path.write_text(path.read_text().replace(",64,", ",many,"))
    with pytest.raises(AnalysisError, match="wavefronts = 'many'"):
        read_traffic(checkout)


@pytest.mark.parametrize("name", one_of_each_kind(load_all(root())))
def test_the_committed_traffic_is_not_stale(name: str) -> None:
    if not (root() / "bin" / name).exists():
        pytest.skip(f"bin/{name} is not built")
    assert read_traffic(root()).get(name) == emulate(load(root(), name)), f"run `make adopt VER={name}`"


@pytest.mark.whole_ladder
def test_the_committed_page_is_not_stale() -> None:
    text = (root() / "kernels/README.md").read_text()
    assert text == ladder_page(read_steps(root())), "run `make ladder`"


@pytest.mark.parametrize("name", PARTS)
def test_what_the_pages_leave_out_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ladder", "--part", name]) == 0
    assert capsys.readouterr().out.count("\n| ") > 3


def test_a_part_that_is_none_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(PARTS) == parts_printed(root()).keys()
    assert main(["ladder", "--part", "speeds"]) == 2
    assert "--part speeds: there are abi, energy" in capsys.readouterr().err
