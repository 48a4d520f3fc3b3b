"""Every field of every version flipped once: refused with a sentence, or the kernel acts on it.

emulator/tests/test_flips.py builds and runs those that are not refused.
"""

import re

import pytest

from analysis.files import root
from analysis.ladder.c_source import closing_bracket, without_comments
from analysis.ladder.config import FIELDS, KernelConfig, default_set
from analysis.ladder.configs import verdict
from analysis.ladder.headers import Version, load_all, refusals
from analysis.tests.support.flips import flipped

VERSIONS = load_all(root())
CALLED = {"config_row_bytes": {"d_head", "padded_rows"}}  # functions of common/config.h with the fields they read


def acted_on(version: Version) -> set[str]:
    """The fields that the source names outside of what it refuses."""
    bare = without_comments(version.source)
    start = re.search(r"\bcheck_config\s*\(\s*\)\s*\{", bare)
    assert start
    rest = bare[: start.start()] + bare[closing_bracket(bare, start.end() - 1, "{", "}", version.file) :]
    called = [fields for name, fields in CALLED.items() if f"{name}(&cfg)" in rest]
    return {*re.findall(r"\bcfg\.(\w+)", rest)}.union(*called)


def wrong_flips(version: Version, config: KernelConfig) -> list[str]:
    wrong = []
    for name in FIELDS:
        other = flipped(config, name)
        if isinstance(other, str):
            continue  # a rule refuses it
        reasons = refusals(version, other)
        if not reasons:
            if name not in acted_on(version) and other not in default_set(version.header.config, version.header.beside):
                wrong.append(f"{name}: taken, but the kernel does not act on it")
        elif not verdict(version, other).startswith(reasons[0]):
            wrong.append(f"{name}: make configs says {verdict(version, other)}")
    return wrong


@pytest.mark.parametrize("version", VERSIONS.values(), ids=lambda version: version.version)
def test_a_flipped_field_is_refused_with_a_sentence_or_acted_on(version: Version) -> None:
    for config in (version.header.config, *version.header.beside):
        assert wrong_flips(version, config) == [], config
