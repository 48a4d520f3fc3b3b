"""docs/building.md: its examples print what it says, its table of sets has the right sizes."""

import re
import shlex

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.ladder.headers import load_all

PAGE = (root() / "docs/building.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ python3 -m analysis (.*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command[:40] for command, _ in EXAMPLES])
def test_an_example_prints_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELS", raising=False)
    main(shlex.split(command))
    said = capsys.readouterr()
    assert said.out + said.err == printed


def test_the_page_says_which_versions_copy_by_cp_async() -> None:
    page = " ".join(PAGE.split())
    assert "Versions with `mma.sync` from v00b on, and v26, need `async` (cp.async)" in page
    assert "v00 and v00a copy through registers, and the versions with `wgmma` from v27 on by tensor maps" in page
    for name, version in load_all(root()).items():
        by_tensor_maps = version.one_arch and name != "v26"
        config = version.header.config
        copies = name not in ("v00", "v00a") and not by_tensor_maps, by_tensor_maps
        assert (config.async_copy, config.tensor_copies) == copies, name
