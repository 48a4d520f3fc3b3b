"""The Python of docs/frameworks.md runs, block after block."""

import re
from pathlib import Path

import pytest

for name in ("torch", "transformers", "jax"):
    pytest.importorskip(name, reason=f"{name} is not installed, and make check does without it")
PAGE = Path(__file__).resolve().parents[2] / "docs/frameworks.md"


def test_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
