"""A review asks, keeps every answer, goes on where it was left, and writes a run that has the clusters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ucds
from ucds.exports.hub import write_card
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import clustering_accuracy
from ucds.target.names import NAMES_FILE, ClusterNames
from ucds.target.questions import ANSWERS_FILE, Answer, Question
from ucds.target.remembered import number_alike
from ucds.target.review import Review
from ucds.training.model_file import load_model

K = 6


def make_embeddings() -> tuple[np.ndarray, np.ndarray]:
    """Six groups of which two lie so near to each other that they are easily taken for one."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(K, 16))
    centres[1] = centres[0] + 0.35 * rng.normal(size=16)
    truth = np.repeat(np.arange(K), [40, 40, 30, 30, 30, 30])
    return (centres[truth] + 0.45 * rng.normal(size=(len(truth), 16))).astype(np.float32), truth


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A run of five clusters where there are six groups; and the group of every sample."""
    folder = tmp_path_factory.mktemp("review")
    vectors, truth = make_embeddings()
    np.save(folder / "target.npy", vectors)
    ucds.train_target(folder / "target.npy", folder / "run", n_clusters=5)
    return folder / "run", {str(i): int(group) for i, group in enumerate(truth)}


@pytest.fixture
def run(trained: tuple[Path, dict[str, int]]) -> Path:
    (trained[0] / ANSWERS_FILE).unlink(missing_ok=True)
    return trained[0]


@pytest.fixture
def truth(trained: tuple[Path, dict[str, int]]) -> dict[str, int]:
    return trained[1]


def right_answer(question: Question, truth: Mapping[str, int]) -> Answer:
    kinds = [int(np.bincount([truth[name] for name in group]).argmax()) for group in question.groups]
    if question.kind == "one-or-two":
        return "one" if kinds[0] == kinds[1] else "two"
    same = [i for i, kind in enumerate(kinds[1:]) if kind == kinds[0]]
    return same[0] if same else "new"


def score(review: Review, truth: Mapping[str, int]) -> float:
    return clustering_accuracy(np.array(list(review.clusters.values())), np.array(list(truth.values())))


def answer_all(review: Review, truth: Mapping[str, int], most: int = 12) -> None:
    for _ in range(most):
        question = review.question()
        if question is None:
            break
        review.answer(right_answer(question, truth))


def test_right_answers_find_the_group_that_was_missing(run: Path, truth: dict[str, int]) -> None:
    review = Review(run)
    before = score(review, truth)
    answer_all(review, truth)
    assert score(review, truth) >= before + 0.1
    assert len(set(review.clusters.values())) == K


def test_a_review_goes_on_where_it_was_left(run: Path, truth: dict[str, int]) -> None:
    review = Review(run)
    answer_all(review, truth, most=4)
    again = Review(run)
    assert again.clusters == review.clusters
    assert again.question() == review.question()
    assert again.answered == 4


def test_a_line_that_a_crash_cut_off_does_not_count(run: Path, truth: dict[str, int]) -> None:
    review = Review(run)
    answer_all(review, truth, most=3)
    with (run / ANSWERS_FILE).open("ab") as file:
        file.write(b'{"did": "separated", "group"')
    assert Review(run).clusters == review.clusters


def test_undo_takes_back_the_last_answer_and_asks_it_again(run: Path, truth: dict[str, int]) -> None:
    review = Review(run)
    answer_all(review, truth, most=2)
    question, clusters = review.question(), review.clusters
    assert question is not None
    review.answer(right_answer(question, truth))
    review.undo()
    assert review.clusters == clusters
    assert review.question() == question
    assert review.answered == 2


@pytest.mark.parametrize("given", ["mixed", "skip"])
def test_answers_that_say_nothing_change_nothing_and_are_not_asked_again(run: Path, given: Answer) -> None:
    review = Review(run)
    question, clusters = review.question(), review.clusters
    assert question is not None
    review.answer(given)
    assert review.clusters == clusters
    assert review.question() != question


def test_what_is_no_answer_is_refused_and_not_kept(run: Path) -> None:
    review = Review(run)
    question = review.question()
    assert question is not None
    for given in ("three", 99, -1, None, True):
        with pytest.raises(ucds.InputError, match="is no answer"):
            review.answer(given)  # type: ignore[arg-type]
    assert not (run / ANSWERS_FILE).exists()


def test_samples_are_moved_and_clusters_joined_by_hand(run: Path) -> None:
    review = Review(run)
    one, other = sorted(set(review.clusters.values()))[:2]
    name = next(name for name, cluster in review.clusters.items() if cluster == one)
    review.move([name], other)
    assert review.clusters[name] == other
    review.join(one, other)
    assert len(set(review.clusters.values())) == 4
    assert Review(run).clusters == review.clusters
    joined = review.clusters[name]  # the number of the larger of the two
    with pytest.raises(ucds.InputError, match="no sample 'nobody'"):
        review.move(["nobody"], joined)
    with pytest.raises(ucds.InputError, match="no cluster 77"):
        review.join(joined, 77)


def test_the_number_of_clusters_can_be_kept(run: Path, truth: dict[str, int]) -> None:
    review = Review(run, keep_clusters=True)
    answer_all(review, truth)
    assert len(set(review.clusters.values())) == 5


def test_the_reviewed_run_has_the_clusters(run: Path, truth: dict[str, int], tmp_path: Path) -> None:
    review = Review(run)
    with pytest.raises(ucds.InputError, match="no answer was given"):
        review.finish(tmp_path / "none")
    answer_all(review, truth)
    found = review.finish(tmp_path / "reviewed")
    assert found.agreement > 0.9
    given = ucds.load(found.path).predict(run.parent / "target.npy")
    assert (given == np.array(list(review.clusters.values()))).mean() == pytest.approx(found.agreement)
    with pytest.raises(ucds.InputError, match="is not empty"):
        review.finish(tmp_path / "reviewed")
    second = Review(found.path)
    assert list(second.clusters.values()) == list(review.clusters.values())


def test_answers_are_taken_over_by_the_ids_of_samples(
    run: Path, truth: dict[str, int], tmp_path: Path
) -> None:
    review = Review(run)
    answer_all(review, truth, most=6)
    expected = review.clusters
    kept = tmp_path / "answers.jsonl"
    (run / ANSWERS_FILE).rename(kept)
    other = Review(run)
    assert other.take(kept) == (6, 0)
    assert other.clusters == expected


@pytest.mark.parametrize("content", ["", "no answers\n", '{"format": "ucds-answers/9"}\n', "[1]\n"])
def test_a_file_that_holds_no_answers_is_refused(run: Path, content: str) -> None:
    (run / ANSWERS_FILE).write_text(content)
    with pytest.raises(ucds.DamagedFileError, match="holds no answers"):
        Review(run)


def test_answers_about_other_clusters_are_refused(run: Path) -> None:
    (run / ANSWERS_FILE).write_text(json.dumps({"format": "ucds-answers/1", "clusters": "0"}) + "\n")
    with pytest.raises(ucds.DamagedFileError, match="belongs to other clusters"):
        Review(run)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match="is not a run folder"):
        Review(tmp_path)


def test_a_name_stays_with_its_cluster_and_comes_into_the_reviewed_run(run: Path, tmp_path: Path) -> None:
    review = Review(run)
    one, other = sorted(set(review.clusters.values()))[:2]
    review.name(one, " cats ")
    review.join(one, other)
    (number,) = review.names
    assert review.names == {number: "cats"}
    assert Review(run).names == review.names
    found = review.finish(tmp_path / "named")
    names = ClusterNames.load(found.path / NAMES_FILE)
    assert names.of(load_model(found.path)) == {number: "cats"}
    assert Review(found.path).names == {number: "cats"}
    review.name(number, "")
    assert review.names == {}
    with pytest.raises(ucds.InputError, match="at most 80"):
        review.name(number, 81 * "x")


def test_questions_are_foreseen_with_the_records_of_their_answers(run: Path, tmp_path: Path) -> None:
    review = Review(run)
    foreseen = review.foresee(10)
    assert 1 <= len(foreseen) <= min(10, review.worth_asking)
    assert foreseen[0] == review.question()
    assert review.answered == 0
    question = foreseen[0]
    assert list(question.records) == [given for _, given in question.answers if given != "skip"]
    given, record = next(iter(question.records.items()))
    lines = [{"format": "ucds-answers/1", "clusters": review.start.digest}, {**record, "number": 1}]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    review.answer(given)
    expected = review.clusters
    (run / ANSWERS_FILE).unlink()
    other = Review(run)
    assert other.take(tmp_path / "answers.jsonl") == (1, 0)
    assert other.clusters == expected


def test_the_outlook_says_how_much_is_open_and_what_comes_first(run: Path) -> None:
    review = Review(run)
    assert re.match(
        r"\d+ questions? to a person may be worth asking; the first: some of your", review.outlook
    )
    while review.question() is not None:
        review.answer("skip")
    assert review.outlook == "no question to a person is likely to be worth its time"


def test_a_run_that_trained_its_encoder_votes_when_its_review_begins(tmp_path: Path) -> None:
    vectors, truth = make_embeddings()
    np.save(tmp_path / "target.npy", vectors)
    labels = ClusterLabels(tuple(map(str, range(len(truth)))), truth, K, "a provider")
    settings = ucds.PCDSettings(clustering_epochs=1, refinement_epochs=1)
    ucds.train_target(tmp_path / "target.npy", tmp_path / "run", labels=labels, settings=settings)
    review = Review(tmp_path / "run")
    assert list(review.clusters.values()) == list(
        ucds.load(tmp_path / "run").predict(tmp_path / "target.npy")
    )
    answer_all(review, {str(i): int(group) for i, group in enumerate(truth)}, most=3)
    found = review.finish()
    assert found.path == tmp_path / "run-reviewed"
    assert Review(found.path).clusters == review.clusters


def test_own_clusters_get_the_numbers_of_those_that_they_overlap_most() -> None:
    clusters, others = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 0, 1])
    assert number_alike(clusters, others).tolist() == [2, 2, 0, 0, 1, 1]


def test_numbers_stay_in_the_card_in_predictions_and_in_exports(run: Path, tmp_path: Path) -> None:
    review = Review(run)
    sizes = np.bincount(list(review.clusters.values()))
    kept, gone = sizes.argmax(), sizes.argmin()
    review.join(int(gone), int(kept))
    largest = next(name for name, cluster in review.clusters.items() if cluster == kept)
    found = review.finish(tmp_path / "reviewed")
    assert review.clusters[largest] == kept
    assert found.n_clusters == 4
    model = ucds.load(found.path)
    assert model.stored.card.n_clusters == 5
    predicted = ucds.predict(found.path, run.parent / "target.npy").clusters
    assert set(predicted.tolist()) == set(range(5)) - {int(gone)}
    assert f"| {gone} | 0.000 |" in write_card(model.stored, found.path)
    graph = ucds.export(found.path, tmp_path / "model.onnx").path
    vectors = np.load(run.parent / "target.npy")
    probabilities = onnxruntime.InferenceSession(graph).run(["probabilities"], {"embeddings": vectors})[0]
    assert probabilities.argmax(1).tolist() == predicted.tolist()


def test_a_new_cluster_gets_a_number_that_no_other_had(
    run: Path, truth: dict[str, int], tmp_path: Path
) -> None:
    review = Review(run)
    sizes = np.bincount(list(review.clusters.values()))
    review.join(int(sizes.argmin()), int(sizes.argmax()))
    again = Review(review.finish(tmp_path / "joined").path)
    answer_all(again, truth)
    assert set(again.clusters.values()) - set(review.clusters.values()) == {5, 6}


def test_samples_that_were_not_drawn_follow_the_reviewed_model(tmp_path: Path) -> None:
    vectors, truth = make_embeddings()
    np.save(tmp_path / "target.npy", vectors)
    settings = ucds.ConsensusSettings(most_samples=120)
    ucds.train_target(tmp_path / "target.npy", tmp_path / "run", n_clusters=5, settings=settings)
    review = Review(tmp_path / "run")
    assert len(review.clusters) == 120
    group = {name: int(truth[int(name)]) for name in review.clusters}
    answer_all(review, group)
    assert len(set(review.clusters.values())) == K
    found = review.finish()
    everyone = ucds.predict(found.path, tmp_path / "target.npy")
    assert clustering_accuracy(everyone.clusters, truth) > 0.9
    given = dict(zip(everyone.ids, everyone.clusters.tolist(), strict=True))
    same = [given[name] == cluster for name, cluster in review.clusters.items()]
    assert np.mean(same) == pytest.approx(found.agreement)
    assert "questions" in ucds.report(tmp_path / "run").path.read_text()


def test_samples_of_several_clusters_are_moved_together(run: Path) -> None:
    review = Review(run)
    numbers = sorted(set(review.clusters.values()))
    names = [next(name for name, found in review.clusters.items() if found == number) for number in numbers]
    review.move([*names, next(n for n, c in review.clusters.items() if c == 2 and n not in names)], 2)
    assert {review.clusters[name] for name in names} == {2}
