"""The judge on submissions of its corpus, and on submissions that attack the machine it runs on."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.judge.corpus import (
    ALLOWED,
    ATTACKS,
    BEGIN,
    END,
    FOLDER,
    HONEST,
    MISTAKES,
    PAGE,
    RECORD,
    Entry,
    Row,
    entries,
    judge_entry,
    read_record,
    tables,
)
from analysis.judge.judge import judge
from analysis.judge.problem import load_problem
from analysis.judge.record import Options
from analysis.judge.schema import SCHEMA
from analysis.judge.verdict import ACCEPTED, REJECTED, RESERVED, STATUS_OF_MECHANISM

ENTRIES = {each.name: each for each in entries()}
EXAMPLES = root() / "examples/judge"


def command(*words: object) -> subprocess.CompletedProcess[str]:
    typed = [sys.executable, "-m", "analysis", "judge", *map(str, words)]
    return subprocess.run(typed, cwd=root(), capture_output=True, text=True, check=False)


def conforms(value: object, schema: Mapping[str, object], at: str = "verdict") -> list[str]:
    """How a value differs from a JSON schema, as far as ours goes."""
    if "const" in schema and value != schema["const"]:
        return [f"{at} is not {schema['const']}"]
    options = schema.get("enum")
    if isinstance(options, list) and value not in options:
        return [f"{at} is none of {options}"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if not isinstance(value, kinds.get(str(schema.get("type")), object)):  # type: ignore[arg-type]
        return [f"{at} is no {schema['type']}"]
    found: list[str] = []
    if isinstance(value, dict):
        properties, required = schema.get("properties", {}), schema.get("required", [])
        assert isinstance(properties, dict) and isinstance(required, list)
        found += [f"{at} lacks {name}" for name in required if name not in value]
        found += [f"{at} has {name}, which the schema does not name" for name in value if name not in properties]
        for name in set(value) & set(properties):
            found += conforms(value[name], properties[name], f"{at}.{name}")
    if isinstance(value, list):
        items = schema["items"]
        assert isinstance(items, dict)
        for i, each in enumerate(value):
            found += conforms(each, items, f"{at}[{i}]")
    return found


# Entries that are not accepted, and a mechanism that each shows. Other tests judge honest submissions, and
# `./fl judge-corpus` all entries.
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("copied_result", "values"),
        ("race", "race"),
        ("last_cta", "order"),
        ("secret_value", "unreached store"),
        ("secret_in_an_operand", "one-sided test"),
        ("same_buffer_twice", "contract"),
    ],
)
@pytest.mark.usefixtures("jail")
def test_a_sample_of_the_corpus(name: str, mechanism: str) -> None:
    entry, verdict = ENTRIES[name], judge_entry(ENTRIES[name])
    assert verdict.verdict in ALLOWED[entry.expected]
    points = {point.mechanism for point in (*verdict.reasons, *verdict.reservations)}
    assert mechanism in points, verdict.as_text()


WITHOUT_TRITON = [e for e in ENTRIES.values() if "import triton" not in e.text]
OF_EACH_KIND = {(e.kind, e.expected): e for e in WITHOUT_TRITON if e.group != HONEST}
OF_EACH_SOURCE = {re.sub(r"_\d+$", "", name): name for name, e in ENTRIES.items() if e.kind == "CUDA"}


@pytest.mark.long
@pytest.mark.parametrize("entry", OF_EACH_KIND.values())
@pytest.mark.usefixtures("jail")
def test_attacks_and_mistakes(entry: Entry) -> None:
    verdict = judge_entry(entry)
    assert verdict.verdict in ALLOWED[entry.expected], verdict.as_text()


@pytest.mark.long
@pytest.mark.parametrize("name", [*OF_EACH_SOURCE.values(), "v07_autotune", "v28_producer"])
@pytest.mark.usefixtures("jail")
def test_honest_kernels_are_not_rejected(name: str) -> None:
    verdict = judge_entry(ENTRIES[name])
    assert verdict.verdict != REJECTED, verdict.as_text()


def test_the_summary_counts_every_accepted_attack_that_cheats() -> None:
    rows = [
        Row(expected, ATTACKS, "kind", "softmax", expected, ACCEPTED, "", 1.0, "source", "a")
        for expected in ("rejected", "hole", "harmless")
    ]
    summary = tables(rows).partition("\n")[0]
    assert "accepted 3 of 3 attacks, 1 harmless and 2 cheating." in summary and "Other versions" not in summary
    older = Row("older", HONEST, "kind", "softmax", "accepted", ACCEPTED, "", 1.0, "source", "")
    assert tables([*rows, older]).partition("\n")[0].endswith("Other versions of the judge gave 1 of the 4 verdicts.")


def test_the_record_is_of_this_corpus_and_the_page_shows_it() -> None:
    rows = read_record(root() / RECORD)
    assert {row.name: (row.group, row.expected) for row in rows} == {
        entry.name: (entry.group, entry.expected) for entry in ENTRIES.values()
    }
    assert [row.name for row in rows if not row.is_expected] == []
    honest = [row for row in rows if row.group == HONEST]
    assert len(honest) >= 100 and sum(row.verdict == REJECTED for row in honest) <= len(honest) // 100
    assert {row.group for row in rows} == {HONEST, MISTAKES, ATTACKS}
    text = read_text(root() / PAGE)
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == tables(rows), "run `./fl judge-corpus --tables`"
    missing = [row.name for row in rows if row.expected == "hole" and f"`{row.name}`" not in text]
    assert not missing, f"{PAGE} names no hole {missing}"


@pytest.mark.usefixtures("jail")
def test_a_kernel_that_is_right_for_small_shapes_alone_is_found_at_the_timed_shape() -> None:
    verdict = judge_entry(ENTRIES["one_sequence_of_the_judge"])
    assert [point.mechanism for point in verdict.reservations] == ["sample"], verdict.as_text()
    assert verdict.reservations[0].evidence.startswith("8 of 64 CTAs wrote 0 of "), verdict.as_text()


# Each thing that the page does not promise: a submission that shows it, and the verdict that it gets nevertheless.
HOLES = {
    "Speed": (
        "from kernels import softmax\ndef custom_kernel(data): return softmax(data, softmax(data, softmax(data)))",
        ACCEPTED,
    ),
    "Other shapes": (
        """
from kernels import SOFTMAX, START, changed, softmax
SOURCE = changed(SOFTMAX, (START, "if (columns == 777) return;" + START))
def custom_kernel(data): return softmax(data, source=SOURCE)
""",
        ACCEPTED,
    ),
    "Secrets": (ENTRIES["secret_in_a_pole"].text, ACCEPTED),
    "A GPU": (  # PTX says nothing of the NaN of an atomic
        """
from kernels import SOFTMAX, START, WRITE, changed, softmax
NAN = "__shared__ float s; if (!threadIdx.x) s = __uint_as_float(0x7f800001); __syncthreads(); "
NAN += "if (!threadIdx.x) atomicAdd(&s, 1); __syncthreads(); unsigned nan = __float_as_uint(s);"
SOURCE = changed(SOFTMAX, (START, NAN + START), (WRITE, WRITE + " + (nan ^ 0x7fffffff)"))
def custom_kernel(data): return softmax(data, source=SOURCE)
""",
        ACCEPTED,
    ),
    "Libraries": (ENTRIES["machine_code_alone"].text, RESERVED),
}


@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.usefixtures("jail")
def test_what_the_judge_does_not_promise(hole: str, tmp_path: Path) -> None:
    text, expected = HOLES[hole]
    for module in FOLDER.glob("*.py"):
        shutil.copy(module, tmp_path)
    (tmp_path / "submission.py").write_text(text)
    problem = load_problem("softmax")
    verdict = judge(replace(problem, cases=problem.cases[:1]), tmp_path, Options(timed_shapes=False))
    assert (verdict.verdict, verdict.times) == (expected, []), verdict.as_text()


def test_each_thing_that_the_judge_does_not_promise_has_a_test() -> None:
    _, _, named = read_text(root() / PAGE).partition("## What it does not promise")
    assert re.findall(r"^- \*\*(.*?)\.?\*\*", named.partition("##")[0], re.M) == [*HOLES, "The jail"]


# A submission that harms the machine it runs on: how it ends, within 3 seconds.
HARMFUL = {
    "timeout": "while True: pass",
    "memory": "x = b'x' * (400 << 20)\nwhile True: pass",
    "processes": "import os\nwhile True:\n    if not os.fork(): import time; time.sleep(100)",
    "files": "file = open('big', 'wb')\nwhile True: file.write(bytes(1 << 24))",
    "contract": 'print(\'{"verdict": "accepted", "status": 0}\', flush=True)\nimport os\nos._exit(0)',
    "signal": "import os\nos.kill(os.getpid(), 9)",
    "attack": "import os\nos.kill(os.getppid(), 9)",
}
MESSAGES = {
    "timeout": "it still ran after 3 s",
    "memory": " MiB of memory, above 300",
    "processes": " processes, above 64",
    "files": "File too large",
    "contract": 'the submission never reached the GPU; its last line: {"verdict": "accepted"',
    "signal": "ended by signal 9",
    "attack": "it sent a signal to the process that watches it",
}


@pytest.mark.parametrize("weak", [(), ("--weak-jail",)])
@pytest.mark.parametrize("mechanism", HARMFUL)
@pytest.mark.usefixtures("jail")
def test_a_harmful_submission_has_a_message_and_a_status_of_its_own(
    mechanism: str, weak: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "submission.py").write_text(HARMFUL[mechanism])
    limits = ("--seconds", 10 if mechanism == "files" else 3, "--memory", 300 if mechanism == "memory" else 4096)
    done = command("softmax", tmp_path / "submission.py", *limits, "--json", *weak)
    verdict = json.loads(done.stdout)
    assert [point["mechanism"] for point in verdict["reasons"]] == [mechanism], done.stdout
    assert done.returncode == verdict["status"] == STATUS_OF_MECHANISM[mechanism]
    assert MESSAGES[mechanism] in verdict["reasons"][0]["evidence"]
    assert conforms(verdict, SCHEMA) == []


@pytest.mark.usefixtures("jail")
def test_the_example_in_the_style_of_kernelbench_is_accepted_and_its_page_written(tmp_path: Path) -> None:
    page, saved = tmp_path / "page.html", tmp_path / "saved"
    done = command("matmul", EXAMPLES / "kernelbench", "--json", "--html", page, "--save", saved, "--seed", 1)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "accepted"), done.stdout + done.stderr
    assert conforms(verdict, SCHEMA) == []
    *small, timed = verdict["cases"]
    assert all(case["bytes_moved"] >= case["bytes_floor"] > 0 for case in small) and timed["replays"] > 1
    assert "<h1 class=accepted>Accepted</h1>" in page.read_text() and "http" not in page.read_text()
    again = command("matmul", saved, "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["seed"] != verdict["seed"], again.stdout + again.stderr
    (saved / "case.1.recording").unlink()
    assert "lacks case.1.recording, the recording of M=50 N=40 K=96" in command("matmul", saved).stderr


@pytest.mark.usefixtures("jail")
def test_a_cu_file_is_a_submission() -> None:
    done = command("softmax", EXAMPLES / "softmax.cu")
    assert done.returncode == 0 and done.stdout.startswith("ACCEPTED: softmax.cu as softmax"), done.stdout + done.stderr


OPENS = 'import gpu\nkernels = gpu.Module(open("common").read())\ndef custom_kernel(data): return data["x"]\n'


@pytest.mark.parametrize(
    ("file", "text", "beside"),
    [
        ("one.py", "import common", "common.py"),
        ("one.cu", '#include "common.h"', "common.h"),
        ("submission.py", OPENS, "common"),
    ],
)
@pytest.mark.usefixtures("jail")
def test_a_file_beside_the_submission_is_taken_with_its_folder_alone(
    file: str, text: str, beside: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / beside).write_text('extern "C" __global__ void f() {}' if beside == "common" else "")
    done = command("softmax", tmp_path / file)
    said = f"{beside} lies beside {file}, which is judged alone: name a folder that holds both"
    assert done.returncode == 5 and said in done.stdout, done.stdout
    if beside == "common":
        assert "y and x share memory" in command("softmax", tmp_path).stdout.replace("x and y", "y and x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a problem: attention_backward, "),
        (("sorting", "x.py"), "problem sorting: no such file"),
        (("softmax",), "name a submission"),
        (("softmax", "missing.py"), "missing.py: no such file"),
        (("attention_forward", "kernels/mma_sync/v18_wide_cta.cu"), "B_r 256 and B_c 64 must divide the lengths"),
        (("softmax", "kernels/mma_sync/v07_autotune.cu"), "a kernel of the ladder solves attention_forward alone"),
        (("softmax", "README.md", "--baseline", "x.py"), "--baseline is for --time"),
        (("softmax", "README.md", "--arch", "sm_8"), "--arch sm_8 is none of sm_80, "),
        (("softmax", "README.md", "--gpu", "h100"), "--gpu h100 is none of small, A100, "),
        (("softmax", "README.md"), "README.md: must be a Python module"),
        (("softmax", "docs"), "docs: must hold submission.py, or one .py or .cu file"),
        (
            ("softmax", "examples/judge/softmax_triton.py", "--python", "nothing"),
            "--python nothing: cannot be executed",
        ),
    ],
)
def test_usage_errors_are_2(words: tuple[str, ...], said: str) -> None:
    done = command(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("one.py", "def f(:", "exit status 1; line 1 of one.py: SyntaxError: invalid syntax"),
        ("one.py", "import no_such_package", f"install no_such_package for {sys.executable}, or name a Python that"),
        ("one.cu", "__global__ void f() { int x = y; }", 'one.cu(1): error: identifier "y" is undefined'),
    ],
)
@pytest.mark.usefixtures("jail")
def test_an_error_of_the_submission_is_shown_with_its_line(file: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    done = command("softmax", tmp_path / file)
    assert done.returncode == 5 and said in done.stdout and "0 replays" not in done.stdout, done.stdout


def test_without_a_gpu_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(root() / "lib/emulated"))
    done = command("softmax", EXAMPLES / "softmax.cu", "--time")
    assert done.returncode == 21 and "--time needs a GPU: the loader finds the emulated driver" in done.stderr
