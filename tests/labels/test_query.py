"""Tests of queries, by Python and `ucds query`: each sample once, receipts checked, kills at any moment."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import run_command, run_successfully
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fake_service import KEY, RECEIPT, FakeService, label_of
from PIL import Image
from serving_kit import wait_until

import ucds
from ucds.data.content import content_key
from ucds.data.folders import scan_folder
from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import DamagedFileError, InputError, RefusedError, UcdsWarning
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import Journal, KeptReceipt, journal_path, read_receipts
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions
from ucds.labels.wire import (
    Calibration,
    CalibrationAnswer,
    Receipt,
    UnusableSample,
    answers_digest,
    find_fault,
    is_authentic,
)
from ucds.serving.signing import Signer

BALANCE = {"budget": 100, "used": 60, "remaining": 40}


@dataclass
class Clinic:
    """A client of a service that answers about images, and where it writes its labels."""

    service: FakeService
    write_images: Callable[..., list[Path]]
    folder: Path
    out: Path

    def images(self, count: int) -> Path:
        """Write so many different small images into a folder, in two sub-folders."""
        names = (f"{'ab'[number % 2]}/{number:03d}.png" for number in range(count))
        self.write_images(self.folder / "images", names, size=(8, 8))
        return self.folder / "images"

    def query(self, images: Path, **options: Any) -> ClusterLabels:
        """Ask about a folder."""
        with LabelClient(self.service.url, KEY, first_wait=0.01, patience=5.0) as client:
            return query_labels(client, open_questions(images), self.out, **options)


@pytest.fixture
def clinic(service: FakeService, write_images: Callable[..., list[Path]], tmp_path: Path) -> Clinic:
    return Clinic(service, write_images, tmp_path, tmp_path / "labels.json")


@pytest.fixture
def embeddings() -> Iterator[FakeService]:
    """A service that answers about vectors."""
    running = FakeService("embeddings", width=6)
    yield running
    running.close()


@pytest.fixture
def vectors(blobs: Any, tmp_path: Path) -> Path:
    """60 vectors around five centres in turn."""
    np.save(tmp_path / "x.npy", blobs({"a": 60}, n_clusters=5)["a"])
    return tmp_path / "x.npy"


def test_every_image_gets_its_label_and_equal_ones_are_asked_about_once(clinic: Clinic) -> None:
    images, out, seen = clinic.images(21), clinic.out, list[tuple[int, int]]()
    shutil.copytree(images / "a", images / "c")
    labels = clinic.query(images, progress=lambda *now: seen.append(now))
    expected = {name: label_of((images / name).read_bytes()) for name in scan_folder(images).ids}
    assert dict(zip(labels.ids, labels.labels.tolist(), strict=True)) == expected
    assert labels.ids == scan_folder(images).ids
    assert seen == sorted(set(seen))
    assert seen[-1] == (32, 32)
    assert (labels.provider, labels.n_clusters) == ("alpha", 7)
    stored = ClusterLabels.load(out)
    assert stored.fingerprint == labels.fingerprint
    assert sorted(clinic.service.answered) == [5, 8, 8]
    kept = read_receipts(journal_path(out))
    assert sorted(len(one.labels) for one in kept) == [5, 8, 8]
    assert all(is_authentic(one.receipt) for one in kept)
    with pytest.raises(InputError, match="exists already"):
        clinic.query(images)
    path = journal_path(out)
    path.write_bytes(path.read_bytes().replace(b'"time":"2026', b'"time":"2027'))
    with pytest.raises(DamagedFileError, match="line 2 of .* was changed after it was written"):
        read_receipts(path)


def test_an_answer_that_ctrl_c_interrupts_is_kept(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, images, service = Journal.add, clinic.images(6), clinic.service

    def interrupt_once(journal: Journal, kept: KeptReceipt) -> None:
        monkeypatch.setattr(Journal, "add", keep)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        clinic.query(images)
    assert len(service.charged) == 6
    clinic.query(images)
    assert set(service.asked.values()) == {1}  # nothing is asked for twice


def test_requests_keep_to_the_limits_and_name_no_file(service: FakeService, clinic: Clinic) -> None:
    images = clinic.images(10)
    (images / "a" / "000.png").rename(images / "a" / "Mrs Miller.png")
    size = max(path.stat().st_size for path in images.rglob("*.png"))
    service.info["max_request_bytes"] = 3 * (size + 256) + 256
    clinic.query(images)
    assert max(service.answered) <= 4
    assert max(map(len, service.bodies)) <= service.info["max_request_bytes"]
    assert not any(b"Miller" in body or b".png" in body for body in service.bodies)


def test_the_wrong_kind_of_samples_is_refused(service: FakeService, clinic: Clinic) -> None:
    np.save(clinic.folder / "x.npy", np.zeros((2, 5), np.float32))
    with pytest.raises(InputError, match="not about embeddings"):
        clinic.query(clinic.folder / "x.npy")
    service.info |= {"accepts": "embeddings", "width": 4}
    with pytest.raises(InputError, match="embeddings of width 4"):
        clinic.query(clinic.images(2))
    with pytest.raises(InputError, match="width 4, not 5"):
        clinic.query(clinic.folder / "x.npy")
    np.savez(clinic.folder / "x.npz", a=np.zeros((2, 4)), b=np.zeros((2, 4)))
    with pytest.raises(InputError, match="2 domains"):
        open_questions(clinic.folder / "x.npz")
    assert not service.requests


def test_unusable_images_are_left_out_and_told_and_one_must_be_usable(clinic: Clinic) -> None:
    images = clinic.images(20)
    (images / "empty.png").touch()
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(images / "huge.png")
    (images / "no image.png").write_bytes(b"no image")
    clinic.write_images(images, ("refused.png",), 50)
    shutil.copy(images / "refused.png", images / "copy of refused.png")
    clinic.service.unusable = {(images / "refused.png").read_bytes()}
    size = (images / "huge.png").stat().st_size
    with pytest.warns(UcdsWarning) as caught:
        labels = clinic.query(images)
    messages = sorted(str(warning.message) for warning in caught if warning.category is UcdsWarning)
    assert messages == [
        "5 of 25 samples have no label because they are unusable or refused",
        "copy of refused.png: not an image; it is skipped",
        "empty.png: empty file; it is skipped",
        f"huge.png: too large for the service ({size:,} bytes; it takes 100,000); it is skipped",
        "no image.png: not an image of a known format; it is skipped",
        "refused.png: not an image; it is skipped",
    ]
    assert len(labels.ids) == 20
    for path in (*images.glob("?/*.png"), clinic.out):
        path.unlink()
    with pytest.warns(UcdsWarning), pytest.raises(InputError, match="none of the samples"):
        clinic.query(images)


@pytest.mark.parametrize("change", [{"provider": "beta"}, {"model_digest": "c" * 32}, {"n_clusters": 8}])
def test_a_model_that_changes_on_the_way_is_refused(clinic: Clinic, change: dict[str, Any]) -> None:
    service = clinic.service
    service.change = lambda answer: answer.update(change) if len(service.charged) > 8 else None
    with pytest.raises(RefusedError, match="changed from model 'alpha' .*: labels of two models do not mix"):
        clinic.query(clinic.images(24))
    assert len(read_receipts(journal_path(clinic.out))) == 1


def test_a_receipt_fits_its_answers_its_model_and_its_signer_alone() -> None:
    signer, other = (Signer(Ed25519PrivateKey.from_private_bytes(bytes([i] * 32))) for i in range(2))
    labels = {bytes(16): 1, bytes([1] * 16): 30}
    digest = "a482864f2da33949f2de6187efe917d3b239b359d83391ab151972d000d9ec97"  # sha256sum of the 48 bytes
    assert answers_digest(labels.items()) == answers_digest(reversed(labels.items())) == digest

    def receipt(by: Signer, model: str) -> Receipt:
        told = {"model_digest": model, "answers_digest": digest, "time": RECEIPT.time}
        return by.sign(Receipt, entries=["e" * 64], **told)

    def fault(told: Receipt, labels: dict[bytes, int] = labels) -> str:
        return find_fault(told, labels, signer=signer.public, model_digest="a" * 32) or ""

    right = receipt(signer, "a" * 32)
    assert fault(right) == ""
    assert "key other than" in fault(receipt(other, "a" * 32))
    assert "another model" in fault(receipt(signer, "c" * 32))
    assert "other answers" in fault(right, labels | {bytes(16): 2})
    for change in ({"time": "2027" + RECEIPT.time[4:]}, {"entries": ["0" * 64]}, {"signature": "0" * 128}):
        assert "signature" in fault(right.model_copy(update=change))


def test_a_receipt_that_is_refused_keeps_no_other_answer_out(service: FakeService, clinic: Clinic) -> None:
    images = clinic.images(32)

    def spoil(answer: dict[str, Any]) -> None:
        if len(service.answered) in (2, 3):
            answer["receipt"]["signature"] = "0" * 128

    service.change, service.delay = spoil, 0.3  # all four requests are under way at a time
    with pytest.raises(RefusedError, match="signature"):
        clinic.query(images)
    assert sum(len(kept.labels) for kept in read_receipts(journal_path(clinic.out))) == 16


@pytest.mark.parametrize(
    ("unusable", "words"), [([], "samples other than these"), ([99], "were not in the request")]
)
def test_a_calibration_by_other_samples_is_refused(clinic: Clinic, unusable: list[int], words: str) -> None:
    service = clinic.service
    service.info["fewest_to_calibrate"] = 2
    told = Calibration(samples=9, digest="0" * 32)
    reasons = [UnusableSample(position=position, reason="no image") for position in unusable]
    answer = CalibrationAnswer(calibration=told, unusable=reasons).model_dump_json().encode()
    service.faults.append((200, {}, answer))
    with LabelClient(service.url, KEY, calibrate=True) as client, pytest.raises(RefusedError, match=words):
        query_labels(client, open_questions(clinic.images(3)), clinic.out)
    assert not service.answered


def test_a_missing_or_wrong_key_is_told_in_one_line(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("query", clinic.images(2), "--url", clinic.service.url, "--out", "o.json")
    status, _, told = run_command(*command, "--key", "wrong")
    assert status == 2
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert "401" in told
    monkeypatch.delenv("UCDS_KEY")
    _, _, told = run_command(*command)
    assert "environment variable UCDS_KEY, or --key" in told
    assert not Path("o.json").exists()


def test_a_few_queries_are_spread_and_the_same_again_by_command_and_function(
    embeddings: FakeService, vectors: Path
) -> None:
    command = ("query", vectors, "--url", embeddings.url, "--max-queries", 5, "--accelerator", "cpu")
    done = run_successfully(*command, "--out", "a.json", "--seed", 1)
    assert "5 labels of 7 clusters written to a.json" in done.err
    assert KEY not in done.err + done.out
    labels = ClusterLabels.load(Path("a.json"))
    assert {int(name) % 5 for name in labels.ids} == set(range(5))  # one of each group
    with ucds.LabelClient(embeddings.url, KEY) as client:
        given = {"max_queries": 5, "seed": 1, "compute": ucds.Compute("cpu")}
        again = ucds.query(str(vectors), "b.json", client, **given)
    assert again.ids == labels.ids
    assert Path("b.json").read_bytes() == Path("a.json").read_bytes()
    assert sum(embeddings.asked.values()) == 10
    with ucds.LabelClient(embeddings.url, KEY) as client:
        for wrong in ({"max_queries": 0}, {"max_queries": 5, "seed": -1}):
            with pytest.raises(ucds.InputError, match="must be at least"):
                ucds.query(str(vectors), "c.json", client, **wrong)


def test_a_used_up_budget_can_be_gone_on_with(embeddings: FakeService, vectors: Path) -> None:
    embeddings.limit = 29  # no whole number of requests
    command = ("query", vectors, "--url", embeddings.url, "--out", "l.json", "--accelerator", "cpu")
    for _ in range(2):
        status, _, said = run_command(*command)
        assert status == 2
        assert "used up: 29 labels for 60 samples are kept" in said
        assert "go on with what there is by --max-queries 29" in said
    assert len(embeddings.charged) == 29
    known = set(embeddings.charged)
    embeddings.asked.clear()
    run_successfully(*command, "--max-queries", 29)
    assert len(ClusterLabels.load(Path("l.json")).ids) == 29
    Path("l.json").unlink()
    embeddings.limit, embeddings.info["balance"] = 60, BALANCE  # it covers the 31 that are not known
    run_successfully(*command)
    rows = np.load(vectors)
    assert ClusterLabels.load(Path("l.json")).labels.tolist() == [label_of(row.tobytes()) for row in rows]
    assert len(embeddings.charged) == 60
    assert not known & embeddings.asked.keys()


def test_a_query_beyond_the_budget_needs_overdraw(embeddings: FakeService, vectors: Path) -> None:
    embeddings.info["balance"] = BALANCE
    command = ("query", vectors, "--url", embeddings.url, "--out", "l.json")
    status, _, said = run_command(*command)
    assert status == 2
    assert "error: 40 labels are left in the budget of this key, but 60 samples have no label yet" in said
    assert "ask about fewer by --max-queries 40, or use up the rest with --overdraw" in said
    assert embeddings.requests == 0
    run_successfully(*command, "--max-queries", 40)
    Path("l.json").unlink()
    run_successfully(*command, "--overdraw")


IMAGES, BATCH, PARALLEL = 120, 2, 4

LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from ucds.cli import main; main()"
)
"""A shell without job control lets what it starts in the background, these tests too, ignore interrupts."""


def _start(clinic: Clinic, images: Path) -> subprocess.Popen[bytes]:
    clinic.service.info["max_batch"] = BATCH
    command = [sys.executable, "-c", LISTENING, "query", str(images)]
    command += ["--url", clinic.service.url, "--out", str(clinic.out)]
    return subprocess.Popen(command, env=os.environ | {"UCDS_KEY": KEY}, stderr=subprocess.PIPE)


def _received(journal: Path) -> set[str]:
    """Keys of the labels in whole lines of a journal, read without the code under test."""
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
    return {key for line in lines for key in json.loads(line.partition(b" ")[2])["labels"]}


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGINT, signal.SIGKILL], pytest.param([signal.SIGKILL] * 20, marks=pytest.mark.slow)],
    ids=["interrupted and killed", "killed again and again"],
)
def test_stopped_clients_lose_nothing_and_pay_nothing_twice(
    signals: list[signal.Signals], clinic: Clinic
) -> None:
    images, out, service = clinic.images(IMAGES), clinic.out, clinic.service
    contents = {name: (images / name).read_bytes() for name in scan_folder(images).ids}
    known, kills, rng = set[str](), len(signals), random.Random(0)

    def check_new_questions() -> None:
        """Make sure that nobody asked again about a label that was on disk."""
        assert not known & {content_key(content).hex() for content in service.asked}
        service.asked.clear()

    service.delay = 0.03  # slow enough that the work outlives the kills
    for sent in signals:
        assert not out.exists()
        before, client = service.requests, _start(clinic, images)
        # Some time after some requests of this life, however slowly it works.
        enough = before + rng.randint(1, 20 // kills)
        wait_until(lambda enough=enough: service.requests >= enough)  # type: ignore[misc]
        time.sleep(rng.uniform(0, service.delay))
        client.send_signal(sent)
        _, said = client.communicate()
        if sent == signal.SIGINT:
            assert (client.returncode, b"stopped; all labels are kept" in said) == (130, True)
            assert len(_received(journal_path(out))) == len(service.charged) < IMAGES
        check_new_questions()
        known = _received(journal_path(out))
    labels = clinic.query(images)
    assert ClusterLabels.load(out).fingerprint == labels.fingerprint
    assert dict(zip(labels.ids, labels.labels.tolist(), strict=True)) == {
        name: label_of(content) for name, content in contents.items()
    }
    check_new_questions()
    assert len(service.charged) == IMAGES
    assert sum(service.answered) <= IMAGES + kills * PARALLEL * BATCH


def test_embeddings_are_sent_in_the_order_of_the_columns_of_the_service(
    embeddings: FakeService, tmp_path: Path
) -> None:
    embeddings.info |= {"width": 2, "columns": ["a", "b"]}
    clinic = Clinic(embeddings, lambda *_: [], tmp_path, tmp_path / "labels.json")
    (tmp_path / "x.csv").write_text("b,a\n1,2\n3,4\n")
    (tmp_path / "y.csv").write_text("b,c\n1,2\n3,4\n")
    with pytest.raises(InputError, match="lacks 'a' and has 'c'"):
        clinic.query(tmp_path / "y.csv")
    assert not embeddings.bodies
    found = clinic.query(tmp_path / "x.csv")
    sent = np.load(io.BytesIO(embeddings.bodies[0]))  # in a random order
    assert sorted(sent.tolist()) == [[2, 1], [4, 3]]
    assert found.columns == ClusterLabels.load(clinic.out).columns == ("a", "b")
    samples = find_samples(tmp_path / "x.csv", by_domain=False)
    assert isinstance(samples, VectorSamples)
    assert found.align_with(samples).ids == ("0", "1")
