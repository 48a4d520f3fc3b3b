"""Sphinx's settings for `make site`. Its sources are what analysis/publish/site.py lays out in build/site/sources.

Nothing on a page comes from elsewhere: every font, script and style is in site/ itself.
"""

import html
import json
from collections.abc import Iterator
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

project = "flashladder"
extensions = ["myst_nb"]
exclude_patterns = ["texts"]

# Markdown as GitHub reads it: headings are link targets, and code without a language is plain text.
myst_heading_anchors = 6
highlight_language = "text"
nb_execution_mode = "off"
nb_render_markdown_format = "gfm"
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # a glossary may leave out a level of headings
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

html_theme = "furo"
html_title = "flashladder"
html_static_path = ["site.css", "pages.js", "linked.js"]
html_css_files = ["site.css"]
html_js_files = ["pages.js"]
html_extra_path = ["../../build/site/sources/linked"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "github-light-high-contrast"
pygments_dark_style = "github-dark-high-contrast"

LIKE = {".cuh": ".cu", ".mk": ".make", ".jsonl": ".json"}  # endings that Pygments does not know


def lexer_of(path: Path) -> Lexer:
    try:
        return get_lexer_for_filename(path.stem + LIKE.get(path.suffix, path.suffix))
    except ClassNotFound:
        return TextLexer()


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, str], str]]:
    """A page for each file or folder that a document links to and that is no document itself; line 12 is #L-12."""
    folder = Path(app.srcdir) / "texts"
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    for name, entries in json.loads((folder / "index.json").read_text()).items():
        if entries is None:
            page, body = name, highlight((folder / name).read_text(), lexer_of(Path(name)), formatter)
        else:
            page = f"{name}/index"
            items = "".join(f'<li><a href="{entry}.html">{html.escape(entry)}</a></li>' for entry in entries)
            body = f"<ul>{items}</ul>"
        yield f"source/{page}", {"title": name, "body": f"<h1>{html.escape(name)}</h1>\n{body}"}, "page.html"


def setup(app: Sphinx) -> None:
    app.connect("html-collect-pages", source_pages)
