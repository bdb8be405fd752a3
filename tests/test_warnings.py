"""Warnings carry the line of the caller, whatever lies between."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from quick import quick

import ucds
from ucds import Compute, UcdsWarning

OUT = Path("made")  # in the folder of each test
CPU = Compute("cpu", cache=None)
CALLS: dict[str, Callable[[Path, Path], object]] = {
    "features": lambda images, _: ucds.features(images, OUT / "features", compute=CPU),
    "Model.predict": lambda images, run: ucds.load(run, compute=CPU).predict(images),
    "scikit-learn": lambda images, _: ucds.TargetClustering(2, settings=quick()).fit_predict(images),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of twelve images of two kinds, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("all") / "data" / "images"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 120, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels + np.uint8(100 * (i % 2))).save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    run = images.parents[1] / "run"
    with pytest.warns(UcdsWarning):
        return ucds.train_target(images, run, n_clusters=2, settings=quick(), compute=CPU).folder


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_carries_the_line_of_the_caller(
    name: str, images: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    OUT.mkdir()
    with pytest.warns(UcdsWarning) as caught:
        CALLS[name](images, run)
    assert {Path(one.filename) for one in caught if one.category is UcdsWarning} == {Path(__file__)}
