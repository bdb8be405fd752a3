"""Tests that an answer has one entry for each input, in its order, whatever kind of input is damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds

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
    given: dict[str, Any] = {"encoder": ucds.EncoderOptions(ENCODER), "settings": quick()}
    ucds.train_target(folder / "good", folder / "run", n_clusters=3, compute=ucds.Compute("cpu"), **given)
    return ucds.load(folder / "run", compute=ucds.Compute("cpu"))


def _files(folder: Path) -> list[Path]:
    return [folder / "some" / f"{i}.png" for i in range(N)]


def _text(folder: Path, name: str = "list.txt", head: str = "") -> Path:
    (folder / name).write_text("\n".join([head, *map(str, _files(folder))]).lstrip())
    return folder / name


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: folder / "some",
    "paths": _files,
    "list": _text,
    "table": lambda folder: _text(folder, "list.csv", "path"),
    "rows": lambda folder: [{"path": str(path)} for path in _files(folder)],
    "contents": lambda folder: [path.read_bytes() for path in _files(folder)],
}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((kind, "predict") for kind in SOURCES),
        ("list", "predict_proba"),
        ("list", "confidence"),
        ("paths", "transform"),
    ],
)
def test_an_answer_has_an_entry_for_each_input(
    model: ucds.Model, folder: Path, kind: str, method: str
) -> None:
    ask = getattr(model, method)
    found = ask(SOURCES[kind](folder))
    assert len(found) == N
    good = [i for i in range(N) if i not in BAD]
    expected = ask([_files(folder)[i] for i in good])
    assert np.array_equal(found[good], expected)
    if method == "predict":
        assert found[list(BAD)].tolist() == [-1, -1, -1]
    else:
        assert np.isnan(found[list(BAD)]).all()


@pytest.mark.parametrize("kind", [ucds.TargetClustering, ucds.SourceClustering])
def test_an_estimator_gives_each_file_of_a_folder_a_label(folder: Path, kind: Any, tmp_path: Path) -> None:
    source, n = folder / "some", N
    if kind is ucds.SourceClustering:
        source, n = tmp_path, N + 30
        for name in ("some", "good"):
            (source / name).symlink_to(folder / name)
    estimator = kind(3, backbone=ENCODER, random_state=0, settings=quick()).fit(source)
    probabilities = estimator.predict_proba(source)
    found = estimator.predict(source)
    assert len(estimator.labels_) == len(estimator.ids_) == len(found) == len(probabilities) == n
    bad = [i for i, name in enumerate(estimator.ids_) if name.endswith(tuple(f"some/{b}.png" for b in BAD))]
    bad = bad or list(BAD)
    assert set(np.flatnonzero(estimator.labels_ == -1)) == set(bad)
    assert set(np.flatnonzero(found == -1)) == set(bad)
    assert set(np.flatnonzero(np.isnan(probabilities).any(1))) == set(bad)


def test_labels_of_a_provider_have_an_entry_for_each_file_too(folder: Path) -> None:
    estimator = ucds.TargetClustering(2, backbone=ENCODER, random_state=0, settings=quick())
    assert len(estimator.fit(folder / "some", source_labels=np.arange(N) % 2).labels_) == N
    with pytest.raises(ucds.InputError, match=f"must be {N} integers"):
        estimator.fit(folder / "some", source_labels=np.zeros(N - len(BAD), int))


def test_predictions_go_by_ids(model: ucds.Model, folder: Path) -> None:
    found = ucds.predict(folder / "run", folder / "some", compute=ucds.Compute("cpu"))
    assert list(found.ids) == [f"{i}.png" for i in range(N) if i not in BAD]
    whole = model.predict(folder / "some")
    assert found.clusters.tolist() == whole[whole != -1].tolist()
