"""Tests of the table of predictions, of sorting images into folders, and of the names of clusters."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.choices import Sorting
from ucds.data.content import content_key
from ucds.data.folders import Scan, scan_folder
from ucds.target import predictions
from ucds.target.predictions import NAMES_FILE, Predictions
from ucds.training.model_file import load_model

CLUSTERS, CONFIDENCE = np.array([1, 0, 11]), np.array([0.5, 0.25, 1.0], np.float32)
NAMES = {0: "=HYPERLINK()", 1: 'cat & "dog"'}
FOUND = Predictions(("=a.png", "b/ü c.png", "d.png"), CLUSTERS, CONFIDENCE, NAMES, 12)


def test_a_table_has_one_row_a_sample_and_no_formula(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["sample", "cluster", "confidence", "name"],
        ["'=a.png", "1", "0.5000", 'cat & "dog"'],
        ["b/ü c.png", "0", "0.2500", "'=HYPERLINK()"],
        ["d.png", "11", "1.0000", ""],
    ]
    replace(FOUND, names={}).save(tmp_path / "bare.csv")
    assert (tmp_path / "bare.csv").read_text("utf-8-sig").splitlines()[0] == '"sample","cluster","confidence"'


PATHS = ("a/1.png", "a__1.png", "b/deep/2.png", "3.png")
SORTED = {"cluster_0/a__1.png": "a/1.png", "cluster_0/sample 3.png": "a__1.png"}
SORTED |= {"cluster_1/b__deep__2.png": "b/deep/2.png", "cluster_2/3.png": "3.png"}


def sort_into_folders(folder: Path, found: Predictions, how: Sorting = "copy", model: str = "") -> None:
    """Sort files under the keys of their contents."""
    assert found.files is not None
    places = [found.files.file(i) for i in range(len(found.files))]
    keys = [content_key(path.read_bytes() if path.exists() else b"gone") for path in places]
    predictions.sort_into_folders(folder, found, keys, how, model)


def write_images(folder: Path, names: Sequence[str]) -> Scan:
    """Write files that hold their own name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return scan_folder(folder)


@pytest.fixture
def found(tmp_path: Path) -> Predictions:
    """Files in three of four clusters."""
    files = write_images(tmp_path / "images", PATHS)
    cluster = dict(zip(PATHS, (0, 0, 1, 2), strict=True))
    clusters = np.array([cluster[name] for name in files.ids])
    return Predictions(files.ids, clusters, np.ones(4), {}, 4, files)


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("[!.]*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[!.]*"))


@pytest.mark.parametrize("how", ["copy", "link"])
def test_every_image_is_in_the_folder_of_its_cluster(
    found: Predictions, tmp_path: Path, how: Sorting
) -> None:
    out = tmp_path / "sorted"
    sort_into_folders(out, found, how)
    # Of the two that want one name the first in the order of the files gets it.
    assert contents(out) == SORTED
    assert folders(out) == [f"cluster_{k}" for k in range(4)]
    assert [path.is_symlink() for path in out.rglob("*.png")] == [how == "link"] * 4
    assert len(contents(tmp_path / "images")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "sorted"]
    if how == "copy":
        (tmp_path / "images" / "3.png").write_text("changed")
        assert contents(out) == SORTED


def test_doubtful_images_are_sorted_apart(found: Predictions, tmp_path: Path) -> None:
    doubtful = replace(found, clusters=np.array([1, -1, -1, 0]), names={1: "unsorted"})
    sort_into_folders(tmp_path / "sorted", doubtful)
    kept = {path: Path(path).parent.name for path in contents(tmp_path / "sorted")}
    assert sorted(kept.values()) == ["cluster_0", "unsorted", "unsorted_", "unsorted_"]


def test_what_cannot_be_copied_leaves_nothing(found: Predictions, tmp_path: Path) -> None:
    (tmp_path / "images" / "b" / "deep" / "2.png").unlink()
    with pytest.raises(FileNotFoundError):
        sort_into_folders(tmp_path / "sorted", found)
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


@pytest.mark.parametrize("how", ["copy", "link"])
def test_symbolic_links_become_files_that_open_and_what_they_lead_to_stays(
    tmp_path: Path, how: Sorting, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, images = tmp_path / "archive", tmp_path / "images"
    write_images(archive, ("1.png", "deep/2.png"))
    write_images(images, ("own.png",))
    (images / "one.png").symlink_to("../archive/1.png")
    (images / "same.png").symlink_to("own.png")
    (images / "deep").symlink_to("../archive/deep")
    monkeypatch.chdir(tmp_path)
    files = scan_folder(Path("images"))
    assert len(files) == 4
    found = Predictions(files.ids, np.zeros(4, np.int64), np.ones(4), {}, 1, files)
    sort_into_folders(Path("sorted"), found, how)
    expected = {"own.png": "own.png", "one.png": "1.png", "same.png": "own.png", "deep__2.png": "deep/2.png"}
    assert contents(tmp_path / "sorted" / "cluster_0") == expected
    assert contents(archive) == {"1.png": "1.png", "deep/2.png": "deep/2.png"}


def test_names_that_are_too_long_are_shortened_and_stay_apart(tmp_path: Path) -> None:
    folder = "/".join(letter * 64 for letter in "abcd")
    names = (f"{folder}/{'ü' * 100}.png", f"{folder}e/{'ü' * 100}.png", f"{folder}/1.png")
    files = write_images(tmp_path / "images", names)
    named = {0: "\U00020000" * 80}  # a letter of four bytes
    found = Predictions(files.ids, np.zeros(3, np.int64), np.ones(3), named, 1, files)
    for out in ("one", "two"):
        sort_into_folders(tmp_path / out, found)
        (place,) = (tmp_path / out).glob("[!.]*")
        assert sorted(contents(place).values()) == sorted(names)
        assert set(contents(place)) == {f"sample {number}.png" for number in (1, 2, 3)}
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_file_that_is_called_like_a_number_is_kept(tmp_path: Path) -> None:
    files = write_images(tmp_path / "images", ("sample 3.png", "z/1.png", "z__1.png"))
    found = Predictions(files.ids, np.zeros(3, np.int64), np.ones(3), {}, 1, files)
    sort_into_folders(tmp_path / "sorted", found)
    expected = {"sample 3.png": "sample 3.png", "z__1.png": "z/1.png", "_sample 3.png": "z__1.png"}
    assert contents(tmp_path / "sorted" / "cluster_0") == expected


def test_clusters_share_a_folder_only_if_they_have_one_name(found: Predictions, tmp_path: Path) -> None:
    names = {0: "cluster_3", 1: "../up", 2: "/up"}
    doubtful = replace(found, clusters=np.array([0, 1, 2, 3]), names=names)
    sort_into_folders(tmp_path / "sorted", doubtful)
    places = {content: path.split("/")[0] for path, content in contents(tmp_path / "sorted").items()}
    assert sorted(places.values()) == ["_up", "_up_", "cluster_3", "cluster_3_"]
    assert places[found.ids[3]] == "cluster_3"
    names = dict.fromkeys((0, 1, 3), "cat") | {2: " . "}
    sort_into_folders(tmp_path / "shared", replace(doubtful, names=names))
    assert folders(tmp_path / "shared") == ["cat", "cluster_2"]
    assert len(contents(tmp_path / "shared" / "cat")) == 3


CPU = ucds.Compute("cpu")


def named(client: Path, copy: Path, names: dict[str, str], **more: Any) -> Path:
    """A copy of a run whose clusters have names."""
    shutil.copytree(client, copy)
    content = {"format": "ucds-names/1", "model": load_model(client).fingerprint, "names": names} | more
    (copy / NAMES_FILE).write_text(json.dumps(content))
    return copy


def test_names_are_a_column_of_the_predictions(
    run_on_images: Path, images: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    client = named(run_on_images, tmp_path / "client", {"0": "blue, dotted", "2": "grün"})
    assert run("predict", client, images, "--out", tmp_path / "c.csv", "--accelerator", "cpu") == 0
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    called = {"0": "blue, dotted", "1": "", "2": "grün"}
    assert [row["name"] for row in rows] == [called[row["cluster"]] for row in rows]
    assert run("report", client, images, "--out", tmp_path / "c.html", "--accelerator", "cpu") == 0
    assert '"2":"gr\\u00fcn"' in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"model": "0123456789ab"}, "belong to another model"),
        ({"names": {"3": "of no cluster"}}, "belong to another model"),
        ({"format": "ucds-labels/1"}, "is not a usable file of names: format"),
        ({"names": {"0": ""}}, "is not a usable file of names: names.0"),
        ({"names": {"zero": "x"}}, "is not a usable file of names: names.zero"),
        ({"weights": [0.5]}, "is not a usable file of names: weights"),
    ],
)
def test_what_is_no_name_of_this_model_is_refused(
    run_on_images: Path, images: Path, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    client = named(run_on_images, tmp_path / "client", **{"names": {"0": "a"}, **more})
    with pytest.raises(ucds.UserError, match=problem):
        ucds.predict(client, images, tmp_path / "never.csv", compute=CPU)
    assert not (tmp_path / "never.csv").exists()
