"""Problems: one Python file each, which says what a submission computes and how its result is judged.

    problem = load_problem("softmax")            # that the judge ships, or the path of a file
    inputs = problem.generate(problem.cases[0], "normal", rng)
    expected = problem.reference(inputs, problem.cases[0])

A file needs NumPy and defines

    CASES            a sequence of dictionaries of sizes, the smallest first: {"rows": 4, "columns": 128}
    KINDS            kinds of inputs, "normal" first: what the replays of every case draw
    TOLERANCE        a sentence that gives the reason of the bound
    inputs(case)     {name: Tensor(type, shape, strides)}; the gaps of strided tensors are filled with NaN
    outputs(case)    {name: Tensor(type, shape)}
    generate(case, kind, rng)          {name: array} for the inputs
    reference(inputs, case)            {name: float64 array} for the outputs
    bound(inputs, case, expected)      {name: float64 array}, the allowed distance of each element
    bytes_moved(case), operations(case)    the least that any program moves and computes

and may define

    TIMED            cases of the sizes that are timed, of which a sample of CTAs is judged (--timed-shapes)
    LOWER            a regular expression of executed PTX opcodes that compute below the stated precision
    scalars(case)    {name: number} that a submission receives beside the tensors
    needed(inputs, case)               {name: boolean array}, the elements that the result depends on (default: all)
"""

import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.judge.arrays import Array, Floats, Tensor

Case = Mapping[str, int]
SHIPPED = Path(__file__).resolve().parent / "problems"
REQUIRED = (
    *("CASES", "KINDS", "TOLERANCE", "inputs", "outputs", "generate", "reference", "bound"),
    *("bytes_moved", "operations"),
)


@dataclass(frozen=True)
class Problem:
    """A loaded problem file."""

    name: str
    path: Path
    cases: Sequence[Case]
    kinds: Sequence[str]
    tolerance: str
    lower: str
    timed: Sequence[Case]
    inputs: Callable[[Case], Mapping[str, Tensor]]
    outputs: Callable[[Case], Mapping[str, Tensor]]
    scalars: Callable[[Case], Mapping[str, float]]
    generate: Callable[[Case, str, np.random.Generator], Mapping[str, Array]]
    reference: Callable[[Mapping[str, Array], Case], Mapping[str, Floats]]
    bound: Callable[[Mapping[str, Array], Case, Mapping[str, Floats]], Mapping[str, Floats]]
    needed: Callable[[Mapping[str, Array], Case], Mapping[str, Array]]
    bytes_moved: Callable[[Case], int]
    operations: Callable[[Case], int]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def shipped() -> list[str]:
    """Names of the problems that the judge ships."""
    return sorted(path.stem for path in SHIPPED.glob("*.py") if path.stem != "__init__")


def load_problem(name: str) -> Problem:
    """The problem of this name, or of the file with this path."""
    path = Path(name) if name.endswith(".py") else SHIPPED / f"{name}.py"
    if not path.is_file():
        raise AnalysisError(f"problem {name}: no such file; the judge ships {', '.join(shipped())}")
    module = _executed(path)
    missing = [each for each in REQUIRED if not hasattr(module, each)]
    if missing:
        raise AnalysisError(f"problem {name}: lacks {', '.join(missing)}: see `flashladder-judge --help-problem`")
    if not module.CASES or not module.KINDS or module.KINDS[0] != "normal":
        raise AnalysisError(f"problem {name}: CASES must name a case, and KINDS must begin with 'normal'")
    functions = {each: getattr(module, each) for each in REQUIRED if each.islower()}
    return Problem(
        name=path.stem,
        path=path,
        cases=module.CASES,
        kinds=module.KINDS,
        tolerance=module.TOLERANCE,
        lower=getattr(module, "LOWER", ""),
        timed=getattr(module, "TIMED", ()),
        scalars=getattr(module, "scalars", lambda case: {}),
        needed=getattr(module, "needed", lambda inputs, case: {}),
        **functions,
    )


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AnalysisError(f"problem {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AnalysisError(f"problem {path}: {type(error).__name__}: {error}") from error
    return module


def case_text(case: Case) -> str:
    """A case as messages name it: rows=4 columns=128."""
    return " ".join(f"{name}={value}" for name, value in case.items())


def contract(problem: Problem, case: Case) -> dict[str, Any]:
    """Describe a case to the process of a submission."""
    return {
        "inputs": {name: tensor.described() for name, tensor in problem.inputs(case).items()},
        "outputs": {name: tensor.described() for name, tensor in problem.outputs(case).items()},
        "scalars": dict(problem.scalars(case)),
    }
