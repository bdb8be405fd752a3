"""Tests of `ucds.source.private`: a source model with differential privacy, from samples to its file."""

import csv
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from graph_kit import graph_file
from onnx.helper import make_node
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.metrics import adjusted_rand_score

import ucds
from ucds import InputError, SourceClustering
from ucds.config import ConsensusSettings
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.math.privacy import noise_scale
from ucds.source.private import (
    GaussianNoise,
    number_units,
    public_directions,
    read_groups,
    settle_delta,
    weights_of,
)
from ucds.training.model_file import load_model

needs_opendp = pytest.mark.skipif(find_spec("opendp") is None, reason="OpenDP is not installed")
K, WIDTH = 3, 6


def vectors_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.tile(np.arange(K), count)
    return (np.eye(WIDTH)[truth] + 0.1 * rng.standard_normal((K * count, WIDTH))).astype(np.float32), truth


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, np.ndarray]:
    vectors, truth = vectors_of(400)
    np.savez(tmp_path / "data.npz", a=vectors[::2], b=vectors[1::2])
    return tmp_path / "data.npz", np.concatenate([truth[::2], truth[1::2]])


@needs_opendp
def test_a_private_model_finds_the_groups_and_carries_its_claim(
    tmp_path: Path, data: tuple[Path, np.ndarray]
) -> None:
    path, truth = data
    settings = ConsensusSettings(dp_epsilon=8.0)
    ucds.train_source(path, tmp_path / "run", K, settings=settings)
    stored = load_model(tmp_path / "run", role="source")
    assert stored.card.privacy == "epsilon 8.0, delta 1e-05, for each image"
    probabilities = ucds.load(tmp_path / "run", compute=ucds.Compute("cpu")).predict_proba(
        np.concatenate(list(np.load(path).values()))
    )
    assert adjusted_rand_score(truth, probabilities.argmax(1)) > 0.95
    # Nothing in the file but what was paid for, and not from where the samples would be seen.
    assert stored.arrays.keys() == {"head.weight", "head.bias", "head.prototypes", "proportions"}


@needs_opendp
def test_the_noise_does_not_come_from_the_seed() -> None:
    vectors, _ = vectors_of(50)
    first, second = (
        SourceClustering(K, settings={"dp_epsilon": 1.0}, random_state=0, accelerator="cpu").fit(vectors)
        for _ in range(2)
    )
    assert not np.array_equal(first.prototypes_, second.prototypes_)


@needs_opendp
def test_noise_has_its_scale_and_is_accounted_for() -> None:
    noise = GaussianNoise()
    found = noise(np.full(4000, 7.0), noise_scale(0.02)) - 7
    assert found.std() == pytest.approx(5.0, rel=0.06)
    assert abs(found.mean()) < 0.4
    assert noise.spent == pytest.approx(0.02)


def exact_epsilon(rho: float, delta: float) -> float:
    """Return epsilon of one Gaussian release (Balle and Wang, 2018), which no valid account is below."""
    shift = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        near, far = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
        return float(norm.cdf(near) - math.exp(epsilon + norm.logcdf(far)) - delta)

    return float(brentq(excess, 0, 1e3, xtol=1e-12))


@needs_opendp
@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-5), (0.02, 1e-4), (0.5, 1e-5), (1.0, 1e-6)])
def test_epsilon_is_never_below_the_exact_one_and_not_far_above(rho: float, delta: float) -> None:
    exact, ours = exact_epsilon(rho, delta), GaussianNoise().epsilon_of(rho, delta)
    assert exact < ours < 1.15 * exact
    assert ours < rho + 2 * math.sqrt(rho * math.log(1 / delta))  # the simpler bound of Bun and Steinke


@needs_opendp
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-300), (8.0, 1e-5), (1e3, 1e-9), (1e3, 0.5)])
def test_the_budget_of_an_epsilon_is_used_up_and_not_exceeded(epsilon: float, delta: float) -> None:
    noise = GaussianNoise()
    assert epsilon * (1 - 1e-6) <= noise.epsilon_of(noise.rho_of(epsilon, delta), delta) <= epsilon


@needs_opendp
def test_persons_are_protected_where_groups_are_given(tmp_path: Path, data: tuple[Path, np.ndarray]) -> None:
    path, truth = data
    with (tmp_path / "g.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "group"), *((i, i % 300) for i in range(len(truth)))])
    settings = ConsensusSettings(dp_epsilon=8.0, dp_delta=1e-3)
    ucds.train_source(path, tmp_path / "run", K, settings=settings, groups=tmp_path / "g.csv")
    card = load_model(tmp_path / "run").card
    assert card.privacy == "epsilon 8.0, delta 0.001, for each person"


@needs_opendp
def test_what_does_not_fit_is_refused(tmp_path: Path, data: tuple[Path, np.ndarray]) -> None:
    path, _ = data
    (tmp_path / "g.csv").write_text("id,group\n0,Ann\n")
    with pytest.raises(InputError, match="give `dp_epsilon` as well"):
        ucds.train_source(path, tmp_path / "a", K, groups=tmp_path / "g.csv")
    settings = ConsensusSettings(dp_epsilon=1.0, dp_delta=0.01)
    with pytest.raises(InputError, match="larger than 1 / 1,200"):
        ucds.train_source(path, tmp_path / "b", K, settings=settings)
    assert not (tmp_path / "b" / "model.safetensors").exists()


SAMPLES = VectorSamples(np.array([[1.0, 0], [1, 0], [0, 1], [0, 2]]), ids=["a", "b", "c", "d"])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_images_of_a_person_and_the_copies_of_an_image_share_a_weight_of_one(tmp_path: Path) -> None:
    groups = read_groups(write(tmp_path / "g.csv", "id,group\na,Ann\nb,Bob\nc,Bob\nd,Bob\nmore,Eve\n"))
    np.testing.assert_allclose(weights_of(number_units(SAMPLES, groups)), [1, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(weights_of(number_units(SAMPLES, None)), [0.5, 0.5, 1, 1])
    with pytest.raises(InputError, match="no group for 3 of 4 images, such as 'b'"):
        number_units(SAMPLES, {"a": "Ann"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,person\na,Ann\n", "has no columns id and group"),
        ("id,group\na,Ann\nb,\n", "row 2 of .* has no text in the column id or group"),
        ("id,group\na,Ann\na,Bob\n", "several groups: Ann and Bob"),
    ],
)
def test_a_file_of_groups_that_is_wrong_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_groups(write(tmp_path / "g.csv", text))
    with pytest.raises(InputError, match="There is no file"):
        read_groups(tmp_path / "none.csv")


def test_delta_is_at_most_one_over_what_is_protected() -> None:
    units = np.arange(50)
    assert settle_delta(None, units, "image") == 1e-5
    assert settle_delta(0.02, units, "image") == 0.02
    with pytest.raises(InputError, match=r"larger than 1 / 50, one per protected person"):
        settle_delta(0.03, units, "person")


def graph_of(*layers: tuple[str, np.ndarray], width: int) -> GraphEncoder:
    """A graph of linear layers, by the operator and the weights of each."""
    names = ["x", *(f"y{number}" for number in range(len(layers)))]
    nodes = [
        make_node(operator, [names[number], f"w{number}"], [names[number + 1]])
        for number, (operator, _) in enumerate(layers)
    ]
    weights = {f"w{number}": one.astype(np.float32) for number, (_, one) in enumerate(layers)}
    content = graph_file(nodes, {names[-1]: ["n", width]}, weights)
    return GraphEncoder(content, EncoderSpec("layers", width, 8), "file")


def test_directions_are_those_in_which_the_last_layer_moves_the_features_most() -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    last = axes @ np.diag([1.0, 5, 3, 2, 0.5, 4])
    found = public_directions(graph_of(("MatMul", rng.normal(size=(8, 6))), ("MatMul", last.T), width=6))
    assert found is not None
    np.testing.assert_allclose(np.abs((found * axes[:, [1, 5, 2, 3, 0, 4]]).sum(0)), np.ones(6), atol=1e-5)


def test_filters_count_as_weights_of_their_output() -> None:
    filters = np.random.default_rng(0).normal(size=(300, 3, 5, 5))
    found = public_directions(graph_of(("Conv", filters), width=300))
    assert found is not None
    assert found.shape == (300, 75)  # no more than the layer has inputs
    np.testing.assert_allclose(found.T @ found, np.eye(75), atol=1e-12)


def test_an_encoder_without_such_a_layer_has_none() -> None:
    assert public_directions(IdentityEncoder(6)) is None
    assert public_directions(graph_of(("MatMul", np.ones((8, 5))), width=6)) is None
