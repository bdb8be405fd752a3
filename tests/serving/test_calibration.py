"""A key is calibrated once: its samples are seen from the mean of some of them, and nobody else's are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from serving_kit import NPY, FakeLabeller, FakeMeanLabeller, Service, npy, running, vector, wait_until

from ucds.backbones import identity_backbone
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, RefusedError
from ucds.labels.client import LabelClient
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions
from ucds.labels.wire import digest_of_contents
from ucds.models import ClusteringModel
from ucds.serving.labeller import Batcher, ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.verify import verify
from ucds.training.loaded import FEWEST_TO_CENTRE, Model
from ucds.training.model_file import ModelCard, StoredModel
from ucds.training.options import Compute

WIDTH, K = 6, 5


def recentring(recentres: bool = True) -> StoredModel:
    generator = torch.Generator().manual_seed(0)
    backbone = identity_backbone(WIDTH)
    model = ClusteringModel(backbone, K, bottleneck_width=8, unit_features=True, generator=generator).eval()
    names = ("a",), ("source",)
    card = ModelCard("source", "small", K, 8, backbone.spec, "", *names, recentres=recentres)
    return StoredModel.of(card, model, torch.full((1, K), 1 / K))


def samples(count: int = 100, seed: int = 0) -> np.ndarray:
    """Embeddings far from the model's own mean."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(1.5, 1.0, size=(count, WIDTH)), np.float32)


def offline(rows: np.ndarray, *, recentred: bool) -> list[int]:
    """Labels as `ucds label` finds them for a whole folder."""
    data = Dataset(VectorSamples(rows))
    model = Model(recentring(), Compute("cpu", cache=None))
    return model.decide(data, recentred=recentred)[0].tolist()


@pytest.fixture
def service(ledger: Ledger) -> Iterator[Service]:
    key = ledger.add_key("anna", 300)
    with running(ModelLabeller(recentring()), ledger, Limits(max_batch=128)) as found:
        found.key = key
        yield found


def calibrate(client: httpx.Client, rows: np.ndarray) -> httpx.Response:
    return client.post("/v1/calibration", content=npy(rows), headers=NPY)


def labels_of(client: httpx.Client, rows: np.ndarray) -> list[int]:
    return list(client.post("/v1/labels", content=npy(rows), headers=NPY).json()["labels"])


def test_a_calibrated_key_gets_the_labels_of_the_whole_folder(service: Service) -> None:
    rows = samples()
    plain, expected = offline(rows, recentred=False), offline(rows, recentred=True)
    assert plain != expected
    with service.client() as client:
        found = calibrate(client, rows)
        assert found.status_code == 200, found.text
        keys = VectorSamples(rows).keys
        told = {"samples": 100, "digest": digest_of_contents(keys)}
        assert found.json() == {"calibration": told, "unusable": []}
        info = client.get("/v1/info").json()
        assert info["calibration"] == told
        assert info["budget"]["used"] == 0
        assert labels_of(client, rows) == expected
        assert labels_of(client, rows[7:9]) == expected[7:9]
    with service.client(service.ledger.add_key("bert", 300)) as other:
        assert labels_of(other, rows) == plain
    assert verify(service.ledger.place).faults == ()


def test_a_calibration_is_fixed_once_and_stays_after_a_restart(service: Service, ledger: Ledger) -> None:
    rows, others = samples(), samples(seed=1)
    with service.client() as client:
        first = calibrate(client, rows[::-1])
        assert calibrate(client, rows).json() == first.json()  # as after a lost answer
        refused = calibrate(client, others)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:ucds:problem:not-calibrated")
        assert "100 other samples" in refused.json()["detail"]
    for most in (128, FEWEST_TO_CENTRE - 1):  # with few samples, no further key can be calibrated
        with (
            running(ModelLabeller(recentring()), ledger, Limits(max_batch=most)) as again,
            again.client(service.key) as client,
        ):
            assert labels_of(client, others[:31]) != offline(others, recentred=False)[:31]
            info = client.get("/v1/info").json()
        assert info["calibration"] == first.json()["calibration"]
        assert info["fewest_to_calibrate"] == (FEWEST_TO_CENTRE if most == 128 else None)


def test_after_the_first_label_and_with_few_samples_it_is_too_late(service: Service) -> None:
    rows = samples()
    with service.client() as client:
        few = calibrate(client, np.repeat(rows[: FEWEST_TO_CENTRE - 1], 2, axis=0))
        assert (few.status_code, "not 31" in few.json()["detail"]) == (409, True)
        labels_of(client, rows[:1])
        late = calibrate(client, rows)
        assert (late.status_code, "labels of this model already" in late.json()["detail"]) == (409, True)
        assert client.get("/v1/info").json()["calibration"] is None


@pytest.mark.parametrize("labeller", [FakeLabeller(), ModelLabeller(recentring(False))], ids=["fake", "own"])
def test_where_all_samples_are_seen_alike_nothing_can_be_calibrated(labeller: Any, ledger: Ledger) -> None:
    key = ledger.add_key("anna", 300)
    with running(labeller, ledger) as service, service.client(key) as client:
        assert client.get("/v1/info").json()["fewest_to_calibrate"] is None
        assert calibrate(client, samples()).status_code == 404


class SlowMean(FakeMeanLabeller):
    """Notes how many means are computed at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.computing = self.most = self.done = 0

    def mean(self, rows: np.ndarray) -> np.ndarray:
        self.computing += 1
        self.most = max(self.most, self.computing)
        time.sleep(0.3)
        self.computing -= 1
        self.done += 1
        return super().mean(rows)


def test_dropped_calibrations_hold_their_place_to_their_end_and_delay_nobody(ledger: Ledger) -> None:
    labeller, honest = SlowMean(), ledger.add_key("honest", 10)
    hostile = [ledger.add_key(f"hostile{i}", 10) for i in range(5)]
    rows = [vector(1, i) for i in range(FEWEST_TO_CENTRE)]
    with running(labeller, ledger) as service:
        for key in hostile:
            with service.client(key) as client, suppress(httpx.TimeoutException):
                client.post("/v1/calibration", content=npy(rows), headers=NPY, timeout=0.2)
        begun = time.monotonic()
        assert service.ask(vector(3), key=honest).json()["labels"] == [3]
        assert time.monotonic() - begun < 1.4  # and not after five times 0.3 s
        wait_until(lambda: labeller.done == 5)
        with service.client(hostile[0]) as client:
            assert client.get("/v1/info").json()["calibration"]["samples"] == FEWEST_TO_CENTRE
    assert labeller.most == 1


def test_a_key_is_calibrated_once_and_pays_for_what_comes_to_nothing(ledger: Ledger) -> None:
    labeller, key = SlowMean(), ledger.add_key("anna", 10)
    rows = [vector(1, i) for i in range(FEWEST_TO_CENTRE)]
    with (
        running(labeller, ledger, Limits(waste_seconds=0.1)) as service,
        service.client(key) as client,
        ThreadPoolExecutor() as pool,
    ):
        at_once = [pool.submit(calibrate, client, np.array(rows)) for _ in range(4)]
        assert {one.result().status_code for one in at_once} == {200}
        others = np.array(rows) + 1
        statuses = [calibrate(client, others).status_code for _ in range(8)]
    assert statuses[0] == 409
    assert statuses[-1] == 429  # over-waste
    assert labeller.done == 1


def test_unusable_samples_are_no_part_of_a_calibration(service: Service) -> None:
    rows = samples(40)
    rows[[3, 17]] = np.nan
    found = service.ask(*rows, path="/v1/calibration").json()
    assert [sample["position"] for sample in found["unusable"]] == [3, 17]
    usable = np.delete(rows, [3, 17], axis=0)
    assert found["calibration"] == {"samples": 38, "digest": digest_of_contents(VectorSamples(usable).keys)}


def test_a_label_does_not_depend_on_the_means_of_others_in_the_batch() -> None:
    labeller = ModelLabeller(recentring(), batch_size=8)
    rows, mean = samples(64), samples(1, seed=5)[0]
    batcher = Batcher(labeller)
    jobs = [batcher.submit(rows[i : i + 3], i, mean if i % 2 else None) for i in range(0, 60, 3)]
    together = [job.result() for job in jobs]
    for i, labels in zip(range(0, 60, 3), together, strict=True):
        alone = batcher.submit(rows[i : i + 3], 1, mean if i % 2 else None).result()
        np.testing.assert_array_equal(labels, alone)
    batcher.close()


def test_the_client_calibrates_before_its_first_question(service: Service, tmp_path: Path) -> None:
    rows, said = samples(), list[str]()
    np.save(tmp_path / "x.npy", rows)
    questions = open_questions(tmp_path / "x.npy")
    with LabelClient(service.url, service.key, calibrate_key=True) as client:
        found = query_labels(client, questions, tmp_path / "a.json", say=said.append)
        query_labels(client, questions, tmp_path / "b.json", say=said.append)
    assert found.labels.tolist() == offline(rows, recentred=True)
    assert [text for text in said if "calibrated" in text] == [
        "the key is calibrated with 100 of your samples",
        "the key was calibrated with 100 samples",
    ]


def test_the_client_is_told_what_it_could_do_and_what_it_cannot(service: Service, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", samples())
    np.save(tmp_path / "few.npy", samples(20))
    few, said = open_questions(tmp_path / "few.npy"), list[str]()
    with LabelClient(service.url, service.key, calibrate_key=True) as client:
        with pytest.raises(InputError, match="needs 32 different samples, but only 20"):
            query_labels(client, few, tmp_path / "few.json")
        client.calibrate_key = False
        query_labels(client, open_questions(tmp_path / "x.npy"), tmp_path / "x.json", say=said.append)
        assert any("--calibrate may improve" in text for text in said)
        client.calibrate_key = True
        with pytest.raises(RefusedError, match="labels of this model already"):
            query_labels(client, open_questions(tmp_path / "x.npy"), tmp_path / "again.json")
