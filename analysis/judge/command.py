"""`flashladder-judge PROBLEM SUBMISSION`, which is `./fl judge` in a checkout."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from analysis.building import built
from analysis.errors import DONE, AnalysisError
from analysis.files import write_atomically
from analysis.judge import machine
from analysis.judge import problem as problems
from analysis.judge.compare import lint
from analysis.judge.judge import judge
from analysis.judge.page import page
from analysis.judge.problem import load_problem, shipped
from analysis.judge.record import Options
from analysis.judge.schema import SCHEMA
from analysis.judge.timing import NoGpu, why_no_gpu

EPILOG = """exit status:
  0 accepted   1 rejected   4 reserved: nothing wrong found, something could not be decided
  2 usage, or a compiler is missing      3 failure of the system or of the judge
  5 the submission broke the contract: it raised an error, returned another array, or never reached the GPU
  11 ended by a signal   12 never returned   13 too much memory   14 too many processes   15 too much written to files
  16 tried to end the process that watches it
  20 this machine cannot run the jail   21 --time found no GPU
"""


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("problem", nargs="?", help=f"{', '.join(shipped())}, or the path of a problem file")
    parser.add_argument("submission", nargs="?", type=Path, help="a Python module, a .cu file or a folder")
    parser.add_argument(
        "--arch", default="sm_80", help="architecture of the emulated GPU: sm_80, sm_90a (default: sm_80)"
    )
    parser.add_argument(
        "--gpu", default="", metavar="NAME", help="attributes that the submission sees: H100, A100, ..."
    )
    parser.add_argument("--python", default="", metavar="FILE", help="the Python that runs the submission")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the recordings; the folder is a submission")
    parser.add_argument("--small-shapes", action="store_true", help="judge no sample of CTAs at the timed sizes")
    parser.add_argument("--time", action="store_true", help="time an accepted submission on the GPU of this machine")
    parser.add_argument("--baseline", type=Path, metavar="SUBMISSION", help="also time this one, in the same rounds")
    parser.add_argument("--seed", type=int, help="repeat a judgment with the inputs of its seed")
    parser.add_argument("--seconds", type=int, default=120, help="limit of each run of the submission (default: 120)")
    parser.add_argument(
        "--memory", type=int, default=4096, metavar="MIB", help="likewise of its memory (default: 4096)"
    )
    parser.add_argument(
        "--weak-jail",
        action="store_true",
        help="a jail without namespaces, where the system gives none: less is hidden",
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the verdict as a page, too")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file instead of standard output")
    parser.add_argument(
        "--lint", action="store_true", help="look for answers without work that the problem would accept"
    )
    parser.add_argument("--help-problem", action="store_true", help="print how a problem file is written")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of verdicts")


def run_judge(args: argparse.Namespace) -> int:
    if args.help_problem or args.schema:
        print(problems.__doc__ if args.help_problem else json.dumps(SCHEMA, indent=2))
        return DONE
    if not args.problem:
        raise AnalysisError(f"name a problem: {', '.join(shipped())}, or the path of a problem file")
    problem = load_problem(args.problem)
    if args.lint:
        return _lint(args.problem)
    if args.submission is None:
        raise AnalysisError("name a submission: a Python module, a .cu file or a folder")
    if args.seconds < 1 or args.memory < 1:
        raise AnalysisError("--seconds and --memory must be at least 1")
    _refuse_time(args, problem)
    built("judge-tools")
    machine.refuse_unknown_gpu(args.arch, args.gpu)
    limits = machine.Limits(seconds=args.seconds, memory=args.memory, weak=args.weak_jail)
    shapes = not args.small_shapes, args.time, args.baseline
    options = Options(args.arch, args.gpu, args.python, limits, args.save, *shapes)
    verdict = judge(problem, args.submission, options, args.seed)
    text = json.dumps(verdict.as_json(), indent=2) + "\n" if args.json else verdict.as_text()
    if args.html:
        write_atomically(args.html, page(verdict, problem))
    if args.output:
        write_atomically(args.output, text)
    else:
        sys.stdout.write(text)
    return verdict.status


def _refuse_time(args: argparse.Namespace, problem: problems.Problem) -> None:
    """Say before the judgment that nothing can be timed."""
    if args.baseline and not args.time:
        raise AnalysisError("--baseline is for --time")
    if args.baseline and not args.baseline.exists():
        raise AnalysisError(f"--baseline {args.baseline}: no such file")
    if args.time and not problem.timed:
        raise AnalysisError(f"problem {args.problem}: names no TIMED case for --time")
    why = why_no_gpu() if args.time else ""
    if why:
        raise NoGpu(f"--time needs a GPU: {why}")


def _lint(name: str) -> int:
    found = lint(load_problem(name), np.random.default_rng())
    print("\n".join(found) or f"{name}: no answer without work is accepted")
    return 1 if found else DONE
