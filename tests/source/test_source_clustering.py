"""Tests of `SourceClustering`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import ucds
from ucds import InputError, SourceClustering
from ucds.choices import VoteChoices
from ucds.encoders.encoder import IdentityEncoder
from ucds.training.model_file import save_model

EDGES: dict[str, Any] = {"backbone": "ucds/oriented_edges"}
Blobs = Callable[..., dict[str, Any]]

DOMAIN, TRUTH = np.repeat(["a", "b"], [40, 24]), np.arange(64) % 4
ONE_VOTE = quick(vote=VoteChoices(fineness=(1.0,), fewest_starts=1, most_starts=1, halves=1))


@parametrize_with_checks([SourceClustering(settings=ONE_VOTE, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: SourceClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.torch
@pytest.mark.slow
@parametrize_with_checks([SourceClustering(method="pcd", settings={"source_epochs": 10}, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters", "ignore:stage .* (empty|collapsed)")
def test_keeps_scikit_learns_contract_with_pcd(
    estimator: SourceClustering, check: Callable[[Any], None]
) -> None:
    check(estimator)


def brief(n_clusters: int = 4, **parameters: Any) -> SourceClustering:
    parameters = {"settings": ONE_VOTE, "random_state": 0, "accelerator": "cpu"} | parameters
    return SourceClustering(n_clusters, **parameters)


@pytest.fixture(scope="module")
def x(blobs: Blobs) -> Any:
    """The samples of both domains."""
    return np.concatenate(list(blobs({"a": 40, "b": 24}).values()))


@pytest.fixture(scope="module")
def fitted(x: Any) -> SourceClustering:
    """An estimator of both domains, for tests that leave it as it is."""
    return brief().fit(x, sample_domain=DOMAIN)


@pytest.fixture
def pictures(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    """``domains/{one,two}/*.png`` and ``flat/*.png``."""
    folders = {"domains/one": 6, "domains/two": 5, "flat": 7}
    write_images(tmp_path, [f"{name}/{i}.png" for name, count in folders.items() for i in range(count)])
    return tmp_path


def test_clear_groups_are_found_and_described(x: Any) -> None:
    source = brief()
    assert source.fit(x, sample_domain=DOMAIN) is source
    assert adjusted_rand_score(TRUTH, source.labels_) == 1
    assert source.labels_.dtype == np.int64
    assert source.prototypes_.shape[0] == 4
    np.testing.assert_array_equal(source.prototypes_, source.stored_.head.prototypes.T)
    assert source.proportions_.shape == (2, 4)
    np.testing.assert_allclose(source.proportions_.sum(1), 1, rtol=1e-5)
    assert source.domain_names_ == ("a", "b")
    assert [stage.name for stage in source.stages_] == ["cluster-domains"]
    assert source.n_features_in_ == 6
    np.testing.assert_array_equal(source.predict(x), source.labels_)
    np.testing.assert_array_equal(source.predict(x[::-1]), source.labels_[::-1])


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [("x", "y", None), (-2, 7, None), (1.5, 2.5, None), (False, True, None), (1, "b", object)],
)
def test_domains_may_be_any_values(
    first: Any, second: Any, dtype: Any, x: Any, fitted: SourceClustering
) -> None:
    source = brief().fit(x, sample_domain=np.array([first] * 40 + [second] * 24, dtype))
    assert source.domain_names_ == (str(first), str(second))
    np.testing.assert_array_equal(source.prototypes_, fitted.prototypes_)


def test_without_domains_there_is_one(x: Any, fitted: SourceClustering) -> None:
    alone = brief().fit(x)
    assert alone.proportions_.shape == (1, 4)
    same = brief().fit(x, sample_domain=np.zeros(64, int))
    np.testing.assert_array_equal(alone.prototypes_, same.prototypes_)
    assert not np.array_equal(alone.prototypes_, fitted.prototypes_)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["a"] * 63, "must have one entry for each row: 64"),
        ([["a"]] * 64, "must have one entry for each row: 64"),
        ("a", "must have one entry for each row: 64"),
        ([0.0] * 40 + [np.nan] * 24, "holds NaN or None"),
        (["a"] * 40 + [None] * 24, "holds NaN or None"),
    ],
)
def test_domains_that_do_not_fit_are_refused(wrong: Any, words: str, x: Any) -> None:
    with pytest.raises(InputError, match=f"sample_domain {words}"):
        brief().fit(x, sample_domain=wrong)


@pytest.mark.parametrize("kind", [int, np.int8, np.uint64])
def test_every_kind_of_integer_is_a_seed(kind: Any, x: Any) -> None:
    assert brief(random_state=kind(3)).fit(x).stored_.card.making.seed == 3


def test_without_an_integer_every_fit_has_a_seed_of_its_own(x: Any) -> None:
    def seed_of(source: SourceClustering) -> int:
        return source.fit(x).stored_.card.making.seed

    for source in (brief(random_state=None), brief(random_state=np.random.RandomState(3))):
        assert seed_of(source) != seed_of(source)
    one, other = (brief(random_state=np.random.RandomState(3)) for _ in range(2))
    assert seed_of(one) == seed_of(other)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_clusters": 0}, "the number of clusters must be at least 1"),
        ({"n_clusters": 2.0}, "a number of clusters is an integer, .* not 2.0"),
        ({"random_state": -1}, "^random_state: "),
        ({"random_state": 2**32}, "^random_state: "),
        ({"random_state": 1.5}, "^random_state: "),
        ({"settings": {"epochs": 3}}, "unknown setting 'epochs'"),
        ({"backbone": "resnet18"}, "`backbone`, `weights` and `image_size` are for images, not for embedd"),
        ({"weights": "none"}, "`backbone`, `weights` and `image_size` are for images, not for embeddings"),
        ({"backbone": IdentityEncoder(6), "weights": "none"}, "`weights` are for a `backbone` by name"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused_in_fit(
    parameters: dict[str, Any], words: str, x: Any
) -> None:
    source = brief(**parameters)  # the constructor only stores
    with pytest.raises(InputError, match=words):
        source.fit(x, sample_domain=np.arange(64) % 3)


def test_survives_its_run_folder(x: Any, fitted: SourceClustering, tmp_path: Path) -> None:
    fitted.save(tmp_path / "run")
    again = SourceClustering.load(tmp_path / "run", accelerator="cpu")
    assert again.get_params()["n_clusters"] == 4
    assert again.n_features_in_ == 6
    assert again.domain_names_ == ("a", "b")
    assert again.stored_.card == fitted.stored_.card
    np.testing.assert_array_equal(again.prototypes_, fitted.prototypes_)
    np.testing.assert_array_equal(again.proportions_, fitted.proportions_)
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
    np.testing.assert_array_equal(again.label(x).labels, fitted.labels_)
    assert not hasattr(again, "labels_")
    with pytest.raises(ValueError, match="5 features, but SourceClustering is expecting 6"):
        again.predict(x[:, :5])


def test_only_a_finished_source_run_is_loaded(tmp_path: Path, stored_model: Callable[..., Any]) -> None:
    for needs_a_model in (brief().save, brief().label):
        with pytest.raises(NotFittedError):
            needs_a_model(tmp_path / "run")
    save_model(tmp_path, stored_model(IdentityEncoder(6), 4, 8, role="target"))
    with pytest.raises(InputError, match="a model of role 'target'"):
        SourceClustering.load(tmp_path)


def test_label_gives_what_the_function_gives_for_the_saved_run(
    x: Any, fitted: SourceClustering, blobs: Blobs, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "run")
    shifted = blobs({"t": 40})["t"] + np.float32([20, 0, 0, 0, 0, 0])
    file = tmp_path / "shifted.npy"
    np.save(file, shifted)
    answers, expected = fitted.label(shifted, provider="run"), ucds.label(tmp_path / "run", file)
    assert answers.fingerprint == expected.fingerprint
    assert answers.contents == expected.contents
    assert not np.array_equal(answers.labels, fitted.predict(shifted))  # from the model's mean
    # Ten samples are too few to be seen from their own mean.
    np.testing.assert_array_equal(fitted.label(x[:10]).labels, fitted.predict(x[:10]))


def test_folders_of_images_and_a_targets_folder_needs_no_domain_folders(
    pictures: Path, x: Any, fitted: SourceClustering
) -> None:
    source = brief(3, **EDGES).fit(pictures / "domains")
    assert source.domain_names_ == ("one", "two")
    assert source.labels_.shape == (11,)
    assert source.ids_[:2] == ("one/0.png", "one/1.png")
    np.testing.assert_array_equal(source.predict(str(pictures / "domains")), source.labels_)
    assert source.label(pictures / "flat").ids == tuple(f"{i}.png" for i in range(7))
    again = source.label(pictures / "domains")
    assert again.ids == source.ids_
    np.testing.assert_array_equal(again.labels, source.labels_)
    with pytest.raises(InputError, match="fitted on images"):
        source.predict(x)
    with pytest.raises(InputError, match="sample_domain is for arrays"):
        source.fit(pictures / "domains", sample_domain=DOMAIN)
    with pytest.raises(InputError, match="takes embeddings of width 6"):
        fitted.predict(pictures / "domains")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")
def test_a_backbone_of_ones_own_is_used_left_as_it_was_and_needed_to_load_the_model(
    blobs: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    import torch
    from torch import nn

    from ucds.networks.encoder import NetworkEncoder, module_encoder

    def own() -> Any:
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU())

    torch.manual_seed(0)
    x, module = np.concatenate(list(blobs({"a": 40, "b": 24}).values())), own()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    settings = {"source_epochs": 2, "bottleneck_width": 16, "learning_rate": 0.1}
    usual: dict[str, Any] = {"method": "pcd", "settings": settings, "random_state": 0, "accelerator": "cpu"}
    source = SourceClustering(4, backbone=module_encoder(module, 5), **usual).fit(x)
    prototypes, network = source.prototypes_, source.stored_.encoder
    assert isinstance(network, NetworkEncoder)
    assert not torch.equal(network.state()["0.weight"], before["0.weight"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    source.save(tmp_path / "run")
    empty = module_encoder(own(), 5)
    again = SourceClustering.load(tmp_path / "run", backbone=empty, accelerator="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))
    np.testing.assert_array_equal(source.fit(x).prototypes_, prototypes)
