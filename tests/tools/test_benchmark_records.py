"""Tests of `benchmarks/records.py`: runs are kept with the revision of the code, and the page names all."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import records


def test_runs_are_kept_with_their_revision_and_the_page_names_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, first, second = str(tmp_path / "trial.py"), {"target": "a"}, {"target": "b"}
    # A line from before the revision was recorded.
    (tmp_path / "trial.jsonl").write_text(json.dumps(first) + "\n")
    monkeypatch.setattr(records, "code_revision", lambda: "abc")
    jobs = [(second, lambda: [second | {"accuracy": 0.5}])]
    runs = records.complete(script, jobs, lambda runs: f"# {len(runs)}\n")
    assert runs == [first, {"target": "b", "accuracy": 0.5, "revision": "abc"}]
    assert [json.loads(line) for line in (tmp_path / "trial.jsonl").read_text().splitlines()] == runs
    assert (tmp_path / "trial.md").read_text() == "# 2\n\nRevisions of the code: abc, not recorded.\n"


def test_what_is_recorded_is_not_measured_again(tmp_path: Path) -> None:
    script, done = str(tmp_path / "trial.py"), list[str]()

    def job(name: str) -> list[records.Row]:
        done.append(name)
        return [{"task": {"target": name}, "seed": seed} for seed in (0, 1)]

    for names in ("ab", "bc"):
        jobs = [({"task": {"target": name}}, partial(job, name)) for name in names]
        records.complete(script, jobs, lambda rows: f"{len(rows)} runs\n")
    assert done == ["a", "b", "c"]
    assert (tmp_path / "trial.md").read_text().startswith("6 runs\n")


def test_a_table_has_words_on_the_left_and_numbers_on_the_right() -> None:
    rows = [{"domain": "east", 5: 1.5}, {"domain": "west", 5: 2}]
    expected = "| domain | 5 |\n| --- | ---: |\n| east | 1.5 |\n| west | 2.0 |"
    assert records.table(rows, "lr") == records.table(pd.DataFrame(rows), "lr") == expected


@pytest.mark.slow
def test_a_script_that_measures_memory_loads_no_pytorch() -> None:
    # It would count in the memory of every program that the script starts.
    program = f"import sys; sys.path.insert(0, {str(Path(records.__file__).parent)!r})"
    program += "; import scale; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
