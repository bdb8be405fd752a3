"""PCD on the client's side where there are more samples than are evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ucds.backbones import identity_backbone
from ucds.config import MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.fit import fit_target
from ucds.training.options import Compute
from ucds.training.prediction import predict
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session

N, K, MOST = 400, 4, 100
SETTINGS = PCDSettings(
    bottleneck_width=8, batch_size=20, clustering_epochs=20, refinement_epochs=2, most_samples=MOST
)


@pytest.mark.filterwarnings("ignore:30 of 400 samples have a label")
def test_of_many_samples_some_get_targets_and_the_last_stage_sees_all(blobs: Any, tmp_path: Path) -> None:
    provider = np.array([2, 0, 3, 1])[np.arange(N) % K]
    data, asked = Dataset(VectorSamples(blobs({"x": N})["x"])), np.arange(300, 330)
    labels = ClusterLabels(tuple(map(str, asked)), provider[asked], K, "p")
    folder = RunFolder(tmp_path / "run")
    folder.open({}, resume=False)
    runtime = Runtime(Compute("cpu", cache=None), folder=folder)
    session: Session[MethodSettings] = Session(runtime, SETTINGS)
    found = fit_target(session, identity_backbone(data.samples.rows.shape[1]), data, K, labels)
    clusters = predict(found.model, data, runtime).argmax(-1).numpy()
    # Eight labels would be too few for the numbering: so those asked were drawn first.
    assert (clusters == provider).mean() > 0.95
    clustering, refining = found.stages
    assert clustering.evaluations[-1].step == 20 * MOST // 20
    assert refining.evaluations[-1].step == 2 * MOST // 20  # an epoch is bounded, not the samples
    assert {len(one.labels) for stage in found.stages for one in stage.evaluations} == {MOST}
