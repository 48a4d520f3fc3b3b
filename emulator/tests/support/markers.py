"""The page of the emulator, and what stands between two markers on it: fill(page, "tried", table)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "emulator.md"


def fill(page: str, name: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda found: found[1] + text.strip("\n") + "\n" + found[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} blocks '{name}': expected one")
    return filled
