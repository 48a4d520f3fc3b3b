"""The jail, without which a test that runs a submission is skipped."""

from pathlib import Path

import pytest

from analysis.judge.machine import NoJail, in_jail


@pytest.fixture(scope="session")
def jail(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test with the jail's own message where the system has no namespaces for ordinary users."""
    folder: Path = tmp_path_factory.mktemp("jail")
    try:
        assert in_jail(folder, ["true"], {"PATH": "/usr/bin:/bin"}).status == 0
    except NoJail as error:
        pytest.skip(str(error))
