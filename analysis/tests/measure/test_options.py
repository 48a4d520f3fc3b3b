"""The options of the commands that measure and gate: each is explained, names its value, and reads it."""

import argparse
import importlib

import pytest

from analysis.__main__ import COMMANDS

HERE = [command for command in COMMANDS if command.module.startswith("measure.") or command.module.endswith(".gate")]


@pytest.mark.parametrize("command", HERE, ids=lambda command: command.name)
def test_options_are_explained_and_read(command: object) -> None:
    name, module = command.name.replace("-", "_"), command.module  # type: ignore[attr-defined]
    parser = argparse.ArgumentParser()
    getattr(importlib.import_module(f"analysis.{module}"), f"add_{name}_arguments")(parser)
    for action in parser._actions:
        assert action.help, action.dest
        if not action.option_strings or action.nargs == 0:
            continue
        assert action.metavar or action.choices, f"{action.dest}: no word for its value in the help"
        if isinstance(action.default, (int, float)):
            value = getattr(parser.parse_known_args([action.option_strings[0], "7", "a", "b"])[0], action.dest)
            assert value == 7 and type(value) is type(action.default), action.dest
