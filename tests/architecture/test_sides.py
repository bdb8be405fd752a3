"""No command loads a module of the other side, or takes its model; a client needs only its half."""

import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.model_file import load_model

PROVIDERS, CLIENTS, OF_BOTH = ("source", "serving"), ("target",), ("experiments", "baselines")
"""Rooms of one side, of the other, and of those who compare methods."""

QUICK = "--accelerator cpu --set bottleneck_width=8"
CONSENSUS = f"--method consensus {QUICK} --set starts=1"
PCD = f"--method pcd {QUICK} --set batch_size=16"
EPOCHS = "--set clustering_epochs=2 --set refinement_epochs=2"
SOURCE = "train-source source.npz --clusters 4"
TARGET = "train-target target.npy --labels labels.json"
PREDICTION = "predict own target.npy --out clusters.csv --accelerator cpu"
BY_PROVIDERS = (
    f"{SOURCE} --out provider {CONSENSUS}",
    "label provider target.npy --out labels.json --accelerator cpu",
)
BY_CLIENTS = (f"{TARGET} --out own {CONSENSUS}", PREDICTION, "review own --answers answers.jsonl")
ANSWERS = (
    '{"format": "ucds-answers/1", "clusters": "of another run"}\n'
    '{"did": "joined", "group": ["0"], "to": ["1"]}\n'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., dict[str, Any]]) -> Path:
    """Two source domains, a target, and answers about it."""
    folder = tmp_path_factory.mktemp("sides")
    arrays = blobs({"a": 48, "b": 48, "target": 60})
    np.save(folder / "target.npy", arrays.pop("target"))
    np.savez(folder / "source.npz", **arrays)
    (folder / "answers.jsonl").write_text(ANSWERS)
    return folder


@pytest.fixture(scope="module")
def outcomes(run_anew: Any, folder: Path) -> dict[str, Any]:
    """What came of each command, in the order of their work."""
    return {line: run_anew(line, folder) for line in (*BY_PROVIDERS, *BY_CLIENTS)}


@pytest.mark.parametrize(
    ("lines", "own", "others"),
    [(BY_PROVIDERS, ("source",), CLIENTS), (BY_CLIENTS, CLIENTS, PROVIDERS)],
    ids=["provider", "client"],
)
def test_commands_of_a_side_never_load_the_other(
    outcomes: dict[str, Any], lines: tuple[str, ...], own: tuple[str, ...], others: tuple[str, ...]
) -> None:
    for line in lines:
        assert outcomes[line].status == 0, outcomes[line].told
        assert outcomes[line].loaded(*own)
        assert outcomes[line].loaded(*others, *OF_BOTH) == []


@pytest.mark.parametrize(
    ("line", "role", "others"),
    [
        ("predict provider target.npy --out no.csv --accelerator cpu", "source", PROVIDERS),
        ("label own target.npy --out no.json --accelerator cpu", "target", CLIENTS),
    ],
)
@pytest.mark.usefixtures("outcomes")
def test_a_model_of_the_other_side_is_refused(
    run_anew: Any, folder: Path, line: str, role: str, others: tuple[str, ...]
) -> None:
    refused = run_anew(line, folder)
    assert refused.status == 2
    assert f"holds a model of role '{role}'" in refused.told
    assert refused.told.count("\n") == 1
    assert refused.loaded(*others, *OF_BOTH) == []


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.usefixtures("outcomes")
def test_neither_side_loads_the_other_to_train_by_gradients(run_anew: Any, folder: Path) -> None:
    source = run_anew(f"{SOURCE} --out other {PCD} --set source_epochs=2", folder)
    target = run_anew(f"{TARGET} --out another {PCD} {EPOCHS}", folder)
    assert (source.status, target.status) == (0, 0), source.told + target.told
    assert source.loaded(*CLIENTS, *OF_BOTH) == []
    assert target.loaded(*PROVIDERS, *OF_BOTH) == []


@pytest.mark.parametrize(
    ("line", "others"),
    [  # no service is there to answer: what counts is what asking loads
        ("query target.npy --url ftp://nowhere --key k --out no.json", ("encoders", "gradients.stage")),
        ("--help", (*CLIENTS, "gradients")),
    ],
)
def test_asking_a_service_and_helping_load_neither_side(
    run_anew: Any, folder: Path, line: str, others: tuple[str, ...]
) -> None:
    assert run_anew(line, folder).loaded(*PROVIDERS, *OF_BOTH, "networks", *others) == []


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", ucds.__all__)
def test_a_public_name_loads_at_most_one_side(anew: Any, name: str) -> None:
    with anew():
        getattr(import_module("ucds"), name)
        rooms = {module.split(".")[1] for module in sys.modules if module.startswith("ucds.")}
    assert not (rooms & {*PROVIDERS} and rooms & {*CLIENTS})


@pytest.mark.parametrize(
    ("method", "stages"),
    [
        pytest.param(
            f"{PCD} {EPOCHS}",
            ("cluster-target", "refine-target"),
            marks=[pytest.mark.slow, pytest.mark.torch],
        ),
        (CONSENSUS, ("agree", "fit-target")),
    ],
    ids=["pcd", "consensus"],
)
def test_a_client_needs_a_label_file_and_its_half_of_the_package(
    run_anew: Any, folder: Path, tmp_path: Path, method: str, stages: tuple[str, ...]
) -> None:
    pruned, others = tmp_path / "pruned", shutil.ignore_patterns(*PROVIDERS, *OF_BOTH)
    shutil.copytree(Path(ucds.__file__).parent, pruned / "ucds", ignore=others)
    shutil.copy(folder / "target.npy", tmp_path)
    answers = ClusterLabels(tuple(map(str, range(60))), np.arange(60) % 4, 4, "a provider far away")
    answers.save(tmp_path / "labels.json")
    for line in (f"{TARGET} --out own {method}", PREDICTION, "--help"):
        done = run_anew(line, tmp_path, pruned)
        assert done.status == 0, done.told
    assert load_model(tmp_path / "own").card.stages == stages
    assert len((tmp_path / "clusters.csv").read_text().splitlines()) == 61
