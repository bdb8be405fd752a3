"""Pictures of a client, and a run on them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from quick import quick

import ucds


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images, of which two would be copied under one name."""
    folder, rng = tmp_path_factory.mktemp("client") / "images", np.random.default_rng(0)
    for name in ("a/1.png", "a__1.png", "b/deep/2.png", *(f"{i}.png" for i in range(3, 9))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(40, 40, 3), dtype=np.uint8)).save(folder / name)
    return folder


@pytest.fixture(scope="session")
def run_on_images(images: Path) -> Path:
    """A finished target run of three clusters on the images."""
    encoder, settings = ucds.EncoderOptions("ucds/oriented_edges", "none"), quick()
    out = images.with_name("run")
    return ucds.train_target(images, out, n_clusters=3, encoder=encoder, settings=settings).folder
