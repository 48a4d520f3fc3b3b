"""Starting with nothing installed: the notebook runs, breaks, repairs its kernel; container files fit the project."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.machine_code.loops import PTXRUN

NOTEBOOK = root() / "examples/start_here.ipynb"


def code_cells() -> list[str]:
    book = json.loads(read_text(NOTEBOOK))
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.mark.long
@pytest.mark.skipif(not PTXRUN.exists(), reason="bin/ptxrun is not built: make bin/ptxrun")
def test_the_notebook_runs_breaks_and_repairs_its_kernel(tmp_path: Path) -> None:
    install, *rest = code_cells()
    assert '"pip", "install"' in install
    script = tmp_path / "cells.py"
    script.write_text("import subprocess\nfrom pathlib import Path\n" + "\n".join(rest))
    paths = [PTXRUN.parent, root() / ".venv/toolkit/bin"]
    environment = os.environ | {"PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]])}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "race at" in done.stdout and done.stdout.rstrip().endswith("nothing found")


def test_the_notebook_finds_the_programs_that_it_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter may run a kernel of an environment whose folder of programs is not on the PATH."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    exec(code_cells()[0], {})
    assert os.environ["PATH"] == os.pathsep.join([sysconfig.get_path("scripts"), "/nowhere"])


def test_the_notebook_holds_no_outputs_and_parses() -> None:
    book = json.loads(read_text(NOTEBOOK))
    assert not [cell for cell in book["cells"] if cell.get("outputs")]
    for text in code_cells():
        compile(text, NOTEBOOK.name, "exec")
    assert all(len(line) <= 120 for text in code_cells() for line in text.splitlines())


def test_the_containers_have_what_the_quick_start_names() -> None:
    docker = read_text(root() / "Dockerfile")
    container = json.loads(read_text(root() / ".devcontainer/devcontainer.json"))
    assert (root() / ".devcontainer" / container["build"]["dockerfile"]).resolve() == root() / "Dockerfile"
    installed = set(re.findall(r"[\w+.-]+", docker[docker.index("apt-get install") : docker.index("&& rm")]))
    assert {"gcc", "g++", "make", "git", "python3", "python3-venv", "ca-certificates"} <= installed
    (built,) = set(re.findall(r"make (v\d\d)", docker)) | set(
        re.findall(r"make (v\d\d)", container["postCreateCommand"])
    )
    assert list((root() / "kernels").glob(f"*/{built}_*.cu"))
    user = container["remoteUser"]
    assert re.search(rf"^USER {user}$", docker, re.MULTILINE)
    (folder,) = re.findall(r"^WORKDIR (\S+)$", docker, re.MULTILINE)
    assert re.search(rf"install -d -o {user} .* {folder}$", docker, re.MULTILINE), "make writes there"
