"""Tests of which process of a run this is."""

from typing import Any

import pytest

from ucds.training.processes import Processes, is_first_on_machine, is_first_process, started_by_torchrun

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
