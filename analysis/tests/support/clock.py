"""A clock that a test makes up, so that no verdict depends on how fast or busy the machine is.

ticking(monkeypatch, bench)        # bench.time.monotonic() is a second later each time it is read
"""

import itertools
from types import ModuleType, SimpleNamespace

import pytest


def ticking(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, step: float = 1.0) -> None:
    """Gives the modules one clock that goes on by `step` seconds with every reading; other functions of time stay."""
    readings = itertools.count()  # next() of it is safe among threads
    for module in modules:
        made_up = SimpleNamespace(**vars(module.time))
        made_up.monotonic = lambda: step * next(readings)
        monkeypatch.setattr(module, "time", made_up)
