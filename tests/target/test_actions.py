"""Every action changes what it says, is on the disk when it returns, and is taken back and done again."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds.target.answers import ANSWERS_FILE
from ucds.target.predictions import UNSORTED, read_names

CPU, K, EACH = ucds.Compute("cpu"), 5, 24
TRUTH = np.repeat(np.arange(10), EACH)
"""Ten groups, two of which are one cluster each."""


def make_vectors() -> np.ndarray:
    """Five groups far from each other, each of two near to each other."""
    rng = np.random.default_rng(1)
    centres = np.repeat(4 * rng.normal(size=(K, 16)), 2, axis=0) + 1.2 * rng.normal(size=(10, 16))
    return (centres[TRUTH] + 0.5 * rng.normal(size=(len(TRUTH), 16))).astype(np.float32)


VECTORS = make_vectors()


def train(samples: Path, out: Path, **given: Any) -> Path:
    return ucds.train_target(samples, out, n_clusters=K, compute=CPU, **given).folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("actions")
    np.save(folder / "x.npy", VECTORS)
    return train(folder / "x.npy", folder / "run")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run without answers."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def review(run: Path) -> ucds.Review:
    return ucds.Review(run, compute=CPU)


def numbers(review: ucds.Review, group: int) -> set[int]:
    """The clusters of the samples of one of the ten groups."""
    return set(review.partition[group == TRUTH].tolist())


def of(review: ucds.Review, group: int) -> int:
    """The cluster of the samples of one of the ten groups."""
    (number,) = numbers(review, group)
    return number


def ids(*rows: int) -> list[str]:
    return [str(row) for row in rows]


def state(review: ucds.Review) -> tuple[Any, ...]:
    """All that a person sees of a review."""
    question, finest = review.question(), review.cut(review.cuts[1], take=False).partition
    return (
        review.partition.tobytes(),
        review.seen.by_person.tobytes(),
        review.names,
        review.cuts,
        np.unique(finest, return_inverse=True)[1].tobytes(),  # its new numbers are others after an undo
        None if question is None else (question.kind, question.groups, question.clusters),
        review.worth_asking,
    )


def some_actions(review: ucds.Review) -> list[Callable[[], object]]:
    """One of each action, on the clusters that there are then."""
    a, b, c, d, _ = (of(review, 2 * i) for i in range(K))
    return [
        lambda: review.move(ids(0, 1, 50), b),
        lambda: review.name(a, "cats"),
        lambda: review.move(ids(0, 99), "new"),
        lambda: review.split(c, 2),
        lambda: review.answer("mixed"),
        lambda: review.aside(ids(3, 100, 200)),
        lambda: review.join([a, d, b]),
        lambda: review.move(ids(200), c),
        lambda: review.cut(review.cuts[1] - 2),
        lambda: review.cut(4),
        lambda: review.name(review.seen.numbers[0], "dogs"),
    ]


def test_samples_are_moved_to_a_cluster_or_become_a_new_one(review: ucds.Review) -> None:
    before, other = review.partition.copy(), of(review, 2)
    whole = [name for name, cluster in review.clusters.items() if cluster == other]
    assert review.move(whole, "new") == other  # it stays as it is
    assert review.recorded == 0
    assert review.move(np.array(ids(0, 1, 150)), other) == other
    new = review.move(iter(ids(5, 160)), "new")
    assert new == K
    assert (review.run / ANSWERS_FILE).stat().st_mode & 0o777 == 0o600
    expected = before.copy()
    expected[[0, 1, 150]], expected[[5, 160]] = other, new
    assert review.partition.tolist() == expected.tolist()
    assert np.flatnonzero(review.seen.by_person).tolist() == [0, 1, 5, 150, 160]
    assert review.seen.confidence[[0, 1, 5, 150, 160]].tolist() == [1] * 5


def test_what_is_set_aside_is_in_no_cluster_until_it_is_moved_back(review: ucds.Review) -> None:
    number = of(review, 0)
    review.aside(iter(ids(0, 1, 2)))
    assert review.partition[:4].tolist() == [UNSORTED] * 3 + [number]
    assert review.seen.members(UNSORTED, "row").tolist() == [0, 1, 2]
    assert review.seen.numbers == sorted({of(review, 2 * i) for i in range(1, K)} | {number})
    while (question := review.question()) is not None:
        assert all("0" not in group for group in question.groups)
        review.answer("skip")
    review.move(ids(0), number)
    assert review.partition[:3].tolist() == [number, UNSORTED, UNSORTED]
    review.move(ids(4), UNSORTED)
    assert review.partition[4] == UNSORTED


def test_several_clusters_become_one_with_the_number_of_the_largest(review: ucds.Review) -> None:
    small, other, large = of(review, 0), of(review, 2), of(review, 4)
    review.move(ids(0), large)
    assert review.join([small, large, other]) == large
    assert {of(review, group) for group in range(6)} == {large}
    assert len(review.seen.numbers) == K - 2
    assert np.flatnonzero(review.seen.by_person).tolist() == [0]  # the clusters were named, not their samples
    found = review.cut(review.cuts[1], take=False).partition  # where others get finer, they stay together
    kinds = [set(found[group == TRUTH].tolist()) for group in range(10)]
    assert set.union(*kinds[:2]) & set.union(*kinds[2:4]) & set.union(*kinds[4:6])
    assert not set.union(*kinds[:6]) & set.union(*kinds[6:])


def test_a_cluster_is_split_into_its_parts_after_it_was_shown(review: ucds.Review) -> None:
    number = of(review, 0)
    shown = review.split(number, 2, take=False)
    assert review.recorded == 0
    assert of(review, 0) == of(review, 1) == number
    taken = review.split(number, 2)
    assert taken.partition.tolist() == shown.partition.tolist() == review.partition.tolist()
    assert shown.origins == taken.origins == {number: (number,), K: (number,)}
    assert {of(review, 0), of(review, 1)} == {number, K}
    for parts in (3, 6):
        review.undo()
        given = review.split(number, parts).partition[: 2 * EACH]
        assert len(set(given.tolist())) == len({*given.tolist()} - set(range(K))) + 1 == parts


def test_clusters_get_finer_and_coarser_and_are_the_same_in_between(review: ucds.Review) -> None:
    least, most = review.cuts
    assert least == 2
    assert most >= 3 * K
    before = review.partition.copy()
    assert review.cut(K).origins == {}
    assert review.recorded == 0
    finer = review.cut(10, take=False)
    assert [len(set(finer.partition[group == TRUTH].tolist())) for group in range(10)] == [1] * 10
    assert len(set(finer.partition.tolist())) == 10
    assert all(len(old) == 1 for old in finer.origins.values())
    coarser = review.cut(2, take=False)
    assert sorted(set(coarser.partition.tolist())) == sorted(
        set(coarser.origins) | set(coarser.partition.tolist())
    )
    assert set(coarser.partition.tolist()) <= set(before.tolist())
    assert review.partition.tolist() == before.tolist()
    review.cut(10)
    assert review.partition.tolist() == finer.partition.tolist()
    review.cut(K)
    assert ucds.clustering_accuracy(review.partition, before) == 1
    for n in range(least, most + 1):
        assert len(set(review.cut(n, take=False).partition.tolist())) == n


def test_answers_are_bounds_of_finer_and_coarser_clusters(review: ucds.Review) -> None:
    apart = review.split(of(review, 0), 2).origins  # a person says that these are two
    moved = list(range(4 * EACH, 4 * EACH + 6))  # and that these belong elsewhere
    review.move(ids(*moved), home := of(review, 2))
    review.aside(ids(9))
    for n in range(review.cuts[0], review.cuts[1] + 1):
        found = review.cut(n, take=False).partition
        assert len(set(found[found != UNSORTED].tolist())) == n
        one, other = (found[np.flatnonzero(review.partition == number)] for number in apart)
        assert not set(one.tolist()) & set(other.tolist())
        assert len(set(found[moved].tolist())) == 1
        assert found[moved[0]] == home or n < 4  # with the largest part of its cluster
        assert found[9] == UNSORTED


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda review: review.move(["nobody"], 0), "no sample 'nobody'"),
        (lambda review: review.move([], 0), "no sample is named"),
        (lambda review: review.move(["0"], 77), "no cluster 77"),
        (lambda review: review.aside(["nobody"]), "no sample 'nobody'"),
        (lambda review: review.join([1]), "at least two different clusters"),
        (lambda review: review.join([1, 1]), "at least two different clusters"),
        (lambda review: review.join([1, UNSORTED]), "no cluster -1"),
        (lambda review: review.split(0, 7), "2 to 6 parts, not 7"),
        (lambda review: review.split(77, 2), "no cluster 77"),
        (lambda review: review.cut(1), r"2 to \d+ clusters can be made of these samples, not 1"),
        (lambda review: review.name(77, "cats"), "no cluster 77"),
        *(
            (lambda review, given=given: review.answer(given), "does not answer a question")
            for given in ("three", 99, -1, None, True)
        ),
        (lambda review: review.like(["nobody"]), "no sample 'nobody'"),
        (lambda review: review.seen.members(77), "no cluster 77"),
    ],
)
def test_what_cannot_be_done_is_refused_and_not_recorded(
    review: ucds.Review, wrong: Callable[[ucds.Review], object], problem: str
) -> None:
    with pytest.raises(ucds.InputError, match=problem):
        wrong(review)
    assert not (review.run / ANSWERS_FILE).exists()


def test_all_actions_are_taken_back_and_done_again_one_by_one(review: ucds.Review) -> None:
    states = [state(review)]
    for action in some_actions(review):
        action()
        states.append(state(review))
        assert state(ucds.Review(review.run)) == states[-1]  # what was written is all there is
    for expected in reversed(states[:-1]):
        review.undo()
        assert state(review) == expected
        assert state(ucds.Review(review.run)) == expected
    review.undo()
    assert state(review) == states[0]
    assert review.can_redo
    for expected in states[1:]:
        review.redo()
        assert state(review) == expected
    assert state(ucds.Review(review.run)) == expected
    assert not review.can_redo
    review.undo()
    review.name(review.seen.numbers[0], "another")
    before = state(review)
    review.redo()
    assert state(review) == before


def test_no_number_is_given_twice_whatever_is_taken_back(review: ucds.Review, tmp_path: Path) -> None:
    given = [review.move(ids(0), "new")]
    review.undo()
    given.append(review.move(ids(7), "new"))
    review.move(ids(7), of(review, 2))  # the new cluster is no more
    given.append(review.split(of(review, 4), 2).partition.max())
    review.undo()
    given.append(ucds.Review(review.run).move(ids(9), "new"))
    assert given == [K, K + 1, K + 2, K + 3]
    again = ucds.Review(ucds.Review(review.run).finish(tmp_path / "out").path)
    assert again.move(ids(30), "new") == K + 4


KILLED = """
import random, sys
import ucds
review = ucds.Review(sys.argv[1])
rng = random.Random(0)
print("begin", flush=True)
for turn in range(1000):
    names = [str(i) for i in rng.sample(range(240), 40)]
    if turn % 5 == 4:
        review.undo()
    elif turn % 5 == 3:
        review.aside(names[:3])
    else:
        review.move(names, rng.choice([*review.seen.numbers, "new"]))
    print(review.recorded, review.partition.tolist(), flush=True)
"""


def test_nothing_that_was_shown_is_lost_by_a_kill_and_nothing_is_done_twice(run: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(ucds.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        threading.Timer(0.2, process.kill).start()
        shown = process.stdout.read().splitlines()
    if shown and not shown[-1].endswith("]"):
        shown.pop()
    again = ucds.Review(run)
    assert again.recorded - len(shown) in (0, 1)
    if again.recorded == len(shown) and shown:
        recorded, partition = shown[-1].split(" ", 1)
        assert (again.recorded, again.partition.tolist()) == (int(recorded), json.loads(partition))


def test_actions_hold_in_another_training_for_the_contents_of_samples(
    review: ucds.Review, tmp_path: Path
) -> None:
    """The samples are in another order there, so that their ids differ, and some are new."""
    for action in some_actions(review)[:8]:
        action()
    order = np.random.default_rng(0).permutation(len(VECTORS))
    more = (VECTORS[:20] + 0.01).astype(np.float32)
    np.save(tmp_path / "y.npy", np.concatenate([VECTORS[order], more]))
    run = train(tmp_path / "y.npy", tmp_path / "second", settings=quick())
    other = ucds.Review(run)
    assert other.take(review.run / ANSWERS_FILE) == (8, 0)
    again = other.clusters
    assert other.take(review.run / ANSWERS_FILE) == (8, 0)  # which change nothing a second time
    assert (other.answered, other.clusters) == (8, again)
    found, expected = other.partition[: len(order)], review.partition[order]
    assert ((found == UNSORTED) == (expected == UNSORTED)).all()
    assert ucds.clustering_accuracy(found + 1, expected + 1) == 1
    assert (other.seen.by_person[: len(order)] == review.seen.by_person[order]).all()
    assert list(other.names.values()) == ["cats"]
    assert state(ucds.Review(run)) == state(other)


def test_with_another_encoder_of_embeddings_the_ids_count(review: ucds.Review, tmp_path: Path) -> None:
    review.move(ids(0, 50), "new")
    np.save(tmp_path / "y.npy", VECTORS @ np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32))
    run = train(tmp_path / "y.npy", tmp_path / "second", settings=quick())
    other = ucds.Review(run)
    assert other.take(review.run / ANSWERS_FILE) == (1, 0)
    assert np.flatnonzero(other.partition == K).tolist() == [0, 50]


def test_a_model_learns_nothing_from_what_is_set_aside(review: ucds.Review, tmp_path: Path) -> None:
    odd = list(range(0, 12))
    review.aside(ids(*odd))
    found = review.finish(tmp_path / "out")
    again = ucds.Review(found.path, compute=CPU)
    assert np.flatnonzero(again.partition == UNSORTED).tolist() == odd
    predicted = ucds.predict(found.path, VECTORS, compute=CPU)
    assert np.flatnonzero(predicted.clusters == UNSORTED).tolist() == odd
    assert predicted.source is not None
    assert {predicted.source[row] for row in odd} == {"person"}
    assert set(predicted.source) == {"person", "clustering"}
    again.move(ids(0), number := int(again.partition[20]))
    last = again.finish(tmp_path / "last")
    predicted = ucds.predict(last.path, VECTORS, compute=CPU)
    assert predicted.clusters[:12].tolist() == [number] + [UNSORTED] * 11
    everything = ucds.Review(last.path)
    everything.aside(list(everything.start.ids))
    with pytest.raises(ucds.InputError, match="every sample is set aside"):
        everything.finish(tmp_path / "nothing")


def test_names_alone_are_finished_with_the_model_as_it_is(review: ucds.Review, tmp_path: Path) -> None:
    review.name(0, "cats")
    found = review.finish(tmp_path / "out")
    before, after = (ucds.load(run, compute=CPU) for run in (review.run, found.path))
    assert (before.predict_proba(VECTORS) == after.predict_proba(VECTORS)).all()
    assert read_names(found.path, after.stored) == {0: "cats"}


def test_a_run_is_finished_in_a_thread_as_it_was_while_actions_go_on(
    review: ucds.Review, tmp_path: Path
) -> None:
    review.move(ids(0, 1, 2), other := of(review, 4))
    expected = review.partition.copy()
    thread = threading.Thread(target=review.finish, args=[tmp_path / "out"])
    thread.start()
    while thread.is_alive():
        review.move(ids(100), other)
        review.undo()
        assert review.seen.members(other)[:1].tolist()
    thread.join()
    assert ucds.Review(tmp_path / "out").partition.tolist() == expected.tolist()
