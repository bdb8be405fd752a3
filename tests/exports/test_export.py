"""Tests of the scikit-learn object: it computes what the model computes, and opens without this package."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import skops.io
from quick import quick

import ucds
from ucds.encoders.encoder import IdentityEncoder
from ucds.exports.export import as_scikit
from ucds.training.options import Compute, EncoderOptions

OUTSIDE = """
import sys
import numpy, skops.io
path, vectors, out = sys.argv[1:]
assert not skops.io.get_untrusted_types(file=path)
numpy.save(out, skops.io.load(path).predict_proba(numpy.load(vectors)))
assert "ucds" not in sys.modules
"""


@pytest.mark.parametrize("n_clusters", [2, 5])
@pytest.mark.parametrize("unit", [True, False])
def test_the_pipeline_computes_what_the_model_computes(make_model: Any, n_clusters: int, unit: bool) -> None:
    model = make_model(IdentityEncoder(6), n_clusters, unit_features=unit)
    vectors = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    pipeline = as_scikit(model.stored)
    np.testing.assert_allclose(pipeline.predict_proba(vectors), model.predict_proba(vectors), atol=1e-5)
    np.testing.assert_array_equal(pipeline.predict(vectors), model.predict(vectors))
    assert len(set(pipeline.predict(vectors).tolist())) == n_clusters  # not one cluster for all


def test_a_model_of_a_table_is_exported_with_the_place_that_rows_are_seen_from(tmp_path: Path) -> None:
    rows = 5.0 * (np.arange(90) % 3)[:, None] + np.random.default_rng(0).normal(size=(90, 2)) + 4.5e6
    fitted = ucds.TargetClustering(3, settings=quick(), random_state=0, accelerator="cpu").fit(rows)
    fitted.save(tmp_path)
    path = ucds.export(tmp_path, form="sklearn").path
    session = onnxruntime.InferenceSession(ucds.export(tmp_path, form="onnx").path)
    (of_graph, _) = session.run(None, {"embeddings": rows.astype(np.float32)})
    for found in (skops.io.load(path).predict_proba(rows), of_graph):
        np.testing.assert_allclose(found, fitted.predict_proba(rows.astype(np.float32)), atol=0.2)
        np.testing.assert_array_equal(found.argmax(1), fitted.labels_)


def test_it_takes_the_embeddings_of_the_exported_encoder(make_model: Any) -> None:
    model = make_model(EncoderOptions("ucds/oriented_edges").find(Compute("cpu")))
    pixels = np.random.default_rng(0).integers(256, size=(6, 40, 40, 3), dtype=np.uint8)
    data = model.open(pixels)
    embeddings = model.stored.encoder(data.view.test(data.samples.read(np.arange(6))))
    found = as_scikit(model.stored).predict_proba(embeddings)
    np.testing.assert_allclose(found, model.predict_proba(pixels), atol=1e-5)


@pytest.mark.slow
def test_the_file_is_opened_without_this_package(make_model: Any, tmp_path: Path) -> None:
    model = make_model(IdentityEncoder(6))
    vectors = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", vectors)
    done = ucds.export(model, tmp_path / "m.skops", form="sklearn")
    places = [done.path, tmp_path / "x.npy", tmp_path / "p.npy"]
    subprocess.run([sys.executable, "-c", OUTSIDE, *map(str, places)], check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), model.predict_proba(vectors), atol=1e-5)
    assert skops.io.load(done.path).n_features_in_ == 6
