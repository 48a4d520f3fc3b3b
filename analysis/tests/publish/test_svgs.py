"""Every SVG of the documents: no text leaves the canvas, and no two texts overlap."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from analysis.files import root

PICTURES = sorted(path for path in (root() / "docs").rglob("*.svg"))
SLACK = 1.0  # pixels that boxes of text may share: fonts differ by as much
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Box:
    """A text and the rectangle that it covers, in the units of the canvas."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return min(wide, high) > SLACK


@cache
def width_of(text: str, size: float) -> float:
    font = FontProperties(family="DejaVu Sans", size=size)
    return float(TextPath((0, 0), text, prop=font).get_extents().width)


def matrix_of(transform: str) -> np.ndarray:
    """The matrix of translate, rotate and scale, applied from right to left."""
    matrix = np.eye(3)
    for name, arguments in re.findall(r"(\w+)\(([^)]*)\)", transform):
        numbers = [float(one) for one in re.split(r"[ ,]+", arguments.strip())]
        step = np.eye(3)
        if name == "translate":
            step[:2, 2] = [numbers[0], numbers[1] if len(numbers) > 1 else 0.0]
        elif name == "rotate":
            turn = np.radians(numbers[0])
            step[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
            if len(numbers) == 3:
                middle = np.array(numbers[1:])
                step[:2, 2] = middle - step[:2, :2] @ middle
        else:
            assert name == "scale", transform
            step[0, 0], step[1, 1] = numbers[0], numbers[-1]
        matrix = matrix @ step
    return matrix


def texts_of(element: ElementTree.Element, outer: np.ndarray) -> Iterator[Box]:
    here = outer @ matrix_of(element.get("transform", ""))
    if element.tag == f"{SVG}text" and (text := "".join(element.itertext()).strip()):
        style = element.get("style", "")
        found = re.search(r"font(?:-size)?: *(?:\w+ )*?([\d.]+)px", style)
        size = float(element.get("font-size") or (found[1] if found else 10))
        anchor = element.get("text-anchor") or (re.findall(r"text-anchor: *(\w+)", style) or ["start"])[0]
        wide = width_of(text, size)
        x = float(element.get("x") or 0) - ANCHORS[anchor] * wide
        y = float(element.get("y") or 0)
        corners = here @ np.array([[x, x + wide, x, x + wide], [y, y, y - 0.72 * size, y - 0.72 * size], [1] * 4])
        yield Box(text, *corners[:2].min(axis=1), *corners[:2].max(axis=1))
    for child in element:
        yield from texts_of(child, here)


def faults(svg: str) -> list[str]:
    """The errors in the texts of a picture."""
    tree = ElementTree.fromstring(svg)
    _, _, width, height = (float(one) for one in (tree.get("viewBox") or "").split())
    boxes = list(texts_of(tree, np.eye(3)))
    outside = [
        f"{box.text!r} leaves the canvas"
        for box in boxes
        if min(box.left, box.top) < -SLACK or box.right > width + SLACK or box.bottom > height + SLACK
    ]
    return outside + [f"{a.text!r} overlaps {b.text!r}" for a, b in combinations(boxes, 2) if a.overlaps(b)]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_texts_are_inside_and_apart(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []
