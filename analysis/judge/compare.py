"""Compares the outputs of a replay with the float64 reference."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from analysis.judge.arrays import Array, Floats, Tensor, from_floats, to_floats
from analysis.judge.problem import Case, Problem, case_text

MOST_RMS = 0.75  # of errors divided by their bounds: errors near the bound everywhere are a lower precision
LARGEST = {"f64": float(np.finfo(np.float64).max), "f32": float(np.finfo(np.float32).max), "f16": 65504.0}


def wrong_values(
    problem: Problem,
    case: Case,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    chosen: Mapping[str, NDArray[np.bool_]] | None = None,
) -> tuple[str, float]:
    """Return what is wrong ("" if nothing is) and the largest error divided by the bound of its element.

    `chosen` are the elements of each output that are compared: all by default.
    """
    expected = problem.reference(inputs, case)
    bounds = problem.bound(inputs, case, expected)
    if chosen is not None:  # a right value takes the place of each other one
        right = {name: from_floats(expected[name], each.kind) for name, each in problem.outputs(case).items()}
        outputs = {name: np.where(chosen[name], outputs[name], right[name]) for name in right}
    said, worst = [], 0.0
    for name, tensor in problem.outputs(case).items():
        sentence, error = _wrong(tensor, outputs[name], expected[name], bounds[name])
        said += [f"{name}: {sentence}"] if sentence else []
        worst = max(worst, error)
    return "; ".join(said), worst


def _wrong(tensor: Tensor, output: Array, expected: Floats, bound: Floats) -> tuple[str, float]:
    """NaN and infinity must be where the reference has them, all other errors within the bound."""
    with np.errstate(all="ignore"):
        got, rounded = to_floats(output, tensor.kind), to_floats(from_floats(expected, tensor.kind), tensor.kind)
        special = ~np.isfinite(rounded)
        same = np.where(np.isnan(rounded), np.isnan(got), got == rounded)
        error = np.abs(got - expected)
        # At the end of the range a result may be rounded to infinity or to the largest number.
        edge = np.isfinite(expected) & (np.abs(expected) + bound >= LARGEST.get(tensor.kind, np.inf))
        wrong = np.where(special, ~same, ~(error <= bound)) & ~edge
        ratio = np.where(special | edge, 0, np.nan_to_num(error / np.maximum(bound, 1e-300), nan=np.inf))
        judged = ~special & ~edge
        rms = float(np.sqrt(np.mean(np.square(ratio[judged])))) if judged.any() else 0.0
    worst = float(ratio.max(initial=0.0))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{int(wrong.sum())} of {wrong.size} values are wrong, the first at {first}: {got[first]:.9g}, "
            f"must be {expected[first]:.9g} within {bound[first]:.3g}",
            worst,
        )
    if rms > MOST_RMS:
        return f"the root mean square of errors divided by their bounds is {rms:.2f}, at most {MOST_RMS}", worst
    return "", worst


def lint(problem: Problem, rng: np.random.Generator) -> list[str]:
    """Answers that need no work and that all inputs of a case accept, a sentence each: such a problem ranks nothing."""
    found = []
    for case in problem.cases:
        accepted: set[str] | None = None
        for kind in problem.kinds:
            inputs = problem.generate(case, kind, rng)
            expected = problem.reference(inputs, case)
            others = problem.reference(problem.generate(case, kind, rng), case)
            answers = _answers_without_work(problem, case, inputs, expected, others)
            passed = {what for what, outputs in answers.items() if not wrong_values(problem, case, inputs, outputs)[0]}
            accepted = passed if accepted is None else accepted & passed
        found += [f"{case_text(case)}: {what} would be accepted" for what in sorted(accepted or ())]
    return found


def _answers_without_work(
    problem: Problem,
    case: Case,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Floats],
    others: Mapping[str, Floats],
) -> dict[str, dict[str, Array]]:
    outputs = problem.outputs(case)
    tried: dict[str, dict[str, Floats]] = {
        "zeros": {name: np.zeros(tensor.shape) for name, tensor in outputs.items()},
        "NaN": {name: np.full(tensor.shape, np.nan) for name, tensor in outputs.items()},
        "the result of other inputs": dict(others),
        "the mean of the result": {
            name: np.full(
                tensor.shape,
                np.mean(expected[name][np.isfinite(expected[name])] if np.isfinite(expected[name]).any() else 0),
            )
            for name, tensor in outputs.items()
        },
    }
    for name, tensor in problem.inputs(case).items():
        if all(tensor.shape == each.shape for each in outputs.values()):
            tried[f"the input {name}"] = {each: to_floats(inputs[name], tensor.kind) for each in outputs}
    return {
        what: {name: from_floats(values, outputs[name].kind) for name, values in each.items()}
        for what, each in tried.items()
    }
