"""What a person said of a sample holds for its content, in the table, the sorted folders and the report."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from quick import quick

import ucds

BRIEF = quick()
CPU, K = ucds.Compute("cpu"), 4


def shown(page: Path) -> dict[str, int]:
    """The cluster of each sample on the page of a report."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return dict(zip(data["fixed"]["ids"], data["now"]["clusters"], strict=True))


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["sample"]: row for row in csv.DictReader(file)}


def finish(run: Path, ids: list[str]) -> tuple[Path, dict[str, int]]:
    """Move each of some samples to the next cluster by hand; return the reviewed run and its clusters."""
    review = ucds.Review(run)
    for name in ids:
        review.move([name], (review.clusters[name] + 1) % K)
    clusters = review.clusters
    return review.finish().path, clusters


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(K, 8))
    return (centres[np.arange(80) % K] + rng.normal(size=(80, 8))).astype(np.float32)


@pytest.fixture(scope="module")
def reviewed(
    vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, int], list[str]]:
    """A run on vectors in which nine samples were moved by hand, its clusters, and the ids of the nine."""
    place, ids = tmp_path_factory.mktemp("reviewed"), [str(i) for i in range(0, 72, 8)]
    np.save(place / "x.npy", vectors)
    run = ucds.train_target(place / "x.npy", place / "run", n_clusters=K, settings=BRIEF, compute=CPU).folder
    return *finish(run, ids), ids


def test_vectors_keep_the_clusters_of_the_review_in_any_order(
    reviewed: tuple[Path, dict[str, int], list[str]], vectors: np.ndarray, tmp_path: Path
) -> None:
    run, clusters, ids = reviewed
    alone = ucds.load(run, compute=CPU).predict(vectors)
    assert sum(clusters[name] != alone[int(name)] for name in ids) > 0  # the model would undo them
    new = vectors[:5] + 0.01
    np.save(tmp_path / "y.npy", np.concatenate([new, vectors[::-1]]))
    found = ucds.predict(run, tmp_path / "y.npy", tmp_path / "y.csv", min_confidence=0.999, compute=CPU)
    rows = table(tmp_path / "y.csv")
    assert found.source is not None
    for place, (name, row) in enumerate(rows.items()):
        old = str(79 - (place - 5))
        expected = "model" if place < 5 else "person" if old in ids else "clustering"
        assert row["source"] == found.source[int(name)] == expected
        if expected == "person":
            assert (int(row["cluster"]), row["confidence"]) == (clusters[old], "1.0000")
        elif expected == "clustering":
            assert int(row["cluster"]) in (-1, clusters[old])


def test_a_later_review_keeps_what_an_earlier_one_corrected(
    reviewed: tuple[Path, dict[str, int], list[str]], vectors: np.ndarray
) -> None:
    first, _, ids = reviewed
    again, clusters = finish(first, ["1"])
    found = ucds.predict(again, vectors, compute=CPU)
    assert found.clusters.tolist() == [clusters[str(i)] for i in range(80)]
    assert found.source is not None
    assert [i for i, source in enumerate(found.source) if source == "person"] == sorted(map(int, [*ids, "1"]))


def test_table_folders_and_report_agree_on_images_that_have_moved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(48):
        level, spread = 60 * (i % K), 4 + 4 * (i % 3)
        pixels = (level + rng.normal(size=(32, 32, 3)) * spread).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:02}.png")
    encoder = ucds.EncoderOptions("ucds/oriented_edges", "none")
    run = ucds.train_target(
        tmp_path / "images", tmp_path / "run", n_clusters=K, encoder=encoder, settings=BRIEF, compute=CPU
    ).folder
    ids = [f"{i:02}.png" for i in range(0, 48, 5)]
    run, clusters = finish(run, ids)
    # The images lie elsewhere now, under other names, and their old folder is gone.
    (tmp_path / "images").rename(tmp_path / "archive")
    for path in sorted((tmp_path / "archive").iterdir()):
        path.rename(path.with_name(f"IMG{path.name}"))
    images, out = tmp_path / "archive", tmp_path / "c.csv"
    ucds.predict(run, images, out, sort_into=tmp_path / "sorted", compute=CPU)
    expected = {f"IMG{name}": cluster for name, cluster in clusters.items()}
    assert {name: int(row["cluster"]) for name, row in table(out).items()} == expected
    kept = {path.name: int(path.parent.name[-1]) for path in (tmp_path / "sorted").glob("[!.]*/*")}
    assert kept == expected
    assert shown(ucds.report(run, images, tmp_path / "r.html", compute=CPU).path) == expected


def test_images_of_an_earlier_sorting_follow_their_clusters_where_only_new_ones_are_given(
    images: Path, run_on_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out, new = tmp_path / "run", tmp_path / "sorted", tmp_path / "new"
    shutil.copytree(run_on_images, run)
    out.mkdir()
    monkeypatch.chdir(out)
    before = ucds.predict(run, images, sort_into=Path(), compute=CPU)
    assert len(list(out.glob("cluster_*/*.png"))) == 9
    review = ucds.Review(run)
    moved, aside, renamed = "3.png", "4.png", "5.png"
    to = (review.clusters[moved] + 1) % 3
    review.move([moved, renamed], to)
    review.aside([aside])
    run = review.finish(tmp_path / "next").path
    clusters = dict(zip(before.ids, before.clusters.tolist(), strict=True))
    (out / f"cluster_{clusters[renamed]}" / renamed).rename(out / f"cluster_{clusters[renamed]}" / "mine.png")
    new.mkdir()
    Image.fromarray(np.full((40, 40, 3), 200, np.uint8)).save(new / "added.png")
    expected = {path.name: path.parent.name for path in out.glob("[!.]*/*")}
    expected |= {moved: f"cluster_{to}", aside: "unsorted"}
    for _ in range(2):
        found = ucds.predict(run, new, sort_into=out, compute=CPU)
        expected["added.png"] = f"cluster_{found.clusters[0]}"
        assert {path.name: path.parent.name for path in out.glob("[!.]*/*")} == expected
    with pytest.raises(ucds.InputError, match="another model sorted into"):  # the one before the review
        ucds.predict(run_on_images, images, sort_into=out, compute=CPU)
