"""Tests that an answer has one entry for each input, in its order, whatever kind of input is damaged."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import ucds
from ucds.errors import UserError

N, BAD = 9, (0, 3, 8)  # the first, one on the way, and the last
ENCODER = "ucds/oriented_edges"
pytestmark = pytest.mark.filterwarnings("ignore::ucds.errors.UcdsWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_images: Callable[..., list[Path]]) -> Path:
    """Nine files, three of them damaged, each in its own way; and good ones to train on."""
    place = tmp_path_factory.mktemp("answers")
    write_images(place / "good", [f"{i}.png" for i in range(30)])
    paths = write_images(place / "some", [f"{i}.png" for i in range(N)], 100)
    paths[BAD[0]].write_bytes(paths[BAD[0]].read_bytes()[:300])
    paths[BAD[1]].write_bytes(b"no image")
    paths[BAD[2]].write_bytes(b"")
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> ucds.Model:
    options = ucds.EncoderOptions(ENCODER)
    ucds.train_target(
        folder / "good", folder / "run", n_clusters=3, encoder=options, compute=ucds.Compute("cpu")
    )
    return ucds.load(folder / "run", compute=ucds.Compute("cpu"))


def _files(folder: Path) -> list[Path]:
    return [folder / "some" / f"{i}.png" for i in range(N)]


def _text(folder: Path) -> Path:
    (folder / "list.txt").write_text("\n".join(map(str, _files(folder))))
    return folder / "list.txt"


def _table(folder: Path) -> Path:
    with (folder / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path"], *([str(path)] for path in _files(folder))])
    return folder / "list.csv"


def _parquet(folder: Path) -> Path:
    column = pyarrow.array([path.read_bytes() or b"x" for path in _files(folder)], pyarrow.binary())
    pyarrow.parquet.write_table(pyarrow.table({"image": column}), folder / "images.parquet")
    return folder / "images.parquet"


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [{"path": str(path)} for path in _files(folder)]


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: folder / "some",
    "texts": lambda folder: [*map(str, _files(folder))],
    "paths": _files,
    "list": _text,
    "table": _table,
    "rows": _rows,
    "contents": lambda folder: [path.read_bytes() for path in _files(folder)],
    "pictures": lambda folder: [_opened(path) for path in _files(folder)],
    "table of contents": _parquet,
}


def _opened(path: Path) -> Any:
    """An image that turns out to be damaged when it is loaded; bytes where it cannot even be opened."""
    try:
        return Image.open(io.BytesIO(path.read_bytes()))
    except OSError:
        return path.read_bytes()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence", "transform"])
def test_an_answer_has_an_entry_for_each_input_or_none_at_all(
    model: ucds.Model, folder: Path, kind: str, method: str
) -> None:
    ask = getattr(model, method)
    try:
        found = ask(SOURCES[kind](folder))
    except UserError:
        assert kind in ("contents", "pictures", "table of contents")
        return
    assert len(found) == N
    good = [i for i in range(N) if i not in BAD]
    expected = ask([_files(folder)[i] for i in good])
    assert np.array_equal(found[good], expected)
    if method == "predict":
        assert found[list(BAD)].tolist() == [-1, -1, -1]
    else:
        assert np.isnan(found[list(BAD)]).all()


def test_inputs_that_can_all_be_used_give_the_same_as_ever(model: ucds.Model, folder: Path) -> None:
    data = model.open(folder / "good")
    assert np.array_equal(model.predict(folder / "good"), model.decide(data)[0])
    assert not np.isnan(model.confidence(folder / "good")).any()


@pytest.mark.parametrize("kind", [ucds.TargetClustering, ucds.SourceClustering])
def test_an_estimator_gives_each_file_of_a_folder_a_label(folder: Path, kind: Any, tmp_path: Path) -> None:
    domains = tmp_path / "domains"
    domains.mkdir()
    (domains / "some").symlink_to(folder / "some")
    (domains / "good").symlink_to(folder / "good")
    source = domains if kind is ucds.SourceClustering else folder / "some"
    n = N + 30 if kind is ucds.SourceClustering else N
    estimator = kind(3, backbone=ENCODER, random_state=0, accelerator="cpu").fit(source)
    probabilities = estimator.predict_proba(source)
    assert (
        len(estimator.labels_)
        == len(estimator.ids_)
        == len(estimator.predict(source))
        == len(probabilities)
        == n
    )
    bad = [i for i, name in enumerate(estimator.ids_) if name.endswith(tuple(f"some/{b}.png" for b in BAD))]
    bad = bad or list(BAD)
    assert set(np.flatnonzero(estimator.labels_ == -1)) == set(bad)
    assert set(np.flatnonzero(estimator.predict(source) == -1)) == set(bad)
    assert set(np.flatnonzero(np.isnan(probabilities).any(1))) == set(bad)


def test_labels_of_a_provider_have_an_entry_for_each_file_too(folder: Path) -> None:
    estimator = ucds.TargetClustering(2, backbone=ENCODER, random_state=0, accelerator="cpu")
    assert len(estimator.fit(folder / "some", source_labels=np.arange(N) % 2).labels_) == N
    with pytest.raises(ucds.InputError, match=f"must be {N} integers"):
        estimator.fit(folder / "some", source_labels=np.zeros(N - len(BAD), int))


def test_predictions_go_by_ids(model: ucds.Model, folder: Path) -> None:
    found = ucds.predict(folder / "run", folder / "some", compute=ucds.Compute("cpu"))
    assert list(found.ids) == [f"{i}.png" for i in range(N) if i not in BAD]
    whole = model.predict(folder / "some")
    assert found.clusters.tolist() == whole[whole != -1].tolist()
