"""What all pictures share: the figure to draw on, the colours, and SVG text that is equal for equal data.

    figure, axes = new_figure(WIDE, 3.6)
    write_if_changed(path, svg(figure))

Colours are those of Okabe and Ito, which readers with any kind of colour vision tell apart.
"""

import html
import importlib
import io
import re
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
GREY = "#8c8c8c"
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
    """The figure as an SVG element for a page: black follows the text's colour, the back is left out.

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
