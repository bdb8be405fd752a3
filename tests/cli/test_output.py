"""Tests of what commands print: help, version, settings, JSON, silence, and the completion of a shell."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from cli_kit import WITHOUT, Result, in_subprocess, run_command, run_successfully

import ucds.__main__
from ucds.cli.options import app, in_options
from ucds.config import SETTINGS, PCDSettings

HEAVY = ("torch", "numpy", "scipy", "sklearn", "timm", "torchvision", "PIL", "lightning_fabric")
HEAVY += ("matplotlib", "pandas", "fastapi", "sqlalchemy", "httpx")


def test_help_loads_nothing_heavy() -> None:
    commands = ("", "--help", "--version", "train-source --help", "predict --help")
    commands += ("settings", "settings pcd --json")
    program = [sys.executable, "-c", WITHOUT, " ".join(HEAVY), *commands]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    ends = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert ends == ["ENDED 0"] * len(commands)


COMMANDS: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert f" {command} " in run_successfully("--help").out
    found = run_successfully(command, "--help")
    assert f"Usage: ucds {command} " in found.out
    assert found.err == ""


def test_the_options_of_every_command_stand_anywhere() -> None:
    printed = run_successfully("settings", "pcd", "--json")
    assert run_successfully("--json", "settings", "pcd") == printed
    assert run_successfully("settings", "--json", "pcd") == printed
    defaults = {name: entry["default"] for name, entry in json.loads(printed.out)["pcd"].items()}
    assert defaults == PCDSettings().model_dump(mode="json")
    after = run_command("settings", "--", "--json")  # what follows is an argument
    assert (after.status, "'--json' is not one of" in after.err) == (2, True)


def test_the_installed_command_and_the_module_are_the_same() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="ucds")
    assert script.load() is ucds.__main__.run
    done = in_subprocess("predict", "missing")
    assert (done.status, done.out, done.err[:7]) == (2, "", "error: ")


def test_a_process_does_what_is_to_be_done_at_its_end_and_keeps_the_status() -> None:
    code = (
        "import atexit, sys, ucds.__main__ as module\n"
        "def main():\n"
        "    atexit.register(lambda: (print('closed'), sys.stdout.write('and told')))\n"
        "    sys.exit(3)\n"
        "module.main = main\n"
        "module.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "closed\nand told", "")


def test_the_version_is_that_of_the_package() -> None:
    assert run_command("--version") == Result(0, f"ucds {importlib.metadata.version('ucds')}\n", "")


def test_settings_lists_every_setting_with_default_side_and_meaning() -> None:
    blocks: dict[str, list[str]] = {}
    for line in run_successfully("settings").out.splitlines():
        if not line.startswith(" "):
            listed = blocks[line.rstrip(":")] = []
        else:
            listed.append(line)
    assert blocks.keys() == SETTINGS.keys()
    for method, lines in blocks.items():
        assert [line.split()[0] for line in lines] == list(SETTINGS[method].model_fields)
    (line,) = (line for line in blocks["pcd"] if line.split()[0] == "clustering_epochs")
    assert line.split(maxsplit=3) == ["clustering_epochs", "30", "target", "epochs of stage 2"]


RUN_KEYS = {"folder", "role", "n_clusters", "seconds", "resumed_finished"}
UPDATED = ("path", "joined", "forgotten", "moved", "new_clusters", "waiting", "doubtful", "n_clusters")
KEYS = {
    "train-source": RUN_KEYS,
    "label": {"samples", "n_clusters", "provider", "out"},
    "train-target": RUN_KEYS | {"report"},
    "predict": {"samples", "out", "unsorted", "strangers"},
    "evaluate": {"run", "samples", "n_clusters", "n_classes", "overall", "domains"},
    "update": {*UPDATED, "report"},
}


def test_a_quiet_command_prints_its_result_alone(
    story: tuple[Path, dict[str, Any]], pictures: Path, tmp_path: Path
) -> None:
    target, images = story[0] / "target", pictures / "target"
    found = run_successfully("--quiet", "predict", target, images, "--out", tmp_path / "p.csv")
    assert (found.out, found.err) == ("", "")
    found = run_successfully("evaluate", target, images, "--quiet", "--out", tmp_path / "e.json")
    assert ("accuracy" in found.out, found.err) == (True, "")


def test_results_as_json_have_their_documented_keys_and_values(story: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = story
    assert {name: set(result) for name, result in printed.items()} == KEYS
    for side in ("source", "target"):
        trained = printed[f"train-{side}"]
        assert (trained["folder"], trained["role"]) == (str(folder / side), side)
        assert (trained["n_clusters"], trained["resumed_finished"]) == (3, False)
        assert trained["seconds"] > 0
    labels = {"samples": 24, "n_clusters": 3, "provider": "source", "out": str(folder / "labels.json")}
    assert printed["label"] == labels
    assert printed["predict"] == {"samples": 24, "out": str(folder / "p.csv"), "unsorted": 0, "strangers": 0}
    assert printed["update"] | {"joined": 0, "moved": []} == printed["update"]
    page = folder / "target" / "report.html"
    assert printed["train-target"]["report"] == str(page)
    assert page.exists()
    assert printed["evaluate"] == json.loads((folder / "target" / "evaluation.json").read_text())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ucds tr", {"train-source", "train-target"}),
        ("ucds train-source data --meth", {"--method"}),
        ("ucds train-target data --method ", {"pcd", "consensus"}),
    ],
)
def test_a_shell_completes_commands_options_and_choices(
    words: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_UCDS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    found = run_command()
    assert (found.status, found.err) == (0, "")
    assert set(found.out.split()) == expected


def test_what_nobody_foresaw_is_one_line_and_a_file(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = mock.Mock(side_effect=ZeroDivisionError("nobody\nforesaw this"))
    monkeypatch.setattr("ucds.source.train.train_source", train)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = ("train-source", vectors / "source.npz", "--clusters", 4, "--out", tmp_path / "run")
    found = run_command(*command)
    (log,) = tmp_path.glob("ucds-fault-*.log")
    assert (found.status, found.out) == (1, "")
    (line,) = found.err.splitlines()
    assert line.startswith("error: this is a bug in ucds")
    assert f"{log} (ZeroDivisionError: nobody foresaw this)" in line
    assert "Traceback" in log.read_text()
    assert "--clusters 4" in log.read_text()
    assert re.search(r"^ucds [\d.]+, numpy \S+, onnxruntime \S+, Python 3\.", log.read_text(), re.MULTILINE)

    class OutOfMemoryError(RuntimeError):
        """The name that PyTorch gives it."""

    train.side_effect = OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
    found = run_command(*command)
    assert found.status == 2
    (line,) = found.err.splitlines()
    assert "not enough memory (CUDA out of memory" in line
    assert "lower --set batch_size=.." in line


@pytest.mark.parametrize(
    ("told", "printed"),
    [
        ("choose another `out`", "choose another --out"),
        ("give `n_clusters`, or `labels`", "give --clusters, or --labels"),
        ('use `accelerator="cpu"`', "use --accelerator cpu"),
        ("go on with `resume=True`", "go on with --resume"),
        ("ask about fewer by `max_queries=12`", "ask about fewer by --max-queries 12"),
        ("audit with `effort=QUICK`", "audit with --quick"),
        ("see `ucds settings` and `sample_domain`", "see `ucds settings` and `sample_domain`"),
    ],
)
def test_arguments_become_options(told: str, printed: str) -> None:
    assert in_options(told) == printed
