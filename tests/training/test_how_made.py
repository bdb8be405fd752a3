"""A run tells how it was made, and an estimator that is loaded from it makes the same model again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick
from sklearn.base import clone

import ucds
from ucds import ConsensusSettings, PCDSettings, SourceClustering, TargetClustering
from ucds.config import MethodSettings
from ucds.encoders.encoder import Encoder, FunctionEncoder, IdentityEncoder
from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES
from ucds.training.model_file import save_model
from ucds.training.run import how_made

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

Data = dict[str, Any]
PCD = pytest.mark.torch
BRIEF = {"source_epochs": 2, "bottleneck_width": 16}
SEVEN = ucds.RunOptions(seed=7)


@pytest.fixture
def x(blobs: Callable[..., Data]) -> Any:
    return blobs({"t": 38})["t"]  # too few for a second opinion on four clusters


@pytest.fixture(scope="module")
def made(blobs: Callable[..., Data], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a client who gave little."""
    given: Data = {"n_clusters": "2..4", "settings": quick(), "options": SEVEN}
    return ucds.train_target(blobs({"t": 38})["t"], tmp_path_factory.mktemp("made") / "run", **given).folder


@pytest.fixture
def images(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    return write_images(tmp_path / "images", [f"{i}.png" for i in range(9)])[0].parent


@pytest.mark.parametrize(
    ("kind", "parameters", "also"),
    [
        (TargetClustering, {"random_state": 3, "settings": {"starts": 2}}, {}),
        (TargetClustering, {"random_state": None, "n_clusters": "2..4", "settings": quick()}, {}),
        (TargetClustering, {"settings": quick(transfer="equal")}, {"source_labels": True}),
        (SourceClustering, {"settings": quick(starts=2, whitening=0.25)}, {"sample_domain": True}),
        pytest.param(
            *(SourceClustering, {"method": "pcd", "settings": BRIEF}, {"sample_domain": True}), marks=PCD
        ),
        pytest.param(TargetClustering, {"settings": PCDSettings(refinement_epochs=2)}, {}, marks=PCD),
    ],
)
def test_a_clone_of_a_loaded_estimator_makes_the_same_file_again(
    kind: Any, parameters: dict[str, Any], also: dict[str, bool], x: Any, tmp_path: Path
) -> None:
    given = {name: np.arange(38) % 4 for name in also}
    kind(**{"n_clusters": 4, "accelerator": "cpu", **parameters}).fit(x, **given).save(tmp_path / "run")
    loaded = kind.load(tmp_path / "run", accelerator="cpu")
    clone(loaded).fit(x, **given).save(tmp_path / "again")
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again"))
    assert one == other


def test_a_loaded_estimator_has_the_parameters_of_its_run(made: Path) -> None:
    found = TargetClustering.load(made, accelerator="cpu").get_params()
    assert {name: found[name] for name in ("method", "n_clusters", "random_state", "settings", "tune")} == {
        "method": "consensus",
        "n_clusters": "2..4",
        "random_state": 7,
        "settings": quick(),
        "tune": "head",
    }
    assert (found["accelerator"], found["backbone"]) == ("cpu", None)
    assert TargetClustering.load(made, random_state=8).get_params()["random_state"] == 8


def test_a_frozen_encoder_of_images_is_a_parameter_as_the_run_holds_it(images: Path, tmp_path: Path) -> None:
    encoder = ucds.EncoderOptions(EDGES, image_size=28)  # a size that no parameter of the estimator has
    compute = ucds.Compute("cpu", cache=tmp_path / "cache")
    given: dict[str, Any] = {"encoder": encoder, "compute": compute, "settings": quick()}
    ucds.train_target(images, tmp_path / "run", n_clusters=3, **given)
    loaded = TargetClustering.load(tmp_path / "run", cache=tmp_path / "cache")
    again = clone(loaded).fit(images)
    assert again.stored_.card.encoder == loaded.stored_.card.encoder
    np.testing.assert_array_equal(again.prototypes_, loaded.prototypes_)


@pytest.mark.torch
def test_a_network_that_was_trained_starts_from_where_it_started(images: Path, tmp_path: Path) -> None:
    brief = {"refinement_epochs": 1, "bottleneck_width": 8, "evaluations_per_stage": 1}
    parameters = {"method": "pcd", "settings": brief, "cache": tmp_path, "accelerator": "cpu"}
    backbone = {"backbone": "test_resnet", "weights": "none", "random_state": 0}
    TargetClustering(2, **backbone, **parameters).fit(images).save(tmp_path / "run")
    loaded = TargetClustering.load(tmp_path / "run", cache=tmp_path, accelerator="cpu")
    assert {name: loaded.get_params()[name] for name in backbone} == backbone
    np.testing.assert_array_equal(clone(loaded).fit(images).prototypes_, loaded.prototypes_)


def test_run_json_the_card_and_the_model_say_the_same(made: Path) -> None:
    described, model = json.loads((made / "run.json").read_text()), ucds.load(made)
    making = asdict(model.stored.card.making)
    assert {name: described[name] for name in making} == making
    assert (described["tune"], described["encoder"]["name"]) == ("head", model.encoder.spec.name)
    assert (model.method, model.settings, model.tune, model.seed) == ("consensus", quick(), "head", 7)
    assert model.versions["scipy"] == version("scipy")


def test_a_reviewed_run_says_how_the_first_one_was_made(made: Path, tmp_path: Path) -> None:
    review = ucds.Review(shutil.copytree(made, tmp_path / "run"))
    review.join([0, 1])
    reviewed = ucds.load(review.finish(tmp_path / "reviewed").path)
    assert (reviewed.method, reviewed.seed) == ("consensus", 7)
    assert reviewed.stored.card.stages[-1] == "review"


ALWAYS = {"python", "ucds", "numpy", "scipy", "scikit-learn"}
EDGES_GRAPH = find_graph(EDGES)
assert EDGES_GRAPH is not None
PRIVATE = ConsensusSettings(dp_epsilon=8)


@pytest.mark.parametrize(
    ("encoder", "settings", "more"),
    [
        (IdentityEncoder(4), ConsensusSettings(), set()),
        (IdentityEncoder(4), PRIVATE, {"opendp"}),
        (FunctionEncoder(np.sin, 4, input_size=32), ConsensusSettings(), {"pillow"}),
        (EDGES_GRAPH, ConsensusSettings(), {"pillow", "onnxruntime"}),
        pytest.param(IdentityEncoder(4), PCDSettings(), {"torch", "lightning-fabric"}, marks=PCD),
        pytest.param(
            *(EDGES_GRAPH, PCDSettings(), {"pillow", "onnxruntime", "torch", "lightning-fabric"}), marks=PCD
        ),
    ],
)
def test_versions_are_those_of_what_computed(
    encoder: Encoder, settings: MethodSettings, more: set[str]
) -> None:
    made = how_made("source", "3", encoder, settings, 0, "32-true")
    assert made.clusters == 3  # whatever type it came in
    assert made.versions.keys() == ALWAYS | more
    assert all(found == version(name) for name, found in made.versions.items() if name != "python")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "library"), [("torchvision/squeezenet1_1", "torchvision"), ("test_resnet", "timm")]
)
def test_versions_of_a_network_are_those_of_its_library(name: str, library: str) -> None:
    network = ucds.build_network(name, weights="none", input_size=32)
    made = how_made("target", 3, network, ConsensusSettings(), 0, "32-true")
    assert made.versions.keys() == ALWAYS | {"torch", "pillow", library}


def test_a_model_is_written_in_the_same_bytes_each_time(
    stored_model: Callable[..., Any], tmp_path: Path
) -> None:
    stored = stored_model(IdentityEncoder(5), 3, 7)
    for number in range(8):
        save_model(tmp_path / str(number), stored)
    assert len({path.read_bytes() for path in tmp_path.glob("*/model.safetensors")}) == 1
