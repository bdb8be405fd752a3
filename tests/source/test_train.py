"""Tests of `ucds.train_source` and `ucds.label`: what the provider does, as functions and as commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds.config import MethodSettings
from ucds.training.model_file import arrays_digest

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF = {
    "pcd": ucds.PCDSettings(source_epochs=2, bottleneck_width=8),
    "consensus": ucds.ConsensusSettings(starts=1, bottleneck_width=8),
}
CPU, RESUMED = ucds.RunOptions(seed=3), ucds.RunOptions(seed=3, resume=True)


@pytest.fixture
def domains(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    """A file of embeddings of the domains a, b and c."""
    path = tmp_path / "domains.npz"
    np.savez(path, **blobs({"a": 36, "b": 24, "c": 16}))
    return path


@pytest.mark.parametrize("method", ["consensus", pytest.param("pcd", marks=pytest.mark.torch)])
def test_the_function_and_the_command_give_the_same_model(
    method: str, domains: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    settings: MethodSettings = BRIEF[method]
    own, typed = tmp_path / "function" / "run", tmp_path / "command" / "run"
    found = ucds.train_source(str(domains), str(own), 4, domains=["a", "c"], settings=settings, options=CPU)
    assert (found.folder, found.role, found.n_clusters) == (own, "source", 4)
    assert found.seconds > 0
    changed = [f"{name}={value}" for name, value in settings.model_dump(exclude_unset=True).items()]
    options = [text for change in changed for text in ("--set", change)]
    command = ("train-source", domains, "--clusters", 4, "--out", typed, "--domains", "a,c", "--seed", 3)
    assert run(*command, "--method", method, "--accelerator", "cpu", *options) == 0
    one, other = (ucds.load(folder, role="source") for folder in (own, typed))
    assert one.stored.card == other.stored.card
    assert one.stored.card.domains == ("a", "c")
    assert arrays_digest(one.stored.arrays) == arrays_digest(other.stored.arrays)
    np.testing.assert_array_equal(one.stored.proportions, other.stored.proportions)


def test_a_finished_run_is_resumed_and_a_damaged_model_is_no_finished_run(
    domains: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"data": domains, "out": tmp_path / "run", "settings": quick()}
    ucds.train_source(**given, n_clusters=4, options=CPU)
    again = ucds.train_source(**given, n_clusters="4", options=RESUMED)  # the number as a text
    assert (again.resumed_finished, again.seconds) == (True, 0)
    model = tmp_path / "run" / "model.safetensors"
    before = arrays_digest(ucds.load(tmp_path / "run").stored.arrays)
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(ucds.DamagedFileError, match=r"model\.safetensors is damaged .*delete it, and train"):
        ucds.train_source(**given, n_clusters=4, options=RESUMED)
    model.unlink()
    assert not ucds.train_source(**given, n_clusters=4, options=RESUMED).resumed_finished
    assert arrays_digest(ucds.load(tmp_path / "run").stored.arrays) == before


def test_labels_by_the_function_and_by_the_command_are_the_same(
    domains: Path, tmp_path: Path, blobs: Callable[..., Any], run: Callable[..., int]
) -> None:
    np.save(tmp_path / "target.npy", blobs({"t": 30})["t"])
    provider = ucds.train_source(domains, tmp_path / "clinic", 4, settings=quick()).folder
    cpu = ucds.Compute("cpu")
    samples, own, typed = (tmp_path / name for name in ("target.npy", "function.json", "command.json"))
    before = sorted(tmp_path.rglob("*"))
    assert len(ucds.label(provider, samples, compute=cpu).ids) == 30
    assert sorted(tmp_path.rglob("*")) == before  # nothing is written unless asked for
    labels = ucds.label(str(provider), str(samples), str(own), compute=cpu)
    assert run("label", provider, samples, "--out", typed, "--accelerator", "cpu") == 0
    assert own.read_bytes() == typed.read_bytes()
    assert ucds.ClusterLabels.load(own).fingerprint == labels.fingerprint
    assert (labels.provider, labels.n_clusters) == ("clinic", 4)
    assert labels.ids == tuple(str(i) for i in range(30))
    predicted = ucds.load(provider, compute=cpu).predict(np.load(samples))  # 30: too few to centre
    np.testing.assert_array_equal(labels.labels, predicted)
