"""What a person sees of the clusters of a review, and takes away, after every action."""

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image
from quick import quick

import ucds
from ucds.data.folders import scan_folder
from ucds.errors import InputError
from ucds.math.spaces import unit_rows
from ucds.target.predictions import UNSORTED

CPU, K, EACH = ucds.Compute("cpu"), 3, 12


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey, striped and dotted pictures, in folders that tell what they show."""
    folder, rng = tmp_path_factory.mktemp("seen") / "photos", np.random.default_rng(0)
    for place, kind in enumerate(("grey", "stripes", "dots")):
        (folder / kind).mkdir(parents=True)
        for i in range(EACH):
            pixels = rng.integers(90, 120, size=(40, 40, 3))
            if place:
                pixels[:: 4 * place, ::place] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"IMG_{place}{i:02}.png")
    return folder


@pytest.fixture(scope="module")
def trained(photographs: Path) -> Path:
    encoder = ucds.EncoderOptions("ucds/oriented_edges", "none")
    run = photographs.with_name("run")
    given = {"encoder": encoder, "settings": quick(), "compute": CPU}
    return ucds.train_target(photographs, run, n_clusters=K, **given).folder


@pytest.fixture
def review(trained: Path, tmp_path: Path) -> ucds.Review:
    return ucds.Review(shutil.copytree(trained, tmp_path / "run"), compute=CPU)


def test_clusters_are_seen_with_their_sizes_doubt_and_members(review: ucds.Review) -> None:
    seen = review.seen
    assert seen.sizes == dict.fromkeys(range(K), EACH)
    assert ((seen.confidence > 0) & (seen.confidence <= 1)).all()
    assert (seen.second != seen.clusters).all()
    for number in seen.numbers:
        typical, doubtful = seen.members(number), seen.members(number, "doubtful")
        assert sorted(typical.tolist()) == sorted(doubtful.tolist()) == seen.members(number, "row").tolist()
        assert (np.diff(seen.typicality[typical]) <= 0).all()
        assert (np.diff(seen.confidence[doubtful]) >= 0).all()
        assert seen.doubt[number] == pytest.approx(1 - seen.confidence[doubtful].mean(), abs=1e-6)
        own = unit_rows(review.features[typical])
        assert seen.typicality[typical] == pytest.approx(own @ unit_rows(own.mean(0)[None])[0], abs=1e-5)


def test_at_the_start_the_confidence_is_that_of_the_model(review: ucds.Review, photographs: Path) -> None:
    probabilities = ucds.load(review.run, compute=CPU).predict_proba(photographs)
    rows = np.arange(len(probabilities))
    assert review.seen.confidence == pytest.approx(probabilities[rows, review.partition], abs=1e-5)
    probabilities[rows, review.partition] = 0
    assert review.seen.second.tolist() == probabilities.argmax(1).tolist()


def test_confidence_follows_what_becomes_of_clusters(review: ucds.Review) -> None:
    before, earlier = review.seen, review.seen.confidence.copy()
    one, other = review.partition[0], review.partition[EACH]
    joined = review.join([int(one), int(other)])
    now = review.seen
    assert (now.confidence[: 2 * EACH] >= earlier[: 2 * EACH]).all()
    assert now.confidence[2 * EACH :] == pytest.approx(earlier[2 * EACH :], abs=1e-6)
    assert set(now.second[: 2 * EACH].tolist()) == {int(review.partition[-1])}
    review.aside(review.start.ids[:1])
    assert (review.seen.confidence[0], review.seen.second[0]) == (1, joined)
    assert (before.clusters[0], before.confidence[0]) == (one, earlier[0])  # what was seen stays


def test_a_provider_s_labels_are_known_by_sample(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", vectors)
    labels = ucds.ClusterLabels(tuple(map(str, range(10, 40))), np.arange(30) % 2, 2, "a provider")
    given = {"labels": labels, "settings": quick(), "compute": CPU}
    with pytest.warns(ucds.UcdsWarning, match="30 of 40 samples have a label"):
        run = ucds.train_target(tmp_path / "x.npy", tmp_path / "run", **given)
    found = ucds.Review(run.folder).labels
    assert found is not None
    assert found.tolist() == [-1] * 10 + [0, 1] * 15


def test_the_nearest_samples_are_found_over_all_clusters(review: ucds.Review) -> None:
    review.aside(review.start.ids[1:2])
    near = review.like(review.start.ids[:1], most=5)
    cosines = review.directions @ review.directions[0]
    expected = [row for row in np.argsort(-cosines, kind="stable").tolist() if row][:5]
    assert near.rows.tolist() == expected
    assert near.similarity == pytest.approx(cosines[expected], abs=1e-5)
    assert near.clusters.tolist() == review.partition[expected].tolist()
    several = review.like(review.start.ids[:3], most=99)
    assert sorted(several.rows.tolist()) == list(range(3, len(review.start.ids)))
    assert UNSORTED not in several.clusters


def test_samples_like_another_picture_are_found_and_it_is_not_kept(
    review: ucds.Review, photographs: Path, tmp_path: Path
) -> None:
    path = photographs / review.start.ids[EACH]
    pictures = [path, str(path), path.read_bytes(), Image.open(path), np.asarray(Image.open(path))]
    for picture in pictures:
        near = review.like_picture(picture, most=2)
        assert near.rows[0] == EACH
        assert near.similarity[0] == pytest.approx(1, abs=1e-3)
    (tmp_path / "text.png").write_text("no picture")
    for wrong in (tmp_path / "text.png", b"no picture", tmp_path / "none.png"):
        with pytest.raises(InputError):
            review.like_picture(wrong)
    assert len(review.start.ids) == K * EACH


def test_names_are_suggested_by_texts_or_by_folders_that_tell_something(review: ucds.Review) -> None:
    kinds = dict(zip(review.partition[::EACH].tolist(), ("dots", "grey", "stripes"), strict=True))
    assert review.suggest() == {number: [kind] for number, kind in kinds.items()}
    words = ("a brown dog", "a small cat", "a red car")
    texts = {name: words[i // EACH] for i, name in enumerate(review.start.ids)}
    found = review.suggest(texts, most=2)
    assert {tuple(sorted(one)) for one in found.values()} == {
        ("brown", "dog"),
        ("cat", "small"),
        ("car", "red"),
    }
    assert review.recorded == 0


def test_a_table_for_a_spreadsheet_or_in_parquet_is_taken_away(review: ucds.Review, tmp_path: Path) -> None:
    first, second, *_ = review.start.ids
    review.aside([first])
    number = review.move([second], "new")
    review.name(number, "odd")
    content = review.save_table(tmp_path / "t.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    assert [row["sample"] for row in rows] == list(review.start.ids)
    assert [int(row["cluster"]) for row in rows] == review.partition.tolist()
    assert [row["source"] for row in rows] == ["person"] * 2 + ["clustering"] * (K * EACH - 2)
    assert [row["name"] for row in rows][:3] == ["", "odd", ""]
    table = pyarrow.parquet.read_table(review.save_table(tmp_path / "t.parquet")).to_pydict()
    assert list(table) == list(rows[0])
    assert table["cluster"] == review.partition.tolist()
    assert table["confidence"] == pytest.approx([float(row["confidence"]) for row in rows])
    with pytest.raises(InputError, match=r"must end in \.csv or \.parquet"):
        review.save_table(tmp_path / "t.xlsx")


def test_images_are_sorted_into_folders(review: ucds.Review, photographs: Path, tmp_path: Path) -> None:
    review.aside(review.start.ids[:2])
    review.join([int(review.partition[EACH]), int(review.partition[-1])])
    review.name(int(review.partition[5]), "plain")
    out, files = tmp_path / "sorted", scan_folder(photographs)
    assert review.sort_into(out, files, how="link") == K * EACH
    found = {path.name: len(list(path.iterdir())) for path in out.iterdir() if path.is_dir()}
    assert found == {"plain": EACH - 2, "unsorted": 2, f"cluster_{review.partition[-1]}": 2 * EACH}
    assert all(path.is_symlink() for path in out.glob("*/*"))
    review.move(review.start.ids[:2], int(review.partition[5]))
    review.sort_into(out, files, how="link")
    assert len(list((out / "plain").iterdir())) == EACH
    # The reviewed run goes on with the same folder.
    ucds.predict(review.finish().path, photographs, sort_into=out, sort_how="link", compute=CPU)
    with pytest.raises(InputError, match="is not empty"):
        review.sort_into(photographs.parent, files)
    with pytest.raises(InputError, match="lies inside"):
        review.sort_into(photographs / "sorted", files)


def test_sorting_that_is_stopped_leaves_nothing(
    review: ucds.Review, photographs: Path, tmp_path: Path
) -> None:
    def stop(work: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        review.sort_into(tmp_path / "sorted", scan_folder(photographs), watch=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
