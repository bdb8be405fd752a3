"""Tests of `benchmarks/records.py`: runs are kept with the revision of the code, and the page names all."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import records


@dataclass(frozen=True)
class Task:
    target: str


@dataclass(frozen=True)
class Run:
    task: Task
    accuracy: float


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


def test_what_is_recorded_is_not_measured_again(tmp_path: Path) -> None:
    script, done = str(tmp_path / "trial.py"), list[str]()

    def job(name: str) -> list[records.Row]:
        done.append(name)
        return [{"task": {"target": name}, "seed": seed} for seed in (0, 1)]

    for names in ("ab", "bc"):
        jobs = [({"task": {"target": name}}, partial(job, name)) for name in names]
        records.Records(script, records.Row).complete(jobs, lambda rows: f"{len(rows)} runs\n")
    assert done == ["a", "b", "c"]
    assert (tmp_path / "trial.md").read_text().startswith("6 runs\n")


def test_a_script_that_measures_memory_loads_no_pytorch() -> None:
    # It would count in the memory of every program that the script starts.
    program = f"import sys; sys.path.insert(0, {str(Path(records.__file__).parent)!r})"
    program += "; import scale; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
