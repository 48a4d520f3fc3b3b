"""The command `predict`, the description of the GPUs, the record of tiles, and the validation, on made-up figures."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.config import parse_short_form
from analysis.measure import predicted
from analysis.measure.autotune import PREDICTED, models_of, read_predicted
from analysis.measure.executables import standard_batch
from analysis.predict import machine as machines
from analysis.predict import tiles as tiles_record
from analysis.predict.clock import ENERGIES, Activity, hz_of
from analysis.predict.launch import Shape, Tile
from analysis.predict.machine import model_digest, read_machine
from analysis.predict.tiles import GPU, NUMBERS, Tiles, parse_tiles, read_tiles, tiles_text
from analysis.tests.support.compiled import SOURCES
from analysis.tests.support.compiled import cubin as compiled
from analysis.tests.support.validation import Fit, cases_of, of_fit

CONFIG = parse_short_form("(FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax")
ACTIVITY = Activity(768.0, 0.0, 300.0)
STALE_TILES = "the model changed: run `python3 -m analysis predict --write`"


def cubin(version: str, arch: str) -> Path:
    path = root() / f"build/{version}/{arch}.cubin"
    if not path.exists():
        pytest.skip(f"{path} is not built: make {version}")
    return path


def run(*arguments: str) -> int:
    return main(["predict", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["v99"], "no version 'v99'; versions are v00 to v37, b01 "),
        ([], "SUBJECT: missing; name a version"),
        (["v01", "--gpu", "a100"], "--gpu a100: no description of it in machines.csv; there are h200, h100"),
        (["v01", "--batch", "-1"], "--batch -1: must be positive"),
        (["sass/v01.sm_90.sass"], "predicting its time needs a cubin, this is a listing"),
        (["sass/v01.sm_90.sass", "--launch", "10,4,2"], "--launch 10,4,2: expected four positive numbers"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root())
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.long
def test_a_sheet_of_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(cubin("v02", "sm_90")), "--seq", "512") == 0
    text = capsys.readouterr().out
    for word in ("predicted, not measured", "launch ", "iteration ", "binds ", "cycle ", "warp 0", "would be worth"):
        assert word in text
    assert run(str(cubin("v02", "sm_90")), "--seq", "512", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert f"{found['cycles']} cycles" in text and found["iteration"]["busy"][found["iteration"]["binds"]] <= 1.01
    assert found["ms"] == pytest.approx(1e3 * found["cycles"] / found["clock_hz"], rel=1e-4)


@pytest.mark.long
def test_a_kernel_that_is_not_ours_is_told_its_launch(capsys: pytest.CaptureFixture[str]) -> None:
    """v16 told as if it were another's: the cycles of the launch are those that its config gives."""
    path = str(cubin("v16", "sm_90"))
    assert run(path, "--launch", "8192,4,2,64") == 0
    foreign = re.search(r"launch +(\d+) cycles", capsys.readouterr().out)
    assert run(path) == 0
    own = re.search(r"launch +(\d+) cycles", capsys.readouterr().out)
    assert foreign and own and int(foreign[1]) == pytest.approx(int(own[1]), rel=0.01)


SYNCHRONOUS = """
extern "C" __global__ void own(const __grid_constant__ tensor_map map, float *out, uint32_t smem, int blocks) {
    float S[16] = {};
    for (int block = 0; block < blocks; block++) {
        if (threadIdx.x == 0) copy(smem, map, smem + 64, block);
        wait(smem + 64, block & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        scores(S, smem, smem + 512, 1);
        commit_and_wait();
    }
    out[threadIdx.x] = S[0];
}
"""


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (False, "copies      8192 bytes by TMA in a pass, number of stages unknown\ncaveat"),
        (True, "copies      32768 bytes by TMA in a pass, 1 stage: each pass waits for the copies that"),
    ],
)
def test_the_copies_of_a_foreign_kernel(own: bool, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A loop that starts all copies of its kernel waits for them; otherwise machine code does not show the stages."""
    text = read_text(SOURCES / "pipeline.cu")
    if own:
        text = text[: text.index("template <int group>")] + SYNCHRONOUS
    path = compiled("pipeline.cu", "sm_90a", text=text)
    assert run(str(path), "--launch", "132,4,1,64") == 0
    printed = capsys.readouterr().out
    assert said in printed
    cycles = int(re.search(r"iteration   (\d+) cycles", printed)[1])  # type: ignore[index]
    assert (cycles > 600) == own  # the latency of a copy


def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    path = tmp_path / "machines.csv"
    text = machines.machines_path().read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    monkeypatch.setattr(machines, "machines_path", lambda: path)
    machines.read_values.cache_clear()
    read_machine.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\nxu,8,8,", "\nxu,8,six,", "could not convert string to float: 'six'"),
        ("\nxu,8,8,cycles,measured", "\nxu,8,8,cycles,guessed", "how = 'guessed': expected measured, published"),
        ("\nhmma,", "\nhmmma,", "missing or unknown: hmma, hmmma"),
        ("\nlatency.other,", "\nlatency.others,", "missing or unknown: latency.other"),
    ],
)
def test_a_description_that_is_wrong_is_named(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path, monkeypatch, old, new)
    try:
        with pytest.raises(AnalysisError, match=said.replace(".", r"\.")):
            read_machine("h200")
    finally:
        machines.read_values.cache_clear()
        read_machine.cache_clear()


def test_tiles_are_read_as_they_are_written() -> None:
    text = (root() / "regs/tiles.csv").read_text()
    assert tiles_text(parse_tiles(text, "tiles.csv").values()) == text


def made(per_pass: float, version: str = "v16") -> Tiles:
    of = {1: Tile(per_pass, 500.0, 0.0, 0.0), 2: Tile(per_pass, 500.0, 0.0, per_pass / 2)}
    return Tiles(version, CONFIG, False, 2, ACTIVITY, of)


def test_the_clock_falls_as_energy_grows() -> None:
    """Power is energy per cycle times the clock, and energy per cycle grows with the clock."""
    machine = replace(read_machine("h200"), power=132.0, multiprocessors=132.0, clock_limit=1.8e9)
    plain = replace(machine, energies=dict.fromkeys(ENERGIES, 0.0) | {"cycle": 1.0, "mma_sync": 0.5})
    assert hz_of([0, 0, 0, 1, 0], plain) == pytest.approx(1.5e9 * (1 / 1.5) ** 0.5)
    assert hz_of([2, 0, 0, 1, 0], plain) == pytest.approx(1.5e9 * (1 / 3) ** 0.5)
    assert hz_of([0, 0, 0, 0.1, 0], plain) == 1.8e9, "the limit of the clock"


def test_the_energies_of_the_description_are_those_of_the_records() -> None:
    cases = of_fit(cases_of(root(), "h200", read_tiles(root())))
    machine = read_machine("h200")
    found = Fit(cases, machine).with_energies(machine, range(len(cases)))
    assert found.energies == pytest.approx(machine.energies, rel=0.01)


@pytest.mark.parametrize("version", ["v29", pytest.param("v07", marks=pytest.mark.long)])
def test_recorded_tiles_are_those_of_the_model(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make adopt` writes them: one version's, next to those of others. It also prints the speed of the parent."""
    known = read_tiles(root())
    path = tmp_path / "tiles.csv"
    path.write_text(tiles_text(tiles for name, tiles in known.items() if name != version))
    for module in (predicted, tiles_record):
        monkeypatch.setattr(module, "tiles_path", lambda _: path)
    assert run(version, "--write") == 0
    parent = f"v{int(version[1:]) - 1:02}"
    said = rf"{version} on h200, predicted, not measured: \d+ TFLOP/s, .* seq 4096; [01]\.\d+ of {parent}'s speed\n"
    assert re.fullmatch(said, capsys.readouterr().out)
    written = read_tiles(root())
    assert list(written) == list(known)
    for ctas, tile in known[version].of.items():
        fresh = written[version].of[ctas]
        for name in NUMBERS:
            assert getattr(fresh, name) == pytest.approx(getattr(tile, name), rel=1e-3, abs=1), STALE_TILES
        assert fresh.stalls == pytest.approx(tile.stalls, abs=0.01), STALE_TILES


def test_kept_predictions_of_searches_are_those_of_the_model() -> None:
    """Predictions recorded for this state of the model and a version's own configuration, from its tiles."""
    known, machine, path = read_tiles(root()), read_machine(GPU), root() / PREDICTED
    models, compared = models_of(path), 0
    for key, times in read_predicted(path).items():
        (version, _, seq), tiles = key, known[key[0]]
        if models[key] == model_digest() and tiles.config in times:
            now = predicted.recorded(tiles, machine, Shape(standard_batch(seq), 16, seq))
            assert times[tiles.config] == pytest.approx(now.ms, rel=1e-3), f"{version}: keep its search's again"
            compared += 1
    if not compared:
        pytest.skip("all are of an older state of the model, as docs/internals.md says")
