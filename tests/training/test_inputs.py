"""Tests of opening images and embeddings for training and for prediction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ucds.choices import IMAGENET_STD, Role
from ucds.data.dataset import Dataset, ImageView, View
from ucds.data.sources import find_samples
from ucds.encoders.encoder import FunctionEncoder, IdentityEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError
from ucds.training.inputs import Inputs, open_for_prediction, open_for_training, view_for
from ucds.training.options import BulkOptions, Compute, EncoderOptions

ENCODER = EncoderOptions("ucds/oriented_edges", "none", 32)
IMAGES = EncoderSpec("ucds/oriented_edges", 128, input_size=28)
VECTORS = IdentityEncoder(5).spec


@pytest.fixture
def folder(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Path:
    """Two domains of three and two images."""
    write_images(tmp_path / "data", ["one/0.png", "one/1.png", "one/2.png", "two/0.png", "two/1.png"])
    return tmp_path / "data"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", one=np.ones((3, 5), np.float32), two=np.zeros((2, 5), np.float32))
    return tmp_path / "x.npz"


def training(path: Path, side: Role, encoder: EncoderOptions = ENCODER, **options: Any) -> Inputs:
    domains = options.pop("domains", None)
    found = find_samples(path, by_domain=side == "source", domains=domains)
    return open_for_training(found, encoder, Compute(cache=path.parent / "cache"), **options)


def prediction(source: Any, spec: EncoderSpec, side: Role = "target", cache: Path | None = None) -> Dataset:
    encoder = IdentityEncoder(1)  # what it computes plays no part
    encoder.spec = spec
    return open_for_prediction(source, encoder, side, Compute(cache=cache))


def test_a_source_has_a_domain_a_folder_and_a_target_is_one(folder: Path) -> None:
    source, target = training(folder, "source"), training(folder, "target")
    assert source.data.samples.domain_names == ("one", "two")
    assert source.data.samples.domain.tolist() == [0, 0, 0, 1, 1]
    assert target.data.samples.domain_names == ("data",)
    assert training(folder, "source", domains=["two"]).data.samples.ids == ("two/0.png", "two/1.png")
    assert source.encoder.spec.input_size == 32
    raw = source.data.samples.read(np.arange(2))
    assert raw.shape == (2, 3, round(32 * 256 / 224), round(32 * 256 / 224))
    assert source.data.view.test(raw).shape == (2, 3, 32, 32)


def test_the_identity_changes_with_data_and_encoder(archive: Path, folder: Path) -> None:
    known = [
        training(archive, "source", EncoderOptions()),
        training(folder, "source"),
        training(folder, "source", domains=["one"]),
        training(folder, "source", EncoderOptions("ucds/oriented_edges", "none", 64)),
    ]
    assert len({str(inputs.identity) for inputs in known}) == 4
    assert training(folder, "source").identity == known[1].identity


def test_a_trained_model_takes_folders_and_files(folder: Path, archive: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert prediction(folder, IMAGES, "source", cache).samples.domain_names == ("one", "two")
    opened = prediction(str(folder), IMAGES, cache=cache)
    assert len(opened.samples) == 5
    assert opened.samples.read(np.arange(1)).shape[-1] == IMAGES.stored_size == 32
    files = [folder / "two" / "1.png", folder / "one" / "0.png"]
    listed = prediction(files, IMAGES, cache=cache).samples
    assert listed.ids == tuple(map(str, files))
    assert np.array_equal(listed.read(np.array([1]))[0], opened.samples.read(np.array([0]))[0])
    assert len(prediction(archive, VECTORS, "source").samples) == 5


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        (np.ones((3, 5)), IMAGES, "this model takes images, not the embeddings in the input"),
        (np.ones((3, 4)), VECTORS, "the input has vectors of width 4; the model takes 5"),
        (np.zeros((3, 8, 8, 3), np.uint8), VECTORS, "takes embeddings of width 5, not the images"),
        (["a.png"], VECTORS, "takes embeddings of width 5, not the images"),
        (np.ones((3, 8, 8, 3)), IMAGES, "image 0 is neither a PIL image nor an array"),
        ([[1.0] * 5, [2.0]], VECTORS, "neither images, image files nor embeddings"),
        ([{"a": 1}], VECTORS, "the input has vectors of width 1; the model takes 5"),
        (Image.new("L", (8, 8)), IMAGES, "several samples at a time, not one Image"),
    ],
)
def test_wrong_kinds_are_refused_in_one_line(source: Any, spec: EncoderSpec, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        prediction(source, spec)
    assert "\n" not in str(error.value)


def test_a_function_of_ones_own_may_take_vectors_of_another_width() -> None:
    spec = FunctionEncoder(lambda rows: rows[:, :4], 4).spec
    assert len(prediction(np.ones((2, 9)), spec).samples) == 2


def test_an_encoder_of_ones_own_takes_what_it_was_made_for(folder: Path, archive: Path) -> None:
    of_images = FunctionEncoder(lambda pixels: pixels.mean((2, 3)), input_size=24)
    opened = training(folder, "source", of_images)  # type: ignore[arg-type]
    assert opened.encoder is of_images
    raw = opened.data.samples.read(np.arange(2))
    assert of_images(opened.data.view.test(raw)).shape == (2, 3)
    for path, own in ((archive, of_images), (folder, FunctionEncoder(np.tanh, 5))):
        with pytest.raises(InputError, match="your encoder has (an|no) input_size; the samples are"):
            training(path, "source", own)  # type: ignore[arg-type]


def test_views_follow_the_encoder() -> None:
    assert type(view_for(VECTORS)) is View
    plain = view_for(IMAGES)
    assert isinstance(plain, ImageView)
    assert plain.input_shape == (3, 28, 28)
    other = view_for(EncoderSpec("x", 8, 28, (0.0,) * 3, (1.0,) * 3))  # type: ignore[arg-type]
    raw = np.full((1, 3, 32, 32), 255, np.uint8)
    np.testing.assert_allclose(other.test(raw), np.ones((1, 3, 28, 28)))
    assert not np.array_equal(plain.test(raw), other.test(raw))
    shifted = view_for(EncoderSpec("x", 8, 28, mean=(0.0,) * 3))
    assert isinstance(shifted, ImageView)
    assert (shifted.mean, shifted.std) == ((0.0,) * 3, IMAGENET_STD)
    with pytest.raises(InputError, match="the encoder of embeddings does not take images"):
        _ = VECTORS.stored_size


def test_the_smallest_numbers_of_bulk_work_are_one() -> None:
    BulkOptions(engine="ray", shard_size=1, workers=1)
    for number in ({"shard_size": 0}, {"engine": "ray", "workers": 0}):
        with pytest.raises(InputError, match="must be at least 1"):
            BulkOptions(**number)  # type: ignore[arg-type]


def test_the_cache_is_the_users_own_unless_a_path_or_a_text_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCDS_CACHE", raising=False)
    cache = Compute().cache
    assert cache is not None
    assert cache.name == "ucds"
    assert Compute(cache=str(tmp_path)).cache == tmp_path  # type: ignore[arg-type]
