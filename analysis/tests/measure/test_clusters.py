"""docs/measuring.md: the job script in it runs, resumes, and its shards merge."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.measure import records
from analysis.tests.support.fake import FakeBin


def job_script() -> str:
    text = (root() / "docs" / "measuring.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return str(script)


def run_task(folder: Path, task: int, made: FakeBin) -> None:
    environment = os.environ | {
        "SLURM_ARRAY_JOB_ID": "77",
        "SLURM_ARRAY_TASK_ID": str(task),
        "PEERS": "",
        "BIN": str(made.folder),
        "PYTHONPATH": str(root()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-c", job_script()], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.mark.long
def test_the_job_array_measures_resumes_and_merges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = FakeBin(tmp_path / "bin")
    for number in range(1, 17):
        made.set(f"v{number:02}", ns=1000.0 + number)
    run_task(tmp_path, 0, made)
    run_task(tmp_path, 3, made)
    shards = sorted((tmp_path / "logs/bench/shards").glob("*.jsonl"))
    assert [shard.name for shard in shards] == ["77_0.jsonl", "77_3.jsonl"]
    whole = shards[0].read_bytes()
    shards[0].write_bytes(whole[: len(whole) // 2])  # killed in the middle of a line
    run_task(tmp_path, 0, made)
    target = tmp_path / "h200.jsonl"
    assert main(["records", "merge", *map(str, shards), "-o", str(target)]) == 0
    capsys.readouterr()
    assert main(["records", "runs", str(target)]) == 0
    assert "v13 v14 v15 v16" in capsys.readouterr().out
    merged = records.read(target).records
    assert {record.subject for record in merged} == {"v01", "v02", "v03", "v04", "v13", "v14", "v15", "v16"}
    assert {record.problem.seq for record in merged} == {512, 1024, 2048, 4096, 8192, 16384}
    again = [record for record in merged if record.run_id == records.latest_run(merged, ["v01"])]
    rounds = {record.round for record in again if record.subject == "v04"}
    assert len(rounds) >= 5
