"""Versions that were removed from the ladder: make, analysis and the library name the kernel that replaces each."""

import subprocess

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import attention_files, kernel_files, load, stem_of
from analysis.ladder.removed import removed_versions, replacement_of


def test_every_removed_version_has_a_replacement_that_exists() -> None:
    removed = removed_versions()
    assert list(removed) == [f"v{number}" for number in range(38, 53)]
    assert {*removed.values()} <= attention_files(root()).keys()
    assert not removed.keys() & kernel_files(root()).keys()
    assert replacement_of("v44") == "attention/wgmma" and replacement_of("v51") == "attention/mma_sync"
    assert replacement_of("v37") == replacement_of("v53") == replacement_of("v4") == ""


@pytest.mark.parametrize("version", ["v38", "v44", "v47", "v52"])
def test_a_removed_version_is_rejected_with_its_replacement(version: str) -> None:
    kernel = replacement_of(version)
    with pytest.raises(AnalysisError, match=f"^{version} was removed from the ladder: {kernel} replaces it$"):
        load(root(), version)
    for arguments in ([version], ["diff", "A=v01", f"B={version}"], ["predict", f"VER={version}"]):
        done = subprocess.run(["make", "-n", *arguments], cwd=root(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert f"{version}: was removed from the ladder; use {stem_of(kernel)}" in done.stderr


def test_a_version_that_never_existed_is_only_unknown() -> None:
    done = subprocess.run(["make", "-n", "v53"], cwd=root(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "v53: no such version" in done.stderr and "removed" not in done.stderr
