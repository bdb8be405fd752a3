"""A run takes new samples: its clusters keep their numbers, and what a person has said stays in force."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import Listener, quick

import ucds
from ucds.data.about import KeptAbout
from ucds.data.content import KEY_BYTES
from ucds.target.remembered import Remembered, read_remembered, write_features, write_remembered

BRIEF = quick()
CPU, K, WIDTH = ucds.Compute("cpu"), 5, 12
CENTRES = 4 * np.random.default_rng(3).normal(size=(K + 2, WIDTH))


def draw(seed: int, count: int, kinds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = rng.choice(kinds, count)
    return (CENTRES[kind] + rng.normal(size=(count, WIDTH))).astype(np.float32), kind


OLD, OLD_KIND = draw(0, 150, list(range(K)))
NEW, NEW_KIND = draw(1, 60, list(range(K)))
STRANGE = draw(2, 40, [K])[0]


def saved(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on vectors, which are gone."""
    place = tmp_path_factory.mktemp("first")
    path = saved(place / "old.npy", OLD)
    done = ucds.train_target(path, place / "run", n_clusters=K, settings=BRIEF, compute=CPU).folder
    path.unlink()
    return done


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New samples of the kinds of the run, and of one that is in no cluster."""
    return saved(tmp_path_factory.mktemp("batch") / "new.npy", np.concatenate([NEW, STRANGE]))


@pytest.fixture(scope="module")
def updated(run: Path, batch: Path) -> Path:
    """The run with the new samples."""
    return ucds.update(run, batch, batch.with_name("next"), compute=CPU).path


def clusters_of(run: Path, vectors: np.ndarray) -> list[int]:
    return ucds.predict(run, vectors, compute=CPU).clusters.tolist()


def test_old_samples_keep_their_numbers_and_new_ones_get_those_of_their_kinds(
    run: Path, tmp_path: Path
) -> None:
    done = ucds.update(run, saved(tmp_path / "new.npy", NEW), tmp_path / "next", compute=CPU)
    assert (done.joined, done.moved, done.new_clusters, done.waiting) == (len(NEW), (), (), 0)
    before, after = clusters_of(run, OLD), clusters_of(tmp_path / "next", OLD)
    assert before == after
    number = {int(kind): cluster for kind, cluster in zip(OLD_KIND, before, strict=True)}
    assert clusters_of(tmp_path / "next", NEW) == [number[int(kind)] for kind in NEW_KIND]
    assert "new clusters: none" in done.sentences
    assert json.loads((tmp_path / "next" / "run.json").read_text())["update"]["joined"] == len(NEW)
    kept = read_remembered(tmp_path / "next")[0]
    assert kept.ids[len(OLD) :] == tuple(map(str, range(len(NEW))))
    assert kept.ids[0] == "0 (earlier)"  # it is gone, and leaves its id to a new one
    assert kept.ids[len(OLD) - 1] == str(len(OLD) - 1)


def test_what_is_known_is_recognised_by_its_content(run: Path, tmp_path: Path) -> None:
    everything = np.concatenate([NEW, OLD[::-1], OLD[:3]])  # in another order, and some of them twice
    done = ucds.update(run, saved(tmp_path / "all.npy", everything), tmp_path / "next", compute=CPU)
    assert (done.joined, done.forgotten) == (len(NEW), 0)
    kept, features = read_remembered(tmp_path / "next")
    assert len(kept.ids) == len(set(kept.ids)) == len(features) == len(OLD) + len(NEW)
    assert kept.ids[: len(OLD)] == tuple(str(len(NEW) + i) for i in range(len(OLD))[::-1])


def test_what_is_missing_is_forgotten_if_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    path = saved(tmp_path / "some.npy", np.concatenate([OLD[:100], NEW]))
    done = ucds.update(run, path, tmp_path / "next", forget_missing=True, compute=CPU)
    assert (done.joined, done.forgotten) == (len(NEW), len(OLD) - 100)
    assert len(read_remembered(tmp_path / "next")[0].ids) == 100 + len(NEW)
    with pytest.raises(ucds.InputError, match="would forget all of them"):
        ucds.update(run, saved(path, NEW), tmp_path / "other", forget_missing=True, compute=CPU)
    assert not (tmp_path / "other").exists()
    done = ucds.update(run, saved(path, OLD), tmp_path / "same", forget_missing=True, compute=CPU)
    assert (done.joined, done.forgotten, done.moved) == (0, 0, ())
    assert clusters_of(tmp_path / "same", OLD) == clusters_of(run, OLD)


def test_a_new_kind_becomes_a_cluster_with_a_number_that_none_has_had(run: Path, tmp_path: Path) -> None:
    review = ucds.Review(run)
    one, other = sorted(set(review.clusters.values()))[-2:]
    review.join([one, other])  # the number of the smaller one is retired
    joined = review.finish(tmp_path / "joined").path
    (run / "answers.jsonl").unlink()
    batch = np.concatenate([STRANGE, NEW])
    done = ucds.update(joined, saved(tmp_path / "new.npy", batch), tmp_path / "next", compute=CPU)
    assert done.new_clusters == (K,)
    assert f"new clusters: {K}" in done.sentences
    assert set(clusters_of(tmp_path / "next", STRANGE)) == {K}
    assert clusters_of(tmp_path / "next", OLD) == clusters_of(joined, OLD)


def propose(run: Path, copy: Path, proposed: np.ndarray, own: np.ndarray | None = None) -> Path:
    """A copy of a run, in which other clusters are proposed, or also found already."""
    start, nobody = read_remembered(run)[0], np.zeros(len(OLD), bool)
    own = start.own if own is None else own
    write_remembered(shutil.copytree(run, copy), replace(start, own=own, by_person=nobody, proposed=proposed))
    return copy


def test_samples_that_wait_are_in_no_cluster_and_are_asked_about_first(run: Path, tmp_path: Path) -> None:
    proposed = read_remembered(run)[0].own
    rows = np.flatnonzero(proposed == 0)[:4]
    own = np.where(np.isin(np.arange(len(OLD)), rows), -1, proposed)
    waits = propose(run, tmp_path / "waits", proposed, own)
    found = ucds.predict(waits, OLD[rows], compute=CPU)
    assert (found.clusters.tolist(), found.confidence.tolist()) == ([-1] * 4, [0] * 4)
    review = ucds.Review(waits)
    question = review.question()
    assert question is not None
    assert sorted(map(int, question.groups[0])) == rows.tolist()
    assert question.clusters[:2] == (-1, 0)
    review.answer("mixed")  # changes nothing, and is not asked again
    assert review.clusters[str(rows[0])] == -1
    following = review.question()
    assert following is None or following.groups[0] != question.groups[0]
    review.undo()
    review.answer("new" if question.kind == "place" else "two")
    assert {review.clusters[str(row)] for row in rows} == {K}
    review.undo()
    done = ucds.update(waits, saved(tmp_path / "new.npy", NEW), tmp_path / "next", compute=CPU)
    assert len(done.moved) == len(rows)  # they join along with the new ones
    assert clusters_of(done.path, OLD[rows]) == [0] * 4


def test_what_everything_anew_would_change_is_asked_and_not_done(run: Path, tmp_path: Path) -> None:
    proposed = read_remembered(run)[0].own.copy()
    rows = np.flatnonzero(proposed == 1)[:9]
    proposed[rows] = 2
    other = propose(run, tmp_path / "other", proposed)
    assert clusters_of(other, OLD[rows]) == [1] * 9
    review = ucds.Review(other)
    question = review.question()
    assert question is not None
    assert sorted(map(int, question.groups[0])) == rows.tolist()
    assert question.clusters[:3] == (1, 2, 1)  # a part of 1, what is proposed, or the rest of 1
    assert question.titles[:3] == ("part of cluster 1", "cluster 2", "the rest of cluster 1")
    assert "9 samples do not belong in cluster 1" in question.about
    review.answer(1)  # with the rest
    assert {review.clusters[str(row)] for row in rows} == {1}
    review.undo()
    review.answer(0)
    assert {review.clusters[str(row)] for row in rows} == {2}


def test_a_cluster_that_would_be_part_of_another_is_asked_about_as_a_whole(run: Path, tmp_path: Path) -> None:
    own = read_remembered(run)[0].own
    review = ucds.Review(propose(run, tmp_path / "other", np.where(own == 1, 2, own)))
    question = review.question()
    assert question is not None
    assert all(question.groups)
    assert question.clusters[:2] == (1, 2)
    review.answer("two" if question.kind == "one-or-two" else "new")
    again = review.question()
    assert again is None or again.clusters[:2] != (1, 2)
    review.undo()
    review.answer("one" if question.kind == "one-or-two" else 0)
    assert len(set(review.clusters.values())) == K - 1


@pytest.mark.parametrize("given", ["mixed", "first", "last", "random"])
def test_a_person_comes_to_an_end_whatever_is_answered(run: Path, tmp_path: Path, given: str) -> None:
    own, rng = read_remembered(run)[0].own, np.random.default_rng(0)
    proposed = np.where(rng.random(len(OLD)) < 0.3, rng.integers(K + 1, size=len(OLD)), own)
    proposed[own == 1], proposed[own == 0] = 2, K  # whole clusters: to another, and to a new one
    review, asked = ucds.Review(propose(run, tmp_path / "other", proposed)), 0
    while (question := review.question()) is not None:
        *answers, _ = question.records
        of = {"first": 0, "last": -1, "random": int(rng.integers(len(answers)))}
        review.answer(answers[of[given]] if given in of else given)
        asked += 1
        assert asked < len(OLD)


def test_what_a_person_has_said_stays_in_force(run: Path, tmp_path: Path) -> None:
    review = ucds.Review(run)
    cluster = review.clusters["0"]
    review.move(["0"], (cluster + 1) % K)
    review.aside(["1"])
    review.name(cluster, "cats")
    done = ucds.update(run, saved(tmp_path / "new.npy", NEW), tmp_path / "next", compute=CPU)
    (run / "answers.jsonl").unlink()
    again = ucds.update(
        tmp_path / "next", saved(tmp_path / "more.npy", STRANGE), tmp_path / "last", compute=CPU
    )
    assert again.joined == len(STRANGE)
    for path in (done.path, again.path):
        found = ucds.predict(path, OLD[:2], compute=CPU)
        assert found.clusters.tolist() == [(cluster + 1) % K, -1]
        assert found.source == ["person", "person"]
        assert ucds.Review(path).names == {cluster: "cats"}


def labels_of(ids: list[str], kinds: np.ndarray, provider: str = "clinic") -> ucds.ClusterLabels:
    return ucds.ClusterLabels(ids, kinds, K, provider)


def test_labels_of_the_new_samples_come_from_the_same_provider(run: Path, tmp_path: Path) -> None:
    ids = [str(i) for i in range(len(OLD))]
    old, new = saved(tmp_path / "old.npy", OLD), saved(tmp_path / "new.npy", NEW)
    with_labels = ucds.train_target(
        old, tmp_path / "run", labels=labels_of(ids, OLD_KIND), settings=BRIEF, compute=CPU
    ).folder
    given = labels_of(ids[: len(NEW)], NEW_KIND)
    ucds.update(with_labels, new, tmp_path / "next", labels=given, compute=CPU)
    kept = ucds.ClusterLabels.load(tmp_path / "next" / "labels.json")
    assert kept.labels.tolist() == [*OLD_KIND.tolist(), *NEW_KIND.tolist()]
    ucds.update(with_labels, new, tmp_path / "without", compute=CPU)
    assert len(ucds.ClusterLabels.load(tmp_path / "without" / "labels.json").ids) == len(OLD)
    other = labels_of(ids[: len(NEW)], NEW_KIND, "another")
    for source, some, message in ((with_labels, other, "ask the same model"), (run, given, "without labels")):
        with pytest.raises(ucds.InputError, match=message):
            ucds.update(source, new, tmp_path / "refused", labels=some, compute=CPU)
    assert not (tmp_path / "refused").exists()


def test_unfinished_runs_and_folders_in_use_are_refused(run: Path, tmp_path: Path) -> None:
    new = saved(tmp_path / "new.npy", NEW)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text("{}")
    with pytest.raises(ucds.InputError, match="not finished"):
        ucds.update(tmp_path / "half", new, tmp_path / "next", compute=CPU)
    with pytest.raises(ucds.InputError, match="is not empty: choose another `out`$"):
        ucds.update(run, new, run, compute=CPU)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half", "new.npy"]


def test_the_same_update_gives_the_same_run(run: Path, batch: Path, updated: Path, tmp_path: Path) -> None:
    again = ucds.update(run, batch, tmp_path / "next", compute=CPU).path
    files = [sorted(folder.iterdir()) for folder in (updated, again)]
    assert [path.name for path in files[0]] == [path.name for path in files[1]]
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def table(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_predictions_tell_how_well_new_samples_fit(run: Path, tmp_path: Path) -> None:
    found = ucds.predict(run, np.concatenate([OLD[:5], NEW, STRANGE]), tmp_path / "c.csv", compute=CPU)
    fits = [row["fits"] for row in table(tmp_path / "c.csv")]
    assert fits[:5] == [""] * 5  # the run knows them
    assert max(map(float, fits[5 + len(NEW) :])) <= 0.05
    assert np.median(list(map(float, fits[5 : 5 + len(NEW)]))) > 0.2
    assert len(STRANGE) <= found.strangers <= len(STRANGE) + 3
    alone = ucds.predict(run, np.stack([STRANGE[0], NEW[0]]), compute=CPU).fits
    assert alone is not None
    assert alone[0] <= 0.05 < alone[1]


def test_the_report_tells_what_is_in_no_cluster_and_what_an_update_did(
    run: Path, batch: Path, updated: Path, tmp_path: Path
) -> None:
    told = ucds.report(run, batch, tmp_path / "r.html", compute=CPU).summary
    assert any(f"{len(STRANGE)} of the samples shown are in no cluster" in line for line in told)
    told = ucds.report(updated, out=tmp_path / "r.html", compute=CPU).summary
    assert any(f"joined: {len(NEW) + len(STRANGE)};" in line for line in told)


def write_scanners(path: Path, scanners: list[str]) -> Path:
    rows = [f"{i},{scanner},{i // 5}" for i, scanner in enumerate(scanners)]
    path.write_text("\n".join(["id,scanner,patient", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a table: scanner B made the samples of one kind, which have a cluster of their own."""
    place = tmp_path_factory.mktemp("told")
    table = write_scanners(place / "about.csv", ["AB"[int(kind == 0)] for kind in OLD_KIND])
    old, given = saved(place / "old.npy", OLD), {"about": table, "group": "patient"}
    run = ucds.train_target(old, place / "run", n_clusters=K, settings=BRIEF, compute=CPU, **given).folder
    table.unlink()
    return run


def test_a_run_keeps_what_a_table_told_of_its_samples(told: Path, tmp_path: Path) -> None:
    moved = saved(tmp_path / "moved.npy", OLD[::-1])  # other ids
    for images in (None, moved):
        assert any("have the scanner" in line for line in ucds.report(told, images, compute=CPU).summary)
    other = saved(tmp_path / "other.npy", NEW)  # the ids of others
    assert not any("scanner" in line for line in ucds.report(told, other, compute=CPU).summary)
    part = saved(tmp_path / "part.npy", np.concatenate([OLD, NEW]))
    with pytest.warns(ucds.UcdsWarning, match="60 new samples lack values of scanner, patient"):
        ucds.report(told, part, compute=CPU)
    damaged = shutil.copytree(told, tmp_path / "damaged")
    (damaged / "about.npz").write_bytes(b"no table")
    with pytest.raises(ucds.DamagedFileError, match="about.npz is damaged"):
        ucds.report(damaged, compute=CPU)


def test_an_update_keeps_what_old_and_new_tables_tell(told: Path, tmp_path: Path) -> None:
    table = write_scanners(tmp_path / "week.csv", ["AB"[int(kind == 0)] for kind in NEW_KIND])
    new = saved(tmp_path / "new.npy", NEW)
    heard = Listener()
    compute = ucds.Compute("cpu", reporter=heard)
    done = ucds.update(told, new, tmp_path / "next", about=table, compute=compute)
    assert any("the clusters follow 1 of 1 columns: scanner" in line for line in heard.said)
    table.unlink()
    assert any("have the scanner" in line for line in ucds.report(done.path, compute=CPU, images=new).summary)
    kept = KeptAbout.load(done.path / "about.npz")
    assert kept is not None
    assert (kept.group, list(kept.columns)) == ("patient", ["scanner", "patient"])
    kinds = np.concatenate([OLD_KIND, NEW_KIND])
    assert kept.columns["scanner"] == ["AB"[int(kind == 0)] for kind in kinds]
    with pytest.raises(ucds.InputError, match="there is no column 'ward'"):
        ucds.update(told, new, tmp_path / "other", group="ward", compute=CPU)


SHIFTS = 30 * np.random.default_rng(5).normal(size=(3, WIDTH)).astype(np.float32)
"""How far each scanner moves what it sees."""


@pytest.fixture(scope="module")
def centred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is centred by the scanner, beside its samples and its table."""
    place, scanner = tmp_path_factory.mktemp("centred"), np.arange(len(OLD)) % 2
    old = saved(place / "old.npy", OLD + SHIFTS[scanner])
    table = write_scanners(place / "about.csv", ["AB"[one] for one in scanner])
    given = {"about": table, "centre_by": "scanner"}
    return ucds.train_target(old, place / "run", n_clusters=K, settings=BRIEF, compute=CPU, **given).folder


def test_a_centred_run_sees_new_groups_from_their_own_means(centred: Path, tmp_path: Path) -> None:
    old, new = centred.with_name("old.npy"), saved(tmp_path / "new.npy", NEW + SHIFTS[2])
    week = write_scanners(tmp_path / "week.csv", ["C"] * len(NEW))
    done = ucds.update(centred, new, tmp_path / "next", about=week, compute=CPU)
    assert (done.joined, done.new_clusters, done.waiting) == (len(NEW), (), 0)
    before = ucds.predict(done.path, old, compute=CPU).clusters
    number = {int(kind): int(cluster) for kind, cluster in zip(OLD_KIND, before, strict=True)}
    after = ucds.predict(done.path, new, compute=CPU).clusters  # it needs no table any more
    assert np.mean([number[int(kind)] == own for kind, own in zip(NEW_KIND, after, strict=True)]) > 0.95
    few = saved(tmp_path / "few.npy", NEW[:3] + SHIFTS[2])  # too few for a mean of their own
    again = ucds.predict(done.path, few, about=write_scanners(week, ["C"] * 3), compute=CPU).clusters
    assert [number[int(kind)] for kind in NEW_KIND[:3]] == again.tolist()


def test_a_damaged_file_of_a_centred_run_names_a_remedy_that_helps(centred: Path, tmp_path: Path) -> None:
    old, table = (centred.with_name(name) for name in ("old.npy", "about.csv"))
    before, run = ucds.predict(centred, old, compute=CPU), shutil.copytree(centred, tmp_path / "run")
    (run / "about.npz").write_bytes(b"no table")
    with pytest.raises(ucds.DamagedFileError, match="delete it, and give its table again as `about`"):
        ucds.predict(run, old, compute=CPU)
    (run / "about.npz").unlink()
    with pytest.raises(ucds.InputError, match="was centred by scanner, .* give a table with this column as"):
        ucds.predict(run, old, compute=CPU)
    found = ucds.predict(run, old, about=table, compute=CPU)
    assert found.clusters.tolist() == before.clusters.tolist()


def test_the_votes_of_very_many_samples_are_read_again(tmp_path: Path) -> None:
    n, most = 120_000, 64 + 80  # clusterings of a training, and of its second opinion
    keys = [i.to_bytes(KEY_BYTES, "big") for i in range(n)]
    votes, own = np.zeros((most, n), np.uint8), np.zeros(n, np.int64)
    write_remembered(tmp_path, Remembered(tuple(map(str, range(n))), votes, own, 2, keys))
    write_features(tmp_path, np.zeros((n, 1), np.float32))
    assert read_remembered(tmp_path)[0].partitions.shape == votes.shape
