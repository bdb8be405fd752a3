"""No command loads a module of the other side, or takes its model; a client needs only its half."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.model_file import load_model

SOURCE_SIDE = ("source", "serving")
TARGET_SIDE = ("target",)
BOTH_SIDES = ("experiments", "baselines")
CUT_OUT = (*SOURCE_SIDE, *BOTH_SIDES)
"""All that a client has no use for."""

ANSWERS = (
    '{"format": "ucds-answers/1", "clusters": "of another run"}\n'
    '{"did": "joined", "group": ["0"], "to": ["1"]}\n'
)


BY_PCD = {f"train-{side} by pcd": [pytest.mark.torch, pytest.mark.slow] for side in ("source", "target")}


def by_name(*commands: str) -> Any:
    """The case of each command; of those that train by gradients only where PyTorch is."""
    cases = [pytest.param(command, marks=BY_PCD.get(command, [])) for command in commands]
    return pytest.mark.parametrize("command", cases)


@pytest.fixture(scope="module")
def outcomes(
    run_commands: Any,
    quick: dict[str, list[str]],
    write_embeddings: Callable[[Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sides")
    write_embeddings(folder)
    (folder / "answers.jsonl").write_text(ANSWERS)
    cpu = ["--accelerator", "cpu"]
    source = ["train-source", "source.npz", "--clusters", "4"]
    target = ["train-target", "target.npy", "--labels", "labels.json"]
    commands = {
        "train-source": [*source, "--out", "provider", *quick["consensus"]],
        "train-source by pcd": [*source, "--out", "other", *quick["pcd-source"]],
        "label": ["label", "provider", "target.npy", "--out", "labels.json", *cpu],
        "train-target": [*target, "--out", "own", *quick["consensus"]],
        "train-target by pcd": [*target, "--out", "another", *quick["pcd"]],
        "predict": ["predict", "own", "target.npy", "--out", "clusters.csv", *cpu],
        "review": ["review", "own", "--answers", "answers.jsonl"],
        "predict with the provider's model": ["predict", "provider", "target.npy", "--out", "no.csv", *cpu],
        "label with the target's model": ["label", "own", "target.npy", "--out", "no.json", *cpu],
        # No service is there to answer: what counts is what asking loads.
        "query": ["query", "target.npy", "--url", "ftp://nowhere", "--key", "k", "--out", "no"],
        "help": ["--help"],
    }
    return dict(zip(commands, run_commands(list(commands.values()), folder), strict=True))


WORKING = [
    *("train-source", "train-source by pcd", "label"),
    *("train-target", "train-target by pcd", "predict", "review"),
]


@by_name(*WORKING, "help")
def test_the_commands_do_their_work(outcomes: dict[str, Any], command: str) -> None:
    assert outcomes[command].status == 0, outcomes[command].told


@by_name(*WORKING[:3], "label with the target's model")
def test_the_provider_never_loads_the_target_side(outcomes: dict[str, Any], command: str) -> None:
    assert outcomes[command].loaded("source")
    assert outcomes[command].loaded(*TARGET_SIDE, *BOTH_SIDES) == []


@by_name(*WORKING[3:], "predict with the provider's model")
def test_the_client_never_loads_the_source_side(outcomes: dict[str, Any], command: str) -> None:
    assert outcomes[command].loaded("target")
    assert outcomes[command].loaded(*SOURCE_SIDE, *BOTH_SIDES) == []


def test_asking_a_service_loads_neither_the_service_nor_any_model(outcomes: dict[str, Any]) -> None:
    assert outcomes["query"].loaded("labels")
    assert (
        outcomes["query"].loaded(*SOURCE_SIDE, *BOTH_SIDES, "networks", "encoders", "gradients.stage") == []
    )


def test_help_loads_neither_side(outcomes: dict[str, Any]) -> None:
    loaded = outcomes["help"].loaded(*SOURCE_SIDE, *TARGET_SIDE, *BOTH_SIDES, "networks", "training")
    # They hold options, show that a command began, and refuse a folder that is no run.
    light = ("options", "processes", "progress", "run_folder")
    assert loaded == ["ucds.training", *(f"ucds.training.{name}" for name in light)]


@pytest.mark.parametrize(
    ("command", "role", "file"),
    [
        ("predict with the provider's model", "source", "no.csv"),
        ("label with the target's model", "target", "no.json"),
    ],
)
def test_a_model_of_the_other_side_is_refused(
    outcomes: dict[str, Any], command: str, role: str, file: str
) -> None:
    outcome = outcomes[command]
    assert outcome.status == 2
    assert f"holds a model of role '{role}'" in outcome.told
    assert outcome.told.count("\n") == 1


def test_importing_the_command_line_or_the_client_loads_neither_side_nor_torch() -> None:
    program = (
        "import sys, ucds.cli, ucds.labels.query, ucds.labels.questions\n"
        "print([m for m in sys.modules if m.startswith(('ucds.source', 'ucds.serving', 'ucds.target',"
        " 'ucds.experiments', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    """A copy of the package from which the provider's half was cut out."""
    root = tmp_path / "pruned"
    package = Path(ucds.__file__).parent
    shutil.copytree(package, root / "ucds", ignore=shutil.ignore_patterns("__pycache__"))
    for name in CUT_OUT:
        shutil.rmtree(root / "ucds" / name, ignore_errors=True)
    return root


@pytest.mark.parametrize(
    ("method", "stages"),
    [
        pytest.param("pcd", ("cluster-target", "refine-target"), marks=[pytest.mark.slow, pytest.mark.torch]),
        ("consensus", ("agree", "fit-target")),
    ],
)
def test_a_client_needs_a_label_file_and_its_half_of_the_package(
    pruned: Path,
    run_commands: Any,
    quick: dict[str, list[str]],
    write_embeddings: Callable[[Path], None],
    tmp_path: Path,
    method: str,
    stages: tuple[str, ...],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    write_embeddings(folder)
    (folder / "source.npz").unlink()
    answers = ClusterLabels(tuple(map(str, range(60))), np.arange(60) % 4, 4, "a provider far away")
    answers.save(folder / "labels.json")

    labels = ["--labels", "labels.json", *quick[method]]
    training, prediction, help_page = run_commands(
        [
            ["train-target", "target.npy", *labels, "--out", "own"],
            ["predict", "own", "target.npy", "--out", "clusters.csv", "--accelerator", "cpu"],
            ["--help"],
        ],
        folder,
        pruned,
    )
    for outcome in (training, prediction, help_page):
        assert outcome.status == 0, outcome.told
        assert Path(outcome.home).is_relative_to(pruned)
    assert load_model(folder / "own").card.stages == stages
    assert len((folder / "clusters.csv").read_text().splitlines()) == 61
