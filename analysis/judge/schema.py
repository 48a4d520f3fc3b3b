"""The JSON schema (draft 2020-12) of verdicts."""

from typing import Any

from analysis.judge.verdict import ACCEPTED, REJECTED, REJECTIONS, RESERVATIONS, RESERVED
from analysis.judge.verdict import SCHEMA as NAME


def _points(mechanisms: dict[str, str], about: str) -> dict[str, Any]:
    texts = {name: {"type": "string"} for name in ("evidence", "case", "inputs")}
    return {
        "type": "array",
        "description": about,
        "items": {
            "type": "object",
            "required": ["mechanism", "evidence", "case", "inputs"],
            "properties": {"mechanism": {"enum": list(mechanisms)}} | texts,
        },
    }


NUMBERS = (
    *("replays", "launches", "warp_instructions", "bytes_moved", "bytes_floor", "operations_floor"),
    "worst_error",
)
TEXTS_OF_TIMES = ("program", "case", "gpu", "sass")
NUMBERS_OF_TIMES = (
    *("processes", "samples", "median_ns", "least_ns", "most_ns", "floor_ns"),
    *("least_MHz", "most_MHz", "watts", "celsius"),
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": NAME,
    "type": "object",
    "required": ["schema", "verdict", "status", "problem", "submission", "reasons", "reservations", "cases", "seed"],
    "properties": {
        "schema": {"const": NAME},
        "verdict": {"enum": [ACCEPTED, REJECTED, RESERVED], "description": "only 'accepted' scores"},
        "status": {"type": "integer", "description": "the exit status of the command"},
        "problem": {"type": "string"},
        "problem_sha256": {"type": "string"},
        "submission": {"type": "string"},
        "submission_sha256": {"type": "string"},
        "device": {"type": "string"},
        "seed": {"type": "integer", "description": "--seed repeats the judgment with the same inputs"},
        "reasons": _points(REJECTIONS, "why the submission is rejected"),
        "reservations": _points(RESERVATIONS, "what could not be decided"),
        "notes": {"type": "array", "items": {"type": "string"}},
        "cases": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "number"} for name in NUMBERS}
                | {
                    "operations": {"type": ["number", "null"], "description": "null: products of unknown shape"},
                    "case": {"type": "string"},
                    "kernels": {"type": "array", "items": {"type": "string"}},
                    "same_bits": {"type": "boolean", "description": "other poison and schedules give the same bits"},
                },
            },
        },
        "times": {
            "type": "array",
            "description": "on a GPU, with --time: of the submission, of the same again, and of the baseline",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in TEXTS_OF_TIMES}
                | {name: {"type": "number"} for name in NUMBERS_OF_TIMES},
            },
        },
        "seconds": {"type": "number"},
    },
}
