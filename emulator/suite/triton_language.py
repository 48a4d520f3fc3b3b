# mypy: ignore-errors
"""Triton's own tests of its language, from a checkout of it, unmodified: a sample of each test function's cases.

python triton_language.py FOLDER [WORD]    FOLDER: of the checkout; the tests are in python/test/unit/language
                                           WORD: of pytest's -k

CASES of each function run, in the order of a hash of their names, so that every machine chooses the same of tens of
thousands. One that skips itself is replaced by the next, up to TRIED. Omitted cases are printed with the reason.
"""

import contextlib
import gc
import hashlib
import io
import os
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

os.environ.setdefault("EMULATED_GPU_STEPS", "20000000")  # for what would not end

import pytest
import torch_on_host  # noqa: F401  before Triton
from device import refused

CASES, TRIED = 1, 6
SECONDS = 60  # of the processor, for a case
ENOUGH = "as many cases of its function ran"
OUT, ERRORS = (os.fdopen(os.dup(each), "w", buffering=1) for each in (1, 2))  # pytest keeps what goes to 1 and 2
FILES = (
    "annotations",
    "block_pointer",
    "codegen_binop",
    "compile_errors",
    "compile_only",
    "conversions",
    "core",
    "decorator",
    "frontend",
    "libdevice",
    "line_info",
    "module",
    "mxfp",
    "pipeliner",
    "random",
    "reproducer",
    "standard",
    "subprocess",
    "tensor_descriptor",
    "tuple",
    "warp_specialization",
)
OLDER = "of the fork's Triton, not 3.9"
TEXT = "the fork's intermediate code has another text than that of 3.9; nothing is launched"
# Cases that cannot pass here, by the start of their names, with the reason.
LEFT_OUT = {
    "test_block_copy": OLDER,
    "test_block_ptr": OLDER,
    "test_trans_reshape": OLDER,
    "test_compile_only_ws_cluster_barrier": OLDER,
    "test_reduction_ordering": OLDER,
    "test_tensor_descriptor_load_multicast_policy": OLDER,
    "test_listcomp_range": OLDER,
    "test_aggregate_with_": TEXT,
    "test_named_expr_without_prior_annotation_decays": TEXT,
    "test_aggregate_constexpr_function": TEXT,
    "test_constexpr_function_taking_list": TEXT,
    "test_constexpr_min_max": TEXT,
    "test_use_name_loc_as_prefix": TEXT,
    "test_line_and_column_numbers": TEXT,
    "test_print[": "starts a Python of its own, which has no torch_on_host",
    "test_histogram[": "machine code is read, of which there is none",
    "test_typeconvert_downcast[": "every float is converted",
    "test_load_store_same_ptr": "a thousand launches of 65536 CTAs",
    "test_deeply_nested_binop": "recursion is deeper than Python's limit under pytest",
}


def function_of(item):
    return item.nodeid.split("[")[0]


def stop(*_):
    raise TimeoutError(f"the case has not ended after {SECONDS} seconds of the processor")


def rank(item):
    return hashlib.sha256(item.nodeid.encode()).hexdigest()


class Sample:
    """Chooses cases and says what became of each."""

    def __init__(self):
        self.ran, self.left, self.error = Counter(), Counter(), None

    def pytest_collection_modifyitems(self, items):
        functions = defaultdict(list)
        for item in items:
            reason = next((why for name, why in LEFT_OUT.items() if item.name.startswith(name)), None)
            if reason:
                self.left[reason] += 1
            else:
                functions[function_of(item)].append(item)
        gc.freeze()  # the tests' conftest.py collects garbage after each case
        items[:] = [item for cases in functions.values() for item in sorted(cases, key=rank)[:TRIED]]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        if self.ran[function_of(item)] >= CASES:
            pytest.skip(ENOUGH)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)

    def pytest_runtest_teardown(self):
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtest_makereport(self, call):
        self.error = call.excinfo and call.excinfo.value

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.left[getattr(report, "wasxfail", "") or str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
        elif report.failed or report.when == "call":
            self.ran[report.nodeid.split("[")[0]] += 1
            print(
                "SUITE",
                report.nodeid.removeprefix("unit/language/").replace(" ", "_"),
                self.verdict(report),
                "-",
                file=OUT,
            )
            if report.failed:
                print(report.nodeid, report.longreprtext[-3000:], file=ERRORS)

    def verdict(self, report):
        if not report.failed:
            return "right"
        if refused(self.error):
            return "refused"
        return "wrong" if isinstance(self.error, AssertionError) else "failed"


def main(folder, word=""):
    tests = Path(folder) / "python/test/unit/language"
    sample = Sample()
    signal.signal(signal.SIGVTALRM, stop)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tests.parent.parent), "-k", word]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        pytest.main([*options, *(str(tests / f"test_{name}.py") for name in FILES)], plugins=[sample])
    if not sample.ran:
        print(said.getvalue(), file=ERRORS)
    del sample.left[ENOUGH]
    for reason, count in sample.left.most_common():
        print(f"LEFT {count} {reason}".splitlines()[0], file=OUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
