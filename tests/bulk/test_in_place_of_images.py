"""Tests of a folder of features in place of images: every command takes it, and the results are the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds.config import MethodSettings
from ucds.data.decode import decode_image
from ucds.data.features import FeatureFolder
from ucds.data.folders import scan_domains
from ucds.data.sources import find_samples
from ucds.labels.questions import VectorQuestions, open_questions

K = 3
SLOW = [pytest.mark.slow, pytest.mark.torch]
CPU = ucds.Compute("cpu")
SETTINGS: dict[str, MethodSettings] = {
    "consensus": quick(bottleneck_width=8),
    "pcd": ucds.PCDSettings(
        tune="head", source_epochs=1, clustering_epochs=1, refinement_epochs=1, batch_size=16
    ),
}

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*skipped:ucds.UcdsWarning",
    "ignore:.*duplicate:ucds.UcdsWarning",
    "ignore:stage .* (empty|collapsed):ucds.UcdsWarning",
)


@pytest.fixture(scope="module")
def images(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of ``folder``, one of them twice."""
    root = tmp_path_factory.mktemp("copied") / "images"
    shutil.copytree(folder, root)
    shutil.copy(root / "day" / "01.png", root / "night" / "zz.png")
    return root


@pytest.fixture(scope="module")
def features(images: Path, edges: ucds.EncoderOptions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("features") / "features"
    ucds.features(images, out, encoder=edges, options=ucds.BulkOptions())
    return out


def model(run: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and weights of a model file; the order of the header's entries varies."""
    content = (run / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("consensus", "consensus"),
        *(pytest.param(*both, marks=SLOW) for both in (("consensus", "pcd"), ("pcd", "consensus"))),
    ],
)
def test_both_sides_train_the_same_model(
    source: str,
    target: str,
    images: Path,
    features: Path,
    edges: ucds.EncoderOptions,
    runs: Path,
    tmp_path: Path,
) -> None:
    labels = ucds.label(runs / "source", images, compute=CPU)
    for name, given, encoder in (("images", images, edges), ("features", features, None)):
        place = tmp_path / name
        how = {"encoder": encoder, "compute": ucds.Compute(cache=place / "cache")}
        ucds.train_source(given, place / "source", K, settings=SETTINGS[source], **how)
        ucds.train_target(given, place / "target", labels=labels, settings=SETTINGS[target], **how)
    for side in ("source", "target"):
        assert model(tmp_path / "images" / side) == model(tmp_path / "features" / side)
    assert not (tmp_path / "features" / "cache" / "images").exists()  # nothing is decoded
    found = ucds.predict(tmp_path / "features" / "target", images, compute=CPU)  # a model of images
    assert len(found.ids) == 36


def test_some_domains_can_be_taken(images: Path, features: Path) -> None:
    found = find_samples(features, by_domain=True, domains=["night"])
    assert (found.ids, found.domain_names) == (scan_domains(images, ["night"]).ids, ("night",))
    whole = FeatureFolder(features, by_domain=True)
    rows = whole.read(np.flatnonzero(whole.domain == 1))
    np.testing.assert_array_equal(found.read(np.arange(len(found.ids))), rows)
    with pytest.raises(ucds.InputError, match="has no domain 'dusk'; it has 'day', 'night'"):
        find_samples(features, by_domain=True, domains=["night", "dusk"])


@pytest.mark.parametrize(
    "names",
    [["a/x/1.png", "b/y/2.png", "a b/3.png"], ["kfold/a/1.png", "kfold/b/y/2.png"], ["a/1.png", "loose.png"]],
)
@pytest.mark.filterwarnings("ignore:.* images lie? :ucds.UcdsWarning", "ignore:.* left out:ucds.UcdsWarning")
def test_domains_are_those_of_the_folders(
    names: list[str], folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    pictures = sorted(folder.glob("night/*.png"))
    for name, picture in zip(names, pictures, strict=False):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, tmp_path / "images" / name)
    ucds.features(tmp_path / "images", tmp_path / "out", encoder=edges)
    found = FeatureFolder(tmp_path / "out", by_domain=True)
    expected = scan_domains(tmp_path / "images")
    assert (found.ids, found.domain_names) == (expected.ids, expected.domain_names)
    assert found.domain.tolist() == expected.domain.tolist()


def test_pictures_are_those_of_the_files_and_grey_where_these_are_gone(
    images: Path, features: Path, tmp_path: Path
) -> None:
    shutil.copytree(images, tmp_path / "images")
    (tmp_path / "images" / "day" / "03.png").unlink()
    pictures = FeatureFolder(features, by_domain=False).find_pictures(tmp_path / "images")
    assert pictures is not None
    assert [pictures.paths[position] for position in range(3)] == [f"day/0{i}.png" for i in (1, 3, 5)]
    found = pictures.read(np.array([2, 1, 0]))
    for place, name in ((0, "05"), (2, "01")):
        expected = decode_image((images / "day" / f"{name}.png").read_bytes(), pictures.size)
        np.testing.assert_array_equal(found[place], expected)
    assert (found[1] == 128).all()


def test_labels_clusters_and_scores_are_those_of_the_images(
    images: Path, features: Path, runs: Path, tmp_path: Path
) -> None:
    labels = [ucds.label(runs / "source", given, compute=CPU) for given in (images, features)]
    assert labels[0].fingerprint == labels[1].fingerprint
    assert labels[0].contents == labels[1].contents
    assert len(set(labels[0].labels.tolist())) > 2  # or the comparison would say little
    found = [ucds.predict(runs / "target", given, compute=CPU) for given in (images, features)]
    assert found[0].ids == found[1].ids
    assert found[0].clusters.tolist() == found[1].clusters.tolist()
    np.testing.assert_allclose(found[0].confidence, found[1].confidence, atol=1e-6)
    for number, given in enumerate((images, features)):
        ucds.evaluate(runs / "target", given, tmp_path / f"{number}.json", compute=CPU)
    scores = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (0, 1)]
    assert scores[0] == scores[1]
    assert scores[0]["n_classes"] == 2
    # A service is asked about embeddings.
    questions, samples = open_questions(features), FeatureFolder(features, by_domain=False)
    assert isinstance(questions, VectorQuestions)
    assert questions.ids == samples.ids
    sent = np.frombuffer(questions.read(5).content, "<f4")
    np.testing.assert_array_equal(sent, samples.read(np.array([5]))[0])


def test_features_of_another_encoder_are_refused(
    images: Path, runs: Path, features: Path, tmp_path: Path
) -> None:
    other = ucds.EncoderOptions("ucds/oriented_edges", "none", 32)
    ucds.features(images, tmp_path / "others", encoder=other)
    with pytest.raises(ucds.InputError, match="features of an encoder other than this model's"):
        ucds.label(runs / "source", tmp_path / "others", compute=CPU)
    with pytest.raises(ucds.InputError, match="not for features, which name their encoder"):
        ucds.train_target(features, tmp_path / "run", n_clusters=K, encoder=other)
    assert not (tmp_path / "run").exists()


@pytest.mark.torch
def test_an_encoder_of_features_is_not_trained(features: Path, tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match='`tune="full"` trains the encoder, and .* holds features'):
        ucds.train_target(features, tmp_path / "run", n_clusters=K, settings=ucds.PCDSettings(tune="full"))
    assert not (tmp_path / "run").exists()


def test_damage_is_found(features: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name, message in (
        ("features.json", "is not a usable description of features"),
        ("part-000000.part", "is damaged"),
        ("part-000000.npy", "cannot be read"),
        ("encoder.safetensors", "cannot be read as the encoder of the features"),
    ):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(features, copy)
        (copy / name).write_bytes((copy / name).read_bytes()[:60])
        with pytest.raises(ucds.DamagedFileError, match=message):
            ucds.train_target(copy, tmp_path / "run", n_clusters=K)
