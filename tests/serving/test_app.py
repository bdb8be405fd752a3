"""What a client sees: answers, refusals, and the shape of both; and what the own client makes of them."""

import json
import math
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from ledger_kit import behind
from serving_kit import FakeLabeller, Service, npy, picture, refused, running, vector, wait_until

from ucds.data.vectors import load_vectors
from ucds.errors import InputError
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.labels.journal import journal_path, read_receipts
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions
from ucds.labels.wire import Balance, LabelAnswer, UnusableSample, is_authentic
from ucds.serving.app import render
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.service import in_few_words
from ucds.serving.verify import verify


def test_paths_and_methods_that_are_not_there(vectors: Service) -> None:
    with vectors.client() as client:
        for path in ("/", "/v1/labels/", "/metrics", "/healthz", "/readyz", "/docs", "/made/up/path"):
            refused(client.get(path), 404, "not-found")
        answers = [client.delete("/v1/labels") for _ in range(2)]
    refused(answers[0], 405, "wrong-method")
    assert answers[0].headers["allow"] == "POST"
    assert answers[0].headers["cache-control"] == "no-store"
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2


def test_over_the_rate_a_key_is_told_when_to_come_again(vectors: Service) -> None:
    key = vectors.ledger.add_key("slow", 1000, rate=0.5)  # saves up 5 samples
    assert vectors.ask(*(vector(1, i) for i in range(8)), key=key).status_code == 200
    answer = vectors.ask(vector(1, 0), key=key)
    refused(answer, 429, "over-rate")
    assert 5 <= int(answer.headers["retry-after"]) <= 8
    assert vectors.ask(vector(1, 0)).status_code == 200  # other keys are not concerned


def test_unusable_samples_get_null_and_a_reason_and_the_others_are_charged(pictures: Service) -> None:
    bad = (b"no image", picture(3)[:60], b"no image", bytes(200_001))
    answer = LabelAnswer.model_validate(pictures.ask(picture(1), bad[0], picture(2), *bad[1:]).json())
    assert answer.labels == [1, None, 2, None, None, None]
    assert [sample.position for sample in answer.unusable] == [1, 3, 4, 5]
    assert answer.unusable[0].reason == "not an image of a known format"
    assert answer.unusable[3].reason == "longer than 200,000 bytes"
    assert answer.balance.used == 2
    assert answer.receipt is not None
    nothing = LabelAnswer.model_validate(pictures.ask(b"a", b"b").json())
    assert (nothing.labels, nothing.balance.used, nothing.receipt) == ([None, None], 2, None)


def test_a_model_or_a_ledger_that_fails_charges_nothing_and_the_service_says_so(ledger: Ledger) -> None:
    labeller = FakeLabeller()
    with running(labeller, ledger, budget=100) as service:
        labeller.look_at = lambda rows: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        problem = refused(service.ask(vector(1)), 500, "fault")
        assert "division" not in problem.detail
        del labeller.look_at
        assert service.ask(vector(1)).json()["balance"]["used"] == 1
        with behind(ledger.place) as database:
            database.exec_driver_sql("DROP TABLE log")
        answer = service.ask(vector(2))
        refused(answer, 503, "ledger-away")
        assert answer.headers["retry-after"] == "5"
        refused(httpx.get(f"{service.ops}/readyz"), 503, "ledger-away")
        assert httpx.get(f"{service.ops}/healthz").status_code == 200


def test_an_abandoned_request_is_finished_and_charged_and_its_repeat_is_free(ledger: Ledger) -> None:
    labeller, rows = FakeLabeller(), [vector(1, i) for i in range(5)]
    labeller.gate.clear()
    body = npy(rows)
    with running(labeller, ledger, budget=100) as service:
        with service.connect() as connection:
            words = service.head(f"Content-Length: {len(body)}")
            connection.sendall(words + body)
            wait_until(lambda: service.queued == 5)
        labeller.gate.set()
        wait_until(lambda: ledger.list_keys()[0].used == 5)
        batches = labeller.batches
        answer = service.ask(*rows).json()
    assert (answer["labels"], answer["balance"]["used"], labeller.batches) == ([1] * 5, 5, batches)


def test_failed_authentications_are_security_events_and_figures_name_nobody(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with running(FakeLabeller(), ledger, budget=100) as service:
        assert service.ask(vector(1)).status_code == 200
        refused(service.ask(vector(1), key="ucds_wrong"), 401, "unknown-key")
        for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Basic abc"}):
            answer = httpx.get(f"{service.url}/v1/info", headers=headers)
            refused(answer, 401, "no-key")
            assert answer.headers["www-authenticate"] == "Bearer"
        ledger.set_key("anna", expires="2020-01-01")
        refused(service.ask(vector(1)), 403, "expired-key")
        ledger.revoke_key("anna")
        refused(service.ask(vector(1)), 403, "revoked-key")
        httpx.get(f"{service.url}/made/up/path")
        figures = httpx.get(f"{service.ops}/metrics").text
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ucds.security"]
    assert [(line["reason"], line["key"]) for line in lines] == [
        ("unknown-key", None),
        *[("no-key", None)] * 3,
        ("expired-key", "anna"),
        ("revoked-key", "anna"),
    ]
    assert {(line["event"], line["client"]) for line in lines} == {("failed-authentication", "127.0.0.1")}
    assert 'ucds_failed_authentications_total{reason="unknown-key"} 1.0' in figures
    assert 'ucds_requests_total{path="/v1/labels",status="200"} 1.0' in figures
    for name in ("ucds_samples_answered_total", "ucds_samples_computed_total", "ucds_model_rows"):
        assert f"\n{name} 1.0\n" in figures
    assert "anna" not in figures
    assert "made" not in figures


def test_the_proxy_alone_is_answered_and_its_word_binds_a_key_to_its_network(ledger: Ledger) -> None:
    key = ledger.add_key("anna", 100, networks=["10.0.0.0/8"])
    inside, outside = ({"X-Forwarded-For": address} for address in ("10.1.2.3", "192.0.2.1"))
    with running(FakeLabeller(), ledger) as service, service.client(key=key) as client:
        refused(client.get("/v1/info", headers=inside), 403, "not-for-you")  # no proxy is believed
    with (
        running(FakeLabeller(), ledger, behind_proxy="127.0.0.1") as service,
        service.client(key=key) as client,
    ):
        assert client.get("/v1/info", headers=inside).status_code == 200
        refused(client.get("/v1/info", headers=outside), 403, "not-for-you")
        refused(client.get("/v1/info"), 403, "not-for-you")
    with running(FakeLabeller(), ledger, behind_proxy="192.0.2.0/24") as service:  # not the one that asks
        for path in ("/v1/info", "/openapi.json", "/v1/labels"):
            refused(httpx.get(f"{service.url}{path}", headers=inside), 403, "not-the-proxy")
        refused(service.ask(vector(1), key=key), 403, "not-the-proxy")
        assert httpx.get(f"{service.ops}/readyz").text == "ready\n"


def test_on_a_unix_socket_the_last_address_that_the_proxy_names_is_the_clients(
    ledger: Ledger, tmp_path: Path
) -> None:
    key, path = ledger.add_key("anna", 100, networks=["10.0.0.0/8"]), tmp_path / "labels.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # as a killed service leaves it
    with running(FakeLabeller(), ledger, host=f"unix:{path}") as service, service.client(key=key) as client:
        assert service.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o660
        for told, status in (
            ("192.0.2.1, 10.1.2.3", 200),
            ("10.1.2.3, 192.0.2.1", 403),
            ("", 403),
            (None, 403),
        ):
            headers = {} if told is None else {"X-Forwarded-For": told}
            assert client.get("/v1/info", headers=headers).status_code == status, told
        second = running(FakeLabeller(), ledger, host=service.url)
        with pytest.raises(InputError, match="another process"), second:
            pass
        assert client.get("/v1/info", headers={"X-Forwarded-For": "10.1.2.3"}).status_code == 200
    assert not path.exists()


def test_the_length_of_an_answer_says_nothing_but_the_number_of_samples(vectors: Service) -> None:
    nothing = [math.nan, 0, 0, 0]
    for number in (1, 2, 20):
        low, high = ([vector(label, i) for i in range(number)] for label in (1, 11))
        answers = [vectors.ask(*rows) for rows in (low, low, high, [nothing] * number, [nothing, *high[1:]])]
        for row in (vector(5, i + 100) for i in range(number)):  # charged one by one
            vectors.ask(row)
        answers.append(vectors.ask(*(vector(5, i + 100) for i in range(number))))
        assert len(json.loads(answers[-1].content)["receipt"]["entries"]) == number
        assert len({len(answer.content) for answer in answers}) == 1
        assert len({tuple(answer.headers) for answer in answers}) == 1
        vectors = vectors.with_a_new_key()
    assert "server" not in answers[0].headers
    assert answers[0].json().keys() == LabelAnswer.model_fields.keys()


@pytest.mark.parametrize("reason", ["\x01" * 500, '"' * 500, "\\" * 500, "ä€😀" * 200, "\n" * 500])
def test_no_reason_makes_an_answer_longer(reason: str) -> None:
    balance = Balance(budget=2**53 - 1, used=0, remaining=0)
    answer = LabelAnswer(
        labels=[None] * 300,
        unusable=[UnusableSample(position=i, reason=in_few_words(reason)) for i in range(300)],
        n_clusters=100_000,
        provider="m" * 200,
        model_digest="0" * 32,
        balance=balance,
        receipt=None,
    )
    shortest = answer.model_copy(update={"labels": [], "unusable": []})
    assert len(render(shortest, 300, answer.provider).body) == len(render(answer, 300, answer.provider).body)


@pytest.mark.parametrize(("limit", "seconds"), [(8, 0.2), (0.5, 1.8)])
def test_stopping_finishes_what_ends_in_time_and_refuses_the_rest(
    ledger: Ledger, limit: float, seconds: float
) -> None:
    labeller = FakeLabeller()
    labeller.gate.clear()
    with ThreadPoolExecutor() as pool:
        with running(labeller, ledger, Limits(shutdown_seconds=limit), budget=100) as service:
            answer = pool.submit(service.ask, vector(4))
            wait_until(lambda: service.queued == 1)
            threading.Timer(seconds, labeller.gate.set).start()
        if seconds < limit:
            assert answer.result().json()["labels"] == [4]
        else:
            refused(answer.result(), 503, "stopping")
            assert ledger.list_keys()[0].used == 0


def _query(service: Service, samples: Path, out: Path) -> ClusterLabels:
    wait = {"patience": 60, "first_wait": 0.01}
    with LabelClient(service.url, service.key, overdraw=True, **wait) as client:
        return query_labels(client, open_questions(samples), out)


def test_minus_zero_is_the_same_sample_for_both_sides(vectors: Service, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([vector(3, -0.0), vector(5)], np.float32))
    labels = _query(vectors, tmp_path / "x.npy", tmp_path / "labels.json")
    assert labels.labels.tolist() == [3, 5]
    own = marks_of(load_vectors(tmp_path / "x.npy").keys)
    assert list(labels.contents or ()) == list(own)  # training compares these


def test_the_guarantee_of_a_model_stands_in_info_receipts_and_ledger(ledger: Ledger, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([vector(i, i) for i in range(5)], np.float32))
    labeller = FakeLabeller()
    claims = [f"epsilon {epsilon}, delta 1e-05, for each person" for epsilon in (2.0, 1.0)]
    labeller.privacy = claims[0]
    with running(labeller, ledger, budget=100) as service:
        assert service.info()["privacy"] == claims[0]
        _query(service, tmp_path / "x.npy", tmp_path / "labels.json")
    (kept,) = read_receipts(journal_path(tmp_path / "labels.json"))
    assert kept.receipt.privacy == claims[0]
    assert is_authentic(kept.receipt)
    assert not is_authentic(kept.receipt.model_copy(update={"privacy": claims[1]}))
    assert verify(ledger.place).faults == ()
