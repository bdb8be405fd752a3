"""Tests of `SourceClustering`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import ucds
from ucds import InputError, SourceClustering, TargetClustering
from ucds.backbones import module_backbone

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

SHORT = {"source_epochs": 10}
BRIEF = {"source_epochs": 2, "bottleneck_width": 16}
EDGES: dict[str, Any] = {"backbone": "ucds/oriented_edges", "weights": "none", "tune": "head"}
Blobs = Callable[..., dict[str, Any]]


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


def two_domains(blobs: Blobs) -> tuple[Any, Any]:
    made = blobs({"a": 40, "b": 24})
    return np.concatenate([made["a"], made["b"]]), np.repeat(["a", "b"], [40, 24])


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """``domains/{one,two}/*.png`` and ``flat/*.png``."""
    rng = np.random.default_rng(0)
    for folder, count in (("domains/one", 6), ("domains/two", 5), ("flat", 7)):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(256, size=(40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
    return tmp_path


def test_fitted_attributes(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    source = brief()
    assert source.fit(x, sample_domain=domain) is source
    assert source.labels_.shape == (64,)
    assert source.labels_.dtype == np.int64
    assert set(source.labels_) <= set(range(4))
    assert source.prototypes_.shape == (4, 16)
    np.testing.assert_array_equal(source.prototypes_, source.model_.prototypes.detach().numpy().T)
    assert source.proportions_.shape == (2, 4)
    np.testing.assert_allclose(source.proportions_.sum(1), 1, rtol=1e-5)
    assert source.domain_names_ == ("a", "b")
    assert [stage.name for stage in source.stages_] == ["learn-source"]
    assert source.n_features_in_ == 6
    np.testing.assert_array_equal(source.predict(x), source.labels_)
    np.testing.assert_array_equal(source.predict(x[::-1]), source.labels_[::-1])


def test_finds_blobs_that_cannot_be_missed(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    found = SourceClustering(
        4, method="pcd", settings={"source_epochs": 60}, random_state=0, accelerator="cpu"
    )
    found.fit(x, sample_domain=domain)
    truth = np.concatenate([np.arange(40) % 4, np.arange(24) % 4])
    pairs = set(zip(found.labels_.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == 4
    assert {label for label, _ in pairs} == set(range(4))


def test_the_same_seed_gives_the_same_model_to_the_bit(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    one, two = (brief().fit(x, sample_domain=domain) for _ in range(2))
    np.testing.assert_array_equal(one.prototypes_, two.prototypes_)
    again = one.fit(x, sample_domain=domain)
    np.testing.assert_array_equal(again.prototypes_, two.prototypes_)
    other = brief(random_state=1).fit(x, sample_domain=domain)
    assert not np.array_equal(other.prototypes_, one.prototypes_)
    assert not np.array_equal(
        *(brief(random_state=None).fit(x).prototypes_ for _ in range(2))  # a seed of its own every time
    )


@pytest.mark.parametrize("kind", [int, np.int8, np.uint64, np.random.RandomState])
def test_every_kind_of_seed_decides(kind: Any, blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    one, two, other = (brief(random_state=kind(seed)).fit(x).prototypes_ for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    if kind is not np.random.RandomState:
        np.testing.assert_array_equal(one, brief(random_state=3).fit(x).prototypes_)


def test_a_random_state_object_gives_another_seed_at_each_fit(blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    source = brief(random_state=np.random.RandomState(3))
    assert not np.array_equal(source.fit(x).prototypes_, source.fit(x).prototypes_)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (True, "not True"),
        (-1, r"lie in \[0, 2\^32\), not -1"),
        (2**32, r"lie in \[0, 2\^32\)"),
        ("a", "not 'a'"),
        (1.5, "not 1.5"),
        (np.random.default_rng(), "not Generator"),
    ],
    ids=str,
)
def test_other_kinds_of_seed_are_refused(wrong: Any, words: str, blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    with pytest.raises(InputError, match=f"^random_state must .*{words}"):
        brief(random_state=wrong).fit(x)


def test_the_global_generators_are_left_alone(blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    state = np.random.get_state()[1].copy()  # noqa: NPY002  (it is the legacy one that is looked at)
    brief().fit(x)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("values", [["x", "y"], [7, -2], [2.5, 1.5], [True, False]])
def test_domains_may_be_any_values(values: list[Any], blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    first, second = sorted(values)
    source = brief().fit(x, sample_domain=np.where(domain == "a", first, second))
    assert source.domain_names_ == (str(first), str(second))
    np.testing.assert_array_equal(source.prototypes_, brief().fit(x, sample_domain=domain).prototypes_)


def test_without_domains_there_is_one(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    alone = brief().fit(x)
    assert alone.proportions_.shape == (1, 4)
    same = brief().fit(x, sample_domain=np.zeros(64, int))
    np.testing.assert_array_equal(alone.prototypes_, same.prototypes_)
    other = brief().fit(x, sample_domain=domain)
    assert not np.array_equal(alone.prototypes_, other.prototypes_)


@pytest.mark.parametrize("wrong", [["a"] * 63, [["a"]] * 64, "a", 3])
def test_domains_that_do_not_fit_are_refused(wrong: Any, blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    with pytest.raises(InputError, match=r"sample_domain must have one entry a sample, \(64,\)"):
        brief().fit(x, sample_domain=wrong)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_clusters": 0}, "n_clusters must be .* an integer of at least 1, not 0"),
        ({"n_clusters": 2.0}, "n_clusters must be .* an integer of at least 1, not 2.0"),
        ({"n_clusters": "4"}, "n_clusters must be .* an integer of at least 1, not '4'"),
        ({"settings": {"epochs": 3}}, "unknown setting 'epochs'"),
        ({"settings": {"epsilon": 0}}, "epsilon: "),
        ({"tune": "tail"}, "tune: "),
        ({"backbone": "resnet18"}, "a named backbone is for folders"),
        ({"settings": {"batch_size": 2}}, "a batch of 2 cannot hold 3 domains"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused_in_fit(
    parameters: dict[str, Any], words: str, blobs: Blobs
) -> None:
    x, _ = two_domains(blobs)
    source = brief(**parameters)  # the constructor only stores
    with pytest.raises(InputError, match=words):
        source.fit(x, sample_domain=np.arange(64) % 3)


def test_not_fitted_and_other_widths_are_refused(blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    for method in (brief().predict, brief().label):
        with pytest.raises(NotFittedError):
            method(x)
    with pytest.raises(ValueError, match="5 features, but SourceClustering is expecting 6"):
        brief().fit(x).predict(x[:, :5])


def test_a_backbone_of_ones_own_is_used_and_left_as_it_was(blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    source = brief(backbone=module_backbone(module, 5), settings=BRIEF | {"learning_rate": 0.1})
    first = source.fit(x)
    prototypes = first.prototypes_
    trained = first.model_.encoder.backbone.state_dict()
    assert not torch.equal(trained["0.weight"], before["0.weight"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    np.testing.assert_array_equal(source.fit(x).prototypes_, prototypes)


def test_a_frozen_backbone_is_not_trained(blobs: Blobs) -> None:
    x, _ = two_domains(blobs)
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    source = brief(backbone=module_backbone(module, 5), tune="head").fit(x)
    trained = source.model_.encoder.backbone.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.items())
    np.testing.assert_array_equal(source.predict(x), source.labels_)  # through the whole model


def test_clones_and_survives_pickling(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    source = brief().fit(x, sample_domain=domain)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source)).predict(x), source.labels_)
    copy = clone(source)
    assert not hasattr(copy, "labels_")
    np.testing.assert_array_equal(copy.fit(x, sample_domain=domain).labels_, source.labels_)


@pytest.mark.parametrize("method", ["pcd", "consensus"])
def test_survives_its_run_folder(method: str, blobs: Blobs, tmp_path: Path) -> None:
    x, domain = two_domains(blobs)
    settings = BRIEF if method == "pcd" else {"starts": 1}
    source = brief(method=method, settings=settings).fit(x, sample_domain=domain)
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


def test_only_a_finished_source_run_is_loaded(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        brief().save(tmp_path / "run")
    with pytest.raises(InputError, match="is not a run folder"):
        SourceClustering.load(tmp_path)
    TargetClustering(4, settings={"starts": 1}).fit(two_domains(blobs)[0]).save(tmp_path / "target")
    with pytest.raises(InputError, match="a model of role 'target', and only one of role 'source'"):
        SourceClustering.load(tmp_path / "target")


def test_a_model_with_a_backbone_of_ones_own_is_loaded_with_it(blobs: Blobs, tmp_path: Path) -> None:
    x, _ = two_domains(blobs)
    torch.manual_seed(0)
    source = brief(backbone=module_backbone(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)).fit(x)
    source.save(tmp_path / "run")
    empty = module_backbone(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), 5)
    again = SourceClustering.load(tmp_path / "run", backbone=empty, accelerator="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))


def test_label_names_samples_and_provider(blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    source = brief().fit(x, sample_domain=domain)
    answers = source.label(x[:10], provider="clinic")
    assert answers.ids == tuple(str(i) for i in range(10))
    assert (answers.n_clusters, answers.provider) == (4, "clinic")
    # Ten samples are too few to be seen from their own mean.
    np.testing.assert_array_equal(answers.labels, source.predict(x[:10]))


def test_label_gives_what_the_function_gives_for_the_saved_run(blobs: Blobs, tmp_path: Path) -> None:
    x, domain = two_domains(blobs)
    source = brief(method="consensus", settings={"starts": 1}).fit(x, sample_domain=domain)
    source.save(tmp_path / "run")
    shifted = blobs({"t": 40})["t"] + np.float32([20, 0, 0, 0, 0, 0])
    np.save(tmp_path / "shifted.npy", shifted)
    answers, expected = source.label(shifted), ucds.label(tmp_path / "run", tmp_path / "shifted.npy")
    np.testing.assert_array_equal(answers.labels, expected.labels)
    assert answers.contents == expected.contents
    assert not np.array_equal(answers.labels, source.predict(shifted))  # from the model's mean


def test_folders_of_images(pictures: Path) -> None:
    source = brief(3, **EDGES).fit(pictures / "domains")
    assert source.domain_names_ == ("one", "two")
    assert source.labels_.shape == (11,)
    assert source.ids_[:2] == ("one/0.png", "one/1.png")
    np.testing.assert_array_equal(source.predict(str(pictures / "domains")), source.labels_)


def test_a_targets_folder_needs_no_domain_folders_to_be_labelled(pictures: Path) -> None:
    source = brief(3, **EDGES).fit(pictures / "domains")
    answers = source.label(pictures / "flat")
    assert answers.ids == tuple(f"{i}.png" for i in range(7))
    again = source.label(pictures / "domains")
    assert again.ids == source.ids_
    np.testing.assert_array_equal(again.labels, source.labels_)


def test_folders_and_arrays_are_not_mixed_up(pictures: Path, blobs: Blobs) -> None:
    x, domain = two_domains(blobs)
    on_images = brief(3, **EDGES).fit(pictures / "domains")
    with pytest.raises(InputError, match="fitted on images"):
        on_images.predict(x)
    on_vectors = brief().fit(x)
    with pytest.raises(InputError, match="takes embeddings of width 6"):
        on_vectors.predict(pictures / "domains")
    with pytest.raises(InputError, match="sample_domain is for arrays"):
        brief(**EDGES).fit(pictures / "domains", sample_domain=domain)
    with pytest.raises(InputError, match="takes arrays: name one"):
        brief(backbone=module_backbone(nn.Linear(6, 5), 5)).fit(pictures / "domains")
    with pytest.raises(InputError, match="There is no folder"):
        brief(**EDGES).fit(pictures / "absent")


@pytest.mark.parametrize("wrong", [np.nan, None])
def test_a_domain_that_is_not_a_number_is_refused(wrong: Any, blobs: Blobs) -> None:
    x = np.concatenate(list(blobs({"a": 40, "b": 24}).values()))
    domain = [0.0] * 40 + [np.nan] * 24
    with pytest.raises(InputError, match="sample_domain holds NaN or None"):
        brief().fit(x, sample_domain=["a"] * 40 + [None] * 24)
    with pytest.raises(InputError, match="sample_domain holds NaN or None"):
        brief().fit(x, sample_domain=domain if wrong is not None else np.array(["a", *domain[1:]], object))


def test_domains_of_several_kinds_are_told_apart_by_their_names(blobs: Blobs) -> None:
    x = np.concatenate(list(blobs({"a": 40, "b": 24}).values()))
    source = brief().fit(x, sample_domain=np.array([1] * 40 + ["b"] * 24, object))
    assert source.domain_names_ == ("1", "b")
