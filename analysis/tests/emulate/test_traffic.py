"""Modelled traffic: the totals that are taken from an emulator record."""

import json

from analysis.emulate.traffic import traffic_of


def test_traffic_of_a_record() -> None:
    total = {"executed": 10, "wavefronts": 4, "ideal": 3, "sectors": 2, "lanes": 320}
    found = traffic_of(json.dumps({"schema": 1, "counters": {"total": total}}) + "\n")
    assert found == {"executed": 10, "wavefronts": 4, "ideal": 3, "sectors": 2}
    for text in ("", "no JSON", "{}", '{"counters": null}', '{"counters": {"total": {"executed": 1}}}'):
        assert traffic_of(text) is None
