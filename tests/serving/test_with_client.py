"""The service and the target owner's client, each the other's test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from serving_kit import FakeLabeller, Service, picture, running, vector

from ucds.data.vectors import load_vectors
from ucds.errors import UcdsWarning, UserError
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.labels.journal import journal_path, read_receipts
from ucds.labels.query import Selector, query_labels
from ucds.labels.questions import open_questions
from ucds.labels.wire import is_authentic
from ucds.math.privacy import PrivacyClaim
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify


def _query(service: Service, samples: Path, out: Path, choose: Selector | None = None) -> ClusterLabels:
    wait = {"patience": 60, "first_wait": 0.01}
    with LabelClient(service.url, service.key, overdraw=True, **wait) as client:
        return query_labels(client, open_questions(samples), out, choose=choose)


def test_images_are_labelled_and_the_unusable_one_is_left_out(pictures: Service, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02d}.png").write_bytes(picture(number % 12, serial=number))
    (tmp_path / "broken.png").write_bytes(picture(3)[:60])
    with pytest.warns(UcdsWarning, match="1 of 31 samples have no label"):
        labels = _query(pictures, tmp_path, tmp_path / "labels.json")
    assert labels.ids == tuple(f"{number:02d}.png" for number in range(30))
    assert labels.labels.tolist() == [number % 12 for number in range(30)]
    assert len(read_receipts(journal_path(tmp_path / "labels.json"))) == 2


def test_the_last_answer_of_a_budget_is_given_and_kept(vectors: Service, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([vector(i % 12, i) for i in range(130)], np.float32))
    with pytest.raises(UserError, match="100 labels for 130 samples"):
        _query(vectors, tmp_path / "x.npy", tmp_path / "labels.json")
    keys = load_vectors(tmp_path / "x.npy").keys

    def choose(known: Mapping[bytes, int]) -> list[int]:
        return [i for i, key in enumerate(keys) if key in known]

    labels = _query(vectors, tmp_path / "x.npy", tmp_path / "labels.json", choose)
    assert len(labels.ids) == 100
    assert labels.labels.tolist() == [int(name) % 12 for name in labels.ids]


def test_minus_zero_is_the_same_sample_for_both_sides(ledger: Ledger, tmp_path: Path) -> None:
    rows = np.array([vector(3), vector(5)], np.float32)
    rows[0, 1] = -0.0
    np.save(tmp_path / "x.npy", rows)
    with running(FakeLabeller(), ledger) as service:
        service.key = ledger.add_key("anna", 10)
        labels = _query(service, tmp_path / "x.npy", tmp_path / "labels.json")
    assert labels.labels.tolist() == [3, 5]
    own = marks_of(load_vectors(tmp_path / "x.npy").keys)
    assert labels.contents is not None
    assert list(labels.contents) == list(own)  # training compares these


def test_the_guarantee_of_a_model_stands_in_info_receipts_and_ledger(ledger: Ledger, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([vector(i, i) for i in range(5)], np.float32))
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    claims = [str(PrivacyClaim(epsilon, 1e-5, "person")) for epsilon in (2.0, 1.0)]
    labeller.privacy = claims[0]
    with running(labeller, ledger) as service:
        service.key = key
        assert service.info()["privacy"] == claims[0]
        _query(service, tmp_path / "x.npy", tmp_path / "labels.json")
    (kept,) = read_receipts(journal_path(tmp_path / "labels.json"))
    assert kept.receipt.privacy == claims[0]
    assert is_authentic(kept.receipt)
    assert not is_authentic(kept.receipt.model_copy(update={"privacy": claims[1]}))
    assert verify(ledger.place).faults == ()
