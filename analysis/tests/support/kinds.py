"""One version of each kind: what `make check` looks at where versions of a kind prove the same.

    @pytest.mark.parametrize("name", one_of_each_kind(load_all(root())))

The others are marked `long`, and `each_version` for `make check VER=`. A new version is the newest of its kind, so that
it is always looked at.
"""

from collections.abc import Collection, Iterable
from functools import cache

import pytest
from _pytest.mark import ParameterSet

from analysis.files import root
from analysis.ladder.headers import Version, load_all, load_off_ladder


def kind_of(version: Version) -> tuple[int, ...]:
    config = version.header.config
    roles = (version.one_arch, config.producer, config.stages > 0)
    return (*roles, config.persistent)


@cache
def newest_of_each_kind() -> frozenset[str]:
    """And v01, which all others come from: the only one with bank conflicts."""
    return frozenset({kind_of(version): name for name, version in load_all(root()).items()}.values()) | {"v01"}


def one_of_each_kind(names: Iterable[str]) -> list[ParameterSet]:
    """Parameters of a test over versions."""
    return [pytest.param(name, marks=marks_of(name), id=name) for name in names]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in newest_of_each_kind() else [pytest.mark.long, pytest.mark.each_version]


def newest_off_ladder() -> list[ParameterSet]:
    """Kernels besides the ladder, of which the newest of each type of config is enough for `make check`."""
    found = load_off_ladder(root())
    newest = {type(version.header.config): name for name, version in found.items()}.values()
    return some_in_check(found, newest)


def some_in_check(values: Iterable[object], some: Collection[object]) -> list[ParameterSet]:
    """Parameters of a test, of which `make check` tries some."""
    return [pytest.param(each, marks=[] if each in some else [pytest.mark.long]) for each in values]
