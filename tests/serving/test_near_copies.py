"""Near-copies over real HTTP: a walk to a boundary is refused at no cost, and honest images are answered."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from PIL import Image
from postgres import postgresql
from scipy.ndimage import gaussian_filter
from serving_kit import FakeImageLabeller, FakeLabeller, Service, files, make_run, running, wait_until

from ucds.auditing.membership import boundary_distances
from ucds.auditing.subject import ServiceSubject
from ucds.errors import InputError, UcdsWarning
from ucds.labels.client import LabelClient
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions
from ucds.math.perceptual_hash import HASH_BYTES, hash_images
from ucds.serving import near_copies, tables
from ucds.serving.front import writing_access_log
from ucds.serving.ledger import Ledger
from ucds.serving.near_copies import Screen, TooManyNearCopies
from ucds.serving.settings import Limits, NearCopies

MODEL = "m" * 32
ONE_DECODER = Limits(decode_workers=1)
"""Few and small images do not need a process for each processor."""


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """``(count, 3, 32, 32)`` pictures of soft blots, each different."""
    noise = np.random.default_rng(seed).standard_normal((count, 3, 32, 32))
    soft = gaussian_filter(noise, (0, 0, 1, 1), mode="nearest")
    return np.clip(128 + 50 * soft / soft.std((1, 2, 3), keepdims=True), 0, 255).astype(np.uint8)


def png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def copies(picture: np.ndarray, count: int) -> np.ndarray:
    """Noisy copies of a picture."""
    noise = np.random.default_rng(5).normal(0, 3, (count, *picture.shape))
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def guarded(ledger: Ledger) -> Iterator[Service]:
    """Answers for images to one key with a budget of 1,000, of each image about three near-copies."""
    key = ledger.add_key("anna", 1000)
    with running(FakeImageLabeller(), ledger, ONE_DECODER, near_copies=NearCopies("refuse", 3)) as service:
        service.key = key
        yield service


def used(service: Service) -> int:
    assert service.ledger is not None
    return service.ledger.list_keys()[0].used


def test_a_walk_to_the_boundary_is_refused_at_no_cost_and_honest_images_are_answered(
    guarded: Service,
) -> None:
    honest = [png(picture) for picture in pictures(60)]
    with guarded.client() as client:
        assert client.post("/v1/labels", files=files(*honest)).status_code == 200
    assert used(guarded) == 60
    refused = walk(guarded)
    paid = used(guarded) - 60
    assert paid <= 6 * (1 + 3)  # each image and three near-copies of it
    assert refused > 100
    with guarded.client() as client:  # the same key still asks about other images, and about known ones
        again = client.post("/v1/labels", files=files(*honest, *map(png, pictures(20, seed=2))))
        assert again.status_code == 200
        metrics = client.get("/metrics").text
    assert used(guarded) == 80 + paid
    assert f"ucds_samples_near_copies_total {refused:.1f}" in metrics
    assert guarded.ledger is not None
    assert guarded.ledger.verify().faults == ()


def test_the_same_walk_pays_for_every_step_where_nothing_is_refused(ledger: Ledger) -> None:
    key = ledger.add_key("anna", 1000)
    with running(FakeImageLabeller(), ledger, ONE_DECODER) as service:
        service.key = key
        assert walk(service) == 0
        assert used(service) > 100


def walk(service: Service) -> int:
    """Seek the boundary around six images; the number of refused queries is returned."""
    rows = torch.from_numpy(pictures(6, seed=9))
    with LabelClient(service.url, service.key) as client:
        subject = ServiceSubject(client, client.info())
        labels, generator = subject.ask(rows), torch.Generator().manual_seed(0)
        boundary_distances(subject, rows, labels, generator, smallest=1.0, doublings=4, steps=1)
    return subject.refused


def test_the_problem_names_the_near_copies_and_nothing_of_the_request_is_charged(guarded: Service) -> None:
    (first, other), near = pictures(2), copies(pictures(1)[0], 5)
    sent = [png(picture) for picture in (first, *near[:3], near[3], other, near[4][:, :, ::-1])]
    with guarded.client() as client:
        answer = client.post("/v1/labels", files=files(*sent))
        problem = answer.json()
        assert answer.status_code == 422
        assert problem["type"] == "urn:ucds:problem:near-copies"
        assert [sample["position"] for sample in problem["invalid"]] == [4, 6]  # the mirrored one too
        assert "more than 3 other images" in problem["invalid"][0]["detail"]
        assert used(guarded) == 0
        rest = [content for i, content in enumerate(sent) if i not in (4, 6)]
        assert client.post("/v1/labels", files=files(*rest)).status_code == 200
        assert client.post("/v1/labels", files=files(sent[4])).status_code == 422
        assert client.post("/v1/labels", files=files(sent[1])).status_code == 200  # known: answered again
    assert used(guarded) == 5


def test_a_client_gets_labels_of_the_others_and_one_line_for_each_near_copy(
    guarded: Service, tmp_path: Path
) -> None:
    for i, picture in enumerate([*pictures(8), *copies(pictures(1)[0], 5)]):
        (tmp_path / f"{i:02d}.png").write_bytes(png(picture))
    with LabelClient(guarded.url, guarded.key) as client, pytest.warns(UcdsWarning) as warned:
        labels = query_labels(client, open_questions(tmp_path), tmp_path / "labels.json")
    assert len(labels.ids) == 11
    lines = [str(one.message) for one in warned]
    assert lines == [
        "11.png: like more than 3 other images that this key asked about; skipped",
        "12.png: like more than 3 other images that this key asked about; skipped",
        "2 of 13 samples have no label because they are unusable or refused",
    ]
    assert used(guarded) == 11


def test_flagged_near_copies_are_answered_counted_and_in_the_access_log(
    ledger: Ledger, tmp_path: Path
) -> None:
    place, key = tmp_path / "access.log", ledger.add_key("anna", 100)
    near = [png(picture) for picture in copies(pictures(1)[0], 6)]
    with (
        writing_access_log(place),
        running(FakeImageLabeller(), ledger, ONE_DECODER, near_copies=NearCopies("flag", 3)) as service,
    ):
        service.key = key
        with service.client() as client:
            assert client.post("/v1/labels", files=files(*near)).status_code == 200
            assert "ucds_samples_near_copies_total 2.0" in client.get("/metrics").text
        wait_until(lambda: place.read_text().count("\n") == 2)
    first = json.loads(place.read_text().splitlines()[0])
    assert (first["near_copies"], first["problem"]) == (2, None)


def test_refusals_name_their_problem_in_the_access_log(ledger: Ledger, tmp_path: Path) -> None:
    place, key = tmp_path / "access.log", ledger.add_key("anna", 100)
    near = [png(picture) for picture in copies(pictures(1)[0], 6)]
    with (
        writing_access_log(place),
        running(FakeImageLabeller(), ledger, ONE_DECODER, near_copies=NearCopies("refuse", 3)) as service,
    ):
        service.key = key
        with service.client() as client:
            client.post("/v1/labels", files=files(*near))
        wait_until(lambda: place.read_text().count("\n") == 1)
    line = json.loads(place.read_text())
    assert (line["near_copies"], line["problem"], line["status"]) == (2, "near-copies", 422)


def charge(book: Ledger, secret: str, images: np.ndarray, allowed: int = 1) -> int:
    """Charge for images under names of their own; return the number of all that were charged."""
    key = book.find_key(secret)
    assert key is not None
    hashes = [bytes(one) for one in hash_images(images)]
    contents = [image.tobytes()[:16] for image in images]
    screen = Screen(dict(zip(contents, hashes, strict=True)), allowed, refuses=True)
    return book.charge(key, MODEL, contents, dict.fromkeys(contents, 1), screen=screen).budget.used


def check_shared(place: str | Path) -> None:
    """Replicas share what they remember, each key has its own, and a revoked key leaves nothing."""
    near, one, other = copies(pictures(1)[0], 4), Ledger(place), Ledger(place)
    anna, bert = one.add_key("anna", 100), one.add_key("bert", 100)
    assert charge(one, anna, near[:1]) == 1
    assert charge(other, anna, near[1:2]) == 2
    one.close()
    again = Ledger(place, create=False)
    with pytest.raises(TooManyNearCopies) as refused:
        charge(again, anna, near[2:4])
    assert refused.value.contents == [image.tobytes()[:16] for image in near[2:4]]
    assert charge(other, bert, near[:2]) == 2
    again.revoke_key("anna")
    with again.transaction() as connection:
        counted = sa.select(sa.func.count()).select_from(tables.likenesses).filter_by(key_id=1)
        assert connection.execute(counted).scalar() == 0
    assert again.verify().faults == ()
    again.close()
    other.close()


def test_replicas_share_what_they_remember(tmp_path: Path) -> None:
    check_shared(tmp_path)


def test_replicas_share_it_in_postgresql() -> None:
    with postgresql() as url:
        check_shared(url)


def test_the_oldest_are_forgotten_and_the_size_is_bounded(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_copies, "MOST_REMEMBERED", 6)
    anna, images = ledger.add_key("anna", 1000), pictures(40)
    for start in range(0, 40, 4):
        charge(ledger, anna, images[start : start + 4])
    with ledger.transaction() as connection:
        kept = connection.execute(sa.select(tables.likenesses.c.entry)).scalars().all()
    assert len(kept) <= 6
    assert min(kept) >= ledger.read_head().entries - 1
    assert charge(ledger, anna, copies(images[0], 2)) == 42  # the original is forgotten


def test_another_model_begins_anew(ledger: Ledger) -> None:
    anna, near = ledger.add_key("anna", 100), copies(pictures(1)[0], 3)
    charge(ledger, anna, near[:2])
    key = ledger.find_key(anna)
    assert key is not None
    screen = Screen({b"x" * 16: bytes(hash_images(near[2:])[0])}, 1, refuses=True)
    assert ledger.find_near_copies(key, MODEL, screen) == [b"x" * 16]
    assert ledger.find_near_copies(key, "n" * 32, screen) == []
    assert (
        ledger.find_near_copies(key, MODEL, replace(screen, hashes={b"y" * 16: b"\xaa" * HASH_BYTES})) == []
    )


def test_a_ledger_that_was_made_without_the_table_gets_it(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.transaction(writes=True) as connection:
        connection.exec_driver_sql("DROP TABLE likenesses")
    anna = ledger.add_key("anna", 9)
    again = Ledger(tmp_path, create=False)
    assert charge(again, anna, pictures(3)) == 3
    again.close()


def test_where_near_copies_cannot_be_found_the_option_is_refused(
    ledger: Ledger, tmp_path: Path, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(InputError, match="takes embeddings"),
        running(FakeLabeller(), ledger, near_copies=NearCopies()),
    ):
        pass
    with (
        pytest.raises(InputError, match="has no ledger"),
        running(FakeImageLabeller(), near_copies=NearCopies()),
    ):
        pass
    with pytest.raises(InputError, match="not negative"):
        NearCopies("flag", -1)
    assert run("serve", make_run(tmp_path / "run"), "--near-copies-allowed", 3) == 2
    assert "needs --near-copies flag or" in capsys.readouterr().err
