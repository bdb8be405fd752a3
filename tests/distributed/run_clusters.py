"""Builds a model from clusters, in one process or several; started by the test.

Each call of the clustering leaves a file, and each process writes how it ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch

from ucds.backbones import identity_backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError
from ucds.training.fitting import FeatureClusters, build_model, features_to_cluster, read_all, remember
from ucds.training.options import Compute
from ucds.training.runtime import Runtime
from ucds.training.session import Session


def main(devices: int, out: Path, refused: bool) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    runtime = Runtime(Compute("cpu", cache=None), devices=devices)
    runtime.launch()
    vectors = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)

    def cluster(features: np.ndarray) -> FeatureClusters:
        (out / f"call-{os.getpid()}").touch()
        if refused:
            raise InputError("no clusters today")
        # As with private noise, no two calls find the same.
        random = np.random.default_rng()
        axes, prototypes = (random.normal(size=shape).astype(np.float32) for shape in ((6, 5), (5, 4)))
        shares = random.dirichlet(np.ones(4), size=60).astype(np.float32)
        return FeatureClusters(axes, features.mean(0), prototypes, shares.mean(0, keepdims=True), shares)

    session = Session(runtime, ConsensusSettings())
    data = Dataset(VectorSamples(vectors))
    try:
        backbone = identity_backbone(6)
        features = features_to_cluster(session, backbone, data, 4)
        found = remember(session, "find", lambda: cluster(read_all(features)))
        training, shares = build_model(session, "find", backbone, features, found, 4)
        end = repr((training.model.prototypes.tolist(), shares.tolist()))
    except InputError as error:
        end = str(error)
    (out / f"end-{runtime.rank}").write_text(end)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "refused")
