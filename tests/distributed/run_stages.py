"""Runs all three stages on small images with a small network; started by the test, once or on two devices."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ucds.backbones import Backbone, module_backbone
from ucds.config import PCDSettings
from ucds.data.content import content_key
from ucds.data.dataset import Dataset, ImageView
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.source.pcd import learn_source
from ucds.target.pcd import cluster_target, refine_target
from ucds.training.options import Compute
from ucds.training.prepare import prepare
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session

SETTINGS = PCDSettings(
    batch_size=32,
    bottleneck_width=8,
    source_epochs=2,
    clustering_epochs=2,
    refinement_epochs=2,
    evaluations_per_stage=2,
)


class MadeImages:
    """Random 16 x 16 images, in memory."""

    fingerprint = "made"

    kind, files = "images", None

    def __init__(self, sizes: dict[str, int]) -> None:
        n = sum(sizes.values())
        self.ids = tuple(str(i) for i in range(n))
        self.keys = tuple(content_key(name.encode()) for name in self.ids)
        self.domain_names = tuple(sizes)
        self.domain = np.repeat(np.arange(len(sizes)), list(sizes.values()))
        self.images = np.random.default_rng(n).integers(256, size=(n, 3, 16, 16), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: IntArray) -> torch.Tensor:
        return torch.from_numpy(self.images[index])


def backbone() -> Backbone:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 10, 3),
            nn.BatchNorm2d(10),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
    return module_backbone(network, 10)


def main(devices: int, out: Path) -> None:
    torch.set_num_threads(1)
    view = ImageView(crop=14)
    runtime = Runtime(Compute("cpu", cache=None), devices=devices, seed=3, folder=RunFolder(out))
    runtime.launch()
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


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
