"""An argument has one name and one default in commands, functions and estimators."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

import ucds
from ucds.cli import main  # noqa: F401  (it defines all commands)
from ucds.cli.options import app
from ucds.config import ConsensusSettings, PCDSettings

GROUPS = (ucds.EncoderOptions, ucds.RunOptions, ucds.Compute, ucds.BulkOptions)
"""Objects that a function takes in place of some options of its command."""
WHOLE = {"encoder", "options", "compute", "client"}
"""Arguments that are such an object, or a client of a service."""

COMMAND_ALONE = {
    "no_report": "a function writes no report that nobody asked for",
    "no_open": "a switch of a command is off by default, so this is the opposite of `open_browser`",
}
FUNCTION_ALONE = {
    "open_browser": "see `no_open`",
    "notice": "prints a line, which the command does by itself",
    "ready": "is called with the address, which the command prints",
    "stop": "ends a service that a program has started; a command ends by a signal",
}
ESTIMATOR_ALONE = {
    "tune": "an entry of `settings` in functions, an option of commands",
    "random_state": "scikit-learn's name of `seed`",
    "verbose": "scikit-learn's name of what `reporter` does",
}
OTHER_DEFAULTS = {
    ("label", "out"): "a command without a file would have no result",
    ("predict", "out"): "a command without a file would have no result",
    ("train_source", "method"): "a function looks at its `settings` first",
    ("train_target", "method"): "a function looks at its `settings` first",
    ("audit", "run"): "a command audits `run` or `url`, a function `run` or `client`",
    ("audit", "url"): "a command audits `run` or `url`, a function `run` or `client`",
}
WITHOUT_FUNCTION = {"settings", "sort", "demo", "benchmark", "table"}
"""Commands that print what the package holds, or run what lies in the repository."""
CALLBACKS = {str(command.name).replace("-", "_"): command.callback for command in app.registered_commands}
COMMANDS = {name: called for name, called in CALLBACKS.items() if name not in WITHOUT_FUNCTION}


def defaults_of(called: Any) -> dict[str, Any]:
    """Default of each argument."""
    return {name: entry.default for name, entry in inspect.signature(called).parameters.items()}


def grouped() -> dict[str, Any]:
    """Default of each option that an object holds, and of the arguments of a label client."""
    return defaults_of(ucds.LabelClient) | {f.name: f.default for group in GROUPS for f in fields(group)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_function_name_arguments_alike(name: str) -> None:
    typed, given = defaults_of(COMMANDS[name]), defaults_of(getattr(ucds, name))
    settings = PCDSettings.model_fields.keys() | ConsensusSettings.model_fields.keys()
    known = given.keys() | grouped().keys() | (settings if "settings" in given else set())
    assert typed.keys() - {"context"} - known <= COMMAND_ALONE.keys()
    assert given.keys() - typed.keys() - WHOLE <= FUNCTION_ALONE.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_function_have_the_same_defaults(name: str) -> None:
    known = grouped() | defaults_of(getattr(ucds, name))
    differ = {  # None, False and nothing in a list are alike
        (name, option)
        for option, value in defaults_of(COMMANDS[name]).items()
        if option in known and (value or None) != (known[option] or None)
    }
    assert differ == {place for place in OTHER_DEFAULTS if place[0] == name}


@pytest.mark.parametrize("estimator", [ucds.SourceClustering, ucds.TargetClustering])
def test_estimators_name_arguments_as_functions_do(estimator: Any) -> None:
    known = grouped().keys() | defaults_of(ucds.train_source).keys() | defaults_of(ucds.train_target).keys()
    assert estimator().get_params().keys() - known == ESTIMATOR_ALONE.keys()
