"""Textures and surfaces compared with the formulas of the CUDA C++ Programming Guide, "Texture Fetching"."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulation import ROOT

PROGRAM = ROOT / "emulator/tests/support/texture_program.py"
RNG = np.random.default_rng(7)
IMAGE = RNG.uniform(-1, 1, (5, 8)).astype(np.float32)
BYTES = RNG.integers(0, 256, (5, 8, 4)).astype(np.uint8)
VOLUME = RNG.uniform(-1, 1, (3, 4, 5)).astype(np.float32)
CUBE = np.arange(6 * 4 * 4, dtype=np.float32).reshape(6, 4, 4)
FLOATS = [-1.7, -0.25, 0.0, 0.5, 0.8, 1.0, 2.49, 2.51, 3.3, 4.0, 4.999, 5.2, 7.75, 8.0, 9.6, 31.1]


@dataclass(frozen=True)
class Ran:
    results: list[Any]
    findings: list[dict[str, Any]]
    said: str


def run(jobs: list[dict[str, Any]], folder: Path) -> Ran:
    tool = ROOT / "bin/emulated-gpu"
    assert tool.exists(), "bin/emulated-gpu is missing: run `make libcuda`"
    jobs_file, results, found = folder / "jobs.json", folder / "results.json", folder / "found.json"
    jobs_file.write_text(json.dumps(jobs))
    command = [str(tool), "--json", str(found), sys.executable, str(PROGRAM), str(jobs_file), str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert results.exists(), done.stderr
    notes = json.loads(found.read_text())["notes"]
    return Ran(json.loads(results.read_text()), [each for each in notes if "finding" in each], done.stderr)


def as_floats(words: list[list[int]]) -> np.ndarray:
    return np.array(words, np.uint32).view(np.float32)


def edge(i: int, size: int, mode: str) -> int | None:
    """The texel for an index: None is the border."""
    if mode == "border":
        return i if 0 <= i < size else None
    if mode == "clamp":
        return min(max(i, 0), size - 1)
    if mode == "wrap":
        return i % size
    i %= 2 * size
    return i if i < size else 2 * size - 1 - i


def texel(image: np.ndarray, indices: list[int], mode: str) -> np.ndarray | float:
    """indices: x, y, z; an image has its axes the other way round."""
    found = [edge(i, size, mode) for i, size in zip(indices, reversed(image.shape), strict=True)]
    return 0.0 if None in found else image[tuple(reversed(found))]  # type: ignore[index]


def nearest(image: np.ndarray, point: list[float], mode: str) -> np.ndarray | float:
    return texel(image, [int(np.floor(each)) for each in point], mode)


def mixed(image: np.ndarray, point: list[float], mode: str) -> float:
    """The weights have eight fraction bits."""
    whole = [int(np.floor(each - 0.5)) for each in point]
    part = [np.floor((each - 0.5 - first) * 256 + 0.5) / 256 for each, first in zip(point, whole, strict=True)]
    total = 0.0
    for corner in range(1 << len(point)):
        steps = [corner >> axis & 1 for axis in range(len(point))]
        weight = np.prod([p if s else 1 - p for p, s in zip(part, steps, strict=True)])
        total += float(weight * texel(image, [w + s for w, s in zip(whole, steps, strict=True)], mode))
    return total


PLANE = [[x, y] for x, y in zip(FLOATS, reversed(FLOATS), strict=True)]


@pytest.mark.parametrize("over", ["array", "pitch"])
@pytest.mark.parametrize("linear", [0, 1])
def test_planes_at_each_edge(over: str, linear: int, tmp_path: Path) -> None:
    base = {"over": over, "sizes": [8, 5], "type": "f4", "texels": IMAGE.tolist(), "form": "2d", "linear": linear}
    plain = [{**base, "instruction": "f32.f32", "edge": mode, "at": PLANE} for mode in ("clamp", "border", "wrap")]
    scaled = [[(x - 3) / 8, (y - 2) / 5] for x, y in PLANE]
    normal = [
        {**base, "instruction": "f32.f32", "edge": mode, "at": scaled, "normalized": 1}
        for mode in ("clamp", "border", "wrap", "mirror")
    ]
    ran = run(plain + normal, tmp_path)
    assert not ran.findings
    rule = mixed if linear else nearest
    for job, words in zip(plain + normal, ran.results, strict=True):
        normalized = "normalized" in job
        # without normalized coordinates there is no wrap, but a clamp
        mode = "clamp" if job["edge"] == "wrap" and not normalized else job["edge"]
        points = [
            [float(np.float32(x)) * (8 if normalized else 1), float(np.float32(y)) * (5 if normalized else 1)]
            for x, y in job["at"]
        ]
        expected = [rule(IMAGE, point, mode) for point in points]
        assert np.abs(as_floats(words)[:, 0] - expected).max() < 1e-6, job["edge"]
        assert not np.array(words)[:, 1:].any()


def test_bytes_as_floats_and_as_integers(tmp_path: Path) -> None:
    base = {"over": "array", "sizes": [8, 5], "type": "u1", "channels": 4, "texels": BYTES.tolist(), "form": "2d"}
    signed = BYTES.view(np.int8)
    at = [[x + 0.5, y + 0.5] for y in range(4) for x in range(8)]
    jobs = [
        {**base, "instruction": "f32.f32", "at": at},
        {**base, "instruction": "u32.f32", "at": at, "integer": 1},
        {**base, "instruction": "s32.f32", "at": at, "integer": 1, "type": "i1", "texels": signed.tolist()},
        {**base, "instruction": "f32.f32", "at": at, "type": "i1", "texels": signed.tolist()},
        {**base, "instruction": "level f32.f32", "at": at},
    ]
    ran = run(jobs, tmp_path)
    assert not ran.findings
    unsigned, integers, signed_integers, signed_floats, level = ran.results
    image = BYTES[:4].reshape(32, 4)
    assert np.array_equal(as_floats(unsigned), image / np.float32(255))
    assert np.array_equal(np.array(integers), image)
    assert np.array_equal(np.array(signed_integers, np.uint32).view(np.int32), image.view(np.int8))
    assert np.array_equal(as_floats(signed_floats), np.maximum(image.view(np.int8) / np.float32(127), -1))
    assert level == unsigned


def test_linear_memory_gives_zeros_beyond_its_end(tmp_path: Path) -> None:
    values = np.arange(1, 9, dtype=np.float16)
    jobs = [
        {"over": "linear", "sizes": [8], "type": "f2", "texels": values.tolist(), "form": "1d",
         "instruction": "f32.s32", "at": [[-1], [0], [3], [7], [8], [1 << 30]]},
        {"over": "linear", "sizes": [4], "type": "u4", "channels": 2, "texels": list(range(10, 18)), "form": "1d",
         "instruction": "u32.s32", "at": [[1], [3], [4]]},
    ]  # fmt: skip
    ran = run(jobs, tmp_path)
    assert not ran.findings
    assert as_floats(ran.results[0])[:, 0].tolist() == [0, 1, 4, 8, 0, 0]
    assert ran.results[1] == [[12, 13, 0, 0], [16, 17, 0, 0], [0, 0, 0, 0]]


def test_volumes_layers_and_cubes(tmp_path: Path) -> None:
    base = {"type": "f4", "instruction": "f32.f32"}
    inside = RNG.uniform(-1, 6, (20, 3)).astype(np.float32)
    volume = {**base, "over": "array", "sizes": [5, 4, 3], "texels": VOLUME.tolist(), "form": "3d", "linear": 1}
    layers = {**base, "over": "layers", "sizes": [5, 4, 3], "texels": VOLUME.tolist(), "form": "a2d", "linear": 1}
    lines = {**base, "over": "layers", "sizes": [5, 0, 3], "texels": VOLUME[:, 0].tolist(), "form": "a1d"}
    directions = [[1, 0.3, -0.6], [-1, 0.3, -0.6], [0.3, 1, -0.6], [0.3, -1, -0.6], [0.3, -0.6, 2], [0.3, -0.6, -2]]
    cube = {**base, "over": "cube", "sizes": [4, 4, 6], "texels": CUBE.tolist(), "form": "cube", "normalized": 1}
    jobs = [
        {**volume, "at": inside.tolist()},
        {**layers, "at": [[i % 3, float(x), float(y)] for i, (x, y, _) in enumerate(inside)]},
        {**lines, "at": [[2, 1.5], [0, 4.9]]},
        {**cube, "at": directions},
    ]
    ran = run(jobs, tmp_path)
    assert not ran.findings
    got = [as_floats(each)[:, 0] for each in ran.results]
    assert np.abs(got[0] - [mixed(VOLUME, [float(v) for v in p], "clamp") for p in inside]).max() < 1e-6
    planes = [mixed(VOLUME[i % 3], [float(p[0]), float(p[1])], "clamp") for i, p in enumerate(inside)]
    assert np.abs(got[1] - planes).max() < 1e-6
    assert got[2].tolist() == [VOLUME[2, 0, 1], VOLUME[0, 0, 4]]
    # the table of "Cubemap Textures": face, m, s and t of each direction
    table = [(0, 1, 0.6, -0.3), (1, 1, -0.6, -0.3), (2, 1, 0.3, -0.6), (3, 1, 0.3, 0.6), (4, 2, 0.3, 0.6),
             (5, 2, -0.3, 0.6)]  # fmt: skip
    expected = [CUBE[face, int((t / m + 1) / 2 * 4), int((s / m + 1) / 2 * 4)] for face, m, s, t in table]
    assert got[3].tolist() == expected


def test_surfaces(tmp_path: Path) -> None:
    numbers = np.arange(100, 140, dtype=np.uint32).reshape(5, 8)
    small = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    jobs = [
        {"over": "array", "sizes": [8, 5], "type": "u4", "texels": numbers.tolist(), "form": "2d", "mode": "trap",
         "at": [[0, 0], [28, 4], [8, 2]]},
        {"over": "array", "sizes": [8, 5], "type": "u4", "texels": numbers.tolist(), "form": "2d", "mode": "zero",
         "at": [[32, 0], [-4, 1], [4, 5], [4, 4]]},
        {"over": "array", "sizes": [8, 5], "type": "u4", "texels": numbers.tolist(), "form": "2d", "mode": "clamp",
         "at": [[400, -3]]},
        {"over": "array", "sizes": [4, 3, 2], "type": "u1", "texels": small.tolist(), "form": "3d", "mode": "trap",
         "bits": "b8", "at": [[1, 2, 1], [3, 0, 0]]},
    ]  # fmt: skip
    ran = run(jobs, tmp_path)
    assert not ran.findings
    assert ran.results[0] == [[100, 139, 118], (numbers + np.isin(numbers, [100, 139, 118])).tolist()]
    assert ran.results[1] == [[0, 0, 0, 133], (numbers + (numbers == 133)).tolist()]
    assert ran.results[2] == [[107], (numbers + (numbers == 107)).tolist()]
    assert ran.results[3] == [[21, 3], (small + np.isin(small, [21, 3])).tolist()]


BASE = {"over": "array", "sizes": [8, 5], "type": "f4", "texels": IMAGE.tolist(), "form": "2d", "at": [[0, 0]]}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"instruction": "f32.f32", "destroyed": 1}, "is no texture object anymore: it was destroyed"),
        ({"instruction": "f32.f32", "form": "1d"}, "The texture has 2 dimensions: this instruction takes others"),
        ({"instruction": "f32.f32", "over": "layers", "sizes": [8, 0, 5], "form": "a1d", "at": [[5, 0]]},
         "The texture has no such layer"),
        ({"instruction": "f32.f32", "over": "linear", "sizes": [40], "form": "1d"},
         "A texture over linear memory takes integer coordinates alone"),
        ({"mode": "trap", "at": [[32, 0]]}, "Byte 32, row 0, slice 0 are outside of the surface"),
        ({"mode": "clamp", "at": [[2, 0]]}, "The first coordinate of a surface counts bytes: 2 is no multiple of 4."),
    ],
)  # fmt: skip
def test_wrong_uses_are_found(job: dict[str, Any], said: str, tmp_path: Path) -> None:
    ran = run([{**BASE, **job}], tmp_path)
    assert len(ran.findings) >= 1
    assert said in ran.said
    assert not np.array(ran.results[0][0]).any()


@pytest.mark.parametrize(
    ("job", "result", "said"),
    [
        ({"more_flags": 0x10}, 801, "a texture with sRGB is not supported"),
        ({"type": "u1", "texels": BYTES[..., 0].tolist(), "integer": 1, "linear": 1}, 1, ""),
        ({"channels": 3}, 801, "texels of format 0x20 with 3 channels are not supported"),
    ],
)
def test_what_has_no_rule_is_refused(job: dict[str, Any], result: int, said: str, tmp_path: Path) -> None:
    ran = run([{**BASE, "instruction": "f32.f32", **job}], tmp_path)
    assert ran.results[0].endswith(f": {result}")
    assert said in ran.said


def test_lanes_that_share_an_element_race(tmp_path: Path) -> None:
    ran = run([{**BASE, "mode": "trap", "at": [[4, 0], [4, 0]]}], tmp_path)
    assert [each["finding"] for each in ran.findings] == ["race"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_texture_of_what_the_kernel_stores(at: int, tmp_path: Path) -> None:
    """Of the texel that it stored, or of another."""
    job = {"over": "linear", "sizes": [4], "type": "u4", "texels": [1, 2, 3, 4], "form": "1d", "integer": 1}
    ran = run([{**job, "instruction": "u32.s32", "at": [[at]], "stores": 1}], tmp_path)
    assert [each["finding"] for each in ran.findings] == ([] if at else ["race"])
    assert at or "reads by a texture what this kernel wrote" in ran.findings[0]["message"]
