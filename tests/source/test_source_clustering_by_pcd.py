"""Tests of `SourceClustering` where it learns by gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from ucds import InputError, SourceClustering
from ucds.networks.encoder import NetworkEncoder, module_encoder

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]

SHORT = {"source_epochs": 10}
BRIEF = {"source_epochs": 2, "bottleneck_width": 16}
Blobs = Callable[..., dict[str, Any]]


@pytest.mark.slow
@parametrize_with_checks([SourceClustering(method="pcd", settings=SHORT, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: SourceClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


def brief(n_clusters: int = 4, **parameters: Any) -> SourceClustering:
    parameters = {"method": "pcd", "settings": BRIEF, "random_state": 0, "accelerator": "cpu"} | parameters
    return SourceClustering(n_clusters, **parameters)


@pytest.fixture
def x(blobs: Blobs) -> Any:
    """The samples of both domains."""
    return np.concatenate(list(blobs({"a": 40, "b": 24}).values()))


@pytest.mark.parametrize("kind", [int, np.int8, np.uint64, np.random.RandomState])
def test_every_kind_of_seed_decides(kind: Any, x: Any) -> None:
    one, two, other = (brief(random_state=kind(seed)).fit(x).prototypes_ for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    if kind is not np.random.RandomState:
        np.testing.assert_array_equal(one, brief(random_state=3).fit(x).prototypes_)


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)], ids=["none", "object"])
def test_without_an_integer_every_fit_has_a_seed_of_its_own(state: Any, x: Any) -> None:
    source = brief(random_state=state)
    assert not np.array_equal(source.fit(x).prototypes_, source.fit(x).prototypes_)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"tune": "tail"}, "tune: "), ({"settings": {"batch_size": 2}}, "a batch of 2 cannot hold 3 domains")],
)
def test_parameters_that_cannot_be_used_are_refused_in_fit(
    parameters: dict[str, Any], words: str, x: Any
) -> None:
    with pytest.raises(InputError, match=words):
        brief(**parameters).fit(x, sample_domain=np.arange(64) % 3)


def test_a_backbone_of_ones_own_is_used_and_left_as_it_was(x: Any) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    source = brief(backbone=module_encoder(module, 5), settings=BRIEF | {"learning_rate": 0.1})
    first = source.fit(x)
    prototypes = first.prototypes_
    network = first.stored_.encoder
    assert isinstance(network, NetworkEncoder)
    trained = network.state()
    assert not torch.equal(trained["0.weight"], before["0.weight"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    np.testing.assert_array_equal(source.fit(x).prototypes_, prototypes)


def test_a_model_with_a_backbone_of_ones_own_is_loaded_with_it(x: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = brief(backbone=module_encoder(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)).fit(x)
    source.save(tmp_path / "run")
    empty = module_encoder(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)
    again = SourceClustering.load(tmp_path / "run", backbone=empty, accelerator="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))


def test_a_module_for_vectors_takes_no_images(
    tmp_path: Path, write_images: Callable[..., list[Path]]
) -> None:
    write_images(tmp_path, [f"{domain}/{i}.png" for domain in ("one", "two") for i in range(4)])
    with pytest.raises(InputError, match="has no input_size; the samples are images"):
        brief(backbone=module_encoder(nn.Linear(6, 5), 5)).fit(tmp_path)
