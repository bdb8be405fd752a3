"""Tests of `ucds.source.domains`, the provider's part of the consensus; and of PCD with many samples."""

from typing import Any

import numpy as np
import pytest
from quick import quick
from sklearn.metrics import adjusted_rand_score

from ucds import InputError, SourceClustering
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.source.train import fit_source
from ucds.training.fitting import encode
from ucds.training.options import Compute, RunOptions
from ucds.training.run import make_work

K, WIDTH = 4, 8


def shifted(sizes: list[list[int]], seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, groups and domains, all interleaved; domains lie further apart than groups."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts in sizes])
    domain = np.repeat(np.arange(len(sizes)), [sum(counts) for counts in sizes])
    order = rng.permutation(len(truth))
    truth, domain = truth[order], domain[order]
    centres, shifts = np.eye(WIDTH)[:K], 5 * np.eye(WIDTH)[K:]
    vectors = centres[truth] + shifts[domain] + 0.05 * rng.normal(size=(len(truth), WIDTH))
    return vectors.astype(np.float32), truth, domain


def source(**settings: Any) -> SourceClustering:
    return SourceClustering(K, settings=quick(**settings), random_state=0, accelerator="cpu")


BALANCED = [[20] * K, [15] * K]


def test_of_large_domains_some_samples_are_clustered_and_all_get_a_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    vectors, truth, domain = shifted([[100] * K, [5] * K])
    found = source(most_samples=100).set_params(verbose=True).fit(vectors, sample_domain=domain)
    assert found.stages_[0].assignments.shape == (100 + 20, K)
    told = "the model agrees with the clustering on"
    assert told in capsys.readouterr().err
    alone = source(most_samples=100).fit(vectors[domain == 0])
    assert adjusted_rand_score(truth[domain == 0], alone.labels_) == 1
    source(most_samples=400).set_params(verbose=True).fit(vectors, sample_domain=domain)
    assert told not in capsys.readouterr().err  # where none was left out


def test_the_model_answers_from_the_mean_of_the_domains() -> None:
    """A small shift only: one query's domain is not known, so a large one is not taken away."""
    vectors, truth, domain = shifted(BALANCED)
    vectors[:, K:] *= 0.05
    found = source().fit(vectors, sample_domain=domain)
    assert adjusted_rand_score(truth, found.labels_) == 1
    alone = [int(found.predict(vectors[i : i + 1])[0]) for i in range(8)]
    np.testing.assert_array_equal(alone, found.labels_[:8])  # whatever else is asked
    np.testing.assert_array_equal(found.predict(9 * vectors), found.labels_)


def test_a_domain_of_fewer_samples_than_clusters_is_refused_by_name() -> None:
    vectors, _, domain = shifted([[20] * K, [1] * (K - 1)])
    with pytest.raises(InputError, match="domain 'second' has 3 samples, .* into 4 clusters: leave it out"):
        source().fit(vectors, sample_domain=np.array(["first", "second"])[domain])


def test_the_seed_decides() -> None:
    _, _, domain = shifted(BALANCED)
    vectors = np.random.default_rng(3).normal(size=(len(domain), WIDTH)).astype(np.float32)
    one, again = (source().fit(vectors, sample_domain=domain) for _ in range(2))
    np.testing.assert_array_equal(one.prototypes_, again.prototypes_)
    other = source().set_params(random_state=1).fit(vectors, sample_domain=domain)
    assert not np.array_equal(one.prototypes_, other.prototypes_)


@pytest.mark.parametrize("fraction", [0.0, 0.5])
@pytest.mark.torch
def test_with_pcd_some_of_many_samples_choose_the_model(blobs: Any, fraction: float) -> None:
    data = Dataset(VectorSamples.from_arrays(blobs({"a": 400, "b": 40})))
    settings = PCDSettings(
        bottleneck_width=8, batch_size=20, source_epochs=2, most_samples=100, validation_fraction=fraction
    )
    work = make_work(settings, RunOptions(), Compute("cpu", cache=None))
    found = fit_source(work, IdentityEncoder(data.samples.rows.shape[1]), data, K)
    (stage,) = found.stages
    counted = 100 + (40 if fraction == 0 else 20)  # 100 of 400 or 200, and all of the small domain
    assert stage.evaluations[-1].step == 2 * counted // 20
    assert {len(one.labels) for one in stage.evaluations} == {counted}
    clusters = found.head.logits(encode(found.head, data)).argmax(1)
    assert len(np.unique(clusters)) > 1
