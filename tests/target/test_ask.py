"""Tests of `ucds.target.ask`: which samples are asked about, given those that have a label already."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ucds.data.dataset import Dataset
from ucds.data.samples import subset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import InputError
from ucds.labels.client import LabelClient
from ucds.labels.questions import open_questions
from ucds.target.ask import choose_spread, query, select_spread
from ucds.training.options import Compute, EncoderOptions


@pytest.fixture
def data(blobs: Any) -> Dataset:
    array = blobs({"x": 40})["x"]
    return Dataset(VectorSamples(np.concatenate([array, array[:10]])))


def _choose(data: Dataset, count: int, known: list[int], seed: int = 0) -> list[int]:
    encoder = IdentityEncoder(data.samples.read(np.array([0])).shape[1])
    choose = choose_spread(data, encoder, Compute("cpu", cache=None), seed, count)
    return list(choose(set(known)))


def test_copies_come_along_after_all_that_is_asked_about(data: Dataset) -> None:
    chosen = _choose(data, 100, [])
    assert sorted(chosen[:40]) == list(range(40))
    assert chosen[40:] == list(range(40, 50))


def test_a_choice_that_was_begun_is_gone_on_with(data: Dataset) -> None:
    chosen = _choose(data, 8, [])
    assert sorted(_choose(data, 8, chosen[:3])) == sorted(chosen)


def test_labels_from_elsewhere_count(data: Dataset) -> None:
    mine = _choose(data, 6, [])
    other = [i for i in range(10, 40) if i not in mine][:4]
    chosen = _choose(data, 6, other)
    distinct = [i for i in chosen if i < 40]
    assert distinct[:4] == sorted(other)
    assert len(set(distinct)) == 6
    assert _choose(data, 3, other) == sorted(other)


def test_only_samples_that_can_be_sent_are(data: Dataset) -> None:
    assert open_questions(data.samples).ids == data.samples.ids
    with pytest.raises(InputError, match="only image files and embeddings"):
        open_questions(subset(data.samples, [0, 1]))


def _groups(sizes: list[int], width: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(sizes), width))
    group = np.repeat(np.arange(len(sizes)), sizes)
    return (centres[group] + 0.05 * rng.normal(size=(len(group), width))).astype(np.float32), group


@pytest.mark.parametrize("seed", range(2))
def test_one_query_a_group_reaches_even_the_small_groups(seed: int) -> None:
    features, group = _groups([500, 3, 200, 5, 50, 4, 300, 3])
    assert set(group[select_spread(features, 8, seed)]) == set(range(8))


def test_it_is_a_function_of_the_seed_and_begins_alike() -> None:
    features, _ = _groups([40, 40, 40])
    short, long = select_spread(features, 10, 7), select_spread(features, 30, 7)
    assert long[:10].tolist() == short.tolist()
    assert select_spread(features, 10, 7).tolist() == short.tolist()
    assert select_spread(features, 10, 8).tolist() != short.tolist()


@pytest.mark.parametrize("given", [{"encoder": EncoderOptions("ucds/oriented_edges")}, {"seed": 3}])
def test_what_would_choose_samples_is_refused_where_all_are_asked_about(
    given: dict[str, Any], tmp_path: Path
) -> None:
    client = LabelClient("http://127.0.0.1:1", "key")
    with pytest.raises(InputError, match="without `max_queries`, "):
        query(np.eye(4), tmp_path / "labels.json", client, **given)
    assert not list(tmp_path.iterdir())
