"""Tests of frozen features: computed once, shared, and the same wherever they are kept."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ucds.data.dataset import Dataset
from ucds.data.samples import subset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import Encoder, FunctionEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.files import digest_of
from ucds.training.features import frozen_features
from ucds.training.options import Compute


class Counting(Encoder):
    """A linear encoder that counts its inputs and is interrupted when told."""

    weights = "given"

    def __init__(self, seed: int = 0, name: str = "counting", most: int = 10**9) -> None:
        self.matrix = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
        self.spec, self.seen, self.most = EncoderSpec(name, 3), 0, most

    @property
    def digest(self) -> str:
        return digest_of(self.matrix.tobytes())

    def compute(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.seen + len(inputs) > self.most:
            raise KeyboardInterrupt
        self.seen += len(inputs)
        return (inputs[:, :, None] * self.matrix).sum(1)


def data(n: int = 50, seed: int = 0) -> Dataset:
    array = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    domain = (np.arange(n) % 2).astype(np.int64)
    return Dataset(VectorSamples(array, domain, ("a", "b")))


def values(result: Dataset) -> NDArray[np.float32]:
    return result.samples.read(np.arange(len(result.samples)))


def extract(encoder: Encoder, inputs: Dataset, cache: Path | None, batch_size: int = 16) -> Dataset:
    return frozen_features(encoder, inputs, Compute("cpu", cache=cache), batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1, 49, 50, 1000])
@pytest.mark.parametrize("stored", [True, False])
def test_features_are_those_of_the_encoder(stored: bool, batch_size: int, tmp_path: Path) -> None:
    encoder, inputs = Counting(), data()
    found = extract(encoder, inputs, tmp_path if stored else None, batch_size)
    assert found.samples.ids == inputs.samples.ids
    assert found.samples.domain_names == ("a", "b")
    np.testing.assert_array_equal(found.samples.domain, inputs.samples.domain)
    np.testing.assert_array_equal(values(found), encoder(values(inputs)))
    assert values(found).dtype == np.float32


def test_other_splits_orders_and_names_share_features(tmp_path: Path) -> None:
    whole = extract(Counting(), data(), tmp_path)
    inputs = data()
    chosen = np.array([7, 3, 30, 4])
    array = values(inputs)[chosen]
    renamed = VectorSamples(array, ids=("w", "x", "y", "z"))
    everything = np.arange(50)
    cases = ((inputs.samples, everything), (subset(inputs.samples, chosen), chosen), (renamed, chosen))
    for samples, rows in cases:
        encoder = Counting()
        found = extract(encoder, Dataset(samples), tmp_path)
        assert encoder.seen == 0
        assert np.array_equal(values(found), values(whole)[rows])


def test_only_new_contents_are_computed_each_once(tmp_path: Path) -> None:
    extract(Counting(), data(50), tmp_path)
    old = values(data(50))[:5]
    new = values(data(8, seed=9))
    mixed = VectorSamples(np.concatenate([old, new, new, old]))
    encoder = Counting()
    found = extract(encoder, Dataset(mixed), tmp_path)
    assert encoder.seen == 8
    assert np.array_equal(values(found)[5:13], values(found)[13:21])
    assert np.array_equal(values(found)[:5], values(found)[21:])


def test_other_weights_and_other_architectures_have_features_of_their_own(tmp_path: Path) -> None:
    first = extract(Counting(0), data(), tmp_path)
    others = [Counting(1), Counting(0, "another name")]
    for encoder in others:
        found = extract(encoder, data(), tmp_path)
        assert encoder.seen == 50
        assert found.samples.fingerprint != first.samples.fingerprint
    again = extract(Counting(0), data(), tmp_path)
    assert np.array_equal(values(again), values(first))
    assert again.samples.fingerprint == first.samples.fingerprint


def test_an_interrupted_computation_goes_on(tmp_path: Path) -> None:
    interrupted = Counting(most=32)
    with pytest.raises(KeyboardInterrupt):
        extract(interrupted, data(), tmp_path)
    assert interrupted.seen == 32
    rest = Counting()
    found = extract(rest, data(), tmp_path)
    assert rest.seen == 50 - 32
    assert np.array_equal(values(found), values(extract(Counting(), data(), None)))


def test_functions_of_ones_own_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Two functions have the same description, but not the same features."""
    for function in (np.abs, np.tanh):
        found = extract(FunctionEncoder(function, 4), data(), tmp_path)
        np.testing.assert_array_equal(values(found), function(values(data())))
