"""A sample's label depends on the sample alone, and on the mean that its key was calibrated with, once."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from label_service import source_model
from serving_kit import WIDTH, FakeLabeller, FakeMeanLabeller, Service, refused, running, vector, wait_until

from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import InputError, RefusedError
from ucds.labels.client import LabelClient
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions
from ucds.labels.wire import digest_of_contents
from ucds.serving.labeller import Batcher, ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal
from ucds.serving.verify import verify
from ucds.training.loaded import FEWEST_TO_CENTRE, Model
from ucds.training.options import Compute, EncoderOptions


@pytest.fixture
def labeller() -> ModelLabeller:
    """The encoder of the package, on small images, below a random head."""
    encoder = EncoderOptions(image_size=64).find(Compute("cpu"))
    return ModelLabeller(source_model(encoder, 12, recentres=True, unit_features=True))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, 3, 73, 73), np.uint8)


def test_a_row_s_features_are_the_same_to_the_bit_in_any_company(labeller: ModelLabeller) -> None:
    """The mean of one row is its features: what a label is decided by."""
    rows = images(16)
    alone = np.stack([labeller.mean(row[None]) for row in rows])
    order = np.random.default_rng(0).permutation(16)
    labelled = np.concatenate([labeller.label(rows[order[i : i + 8]]) for i in range(0, 16, 8)])
    for i, row in enumerate(rows):
        batch = np.zeros((8, *row.shape), np.uint8)
        batch[i % 8] = row
        assert labeller.label(batch)[i % 8] == labelled[order == i]
    assert np.array_equal(alone, np.stack([labeller.mean(row[None]) for row in rows[::-1]])[::-1])


def test_coalesced_requests_get_the_labels_of_single_ones(labeller: ModelLabeller) -> None:
    """The samples of every second request are seen from a mean of their own."""
    rows, label, gate = images(30), labeller.label, threading.Event()
    mean, batcher = labeller.mean(rows[:9]), Batcher(labeller)
    parts = pairwise((0, 1, 4, 12, 13, 30))
    requests = [(rows[a:b], a % 3, mean if a % 2 else None) for a, b in parts]
    single = [batcher.submit(row[None], *how).result() for part, *how in requests for row in part]
    alone = batcher.batches
    assert (alone, batcher.rows) == (30, 30)

    def wait_and_label(*arguments: Any) -> Any:
        gate.wait(20)
        return label(*arguments)

    labeller.label = wait_and_label  # type: ignore[method-assign]
    futures = [batcher.submit(*request) for request in requests]
    gate.set()
    found = np.concatenate([future.result() for future in futures])
    np.testing.assert_array_equal(found, np.concatenate(single))
    batcher.close()
    assert batcher.batches - alone <= 5  # one that had begun, and the others full
    assert batcher.rows == 60


def test_a_key_with_many_samples_delays_another_one_by_a_batch() -> None:
    labeller, done_after = FakeLabeller(), list[int]()
    labeller.gate.clear()
    batcher = Batcher(labeller)  # type: ignore[arg-type]
    many = batcher.submit(np.zeros((800, WIDTH), np.float32), 1)
    few = batcher.submit(np.ones((4, WIDTH), np.float32), 2)
    few.add_done_callback(lambda found: done_after.append(labeller.batches))
    labeller.gate.set()
    assert len(many.result()) == 800
    batcher.close()
    assert done_after[0] <= 2  # one that had begun, and one that they share
    assert labeller.batches >= 100


def test_a_queue_that_is_closed_refuses_what_waits_and_what_comes() -> None:
    labeller = FakeLabeller()
    labeller.gate.clear()
    batcher = Batcher(labeller)  # type: ignore[arg-type]
    waiting = batcher.submit(np.zeros((80, WIDTH), np.float32), 1)
    assert batcher.alive
    threading.Timer(0.1, labeller.gate.set).start()
    batcher.close()
    assert not batcher.alive
    for use in (waiting.result, lambda: batcher.submit(np.zeros((1, WIDTH), np.float32), 1)):
        with pytest.raises(Refusal) as caught:
            use()
        assert caught.value.kind == "stopping"


RECENTRING = source_model(IdentityEncoder(WIDTH), 12, recentres=True, unit_features=True)


def samples(count: int = 100, seed: int = 0) -> np.ndarray:
    """Embeddings far from the model's own mean."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(1.5, 1.0, size=(count, WIDTH)), np.float32)


def offline(rows: np.ndarray, *, recentred: bool) -> list[int]:
    """Labels as `ucds label` finds them for a whole folder."""
    model = Model(RECENTRING, Compute("cpu", cache=None))
    return model.decide(Dataset(VectorSamples(rows)), recentred=recentred)[0].tolist()


@pytest.fixture
def service(ledger: Ledger) -> Iterator[Service]:
    with running(ModelLabeller(RECENTRING), ledger, Limits(max_batch=128), budget=300) as found:
        yield found


def calibrate(service: Service, rows: np.ndarray) -> httpx.Response:
    return service.ask(*rows, path="/v1/calibration")


def labels_of(service: Service, rows: np.ndarray, key: str | None = None) -> list[int]:
    return list(service.ask(*rows, key=key).json()["labels"])


def test_a_calibrated_key_gets_the_labels_of_the_whole_folder(service: Service, ledger: Ledger) -> None:
    rows = samples()
    plain, expected = offline(rows, recentred=False), offline(rows, recentred=True)
    assert plain != expected
    found = calibrate(service, np.insert(rows, [3, 17], np.nan, axis=0))
    assert found.status_code == 200, found.text
    told = {"samples": 100, "digest": digest_of_contents(VectorSamples(rows).keys)}
    left_out = [{"position": position, "reason": "holds NaN or infinity"} for position in (3, 18)]
    assert found.json() == {"calibration": told, "unusable": left_out}
    info = service.info()
    assert info["calibration"] == told
    assert info["balance"]["used"] == 0
    assert labels_of(service, rows) == expected
    assert labels_of(service, rows[7:9]) == expected[7:9]
    assert labels_of(service, rows, ledger.add_key("bert", 300)) == plain
    assert verify(ledger.place).faults == ()


def test_a_calibration_is_fixed_once_and_stays_after_a_restart(service: Service, ledger: Ledger) -> None:
    rows, others = samples(), samples(seed=1)
    few = refused(calibrate(service, np.repeat(rows[:31], 2, axis=0)), 409, "not-calibrated")
    assert "not 31" in few.detail
    first = calibrate(service, rows[::-1]).json()
    assert calibrate(service, rows).json() == first  # as after a lost answer
    assert "100 other samples" in refused(calibrate(service, others), 409, "not-calibrated").detail
    for most in (128, FEWEST_TO_CENTRE - 1):  # with few samples, no further key can be calibrated
        with running(ModelLabeller(RECENTRING), ledger, Limits(max_batch=most)) as again:
            again.key = service.key
            assert labels_of(again, others[:31]) != offline(others, recentred=False)[:31]
            info = again.info()
        assert info["calibration"] == first["calibration"]
        assert info["fewest_to_calibrate"] == (FEWEST_TO_CENTRE if most == 128 else None)


def test_where_all_samples_are_seen_alike_nothing_can_be_calibrated(ledger: Ledger) -> None:
    with running(FakeLabeller(), ledger, budget=300) as service:
        assert service.info()["fewest_to_calibrate"] is None
        assert calibrate(service, samples()).status_code == 404


class SlowMean(FakeMeanLabeller):
    """Notes how many means are computed at a time."""

    computing = most = done = 0

    def mean(self, rows: np.ndarray) -> np.ndarray:
        self.computing += 1
        self.most = max(self.most, self.computing)
        time.sleep(0.3)
        self.computing -= 1
        self.done += 1
        return super().mean(rows)


ROWS = np.array([vector(1, i) for i in range(FEWEST_TO_CENTRE)])


def test_dropped_calibrations_hold_their_place_to_their_end_and_delay_nobody(ledger: Ledger) -> None:
    labeller, honest = SlowMean(), ledger.add_key("honest", 10)
    hostile = [ledger.add_key(f"hostile{i}", 10) for i in range(5)]
    with running(labeller, ledger) as service:
        for key in hostile:
            with suppress(httpx.TimeoutException):
                service.ask(*ROWS, key=key, path="/v1/calibration", timeout=0.2)
        begun = time.monotonic()
        assert labels_of(service, np.array([vector(3)]), honest) == [3]
        assert time.monotonic() - begun < 1.4  # and not after five times 0.3 s
        wait_until(lambda: labeller.done == 5)
        assert service.info(hostile[0])["calibration"]["samples"] == FEWEST_TO_CENTRE
    assert labeller.most == 1


def test_a_key_is_calibrated_once_and_pays_for_what_comes_to_nothing(ledger: Ledger) -> None:
    labeller, limits = SlowMean(), Limits(waste_seconds=0.05)
    with running(labeller, ledger, limits, budget=10) as service, ThreadPoolExecutor() as pool:
        at_once = [pool.submit(calibrate, service, ROWS) for _ in range(2)]
        assert {one.result().status_code for one in at_once} == {200}
        statuses = [409]
        while statuses[-1] == 409 and len(statuses) < 100:  # how many there are depends on the machine
            statuses.append(calibrate(service, ROWS + 1).status_code)
    assert statuses[1] == 409
    assert statuses[-1] == 429  # over-waste
    assert labeller.done == 1


def test_the_client_calibrates_before_its_first_question_or_is_told_why_not(
    service: Service, tmp_path: Path
) -> None:
    rows, said = samples(), list[str]()
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "few.npy", rows[:20])
    enough, few = (open_questions(tmp_path / name) for name in ("x.npy", "few.npy"))
    later = service.ledger.add_key("later", 300)
    with LabelClient(service.url, service.key, calibrate=True) as client:
        with pytest.raises(InputError, match="needs 32 different samples, but only 20"):
            query_labels(client, few, tmp_path / "few.json")
        found = query_labels(client, enough, tmp_path / "a.json", say=said.append)
        query_labels(client, enough, tmp_path / "b.json", say=said.append)
    assert found.labels.tolist() == offline(rows, recentred=True)
    with LabelClient(service.url, later) as client:
        query_labels(client, enough, tmp_path / "c.json", say=said.append)
        client.calibrate = True
        with pytest.raises(RefusedError, match="labels of this model already"):
            query_labels(client, enough, tmp_path / "d.json")
        assert client.info().calibration is None
    assert [text.partition(" (")[0] for text in said if "calibrat" in text] == [
        "the key is calibrated with 100 of your samples",
        "the key was calibrated with 100 samples",
        "if these samples are of one kind, `calibrate=True` may improve their labels",
    ]
