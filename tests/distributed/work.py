"""Work of several processes, which the test starts once or on two devices; the first argument names it."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from ucds.config import PCDSettings
from ucds.data.dataset import Dataset, ImageView
from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError
from ucds.gradients.prepare import features_of, prepare
from ucds.gradients.session import Session
from ucds.gradients.source_stage import learn_source
from ucds.gradients.target_stages import cluster_target, refine_target
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import IntArray
from ucds.networks.encoder import NetworkEncoder, module_encoder
from ucds.training.options import Compute
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


def network() -> NetworkEncoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 10, 3),
            BatchNormAct2d(10),  # with the rectifier in it
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
    return module_encoder(module, 10)


def started(devices: int, cache: Path | None = None, **options: Any) -> Session[PCDSettings]:
    torch.set_num_threads(1)
    session = Session(SETTINGS, Compute("cpu", cache=cache), devices=devices, **options)
    session.runtime.launch()
    session.open({}, resume=False)
    return session


def run_stages(devices: int, out: Path) -> None:
    """Run all three stages on small images with a small network."""
    view = ImageView(crop=14)
    session = started(devices, folder=RunFolder(out), seed=3)
    source = Dataset(MadeImages({"a": 40, "b": 27}), view)
    provider = prepare(session, network(), source, 4, side="source")
    learn_source(session, provider.trained, source, source.samples)
    target = Dataset(MadeImages({"c": 45}), view)
    client = prepare(session, network(), target, 4, side="target")
    answers = ClusterLabels(target.samples.ids, np.arange(45) % 4, 4, "made")
    cluster_target(session, client.trained, target, answers)
    refine_target(session, client.trained, target)
    session.close()
    if session.first:
        weights = {"source": provider.trained.state_dict(), "target": client.trained.state_dict()}
        torch.save(weights, out / "weights.pt")
    print("processes:", session.runtime.processes)


def find_once(devices: int, out: Path, refused: bool) -> None:
    """Find something in one process. Each call leaves a file; each process writes its end."""
    session = started(devices)

    def find() -> list[float]:
        (out / f"call-{os.getpid()}").touch()
        if refused:
            raise InputError("nothing today")
        return list(np.random.default_rng().normal(size=3))  # no two calls find the same

    try:
        end = repr(session.once(find))
    except InputError as error:
        end = str(error)
    (out / f"end-{session.runtime.rank}").write_text(end)


class Counting(nn.Module):
    """Turns vectors ``(n, 6)`` into their sines, and counts them."""

    seen = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += len(inputs)
        return inputs.sin()


def compute_features(devices: int, out: Path) -> None:
    """Compute features of a frozen network with a cache."""
    session = started(devices, cache=out / "cache")
    vectors = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype(np.float32)
    data, counting = Dataset(VectorSamples(vectors)), Counting()
    encoder = NetworkEncoder(counting, EncoderSpec("sines", 6), "given")
    found = features_of(session, encoder, data, 8)
    np.save(out / f"features-{session.runtime.rank}.npy", found.samples.read(np.arange(SAMPLES)))
    (out / f"seen-{session.runtime.rank}").write_text(str(counting.seen))


if __name__ == "__main__":
    what, number, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if what == "stages":
        run_stages(number, place)
    elif what == "features":
        compute_features(number, place)
    else:
        find_once(number, place, what == "refused")
