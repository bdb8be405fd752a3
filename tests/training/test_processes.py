"""Tests of which process of a run this one is, by the variables that its launcher has set."""

from __future__ import annotations

from typing import Any

import pytest

from ucds.errors import InputError
from ucds.training.options import Compute
from ucds.training.processes import Processes, is_first_on_machine, is_first_process, started_by_torchrun
from ucds.training.runtime import Runtime

LAST_OF_FOUR = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}


@pytest.mark.parametrize(
    ("variables", "started", "is_first"),
    [
        ({}, None, (True, True)),
        ({"LOCAL_RANK": "0"}, None, (True, True)),
        ({"LOCAL_RANK": "1"}, None, (False, False)),
        ({"RANK": "3"}, None, (True, True)),  # of another program that started this one
        (LAST_OF_FOUR, Processes(2, 2), (False, False)),
        (LAST_OF_FOUR | {"RANK": "2", "LOCAL_RANK": "0"}, Processes(2, 2), (False, True)),
        (LAST_OF_FOUR | {"RANK": "0", "LOCAL_RANK": "0"}, Processes(2, 2), (True, True)),
    ],
)
def test_a_process_knows_its_place(
    variables: dict[str, str], started: Processes | None, is_first: tuple[bool, bool], monkeypatch: Any
) -> None:
    for name in LAST_OF_FOUR:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert started_by_torchrun() == started
    assert (is_first_process(), is_first_on_machine()) == is_first


def test_other_devices_than_those_of_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAST_OF_FOUR.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="--devices 3, but torchrun has started 2 on this machine"):
        Runtime(Compute("cpu", cache=None), devices=3)
