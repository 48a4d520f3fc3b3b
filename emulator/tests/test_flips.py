"""Each field of a version's configuration flipped once: what analysis takes computes the right result, and what a
static_assert refuses does not compile, with its sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiled import compiled
from support.emulation import ROOT
from support.versions import Launch

from analysis.ladder.config import FIELDS, KernelConfig, default_set
from analysis.ladder.headers import Version, load_all, refusals
from analysis.tests.support.flips import flipped

VERSIONS = load_all(ROOT)
QUICK = ("v03", "v26")  # one of each folder, in every check
EACH = [pytest.param(version, marks=() if name in QUICK else pytest.mark.long) for name, version in VERSIONS.items()]
OF_ONE_CONFIG = ("v00a", "v00b")
WITH_CHOICE = [each for each in EACH if each.values[0] not in [VERSIONS[name] for name in OF_ONE_CONFIG]]


def flips(version: Version) -> list[KernelConfig]:
    """Those of the header's configuration that no rule refuses; the default set has the other type."""
    found = [flipped(version.header.config, name) for name in FIELDS]
    usual = default_set(version.header.config)
    return list(dict.fromkeys(one for one in found if not isinstance(one, str) and one not in usual))


@pytest.mark.parametrize("version", WITH_CHOICE, ids=lambda version: version.version)
def test_what_is_taken_is_right(version: Version, tmp_path: Path) -> None:
    configs = [config for config in flips(version) if not refusals(version, config)]
    assert configs
    ptx, said = compiled(version, configs, tmp_path)
    assert ptx.exists(), said
    for config in configs:
        seq = 2 * max(config.B_r, config.B_c)
        worst, findings = Launch(config.symbol(), seq, heads=2).worst(ptx, tmp_path)
        assert worst <= 1 and not findings, f"{config}: {worst}\n{findings}"


@pytest.mark.parametrize("version", EACH, ids=lambda version: version.version)
def test_nvcc_says_why_it_refuses(version: Version, tmp_path: Path) -> None:
    """Each sentence, from one compilation; a configuration with other parameters has no kernel to refuse it."""
    refused = [config for config in flips(version) if not all(check.holds(config) for check in version.checks)]
    ptx, said = compiled(version, refused, tmp_path)
    assert not ptx.exists()
    own = [config for config in refused if config.parameter_types() == version.header.config.parameter_types()]
    assert said.count("no instance of function template") == len(refused) - len(own)
    sentences = [check.sentence for config in own for check in version.checks if not check.holds(config)]
    assert said.count("static assertion failed") >= len(own)
    assert [sentence for sentence in sentences if f'static assertion failed with "{sentence}"' not in said] == [], said
