"""Tests of `ucds audit`: its attacks against known answers, and from samples to report, also of a service."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import run_successfully
from label_service import source_model
from serving_kit import running
from sklearn.cluster import KMeans

from ucds.auditing import attacks, subject
from ucds.auditing.audit import QUICK, Effort, audit
from ucds.auditing.report import Findings
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import InputError, RefusedError
from ucds.heads import Head
from ucds.labels.client import LabelClient
from ucds.math.spaces import unit_rows
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.training.model_file import load_model, save_model
from ucds.training.options import Compute, EncoderOptions

WIDTH = 16


def draw(count: int, seed: int) -> np.ndarray:
    """Vectors of three wide groups."""
    rng = np.random.default_rng(seed)
    groups = 2 * np.eye(WIDTH)[rng.integers(0, 3, count)]
    return (groups + rng.standard_normal((count, WIDTH))).astype(np.float32)


class HalfSpace:
    """Labels a vector, or an image, by whether the mean of its entries is above a threshold, and keeps it."""

    name, n_clusters, privacy, proportions = "half space", 2, None, None

    def __init__(self, threshold: float) -> None:
        self.threshold, self.asked = threshold, list[np.ndarray]()

    @property
    def queries(self) -> int:
        return sum(map(len, self.asked))

    def ask(self, rows: np.ndarray) -> np.ndarray:
        self.asked.append(rows)
        return (rows.reshape(len(rows), -1).mean(1) > self.threshold).astype(np.int64)


def save_nearest(run: Path, prototypes: np.ndarray) -> None:
    """Write a source model that labels a vector by the prototype with the largest cosine."""
    unit = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    prototypes = np.ascontiguousarray(unit.T, np.float32)
    head = Head(np.eye(WIDTH, dtype=np.float32), np.zeros(WIDTH, np.float32), prototypes, unit_features=True)
    run.mkdir(exist_ok=True)
    save_model(run, source_model(IdentityEncoder(WIDTH), len(unit), head, name="nearest"))


def test_the_distance_to_a_plane_is_found_and_steps_bring_it_closer() -> None:
    class OfThree(HalfSpace):
        """Looks at half of the entries, so that the way to the plane is no diagonal."""

        def ask(self, rows: np.ndarray) -> np.ndarray:
            return super().ask(rows[:, :3])

    subject = OfThree(0.0)
    rows = np.repeat(np.array([[0.5], [1.0], [2.0]], np.float32), 6, axis=1)
    labels = subject.ask(rows)
    options = {"smallest": 0.05, "bisections": 12, "doublings": 9, "directions": 6}
    plain = attacks.boundary_distances(subject, rows, labels, np.random.default_rng(0), **options)
    close = attacks.boundary_distances(
        subject, rows, labels, np.random.default_rng(0), **options, steps=6, probes=60
    )
    exact = np.array([0.5, 1.0, 2.0]) / 2**0.5  # three of six entries must fall by as much
    assert (plain >= exact * 0.999).all()
    assert (close <= plain).all()
    np.testing.assert_allclose(close, exact, rtol=0.05)
    subject, options = HalfSpace(-1e9), {"smallest": 1.0, "doublings": 4, "steps": 1}  # no label ever changes
    found = attacks.boundary_distances(subject, rows, subject.ask(rows), np.random.default_rng(0), **options)
    np.testing.assert_array_equal(found, [16, 16, 16])


def test_agreement_counts_the_copies_that_keep_their_label() -> None:
    samples = VectorSamples(np.array([[1.0, 1.0], [9.0, 9.0]]))
    subject = HalfSpace(0.0)
    down = [lambda rows, rng: rows - 5, lambda rows, rng: rows - 20, lambda rows, rng: rows]
    labels = subject.ask(samples.read(np.arange(2)))
    found = attacks.agreement_scores(
        subject, samples, labels, down, np.random.default_rng(0), lambda *progress: None
    )
    np.testing.assert_allclose(found, [1 / 3, 2 / 3])
    assert subject.queries == 2 + 2 * 3


def test_shadows_find_the_samples_whose_labels_only_their_own_presence_explains() -> None:
    """Members have the labels of a clustering that saw them, others those of the nearest cluster."""
    rng = np.random.default_rng(0)
    features = unit_rows(rng.standard_normal((80, 10)).astype(np.float32))
    labels = KMeans(15, n_init=1, random_state=0).fit(features[:40]).predict(features).astype(np.int64)
    scores = attacks.shadow_scores(3 * features, labels, 15, rng, 12)
    assert np.abs(scores).max() <= 1
    assert scores[:40].mean() > 0.1
    assert abs(scores[40:].mean()) < 0.05


def test_edits_of_images_and_noise_on_vectors_do_what_they_say() -> None:
    image = np.arange(2 * 3 * 8 * 8).astype(np.uint8).reshape(2, 3, 8, 8)
    generator = np.random.default_rng(0)
    assert np.array_equal(attacks.flip(attacks.flip(image, generator), generator), image)
    moved = attacks.shift(2, -1)(image, generator)
    assert np.array_equal(moved[:, :, 2:, :-1], image[:, :, :-2, 1:])
    assert np.array_equal(moved[:, :, 0, :-1], image[:, :, 0, 1:])
    assert attacks.brighten(2.0)(np.full((1, 3, 2, 2), 200, np.uint8), generator).max() == 255
    for variant in attacks.image_variants(12):
        copy = variant(image, generator)
        assert (copy.shape, copy.dtype) == (image.shape, np.uint8)
        assert not np.array_equal(copy, image)
    grey = np.full((1, 3, 99, 99), 128, np.uint8)
    further = [float(variant(grey, generator).std()) for variant in attacks.image_variants(12)[8:]]
    assert further == pytest.approx([18, 24, 30, 36], rel=0.03)
    # Noise on vectors grows from one to sixteen spreads.
    rows, generator = np.zeros((1, 20_000), np.float32), np.random.default_rng(0)
    deviations = [float(variant(rows, generator).std()) for variant in attacks.vector_variants(3, 0.5)]
    assert deviations == pytest.approx([0.5, 2.0, 8.0], rel=0.03)


def test_a_bag_holds_samples_of_one_domain() -> None:
    bags = attacks.bag_scores(
        np.repeat([1.0, 2.0, 3.0], [50, 30, 24]),
        np.repeat([0, 1, 2], [50, 30, 24]),
        np.random.default_rng(0),
    )
    assert bags.tolist() == [1, 1, 2]


EFFORT = Effort(samples=150, variants=5, boundary=15, shadows=6)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Two domains of members and two of others, all of one distribution, and a model of other data."""
    np.savez(tmp_path / "members.npz", a=draw(60, 1), b=draw(60, 2))
    np.savez(tmp_path / "others.npz", c=draw(75, 3), d=draw(75, 4))
    save_nearest(tmp_path / "run", draw(3, 99))
    return tmp_path


def run_audit(folder: Path, effort: Effort = EFFORT, **changes: Any) -> Findings:
    """Audit the run in a folder, or a service in its place."""
    given: dict[str, Any] = {"run": folder / "run", "out": folder / "report.html", "compute": Compute("cpu")}
    given |= {name: folder / f"{name}.npz" for name in ("members", "others")} | changes
    return audit(**given, effort=effort)


def rows_of(folder: Path, side: str) -> np.ndarray:
    return np.concatenate(list(np.load(folder / f"{side}.npz").values()))


def test_a_model_that_memorises_is_found_out(samples: Path) -> None:
    """Over-fitted on purpose: a prototype for each member."""
    save_nearest(samples / "run", rows_of(samples, "members"))
    found = run_audit(samples)
    areas = {attack.name: attack.success.auc_low for attack in found.membership if attack.success}
    assert max(areas["agreement"], areas["boundary"]) > 0.7
    assert found.domains.success.auc == 1  # of ten bags
    assert "finds out for" in found.summary()[0]


def test_a_model_of_other_data_gives_nothing_away(samples: Path) -> None:
    found = run_audit(samples)
    assert len(found.membership) == 3
    for attack in found.membership:
        assert attack.success.auc_low <= 0.5 <= attack.success.auc_high
    own = np.bincount((unit_rows(rows_of(samples, "others")) @ unit_rows(draw(3, 99)).T).argmax(1)) / 150
    assert found.prevalence.misplaced == pytest.approx(np.abs(own - 1 / 3).sum() / 2)
    assert found.prevalence.without_labels < 1e-6  # the source has equal clusters


def test_page_figures_and_words_agree_and_equal_seeds_give_equal_figures(samples: Path) -> None:
    data = ("--members", samples / "members.npz", "--others", samples / "others.npz")
    given = ("--out", samples / "report.html", "--quick", "--accelerator", "cpu")
    told = run_successfully("audit", samples / "run", *data, *given).err
    assert "Membership: the strongest attack is" in told
    assert "Copying: " in told
    found = run_audit(samples, QUICK, out=samples / "again.html")
    figures = json.loads((samples / "report.json").read_text())
    again = json.loads((samples / "again.json").read_text())
    assert again == json.loads(json.dumps(found.to_dict()))
    assert figures | {"seconds": 0} == again | {"seconds": 0}
    page = (samples / "report.html").read_text()
    for attack in found.membership:
        assert f"{attack.success.auc:.3f}" in page
    assert "<script" not in page
    assert "Guarantee: the model has none" in page


def test_what_cannot_be_audited_is_refused(samples: Path) -> None:
    np.save(samples / "few.npy", draw(5, 7))
    refusals: dict[str, dict[str, Any]] = {
        "all other samples are members too": {"others": samples / "members.npz"},
        "needs 20 members and 20 others, not 120 and 5": {"others": samples / "few.npy"},
        "either a run or a service": {"run": None},
        r"report\.json must end in \.html": {"out": samples / "report.json"},
    }
    for words, changes in refusals.items():
        with pytest.raises(InputError, match=words):
            run_audit(samples, **changes)
    assert not (samples / "report.html").exists()


def test_a_service_is_audited_over_http_within_its_budget(samples: Path) -> None:
    save_nearest(samples / "run", rows_of(samples, "members"))
    effort = Effort(samples=20, variants=1, boundary=1, shadows=2)
    few_bytes = Limits(max_request_bytes=1000)  # fewer than 20 samples have
    labeller = ModelLabeller(load_model(samples / "run", role="source"))
    with (
        closing(Ledger(samples, create=True)) as book,
        running(labeller, book, few_bytes) as service,
        LabelClient(service.url, book.add_key("rich", 100_000)) as rich,
        LabelClient(service.url, book.add_key("poor", 70)) as poor,
    ):
        remote = run_audit(samples, effort, run=None, client=rich)
        with pytest.raises(RefusedError, match="budget ended after"):
            run_audit(samples, effort, run=None, client=poor)
    local = run_audit(samples, effort)
    assert (remote.membership, remote.queries) == (local.membership, local.queries)


def test_a_model_and_a_service_of_images_give_equal_figures(tmp_path: Path, write_images: Any) -> None:
    edges, cpu = EncoderOptions("ucds/oriented_edges", "none", 32), Compute("cpu", cache=None)
    for number, side in enumerate(("members", "others")):
        write_images(tmp_path / side, [f"{d}/{i}.png" for d in "ab" for i in range(10)], 50 * number)
    (tmp_path / "run").mkdir()
    save_model(tmp_path / "run", source_model(edges.find(cpu), 5, name="edges"))
    effort = Effort(samples=20, variants=1, boundary=2, steps=0, shadows=2)
    sides = {side: tmp_path / side for side in ("members", "others")} | {"compute": cpu}
    labeller = ModelLabeller(load_model(tmp_path / "run", role="source"))
    with (
        closing(Ledger(tmp_path, create=True)) as book,
        running(labeller, book, budget=100_000) as service,
        LabelClient(service.url, service.key) as client,
    ):
        with pytest.raises(InputError, match="give the attacker an encoder"):
            run_audit(tmp_path, effort, run=None, client=client, **sides)
        remote = run_audit(tmp_path, effort, run=None, client=client, encoder=edges, **sides)
    local = run_audit(tmp_path, effort, **sides)
    assert (remote.membership, remote.queries) == (local.membership, local.queries)
    # For the second: two directions of 7 doublings, a look at the end, and 5 bisections.
    assert [attack.queries for attack in local.membership] == [2, 27, 1]
    assert local.stability.keys() == {f"{d} ({side})" for d in "ab" for side in ("member", "other")}


def test_the_price_curve_rises_to_the_price() -> None:
    vectors = draw(900, 0)
    curve = attacks.price_curve(vectors, vectors[:, :3].argmax(1), np.random.default_rng(0), (50, 200))
    assert [point.labels for point in curve] == [50, 200, 600]
    assert curve[-1].agreement > curve[0].agreement
    assert attacks.price_of([attacks.Price(50, 0.5), attacks.Price(100, 0.91)]) == 100
    assert attacks.price_of([attacks.Price(50, 0.5)]) is None


def test_each_attack_asks_about_samples_of_all_domains(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples lie in the order of their domains: the first few would be those of one domain."""
    domains = [np.full((40, WIDTH), 10.0 * (d + 1), np.float32) + draw(40, d) for d in range(3)]
    np.savez(samples / "members.npz", a=domains[0], b=domains[1], c=domains[2])
    recorder = HalfSpace(128)
    monkeypatch.setattr(subject, "ModelSubject", lambda stored, compute: recorder)
    effort = replace(QUICK, boundary=2, variants=1, shadows=2)  # 20 vectors of each side
    run_audit(samples, effort)
    boundary = next(rows for rows in recorder.asked if len(rows) == 20)
    nearest = np.abs(boundary.mean(1)[:, None] - [10, 20, 30]).argmin(1)
    assert set(nearest) == {0, 1, 2}
