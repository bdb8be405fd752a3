"""Tests of `benchmarks/records.py`: runs are kept with the revision of the code, and the page names all."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import records
from pydantic import Field


@dataclass(frozen=True)
class Task:
    target: str


@dataclass(frozen=True)
class Run:
    task: Task
    accuracy: float


@dataclass(frozen=True)
class Cost:
    what: Literal["cost"]
    seconds: float


@dataclass(frozen=True)
class Gain:
    what: Literal["gain"]
    seconds: float
    class_: Annotated[str, Field(alias="class")] = "a"  # a name that Python does not allow


def test_runs_of_several_kinds_are_told_apart_when_they_are_read_back(tmp_path: Path) -> None:
    script, runs = str(tmp_path / "trial.py"), [Gain("gain", 1.0), Cost("cost", 2.0), Gain("gain", 2.0)]
    for run in runs:
        records.Records(script, Cost | Gain).add(run)
    assert records.Records(script, Cost | Gain).runs == runs
    assert json.loads((tmp_path / "trial.jsonl").read_text().splitlines()[0])["class"] == "a"
    with (tmp_path / "trial.jsonl").open("a") as file:
        file.write('{"what": "loss", "seconds": 1.0}\n')
    with pytest.raises(ValueError, match="cost"):
        records.Records(script, Cost | Gain)


def test_runs_are_read_back_and_the_page_names_every_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, first, second = str(tmp_path / "trial.py"), Run(Task("a"), 0.25), Run(Task("b"), 0.5)
    # A line from before the revision was recorded.
    (tmp_path / "trial.jsonl").write_text('{"task": {"target": "a"}, "accuracy": 0.25}\n')
    monkeypatch.setattr(records, "code_revision", lambda: "abc")
    records.Records(script, Run).add(second)
    assert json.loads((tmp_path / "trial.jsonl").read_text().splitlines()[1])["revision"] == "abc"

    again = records.Records(script, Run)
    assert again.runs == [first, second]
    again.write_page("# Trial\n")
    assert (tmp_path / "trial.md").read_text() == "# Trial\n\nRevisions of the code: abc, not recorded.\n"


def test_a_script_that_measures_memory_loads_no_pytorch() -> None:
    # It would count in the memory of every program that the script starts.
    program = f"import sys; sys.path.insert(0, {str(Path(records.__file__).parent)!r})"
    program += "; import scale; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("revision", "kept"), [("abc", "abc"), ("abc-dirty", None), ("unknown", None)])
def test_results_are_kept_by_revision_and_not_for_code_with_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str, kept: str | None
) -> None:
    monkeypatch.setattr(records, "code_revision", lambda: revision)
    place = records.kept_results(tmp_path).store_backend
    assert (None if place is None else place.location) == (kept and str(tmp_path / kept))
