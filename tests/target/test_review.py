"""A review asks, keeps every answer, goes on where it was left, and writes a run that has the clusters."""

import json
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from quick import Listener, quick

import ucds
from ucds.exports.hub import write_card
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import clustering_accuracy
from ucds.target.answers import ANSWERS_FILE
from ucds.target.predictions import read_names
from ucds.target.questions import Answer, Question
from ucds.target.remembered import number_alike
from ucds.target.review import Review
from ucds.training.model_file import load_model
from ucds.training.run_folder import FEATURES_FILE

BRIEF = quick()
K = 6


def make_embeddings() -> tuple[np.ndarray, np.ndarray]:
    """Six groups of which two lie so near to each other that they are easily taken for one."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(K, 16))
    centres[1] = centres[0] + 0.35 * rng.normal(size=16)
    truth = np.repeat(np.arange(K), [40, 40, 30, 30, 30, 30])
    return (centres[truth] + 0.45 * rng.normal(size=(len(truth), 16))).astype(np.float32), truth


VECTORS, GROUPS = make_embeddings()
TRUTH = {str(i): int(group) for i, group in enumerate(GROUPS)}


def train(folder: Path, **given: Any) -> Path:
    """Train on the embeddings; return the run."""
    np.save(folder / "target.npy", VECTORS)
    return ucds.train_target(folder / "target.npy", folder / "run", **{"settings": BRIEF} | given).folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five clusters where there are six groups."""
    return train(tmp_path_factory.mktemp("review"), n_clusters=5)


@pytest.fixture
def run(trained: Path) -> Path:
    """The run without answers."""
    (trained / ANSWERS_FILE).unlink(missing_ok=True)
    return trained


@pytest.fixture
def review(run: Path) -> Review:
    return Review(run)


def right_answer(question: Question) -> Answer:
    kinds = [int(np.bincount([TRUTH[name] for name in group]).argmax()) for group in question.groups]
    if question.kind == "one-or-two":
        return "one" if kinds[0] == kinds[1] else "two"
    same = [i for i, kind in enumerate(kinds[1:]) if kind == kinds[0]]
    return same[0] if same else "new"


def score(review: Review) -> float:
    return clustering_accuracy(list(review.clusters.values()), [TRUTH[name] for name in review.clusters])


def answer_all(review: Review, most: int = 12) -> None:
    for _ in range(most):
        question = review.question()
        if question is None:
            break
        review.answer(right_answer(question))


def test_right_answers_find_the_group_that_was_missing(review: Review) -> None:
    before = score(review)
    answer_all(review)
    assert score(review) >= before + 0.1
    assert len(set(review.clusters.values())) == K


def test_a_review_goes_on_where_it_was_left_whatever_line_a_crash_cut_off(review: Review) -> None:
    answer_all(review, most=4)
    for _ in range(2):
        again = Review(review.run)
        assert again.clusters == review.clusters
        assert again.question() == review.question()
        assert again.answered == 4
        with (review.run / ANSWERS_FILE).open("ab") as file:
            file.write(b'{"did": "separated", "group"')


@pytest.mark.parametrize("given", ["mixed", "skip"])
def test_answers_that_say_nothing_change_nothing_and_are_not_asked_again(
    review: Review, given: Answer
) -> None:
    question, clusters = review.question(), review.clusters
    assert question is not None
    review.answer(given)
    assert review.clusters == clusters
    assert review.question() != question


def test_the_reviewed_run_has_the_clusters(review: Review, tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match="no answer was given"):
        review.finish(tmp_path / "none")
    answer_all(review)
    largest = (review.run / FEATURES_FILE).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest // 2, limits[1]))  # as on a disk that is full
    try:
        with pytest.raises(ucds.UserError, match=r"^cannot write .*reviewed: File too large; free"):
            review.finish(tmp_path / "reviewed")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in tmp_path.iterdir() if "reviewed" in path.name]
    found = review.finish(tmp_path / "reviewed")
    assert found.agreement > 0.9
    assert found.path.stat().st_mode & 0o777 == 0o700
    given = ucds.load(found.path).predict(VECTORS)
    assert (given == np.array(list(review.clusters.values()))).mean() == pytest.approx(found.agreement)
    with pytest.raises(ucds.InputError, match="is not empty: choose another `out`$"):
        review.finish(tmp_path / "reviewed")
    second = Review(found.path)
    assert list(second.clusters.values()) == list(review.clusters.values())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "holds no answers"),
        ("no answers\n", "holds no answers"),
        ('{"format": "ucds-answers/9"}\n', "holds no answers"),
        ("[1]\n", "holds no answers"),
        ('{"format": "ucds-answers/1", "clusters": "0"}\n', "holds answers about other clusters"),
    ],
)
def test_a_file_of_other_answers_or_none_is_refused(run: Path, content: str, problem: str) -> None:
    (run / ANSWERS_FILE).write_text(content)
    with pytest.raises(ucds.DamagedFileError, match=problem):
        Review(run)


def test_a_name_stays_with_its_cluster_and_comes_into_the_reviewed_run(
    review: Review, tmp_path: Path
) -> None:
    one, other = sorted(set(review.clusters.values()))[:2]
    review.name(one, " cats ")
    review.join([one, other])
    (number,) = review.names
    assert review.names == {number: "cats"}
    assert Review(review.run).names == review.names
    found = review.finish(tmp_path / "named")
    assert read_names(found.path, load_model(found.path)) == {number: "cats"}
    assert Review(found.path).names == {number: "cats"}
    review.name(number, "")
    assert review.names == {}
    with pytest.raises(ucds.InputError, match="at most 80"):
        review.name(number, 81 * "x")
    names = {number: "both", (third := max(review.clusters.values())): "dogs"}
    for named, name in names.items():
        review.name(named, name)
    review.join([number, third])
    (stayed,) = {number, third} & set(review.clusters.values())
    assert review.names == {stayed: names[stayed]}  # the name of the one that stays


def test_a_question_has_the_records_of_its_answers(review: Review, tmp_path: Path) -> None:
    question = review.question()
    assert question is not None
    assert list(question.records) == [given for _, given in question.answers if given != "skip"]
    given, record = next(iter(question.records.items()))
    lines = [{"format": "ucds-answers/1", "clusters": review.start.digest}, {**record, "number": 1}]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    review.answer(given)
    expected = review.clusters
    (review.run / ANSWERS_FILE).unlink()
    other = Review(review.run)
    assert other.take(tmp_path / "answers.jsonl") == (1, 0)
    assert other.clusters == expected


def test_the_outlook_says_how_much_is_open_and_what_comes_first(review: Review) -> None:
    assert re.match(
        r"\d+ questions? (is|are) probably worth your time; the first: some of your", review.outlook
    )
    while review.question() is not None:
        review.answer("skip")
    assert review.outlook == "no question is likely to be worth your time"


@pytest.mark.torch
def test_of_a_run_that_trained_its_encoder_some_vote_those_with_a_label_first(tmp_path: Path) -> None:
    labelled = tuple(str(i) for i in range(150, 180))
    labels = ClusterLabels(labelled, GROUPS[150:180], K, "a provider")
    settings = ucds.PCDSettings(clustering_epochs=1, refinement_epochs=1, most_samples=120)
    with pytest.warns(ucds.UcdsWarning, match="30 of 200 samples have a label"):
        run = train(tmp_path, labels=labels, settings=settings)
    listener = Listener()
    review = Review(run, compute=ucds.Compute(reporter=listener))
    assert set(labelled) < set(review.clusters)
    assert len(review.clusters) == len(review.features) == 120
    assert listener.said[0].startswith("120 of 200 samples, drawn at random (setting most_samples)")
    predicted = ucds.load(run).predict(VECTORS)
    assert list(review.clusters.values()) == [predicted[int(name)] for name in review.clusters]
    answer_all(review, most=3)
    found = review.finish()
    assert found.path == tmp_path / "run-reviewed"
    assert Review(found.path).clusters == review.clusters
    everyone = ucds.predict(found.path, tmp_path / "target.npy")
    assert len(everyone.clusters) == 200


def test_own_clusters_get_the_numbers_of_those_that_they_overlap_most() -> None:
    clusters, others = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 0, 1])
    assert number_alike(clusters, others).tolist() == [2, 2, 0, 0, 1, 1]


def test_numbers_stay_in_the_card_in_predictions_and_in_exports(review: Review, tmp_path: Path) -> None:
    sizes = np.bincount(list(review.clusters.values()))
    kept, gone = sizes.argmax(), sizes.argmin()
    review.join([int(gone), int(kept)])
    largest = next(name for name, cluster in review.clusters.items() if cluster == kept)
    found = review.finish(tmp_path / "reviewed")
    assert review.clusters[largest] == kept
    assert found.n_clusters == 4
    model = ucds.load(found.path)
    assert model.stored.card.n_clusters == 5
    predicted = ucds.predict(found.path, review.run.parent / "target.npy").clusters
    assert set(predicted.tolist()) == set(range(5)) - {int(gone)}
    assert f"| {gone} | 0.000 |" in write_card(model.stored, found.path)
    graph = ucds.export(found.path, tmp_path / "model.onnx").path
    probabilities = onnxruntime.InferenceSession(graph).run(["probabilities"], {"embeddings": VECTORS})[0]
    assert probabilities.argmax(1).tolist() == predicted.tolist()


def test_samples_that_were_not_drawn_follow_the_reviewed_model(tmp_path: Path) -> None:
    review = Review(train(tmp_path, n_clusters=5, settings=quick(most_samples=120)))
    assert len(review.clusters) == 120
    answer_all(review)
    assert len(set(review.clusters.values())) == K
    found = review.finish()
    everyone = ucds.predict(found.path, tmp_path / "target.npy")
    assert clustering_accuracy(everyone.clusters, GROUPS) > 0.9
    given = dict(zip(everyone.ids, everyone.clusters.tolist(), strict=True))
    assert all(given[name] == cluster for name, cluster in review.clusters.items())
    alone = ucds.load(found.path).predict(VECTORS)  # the model, without what the person said
    same = [alone[int(name)] == cluster for name, cluster in review.clusters.items()]
    assert np.mean(same) == pytest.approx(found.agreement)
    assert ucds.report(tmp_path / "run").samples == len(VECTORS)
