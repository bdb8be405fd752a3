"""Tests of `ucds.train_target`: the client's training, as a function and as a command."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.config import MethodSettings
from ucds.training.model_file import arrays_digest

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF = {
    "pcd": ucds.PCDSettings(clustering_epochs=2, refinement_epochs=2, bottleneck_width=8),
    "consensus": ucds.ConsensusSettings(starts=1, bottleneck_width=8),
}
CPU = ucds.RunOptions(seed=3)
ANSWERS = (np.arange(48) % 4 + 1) % 4


@pytest.fixture
def samples(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    """A file of embeddings, and `labels.json` with a label for each of them."""
    np.save(tmp_path / "x.npy", blobs({"t": 48})["t"])
    ucds.ClusterLabels(tuple(map(str, range(48))), ANSWERS, 4, "p").save(tmp_path / "labels.json")
    return tmp_path / "x.npy"


@pytest.mark.parametrize("method", ["consensus", pytest.param("pcd", marks=pytest.mark.torch)])
def test_the_function_and_the_command_give_the_same_model(
    method: str, samples: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    settings: MethodSettings = BRIEF[method]
    labels = tmp_path / "labels.json"
    own, typed = tmp_path / "function" / "run", tmp_path / "command" / "run"
    given = str(labels) if method == "pcd" else ucds.ClusterLabels.load(labels)
    found = ucds.train_target(str(samples), str(own), labels=given, settings=settings, options=CPU)
    assert (found.folder, found.role, found.n_clusters) == (own, "target", 4)
    changed = [f"{name}={value}" for name, value in settings.model_dump(exclude_unset=True).items()]
    options = [text for change in changed for text in ("--set", change)]
    command = ("train-target", samples, "--labels", labels, "--out", typed, "--seed", 3, "--no-report")
    assert run(*command, "--method", method, "--accelerator", "cpu", *options) == 0
    one, other = (ucds.load(folder, role="target") for folder in (own, typed))
    assert one.stored.card == other.stored.card
    assert arrays_digest(one.stored.arrays) == arrays_digest(other.stored.arrays)
    np.testing.assert_array_equal(one.stored.proportions, other.stored.proportions)


@pytest.mark.torch
@pytest.mark.slow
def test_a_second_run_loads_no_library_of_networks(images: Path, tmp_path: Path) -> None:
    """They take seconds: torchvision brings the compiler of torch along."""
    encoder, compute = ucds.EncoderOptions("test_resnet", "none", 32), ucds.Compute("cpu", cache=tmp_path)
    ucds.train_target(images, tmp_path / "first", n_clusters=2, encoder=encoder, compute=compute)
    assert "timm" in sys.modules
    code = (
        "import sys, ucds; from pathlib import Path; root = Path(sys.argv[2])\n"
        "encoder, compute = ucds.EncoderOptions('test_resnet', 'none', 32), ucds.Compute('cpu', cache=root)\n"
        "given = {'n_clusters': 2, 'encoder': encoder, 'compute': compute}\n"
        "ucds.train_target(sys.argv[1], root / 'second', **given)\n"
        "print(*sorted({'timm', 'torchvision', 'torch._dynamo'} & sys.modules.keys()))\n"
    )
    assert subprocess.check_output([sys.executable, "-c", code, images, tmp_path], text=True) == "\n"


def test_a_run_with_other_labels_is_not_resumed(samples: Path, tmp_path: Path) -> None:
    """The run has another number of clusters than the labels, which is no reason to refuse them."""
    given: dict[str, Any] = {"images": samples, "out": tmp_path / "run", "settings": BRIEF["consensus"]}
    given["n_clusters"] = 3
    ucds.train_target(**given, labels=tmp_path / "labels.json")
    resumed = ucds.RunOptions(resume=True)
    again = ucds.train_target(**given, labels=tmp_path / "labels.json", options=resumed)
    assert (again.resumed_finished, ucds.load(again.folder).n_clusters) == (True, 3)
    others = ucds.ClusterLabels(tuple(map(str, range(48))), ANSWERS[::-1], 4, "p")
    with pytest.raises(ucds.InputError, match="labels"):
        ucds.train_target(**given, labels=others, options=resumed)


def test_what_this_training_has_no_use_for_is_refused(samples: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"images": samples, "out": tmp_path / "run", "n_clusters": 4}
    with pytest.raises(ucds.InputError, match="the method consensus runs in one process"):
        ucds.train_target(**given, options=ucds.RunOptions(devices=2))
    with pytest.raises(ucds.InputError, match="'transfer' has no effect without labels: leave it out$"):
        ucds.train_target(**given, settings={"transfer": "equal"})
    assert not (tmp_path / "run").exists()
