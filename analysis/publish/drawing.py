"""Shared parts of all pictures: figures of matplotlib, a canvas for small cells, colors, and reproducible SVG.

    figure, axes = new_figure(WIDE, 3.6)        # for curves and bars
    write_if_changed(path, svg(figure))
    canvas = Canvas(760, 400)                   # for hundreds of cells, in a tenth of the space

Colors are those of Okabe and Ito, which readers with any kind of color vision tell apart.
"""

import html
import importlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW, BLACK = (
    "#0072b2",
    "#56b4e9",
    "#009e73",
    "#e69f00",
    "#d55e00",
    "#cc79a7",
    "#f0e442",
    "#000000",
)
GREY, PALE = "#8c8c8c", "#e0e0e0"
WIDE = 9.0  # inches


def new_figure(width: float, height: float, font: int = 9, **options: Any) -> tuple[Any, Any]:
    """A figure of this size in inches and its axes, without lines at the top and on the right."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "flashladder", "font.size": font})
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(
        figsize=(width, height), layout="constrained", **options
    )
    for one in figure.axes:
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    return figure, axes


def svg(figure: Any) -> str:
    """The picture as SVG text; equal for equal data."""
    return "\n".join(line.rstrip() for line in _saved(figure).splitlines()) + "\n"


def inline_svg(figure: Any, name: str, alt: str) -> str:
    """The figure as an SVG element for a page: black follows the text's color, the back is left out.

    `name` keeps the names of its parts apart from those of other figures on the page.
    """
    importlib.import_module("matplotlib").rcParams["svg.hashsalt"] = name
    text = re.sub(r"<metadata>.*?</metadata>", "", _saved(figure, transparent=True), flags=re.DOTALL)
    text = re.sub(r' id="[a-zA-Z0-9.]+_[0-9_]+"', "", text[text.index("<svg") :])
    text = text.replace("#000000", "currentColor").replace("xlink:href", "href")
    alt = html.escape(alt, quote=True)
    size = re.search(r'viewBox="[^"]*"', text)
    assert size is not None
    head = f'<svg role="img" aria-label="{alt}" {size[0]}>\n<title>{alt}</title>'
    text = head + text[text.index(">", size.end()) + 1 :]
    return "\n".join(line.strip() for line in text.splitlines()) + "\n"


def _saved(figure: Any, **options: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, **options)
    importlib.import_module("matplotlib.pyplot").close(figure)
    return out.getvalue()


@dataclass
class Canvas:
    """SVG text, made of rectangles and words; sizes are in pixels."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str, opacity: float = 0.6) -> None:
        box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {box} fill="{color}" fill-opacity="{opacity:g}" stroke="white"/>')

    def outline(self, x: float, y: float, width: float, height: float) -> None:
        box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {box} fill="none" stroke="{BLACK}" stroke-width="2"/>')

    def upright(self, x: float, top: float, bottom: float, color: str) -> None:
        """A vertical line."""
        self.parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}" stroke="{color}"/>')

    def words(self, x: float, y: float, text: str, size: float = 12, anchor: str = "middle") -> None:
        """Text whose baseline is at y and whose middle, start or end is at x."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    def cell(self, x: float, y: float, width: float, height: float, color: str, text: str = "") -> None:
        """A rectangle with small text in its middle."""
        self.rectangle(x, y, width, height, color)
        if text:
            self.words(x + width / 2, y + height / 2 + 3, text, 9)

    def legend(self, entries: Sequence[tuple[str, str]], title: str = "") -> None:
        """Colors with their meaning at the bottom, in as many rows as the width requires; the last thing to draw."""
        widths = [46 + 6.6 * len(name) for _, name in entries]
        rows: list[list[int]] = [[]]
        for index, width in enumerate(widths):
            if sum(widths[other] for other in rows[-1]) + width > self.width - 20 - 7 * len(title):
                rows.append([])
            rows[-1].append(index)
        for row in rows:
            x = (self.width - sum(widths[index] for index in row) + 7 * len(title)) / 2
            if title:
                self.words(x - 10, self.height - 8, title, 11, "end")
            for index in row:
                color, name = entries[index]
                self.rectangle(round(x, 1), self.height - 18, 22, 11, color)
                self.words(round(x + 28, 1), self.height - 8, name, 11, "start")
                x += widths[index]
            self.height += 18
        self.height -= 18

    def svg(self, title: str) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans, Arial, sans-serif">'
        back = '<rect width="100%" height="100%" fill="white"/>'
        return "\n".join([head, f"<title>{html.escape(title)}</title>", back, *self.parts, "</svg>", ""])
