"""The files that other programs look for: hooks and the workflow do what `make` and `.ci/run` do."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_hooks_run_what_make_check_runs() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()[1:]]
    hooks = [
        hook["entry"]
        for repository in read(".pre-commit-config.yaml")["repos"]
        for hook in repository["hooks"]
    ]
    assert len(checks) > 4
    assert sorted(hooks) == sorted(checks)


def test_the_workflow_runs_the_checks_on_every_python_that_is_named() -> None:
    job = read(".github/workflows/checks.yml")["jobs"]["checks"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [found[1] for line in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", line))]
    assert job["strategy"]["matrix"]["python"] == named
    assert f">={named[0]}" == project["requires-python"]
    assert job["steps"][-1] == {"run": ".ci/run"}
