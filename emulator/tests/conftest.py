"""What several test files need and should make once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hopper import compile_all


@pytest.fixture(scope="session")
def hopper_ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small kernels for sm_90a as PTX, alone in a folder."""
    return compile_all(tmp_path_factory.mktemp("hopper"))
