"""The whole network trains on images in all three stages; the slow test has ResNet-18 at 224 pixels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ucds.choices import Precision
from ucds.config import PCDSettings
from ucds.data.dataset import Dataset, ImageView
from ucds.data.folders import scan_domains
from ucds.data.images import ImageSamples
from ucds.data.samples import subset
from ucds.gradients.session import Session
from ucds.labels.cluster_labels import ClusterLabels
from ucds.networks.build import build_network
from ucds.networks.encoder import NetworkEncoder
from ucds.source.train import fit_source
from ucds.target.train import fit_target
from ucds.training.options import Compute

pytestmark = pytest.mark.torch

EPOCHS = dict.fromkeys(("source_epochs", "clustering_epochs", "refinement_epochs"), 1)
SETTINGS = PCDSettings(batch_size=4, evaluations_per_stage=1, validation_fraction=0, **EPOCHS)


@pytest.fixture
def images(tmp_path: Path, write_images: Callable[..., list[Path]]) -> ImageSamples:
    names = [f"{domain}/{number}.jpg" for domain in ("one", "two", "three") for number in range(8)]
    write_images(tmp_path / "data", names, size=(60, 52))
    return ImageSamples(scan_domains(tmp_path / "data"), tmp_path / "cache")


@pytest.mark.filterwarnings("ignore::ucds.errors.UcdsWarning")  # 8 images do not fill 3 clusters
@pytest.mark.parametrize(
    ("name", "precision", "size"),
    [("test_resnet", "bf16-mixed", 32), pytest.param("resnet18", "32-true", 224, marks=pytest.mark.slow)],
)
def test_every_layer_learns_in_every_stage(
    images: ImageSamples, name: str, precision: Precision, size: int
) -> None:
    view = ImageView(crop=size)
    target_domain = images.domain_names.index("three")
    source = Dataset(subset(images, np.flatnonzero(images.domain != target_domain)), view)
    target = Dataset(subset(images, np.flatnonzero(images.domain == target_domain)), view)
    provider, client = (Session(SETTINGS, Compute("cpu", precision, cache=None)) for _ in range(2))
    answers = ClusterLabels(target.samples.ids, np.arange(8) % 3, 3, "test")
    trained = (
        fit_source(provider, build_network(name, weights="none"), source, 3),
        fit_target(client, build_network(name, weights="none"), target, 3, answers),
    )
    start = dict(build_network(name, weights="none").module.named_parameters())
    for found in trained:
        assert isinstance(found.encoder, NetworkEncoder)
        for layer, weight in found.encoder.module.named_parameters():
            assert torch.isfinite(weight).all(), layer
            assert not torch.equal(weight, start[layer]), f"{layer} did not move"
    stages = [(result.name, result.evaluations[0].step) for result in [*provider.results, *client.results]]
    assert stages == [("learn-source", 4), ("cluster-target", 2), ("refine-target", 2)]
