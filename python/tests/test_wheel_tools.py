"""The wheel flashladder-tools: what it holds, and that its programs run where there is no checkout."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from fake_frameworks import ROOT

from analysis.__main__ import COMMANDS, INSTALLED
from analysis.errors import AnalysisError
from analysis.machine_code import toolkit
from analysis.measure.compare import read_times

PROJECT = tomllib.loads((ROOT / "python/tools/pyproject.toml").read_text())["project"]
TOOLKIT = ROOT / ".venv/toolkit"
OLD, NEW = ROOT / "build/v01/sm_80.cubin", ROOT / "build/v02/sm_80.cubin"
KERNEL = """
extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i];
}
"""

HELP = """
import contextlib, sys
from pathlib import Path
import flashladder_tools
sys.path.insert(0, str(Path(flashladder_tools.__file__).parent))
from analysis.__main__ import INSTALLED, main
for command in INSTALLED:
    with contextlib.suppress(SystemExit):
        main([command, "--help"], program="flashladder-tools")
"""


class Installed:
    """The wheel in a folder that nothing else knows of."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.site, self.folder = folder / "site", folder
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--target", str(self.site), str(wheel)], check=True)

    def run(self, program: str, *words: object, **added: str) -> subprocess.CompletedProcess[str]:
        env = {
            "CUDA_HOME": str(TOOLKIT),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(self.site),
            "HOME": str(self.folder),
            **added,
        }
        command = [self.site / "bin" / program, *words] if program != "python" else [sys.executable, *words]
        return subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=300, cwd=self.folder, env=env
        )


def build(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    env = os.environ | {"PIP_NO_BUILD_ISOLATION": "0"}  # as the option --no-build-isolation
    done = subprocess.run(
        [*pip, "-w", str(folder), str(ROOT / "python/tools")], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def is_the_same_each_time_and_tells_nothing_of_the_machine(wheel: Path, folder: Path) -> None:
    before = wheel.read_bytes()
    assert build(folder).read_bytes() == before
    with zipfile.ZipFile(wheel) as packed:
        assert [name for name in packed.namelist() if str(ROOT).encode() in packed.read(name)] == []
        assert not [name for name in packed.namelist() if "/tests/" in name or name.startswith("analysis")]


def has_a_true_tag(wheel: Path) -> None:
    symbols = "".join(
        subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True, check=True).stdout
        for path in (
            ROOT / "bin/ptxrun",
            ROOT / "bin/emulated-gpu",
            ROOT / "lib/libflemu.so",
            ROOT / "lib/emulated/libcuda.so.1",
        )
    )
    newest = max((int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    assert wheel.name.endswith(f"-py3-none-manylinux_{newest[0]}_{newest[1]}_x86_64.whl")


def compares_cubins(tools: Installed) -> None:
    done = tools.run("sass-diff", OLD, NEW, "--exit-code")
    assert done.returncode == 1 and "2 kernels: 2 changed" in done.stdout, done.stderr
    assert tools.run("sass-diff", OLD, OLD, "--exit-code").returncode == 0
    assert tools.run("images", "list", OLD).returncode == 0


def runs_cuda(tools: Installed) -> None:
    (tools.folder / "twice.cu").write_text(KERNEL)
    done = tools.run("ptxrun", "twice.cu", "--arg", "buf:f32:32:ramp", "--arg", "i32:32", "--print", "0:4")
    assert done.returncode == 0 and re.search(r"\b0 2 4 6\b", done.stdout), done.stdout + done.stderr


def is_a_gpu(tools: Installed) -> None:
    program = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); " \
        "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(n)), n.value)"  # fmt: skip
    done = tools.run("emulated-gpu", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (0, "0 0 1\n"), done.stderr
    program = "from flashladder_tools import emu; import numpy as np; x = np.ones(32, np.float32); " \
        "emu.Module('twice.cu')['twice'][1, 32](x, 32); print(x.sum())"  # fmt: skip
    done = tools.run("python", "-c", program, CUDA=str(TOOLKIT))
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr


def judges(tools: Installed) -> None:
    judged = tools.run("flashladder-judge", "matmul", ROOT / "examples/judge/kernelbench")
    assert judged.returncode == 0 or "no namespaces for ordinary" in judged.stderr, judged.stdout + judged.stderr
    assert tools.run("flashladder-judge", "--help").stdout.startswith("usage: flashladder-judge ")


def speaks_of_files(tools: Installed) -> None:
    """Not of versions, which nobody else has, and never of make."""
    said = tools.run("python", "-c", HELP).stdout
    assert said.count("usage: flashladder-tools ") == len(INSTALLED)
    assert not re.search(r"v\d\d|\bversions?\b|`make|python3 -m", said), said
    done = tools.run("sass-diff", "v01", "v02")
    assert (done.returncode, done.stderr) == (2, "sass-diff: v01: No such file or directory\n")
    assert tools.run("counts", "--help").stdout.startswith("usage: counts ")


@pytest.mark.long
def test_the_wheel(tmp_path: Path) -> None:
    """One test, as its builds share a folder."""
    wheel = build(tmp_path)
    is_the_same_each_time_and_tells_nothing_of_the_machine(wheel, tmp_path)
    has_a_true_tag(wheel)
    tools = Installed(wheel, tmp_path)
    compares_cubins(tools)
    runs_cuda(tools)
    is_a_gpu(tools)
    judges(tools)
    speaks_of_files(tools)


def test_its_programs_are_commands() -> None:
    names = {name for name, entry in PROJECT["scripts"].items() if entry.endswith(":analysis")} - {"flashladder-tools"}
    own = {name.removeprefix("flashladder-") for name in names}
    assert own <= set(INSTALLED) <= {command.name for command in COMMANDS}


def test_where_an_installed_tool_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$CUDA_HOME, NVIDIA's wheels next to the package, the PATH, /usr/local/cuda, in this order."""
    package = tmp_path / "site/flashladder_tools"
    monkeypatch.setattr(toolkit, "root", lambda: package)
    monkeypatch.setattr(toolkit, "in_checkout", lambda: False)
    monkeypatch.setattr(toolkit, "DEFAULT_TOOLKIT", tmp_path / "cuda")
    monkeypatch.delenv("CUDA", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(AnalysisError, match=r"run `pip install 'flashladder-tools\[nvcc\]'`, or set CUDA_HOME"):
        toolkit._find_installed("nvcc")
    for folder in ("cuda/bin", "path", "site/nvidia/cu13/bin", "home/bin"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "nvcc").touch(0o755)
        assert toolkit._find_installed("nvcc") == tmp_path / folder / "nvcc"


@pytest.mark.parametrize("text", ["", "1 2\nx\n", "1 0\n", "1 inf\n"])
def test_what_is_no_text_of_times(text: str, tmp_path: Path) -> None:
    (tmp_path / "times").write_text(text)
    with pytest.raises(AnalysisError, match="times"):
        read_times(tmp_path / "times")


def steps_of(workflow: str) -> dict[str, str]:
    """The commands of each named step."""
    text = (ROOT / "examples/ci" / workflow).read_text()
    found = {}
    for name, rest in re.findall(r"^ {6}- name: (.+)\n((?: {8}.*\n)+)", text, re.MULTILINE):
        commands = re.search(r"run: \|\n((?: {10}.*\n)+)", rest)
        assert commands, name
        found[name] = commands[1]
    return found


class Runner:
    """Runs steps as GitHub does: pip and gh take down what they are called with."""

    def __init__(self, tools: Installed, workspace: Path) -> None:
        self.tools, self.workspace, self.called = tools, workspace, workspace / "called"
        (workspace / "programs").mkdir(parents=True)
        for name in ("pip", "gh"):
            fake = workspace / "programs" / name
            fake.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.called}\n')
            fake.chmod(0o755)
        (workspace / "programs/python3").symlink_to(sys.executable)

    def run(self, commands: str, **added: str) -> str:
        path = f"{self.workspace}/programs:{self.tools.site}/bin:{TOOLKIT}/bin:/usr/bin:/bin"
        env = {"PATH": path, "PYTHONPATH": f"{self.tools.site}:{':'.join(sys.path)}", "HOME": str(self.workspace),
               "GITHUB_PATH": str(self.workspace / "path"), "GITHUB_STEP_SUMMARY": str(self.workspace / "summary"),
               "CUDA": str(TOOLKIT), **added}  # fmt: skip
        text = commands.replace("${{ github.event.number }}", "7")
        assert "${{" not in text
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text], cwd=self.workspace, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.long
def test_the_workflows(tmp_path: Path) -> None:
    tools = Installed(build(tmp_path), tmp_path)
    compare = Runner(tools, tmp_path / "compare")
    for side, factor in (("base", "2"), ("head", "3 * x[0] +")):
        folder = compare.workspace / side / "kernels"
        folder.mkdir(parents=True)
        (folder / "twice.cu").write_text(KERNEL.replace("2 *", f"{factor}" + (" *" if factor == "2" else "")))
    steps = steps_of("machine-code.yml")
    assert list(steps) == ["install", "build", "compare", "comment"]
    for commands in steps.values():
        compare.run(commands)
    comment = (compare.workspace / "comment.md").read_text()
    assert "1 kernel: 1 changed" in comment and "| changed | sm_90 |" in comment
    assert (compare.workspace / "summary").read_text() == comment
    assert compare.called.read_text().splitlines() == [
        "pip install flashladder-tools[nvcc]",
        "gh pr comment 7 --body-file comment.md --edit-last --create-if-none",
    ]
    emulator = Runner(tools, tmp_path / "emulator")
    (emulator.workspace / "tests").symlink_to(ROOT / "examples/ci/tests")
    install, kernels, programs = steps_of("emulator.yml").values()
    emulator.run(install)
    assert "3 passed" in emulator.run(kernels)
    assert "1 passed" in emulator.run(programs)
