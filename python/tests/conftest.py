"""The package on a library and a PyTorch that write down what they are given: fake_frameworks.py."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_frameworks import Recorded, fake_torch


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("fake"))


@pytest.fixture(scope="module")
def made(package: Recorded) -> Iterator[Any]:
    torch = fake_torch()
    with package.on(torch=torch) as load:
        fl, ours = load("torch"), torch.ops.flashladder
        yield SimpleNamespace(torch=torch, fl=fl, operators=ours, operator=ours.attention)
