"""Work of several processes, which the test starts once or on two devices; the first argument names it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from ucds.config import ConsensusSettings, PCDSettings
from ucds.data.dataset import Dataset, ImageView
from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.gradients.source_stage import learn_source
from ucds.gradients.target_stages import cluster_target, refine_target
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.networks.spec import Backbone, identity_backbone, module_backbone
from ucds.training.features import frozen_features
from ucds.training.fitting import FeatureClusters, build_model, features_to_cluster, read_all, remember
from ucds.training.options import Compute
from ucds.training.prepare import prepare
from ucds.training.run_folder import RunFolder

EPOCHS = dict.fromkeys(("source_epochs", "clustering_epochs", "refinement_epochs"), 2)
SETTINGS = PCDSettings(batch_size=32, bottleneck_width=8, evaluations_per_stage=2, **EPOCHS)


SAMPLES = 45


class MadeImages(Samples):
    """Random 16 x 16 images, in memory."""

    kind = "images"

    def __init__(self, sizes: dict[str, int]) -> None:
        n, domain = sum(sizes.values()), np.repeat(np.arange(len(sizes)), list(sizes.values()))
        super().__init__(tuple(map(str, range(n))), domain, tuple(sizes))
        self.images = np.random.default_rng(n).integers(256, size=(n, 3, 16, 16), dtype=np.uint8)

    def read(self, index: IntArray) -> torch.Tensor:
        return self.images[index]


def backbone() -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 10, 3),
            BatchNormAct2d(10),  # with the rectifier in it
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
    return module_backbone(network, 10)


def started(devices: int, **options: Any) -> Runtime:
    torch.set_num_threads(1)
    runtime = Runtime(Compute("cpu", cache=None), devices=devices, **options)
    runtime.launch()
    return runtime


def run_stages(devices: int, out: Path) -> None:
    """Run all three stages on small images with a small network."""
    view = ImageView(crop=14)
    runtime = started(devices, seed=3, folder=RunFolder(out))
    if runtime.rank == 0:
        out.mkdir(parents=True)
    runtime.wait_for_all()
    session = Session(runtime, SETTINGS)
    source = Dataset(MadeImages({"a": 40, "b": 27}), view)
    provider = prepare(session, backbone(), source, 4, side="source")
    learn_source(session, provider.trained, source, source.samples)
    target = Dataset(MadeImages({"c": 45}), view)
    client = prepare(session, backbone(), target, 4, side="target")
    answers = ClusterLabels(target.samples.ids, np.arange(45) % 4, 4, "made")
    cluster_target(session, client.trained, target, answers)
    refine_target(session, client.trained, target)
    session.close()
    if runtime.rank == 0:
        weights = {"source": provider.model.state_dict(), "target": client.model.state_dict()}
        torch.save(weights, out / "weights.pt")
    print("processes:", runtime.processes)


def find_clusters(devices: int, out: Path, refused: bool) -> None:
    """Build a model from clusters. Each call of the clustering leaves a file; each process writes its end."""
    runtime = started(devices)
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
        training = build_model(session, "find", backbone, features, found, 4)
        end = repr((training.model.prototypes.tolist(), found.assignments.tolist()))
    except InputError as error:
        end = str(error)
    (out / f"end-{runtime.rank}").write_text(end)


class Counting(nn.Module):
    """Turns vectors ``(n, 6)`` into their sines, and counts them."""

    seen = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += len(inputs)
        return inputs.sin()


def compute_features(devices: int, out: Path) -> None:
    """Compute features of a frozen network without a cache."""
    runtime = started(devices)
    vectors = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype(np.float32)
    network = Counting()
    data = Dataset(VectorSamples(vectors))
    found = frozen_features(module_backbone(network, 6), data, runtime, batch_size=8)
    np.save(out / f"features-{runtime.rank}.npy", found.samples.read(np.arange(SAMPLES)))
    (out / f"seen-{runtime.rank}").write_text(str(network.seen))


if __name__ == "__main__":
    what, number, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if what == "stages":
        run_stages(number, place)
    elif what == "features":
        compute_features(number, place)
    else:
        find_clusters(number, place, what == "refused")
