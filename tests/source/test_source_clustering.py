"""Tests of `SourceClustering`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import ucds
from ucds import InputError, SourceClustering, TargetClustering
from ucds.networks.encoder import NetworkEncoder, module_encoder

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]

SHORT = {"source_epochs": 10}
BRIEF = {"source_epochs": 2, "bottleneck_width": 16}
EDGES: dict[str, Any] = {"backbone": "ucds/oriented_edges", "tune": "head"}
Blobs = Callable[..., dict[str, Any]]

DOMAIN, TRUTH = np.repeat(["a", "b"], [40, 24]), np.arange(64) % 4


@parametrize_with_checks([SourceClustering(settings={"starts": 1}, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: SourceClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([SourceClustering(method="pcd", settings=SHORT, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract_with_pcd(
    estimator: SourceClustering, check: Callable[[Any], None]
) -> None:
    check(estimator)


def brief(n_clusters: int = 4, **parameters: Any) -> SourceClustering:
    parameters = {"method": "pcd", "settings": BRIEF, "random_state": 0, "accelerator": "cpu"} | parameters
    return SourceClustering(n_clusters, **parameters)


@pytest.fixture
def x(blobs: Blobs) -> Any:
    """The samples of both domains."""
    return np.concatenate(list(blobs({"a": 40, "b": 24}).values()))


@pytest.fixture
def pictures(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    """``domains/{one,two}/*.png`` and ``flat/*.png``."""
    folders = {"domains/one": 6, "domains/two": 5, "flat": 7}
    write_images(tmp_path, [f"{name}/{i}.png" for name, count in folders.items() for i in range(count)])
    return tmp_path


def test_clear_groups_are_found_and_described(x: Any) -> None:
    source = brief(settings=BRIEF | {"source_epochs": 60})
    assert source.fit(x, sample_domain=DOMAIN) is source
    assert adjusted_rand_score(TRUTH, source.labels_) == 1
    assert source.labels_.dtype == np.int64
    assert source.prototypes_.shape == (4, 16)
    np.testing.assert_array_equal(source.prototypes_, source.stored_.head.prototypes.T)
    assert source.proportions_.shape == (2, 4)
    np.testing.assert_allclose(source.proportions_.sum(1), 1, rtol=1e-5)
    assert source.domain_names_ == ("a", "b")
    assert [stage.name for stage in source.stages_] == ["learn-source"]
    assert source.n_features_in_ == 6
    np.testing.assert_array_equal(source.predict(x), source.labels_)
    np.testing.assert_array_equal(source.predict(x[::-1]), source.labels_[::-1])


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
    ("first", "second", "dtype"),
    [("x", "y", None), (-2, 7, None), (1.5, 2.5, None), (False, True, None), (1, "b", object)],
)
def test_domains_may_be_any_values(first: Any, second: Any, dtype: Any, x: Any) -> None:
    source = brief().fit(x, sample_domain=np.array([first] * 40 + [second] * 24, dtype))
    assert source.domain_names_ == (str(first), str(second))
    np.testing.assert_array_equal(source.prototypes_, brief().fit(x, sample_domain=DOMAIN).prototypes_)


def test_without_domains_there_is_one(x: Any) -> None:
    alone = brief().fit(x)
    assert alone.proportions_.shape == (1, 4)
    same = brief().fit(x, sample_domain=np.zeros(64, int))
    np.testing.assert_array_equal(alone.prototypes_, same.prototypes_)
    other = brief().fit(x, sample_domain=DOMAIN)
    assert not np.array_equal(alone.prototypes_, other.prototypes_)


@pytest.mark.parametrize("wrong", [["a"] * 63, [["a"]] * 64, "a", 3])
def test_domains_that_do_not_fit_are_refused(wrong: Any, x: Any) -> None:
    with pytest.raises(InputError, match=r"sample_domain must have one entry a sample, \(64,\)"):
        brief().fit(x, sample_domain=wrong)


@pytest.mark.parametrize("names", [[0.0, np.nan], ["a", None], np.array(["a", np.nan], object)], ids=str)
def test_a_domain_without_a_name_is_refused(names: Any, x: Any) -> None:
    with pytest.raises(InputError, match="sample_domain holds NaN or None"):
        brief().fit(x, sample_domain=np.repeat(names, [40, 24]))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_clusters": 0}, "the number of clusters must be at least 1"),
        ({"n_clusters": 2.0}, "a number of clusters is an integer, .* not 2.0"),
        ({"random_state": -1}, r"^random_state: Seed must be between 0 and 2\*\*32 - 1"),
        ({"random_state": 2**32}, r"^random_state: Seed must be between 0 and 2\*\*32 - 1"),
        ({"random_state": "a"}, "^random_state: 'a' cannot be used to seed"),
        ({"random_state": 1.5}, "^random_state: 1.5 cannot be used to seed"),
        ({"random_state": np.random.default_rng()}, "^random_state: Generator.* cannot be used to seed"),
        ({"settings": {"epochs": 3}}, "unknown setting 'epochs'"),
        ({"tune": "tail"}, "tune: "),
        ({"backbone": "resnet18"}, "a named backbone is for folders"),
        ({"settings": {"batch_size": 2}}, "a batch of 2 cannot hold 3 domains"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused_in_fit(
    parameters: dict[str, Any], words: str, x: Any
) -> None:
    source = brief(**parameters)  # the constructor only stores
    with pytest.raises(InputError, match=words):
        source.fit(x, sample_domain=np.arange(64) % 3)


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


@pytest.mark.parametrize("method", ["pcd", "consensus"])
def test_survives_its_run_folder(method: str, x: Any, tmp_path: Path) -> None:
    settings = BRIEF if method == "pcd" else {"starts": 1}
    source = brief(method=method, settings=settings).fit(x, sample_domain=DOMAIN)
    source.save(tmp_path / "run")
    again = SourceClustering.load(tmp_path / "run", accelerator="cpu")
    assert again.get_params()["n_clusters"] == 4
    assert again.n_features_in_ == 6
    assert again.domain_names_ == ("a", "b")
    assert again.stored_.card == source.stored_.card
    np.testing.assert_array_equal(again.prototypes_, source.prototypes_)
    np.testing.assert_array_equal(again.proportions_, source.proportions_)
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))
    np.testing.assert_array_equal(again.label(x).labels, source.labels_)
    assert not hasattr(again, "labels_")
    with pytest.raises(ValueError, match="5 features, but SourceClustering is expecting 6"):
        again.predict(x[:, :5])


def test_only_a_finished_source_run_is_loaded(x: Any, tmp_path: Path) -> None:
    for needs_a_model in (brief().save, brief().label):
        with pytest.raises(NotFittedError):
            needs_a_model(tmp_path / "run")
    TargetClustering(4, settings={"starts": 1}).fit(x).save(tmp_path / "target")
    with pytest.raises(InputError, match="a model of role 'target', and only one of role 'source'"):
        SourceClustering.load(tmp_path / "target")


def test_a_model_with_a_backbone_of_ones_own_is_loaded_with_it(x: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = brief(backbone=module_encoder(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)).fit(x)
    source.save(tmp_path / "run")
    empty = module_encoder(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)
    again = SourceClustering.load(tmp_path / "run", backbone=empty, accelerator="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))


def test_label_gives_what_the_function_gives_for_the_saved_run(x: Any, blobs: Blobs, tmp_path: Path) -> None:
    source = brief(method="consensus", settings={"starts": 1}).fit(x, sample_domain=DOMAIN)
    source.save(tmp_path / "run")
    shifted = blobs({"t": 40})["t"] + np.float32([20, 0, 0, 0, 0, 0])
    file = tmp_path / "shifted.npy"
    np.save(file, shifted)
    answers, expected = source.label(shifted, provider="run"), ucds.label(tmp_path / "run", file)
    assert answers.fingerprint == expected.fingerprint
    assert answers.contents == expected.contents
    assert not np.array_equal(answers.labels, source.predict(shifted))  # from the model's mean
    # Ten samples are too few to be seen from their own mean.
    np.testing.assert_array_equal(source.label(x[:10]).labels, source.predict(x[:10]))


def test_folders_of_images_and_a_targets_folder_needs_no_domain_folders(pictures: Path) -> None:
    source = brief(3, **EDGES).fit(pictures / "domains")
    assert source.domain_names_ == ("one", "two")
    assert source.labels_.shape == (11,)
    assert source.ids_[:2] == ("one/0.png", "one/1.png")
    np.testing.assert_array_equal(source.predict(str(pictures / "domains")), source.labels_)
    assert source.label(pictures / "flat").ids == tuple(f"{i}.png" for i in range(7))
    again = source.label(pictures / "domains")
    assert again.ids == source.ids_
    np.testing.assert_array_equal(again.labels, source.labels_)


def test_folders_and_arrays_are_not_mixed_up(pictures: Path, x: Any) -> None:
    on_images = brief(3, **EDGES).fit(pictures / "domains")
    with pytest.raises(InputError, match="fitted on images"):
        on_images.predict(x)
    on_vectors = brief().fit(x)
    with pytest.raises(InputError, match="takes embeddings of width 6"):
        on_vectors.predict(pictures / "domains")
    with pytest.raises(InputError, match="sample_domain is for arrays"):
        brief(**EDGES).fit(pictures / "domains", sample_domain=DOMAIN)
    with pytest.raises(InputError, match="has no input_size; the samples are images"):
        brief(backbone=module_encoder(nn.Linear(6, 5), 5)).fit(pictures / "domains")
