"""PCD on the provider's side where there are more samples than are evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ucds.backbones import identity_backbone
from ucds.config import MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.source.fit import fit_source
from ucds.training.options import Compute
from ucds.training.prediction import predict
from ucds.training.runtime import Runtime
from ucds.training.session import Session

K, MOST = 4, 100


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_of_many_samples_some_choose_the_model(blobs: Any, fraction: float) -> None:
    data = Dataset(VectorSamples.from_arrays(blobs({"a": 400, "b": 40})))
    settings = PCDSettings(
        bottleneck_width=8,
        batch_size=20,
        source_epochs=30,
        most_samples=MOST,
        validation_fraction=fraction,
    )
    runtime = Runtime(Compute("cpu", cache=None))
    session: Session[MethodSettings] = Session(runtime, settings)
    found = fit_source(session, identity_backbone(data.samples.rows.shape[1]), data, K)
    (stage,) = found.stages
    counted = MOST + (40 if fraction == 0 else 20)  # 100 of 400 or 200, and all of the small domain
    assert stage.evaluations[-1].step == 30 * counted // 20
    assert {len(one.labels) for one in stage.evaluations} == {counted}
    clusters = predict(found.model, data, runtime).argmax(-1).numpy()
    assert len(np.unique(clusters)) > 1
