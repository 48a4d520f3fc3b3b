"""Every class of finding: a small PTX that has the defect, and a twin that is just legal and must stay silent."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.defects import FILES, SHARED, Defect, check_reported, check_silent, run
from support.emulation import ROOT, entry, ptxrun
from support.versions import Launch
from vectors.defects_clusters import CLUSTERS
from vectors.defects_global import BUFFERS, FOUR, GLOBAL
from vectors.defects_global import START as IN_GLOBAL
from vectors.defects_hopper import HOPPER
from vectors.defects_orders import ORDERS
from vectors.defects_warps import LOAD_POINTER, POINTER, START, WARPS

DEFECTS = [*WARPS, *HOPPER, *CLUSTERS, *GLOBAL, *ORDERS]


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_a_defect_is_reported_and_its_twin_is_silent(defect: Defect, tmp_path: Path) -> None:
    check_reported(defect, tmp_path)
    check_silent(defect, tmp_path)


@pytest.mark.parametrize("seed", ["1", "5"])
@pytest.mark.parametrize("defect", GLOBAL, ids=str)
def test_a_twin_is_silent_in_other_orders(defect: Defect, seed: str, tmp_path: Path) -> None:
    check_silent(replace(defect, options=[*defect.options, "--schedule", seed]), tmp_path)


@pytest.mark.parametrize("defect", [each for each in HOPPER if each.options == ["--wgmma-wait-per-warp"]], ids=str)
def test_a_wgmma_wait_is_one_of_the_warpgroup_unless_asked(defect: Defect, tmp_path: Path) -> None:
    check_silent(replace(defect, twin=defect.bad, options=[]), tmp_path)


def test_every_class_has_a_defect() -> None:
    """The classes are those of emu.h."""
    header = (ROOT / "emulator/emu.h").read_text()
    body = header[header.index("typedef enum emu_class {") : header.index("} emu_class;")]
    names = [name.lower().replace("_", "-") for name in re.findall(r"^ +EMU_(\w+),", body, re.M)]
    of_the_driver = {"uninitialised-global"}  # test_driver_memory.py
    others = of_the_driver | {name for name in names if name.startswith("tmem-")}  # test_tcgen05.py
    assert {defect.name for defect in DEFECTS} | others == set(names)


def test_checks_off_finds_no_race(tmp_path: Path) -> None:
    race = WARPS[0]
    path = tmp_path / "race.ptx"
    path.write_text(entry(race.bad, directives=f"{FILES}\n{SHARED}"))
    assert ptxrun(path, "--block", 64).returncode == 1
    assert ptxrun(path, "--block", 64, "--checks", "off").returncode == 0


def test_run_ends_at_the_first_finding(tmp_path: Path) -> None:
    """Two loads past the end of shared memory, in each of two warps."""
    path = tmp_path / "twice.ptx"
    path.write_text(
        entry(START + "ld.shared.u32 %x, [%s+4096];\n.loc 1 11 0\nld.shared.u32 %y, [%s+8192];", directives=SHARED)
    )
    whole, first = ptxrun(path, "--block", 64), ptxrun(path, "--block", 64, "--first")
    assert (whole.returncode, whole.stderr.count("PTX line")) == (1, 2), whole.stderr
    assert (first.returncode, first.stderr.count("PTX line")) == (3, 1), first.stderr


def test_each_mbarrier_too_many_is_reported(tmp_path: Path) -> None:
    """256 of the lanes' 288 findings fit; a misaligned access is reported as well."""
    body = START + "mad.lo.s32 %s, %t, 28, %s;\nsetp.eq.u32 %q, %t, 5;\n"
    body += "".join(f"mbarrier.init.shared.b64 [%s+{1024 * i}], 1;\n" for i in range(8))
    body += "@%q add.u32 %s, %s, 4;\n.loc 1 11 0\nmbarrier.init.shared.b64 [%s+8192], 1;"
    path = tmp_path / "many.ptx"
    path.write_text(entry(body, directives=f"{FILES}\n.shared .align 16 .b8 smem[9216];"))
    said = ptxrun(path, "--block", 32).stderr
    assert "barrier-misuse (31 times)" in said and "misaligned (1 time)" in said, said


def test_a_barrier_that_is_missing_is_a_few_findings(tmp_path: Path) -> None:
    """One cause per pair of lines, not one finding for each pair of unrolled instructions."""
    launch = Launch("v18", seq=512)
    lines = launch.ptx.read_text().split("\n")
    found, broken = [], tmp_path / "broken.ptx"
    for at in [at for at, line in enumerate(lines) if re.match(r"\s*bar\.sync", line)]:
        broken.write_text("\n".join([*lines[:at], "", *lines[at + 1 :]]))
        said = re.search(r"^(\d+) findings?: ", launch.run(ptx=broken).stderr, re.MULTILINE)
        found += [int(said[1])] if said else []
    assert len(found) >= 3 and max(found) <= 8, f"{found}: docs/emulator.md says one to eight"


def unordered(folder: Path, *options: str) -> tuple[int, str]:
    """A race between the lines 11 and 13, and an output of which one word is written twice at line 15."""
    race = WARPS[0]
    body = race.bad.replace(START, START + LOAD_POINTER) + "\n.loc 1 15 0\nst.global.u32 [%p], 1;"
    path = folder / "race.ptx"
    path.write_text(entry(body, POINTER, directives=f"{FILES}\n{SHARED}"))
    done = ptxrun(path, "--block", 64, "--arg", "out:u32:1", *options)
    return done.returncode, " ".join(re.findall(r"^([a-z-]+) at ", done.stderr, re.M)) or done.stderr


def test_classes_and_lines_are_ignored(tmp_path: Path) -> None:
    twice = "output-written-twice: buffer"
    assert unordered(tmp_path)[0] == 1
    for options, left in [
        (("--ignore", "race"), "twice"),
        (("--ignore", "race@11"), "twice"),
        (("--ignore", "race@13"), "twice"),
        (("--ignore", "race@12"), "both"),
        (("--ignore", "output-written-twice"), "race"),
        (("--ignore", "output-written-twice@15"), "race"),
        (("--ignore", "race", "--ignore", "output-written-twice@15"), ""),
        (("--ignore", "race,output-written-twice"), ""),
    ]:
        status, text = unordered(tmp_path, *options)
        assert status == (1 if left else 0), (options, text)
        assert ("race" in text) == (left in ("race", "both")), (options, text)
        assert (twice in text) == (left in ("twice",)) or left == "both", (options, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("races", "no such class of findings; there are race, async-in-flight"),
        ("race@", "should be CLASS or CLASS@LINE"),
        ("race@x", "should be CLASS or CLASS@LINE"),
        ("race@0", "should be CLASS or CLASS@LINE"),
        ("deadlock", "a CTA cannot continue after that"),
    ],
)
def test_what_cannot_be_ignored_is_refused(text: str, says: str, tmp_path: Path) -> None:
    status, said = unordered(tmp_path, "--ignore", text)
    assert status == 2 and says in said, said


def test_reports_do_not_depend_on_threads(tmp_path: Path) -> None:
    """Each CTA stores to the words of its neighbor too, and the same is reported, of all words."""
    neighbor = IN_GLOBAL + "st.global.u32 [%p], %c;\nst.global.u32 [%p+4], %c;\nld.global.u32 %x, [%p+132];"
    racy = Defect("race", "", neighbor, **BUFFERS | {"args": ["out:u32:1024"] * 2, "options": ["--grid", "15"]})
    texts = {run(replace(racy, options=[*racy.options, "--threads", str(n)]), racy.bad, tmp_path) for n in (1, 2, 5, 5)}
    assert len(texts) == 1 and "race (959 times)" in next(iter(texts))[2], texts


def test_the_same_value_is_no_race(tmp_path: Path) -> None:
    """All CTAs say by one store that something was found."""
    found = IN_GLOBAL + "st.global.u32 [%b], 1;"
    check_silent(Defect("race", "", found, **FOUR), tmp_path)
    other = IN_GLOBAL + "st.global.u32 [%b], %c;"
    check_reported(Defect("race", "", other, **FOUR), tmp_path)


def test_spent_memory_is_said(tmp_path: Path) -> None:
    path = tmp_path / "store.ptx"
    path.write_text(entry(IN_GLOBAL + "st.global.u32 [%p], %c;", BUFFERS["params"], directives=SHARED))
    options = ["--grid", "4", "--block", "64", "--arg", "buf:u32:1024", "--arg", "buf:u32:1024"]
    assert ptxrun(path, *options).stderr == ""
    done = ptxrun(path, *options, "--race-memory", "1000")
    assert done.returncode == 0 and "note: races in global memory were not all looked for" in done.stderr, done.stderr
    assert "--race-memory" in done.stderr
