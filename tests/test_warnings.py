"""Warnings carry the line of the caller, whatever lies between."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds import Compute, UcdsWarning

CPU = Compute("cpu", cache=None)
CALLS: dict[str, Callable[[Path, Path], object]] = {
    "features": lambda images, _: ucds.features(images, images.parent / "features", compute=CPU),
    "train_target": lambda images, _: ucds.train_target(
        images, images.parent / "new", n_clusters=2, compute=CPU
    ),
    "predict": lambda images, run: ucds.predict(run, images, compute=CPU),
    "report": lambda images, run: ucds.report(run, images, out=images.parent / "report.html", compute=CPU),
    "update": lambda images, run: ucds.update(run, images, images.parent / "updated", compute=CPU),
    "Model.predict": lambda images, run: ucds.load(run, compute=CPU).predict(images),
    "TargetClustering.fit": lambda images, _: ucds.TargetClustering(2, compute=CPU).fit(images),
    "SourceClustering.fit": lambda images, _: ucds.SourceClustering(2, compute=CPU).fit(images),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of twelve images of two kinds, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("data") / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 120, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels + np.uint8(100 * (i % 2))).save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    with warnings.catch_warnings(action="ignore"):
        return ucds.train_target(images, images.parent / "run", n_clusters=2, compute=CPU).folder


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_carries_the_line_of_the_caller(name: str, images: Path, run: Path) -> None:
    with pytest.warns(UcdsWarning) as caught:
        CALLS[name](images, run)
    assert {Path(one.filename) for one in caught if one.category is UcdsWarning} == {Path(__file__)}
    shutil.rmtree(images.parent / "new", ignore_errors=True)
