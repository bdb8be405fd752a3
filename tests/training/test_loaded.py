"""Tests of a trained model in Python: what it returns."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ucds.encoders.encoder import IdentityEncoder
from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES
from ucds.training.loaded import FEWEST_TO_CENTRE, Model
from ucds.training.model_file import StoredModel
from ucds.training.options import Compute

K = 3
PICTURES = find_graph(EDGES, image_size=28)
PIXELS = np.random.default_rng(0).integers(256, size=(4, 40, 40, 3), dtype=np.uint8)
VECTORS = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)


Make = Callable[..., Model]


@pytest.fixture
def made(stored_model: Callable[..., StoredModel], tmp_path: Path) -> Make:
    """Make a model with a cache of its own."""
    compute = Compute("cpu", cache=tmp_path / "cache")
    return lambda encoder, **card: Model(stored_model(encoder, K, 7, domains=("a",), **card), compute)


@pytest.fixture
def of_vectors(made: Make) -> Model:
    return made(IdentityEncoder(5))


@pytest.fixture(params=["head", "full"])
def of_images(made: Make, request: pytest.FixtureRequest) -> Model:
    return made(PICTURES, tune=request.param)


def test_decisions_are_the_most_probable_clusters(of_images: Model, of_vectors: Model) -> None:
    many = np.random.default_rng(2).normal(size=(1000, 5)).astype(np.float32)
    for model, source in ((of_images, np.repeat(PIXELS, 20, axis=0)), (of_vectors, many)):
        data = model.open(source)
        for recentred in (False, True):
            probabilities = model.outputs(data, recentred=recentred)[1]
            clusters, confidence = model.decide(data, recentred=recentred)
            assert clusters.dtype == np.int64
            np.testing.assert_array_equal(clusters, probabilities.argmax(1))
            np.testing.assert_array_equal(confidence, probabilities.max(1))


def test_the_answers_of_a_model_of_vectors_by_hand(of_vectors: Model) -> None:
    head = of_vectors.stored.head
    features = VECTORS @ head.weight.T + head.bias
    logits = features @ head.prototypes
    powers = np.exp(logits)
    probabilities = of_vectors.predict_proba(VECTORS)
    np.testing.assert_allclose(probabilities, powers / powers.sum(1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(of_vectors.predict(VECTORS), logits.argmax(1))
    np.testing.assert_array_equal(of_vectors.confidence(VECTORS), probabilities.max(1))
    np.testing.assert_allclose(of_vectors.transform(VECTORS), features, atol=1e-5)
    assert of_vectors.predict(VECTORS).dtype == np.int64
    assert probabilities.dtype == of_vectors.transform(VECTORS).dtype == np.float32
    assert (of_vectors.n_clusters, of_vectors.role) == (K, "target")


@pytest.mark.parametrize("count", [FEWEST_TO_CENTRE - 1, FEWEST_TO_CENTRE, 5000])
@pytest.mark.parametrize("recentres", [True, False])
def test_many_samples_of_one_domain_are_seen_from_their_own_mean_if_the_model_gains(
    count: int, recentres: bool, made: Make
) -> None:
    model = made(IdentityEncoder(5), unit_features=True, recentres=recentres)
    vectors = np.random.default_rng(2).normal(1, size=(count, 5)).astype(np.float32)
    data = model.open(vectors)
    plain, seen = model.outputs(data)[1], model.outputs(data, recentred=True)[1]
    np.testing.assert_array_equal(model.predict_proba(vectors), plain)
    if not recentres or count < FEWEST_TO_CENTRE:
        np.testing.assert_array_equal(seen, plain)
        return
    # The logits of a head without axes left out, as seen from the mean of these vectors.
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    head = model.stored.head
    powers = np.exp((unit - unit.mean(0)) @ head.weight.T @ head.prototypes)
    np.testing.assert_allclose(seen, powers / powers.sum(1, keepdims=True), atol=1e-5)
    assert np.abs(seen - plain).max() > 0.01
    np.testing.assert_array_equal(model.predict_proba(vectors), plain)  # the model itself is as it was


def test_a_child_answers_as_its_parent_does(
    stored_model: Callable[..., StoredModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model was opened before the fork, and answers in the parent afterwards too."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # a single thread would have nobody to wait for
    pictures = PIXELS.repeat(10, axis=0)
    model = Model(stored_model(PICTURES, 3, 8), Compute("cpu", cache=None))
    before, context = model.transform(pictures), multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=lambda: answers.put(model.transform(pictures)))
    child.start()
    try:
        assert np.allclose(answers.get(timeout=60), before, atol=1e-5)
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert np.array_equal(model.transform(pictures), before)
