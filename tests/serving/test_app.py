"""What a client sees: answers, refusals, and the shape of both."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from serving_kit import (
    NPY,
    WIDTH,
    FakeImageLabeller,
    FakeLabeller,
    K,
    Service,
    files,
    npy,
    picture,
    running,
    vector,
    wait_until,
)

from ucds.data.content import content_key
from ucds.labels.wire import PROBLEM_TYPE, Budget, LabelAnswer, Problem, ServiceInfo
from ucds.serving.answering import render_answer
from ucds.serving.ledger import Ledger
from ucds.serving.settings import Limits


def post(service: Service, rows: list[list[float]], **options: object) -> httpx.Response:
    with service.client(**options) as client:  # type: ignore[arg-type]
        return client.post("/v1/labels", content=npy(rows), headers=NPY)


def refused(answer: httpx.Response, status: int, kind: str) -> Problem:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_TYPE
    problem = Problem.model_validate(answer.json())
    assert (problem.status, problem.type) == (status, f"urn:ucds:problem:{kind}")
    assert problem.detail.endswith(".")
    return problem


def test_embeddings_are_labelled_in_order_and_charged(vectors: Service) -> None:
    labels = [7, 0, 11, 3, 3, 1]
    answer = post(vectors, [vector(label, i) for i, label in enumerate(labels)])
    assert answer.status_code == 200
    parsed = LabelAnswer.model_validate_json(answer.content)
    assert parsed.labels == labels
    assert (parsed.n_clusters, parsed.model) == (K, "fake")
    assert parsed.budget == Budget(limit=100, used=6, remaining=94)
    assert answer.headers["content-type"] == "application/json"
    assert "server" not in answer.headers


def test_images_of_usual_formats_are_labelled(pictures: Service) -> None:
    with pictures.client() as client:
        for form in ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"):
            answer = client.post("/v1/labels", files=files(*(picture(label, form) for label in (3, 9, 0))))
            assert answer.json()["labels"] == [3, 9, 0], form


def test_asking_again_is_free_and_identical(vectors: Service) -> None:
    first = post(vectors, [vector(1), vector(2), vector(1)])
    again = post(vectors, [vector(2), vector(1), vector(1)])
    assert first.json()["budget"]["used"] == 2
    assert again.json()["labels"] == [2, 1, 1]
    assert again.json()["budget"] == first.json()["budget"]


def test_the_kept_answer_is_given_even_if_the_model_would_say_otherwise(vectors: Service) -> None:
    row = vector(5)
    assert post(vectors, [row]).json()["labels"] == [5]
    vectors.app.state.answering.labeller.label = lambda rows: rows[:, 0].astype(int) * 0
    assert post(vectors, [row, vector(6)]).json()["labels"] == [5, 0]


def test_float64_and_float32_of_the_same_value_are_one_sample(vectors: Service) -> None:
    with vectors.client() as client:
        client.post("/v1/labels", content=npy([[1.0, 0.5, 0, 0]], "f8"), headers=NPY)
        answer = client.post("/v1/labels", content=npy([[1.0, 0.5, -0.0, 0]], "f4"), headers=NPY)
    assert answer.json()["budget"]["used"] == 1


def test_info_says_what_is_accepted(vectors: Service, pictures_info: ServiceInfo) -> None:
    with vectors.client() as client:
        info = ServiceInfo.model_validate(client.get("/v1/info").json())
    assert (info.accepts, info.width, info.max_batch) == ("embeddings", WIDTH, 20)
    assert (pictures_info.accepts, pictures_info.width) == ("images", None)
    assert pictures_info.max_image_pixels == 1_000_000


@pytest.fixture
def pictures_info() -> ServiceInfo:
    with running(FakeImageLabeller(), limits=Limits(max_image_pixels=1_000_000)) as service:
        return ServiceInfo.model_validate(httpx.get(f"{service.url}/v1/info").json())


def test_without_a_key_or_with_a_wrong_one_nothing_is_told(vectors: Service) -> None:
    with httpx.Client(base_url=vectors.url) as client:
        for path in ("/v1/labels", "/v1/info"):
            method = "POST" if path == "/v1/labels" else "GET"
            answer = client.request(method, path)
            refused(answer, 401, "no-key")
            assert answer.headers["www-authenticate"] == "Bearer"
            for shown in ("Bearer", "Basic abc"):
                refused(client.request(method, path, headers={"Authorization": shown}), 401, "no-key")
            wrong = client.request(method, path, headers={"Authorization": "Bearer ucds_no"})
            refused(wrong, 401, "unknown-key")


def test_a_revoked_key_is_refused_from_the_next_request_on(vectors: Service) -> None:
    assert post(vectors, [vector(1)]).status_code == 200
    assert vectors.ledger is not None
    vectors.ledger.revoke_key("anna")
    refused(post(vectors, [vector(1)]), 403, "revoked-key")


def test_paths_and_methods_that_are_not_there(vectors: Service) -> None:
    with vectors.client() as client:
        refused(client.get("/"), 404, "not-found")
        refused(client.get("/v1/labels/"), 404, "not-found")
        answer = client.delete("/v1/labels")
        refused(answer, 405, "wrong-method")
        assert answer.headers["allow"] == "POST"


def test_over_the_budget_the_whole_request_is_refused(vectors: Service) -> None:
    for start in range(0, 95, 19):
        assert post(vectors, [vector(1, start + i) for i in range(19)]).status_code == 200
    answer = post(vectors, [vector(1, 0), *(vector(2, i) for i in range(6))])
    problem = refused(answer, 429, "over-budget")
    assert "retry-after" not in answer.headers
    assert "6 samples" in problem.detail
    assert "5 left" in problem.detail
    assert post(vectors, [vector(2, i) for i in range(5)]).json()["budget"]["remaining"] == 0
    assert post(vectors, [vector(2, i) for i in range(5)]).status_code == 200  # asked before: free


def test_over_the_rate_a_key_is_told_when_to_come_again(vectors: Service) -> None:
    assert vectors.ledger is not None
    key = vectors.ledger.add_key("slow", 1000, rate=0.5)  # saves up 5 samples
    assert post(vectors, [vector(1, i) for i in range(8)], key=key).status_code == 200
    answer = post(vectors, [vector(1, 0)], key=key)
    refused(answer, 429, "over-rate")
    assert 6 <= int(answer.headers["retry-after"]) <= 8
    assert post(vectors, [vector(1, 0)]).status_code == 200  # other keys are not concerned


def test_a_wrong_media_type_is_refused(vectors: Service, pictures: Service) -> None:
    with vectors.client() as client:
        refused(client.post("/v1/labels", files=files(picture(1))), 415, "wrong-type")
        refused(client.post("/v1/labels", content=b"x"), 415, "wrong-type")
    with pictures.client(key=vectors.key) as client:
        refused(client.post("/v1/labels", content=npy([vector(1)]), headers=NPY), 415, "wrong-type")


def test_unusable_images_are_named_and_nothing_is_charged(pictures: Service) -> None:
    with pictures.client() as client:
        contents = files(picture(1), b"no image", picture(2), picture(3)[:60])
        problem = refused(client.post("/v1/labels", files=contents), 422, "unusable-samples")
        assert problem.invalid is not None
        assert [sample.position for sample in problem.invalid] == [1, 3]
        assert client.post("/v1/labels", files=files(picture(1))).json()["budget"]["used"] == 1


def test_a_full_queue_is_told_to_come_again(ledger: Ledger) -> None:
    labeller = FakeLabeller()
    labeller.gate.clear()
    with running(labeller, limits=Limits(max_batch=8, max_queue=8)) as service, ThreadPoolExecutor() as pool:
        first = pool.submit(post, service, [vector(1, i) for i in range(8)])
        wait_until(lambda: service.app.state.answering.queue.held == 8)
        answer = post(service, [vector(2)])
        refused(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        labeller.gate.set()
        assert first.result().json()["labels"] == [1] * 8
        assert post(service, [vector(2)]).json()["labels"] == [2]


def test_a_failing_model_charges_nothing_and_the_service_goes_on(vectors: Service) -> None:
    labeller = vectors.app.state.answering.labeller
    good, labeller.label = labeller.label, lambda rows: 1 / 0
    problem = refused(post(vectors, [vector(1)]), 500, "fault")
    assert "division" not in problem.detail
    labeller.label = good
    assert post(vectors, [vector(1)]).json()["budget"]["used"] == 1


def test_without_a_reachable_ledger_nothing_is_answered(vectors: Service) -> None:
    assert vectors.ledger is not None
    with closing(sqlite3.connect(str(vectors.ledger.url.database))) as database, database:
        database.execute("DROP TABLE keys")
    answer = post(vectors, [vector(1)])
    refused(answer, 503, "ledger-away")
    assert answer.headers["retry-after"] == "5"
    with vectors.client() as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_only_a_service_without_a_ledger_answers_everybody(ledger: Ledger) -> None:
    with running(FakeLabeller()) as service:
        answer = post(service, [vector(3)])
        assert answer.json()["budget"] == {"limit": None, "used": 0, "remaining": None}
        assert answer.json()["receipt"] is None
        assert "ratelimit" not in answer.headers
    with running(FakeLabeller(), ledger) as service:
        refused(post(service, [vector(3)]), 401, "no-key")  # though there is no key at all


@pytest.mark.parametrize("what", ["deleted", "replaced", "wound back"])
def test_a_ledger_that_is_gone_stops_the_answers(vectors: Service, what: str) -> None:
    assert vectors.ledger is not None
    path = Path(str(vectors.ledger.url.database))
    assert post(vectors, [vector(1)]).status_code == 200
    if what == "deleted":
        path.unlink()
    elif what == "replaced":
        shutil.copy(path, path.with_name("copy"))
        path.with_name("copy").replace(path)
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM audit WHERE number = 2")
            database.execute("UPDATE head SET entries = 1")
    with vectors.client() as client:
        refused(client.get("/readyz"), 503, "ledger-away")
        assert client.get("/healthz").status_code == 200
    refused(post(vectors, [vector(2)]), 503, "ledger-away")


def test_readiness_is_a_write_that_is_on_disk(vectors: Service) -> None:
    assert vectors.ledger is not None
    with (
        closing(sqlite3.connect(str(vectors.ledger.url.database), timeout=0)) as other,
        vectors.client() as client,
    ):
        assert client.get("/readyz").status_code == 200
        before = vectors.ledger.read_head()
        time.sleep(1.1)
        other.execute("BEGIN IMMEDIATE")  # nobody else can write now
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.get, "/readyz")
            time.sleep(0.5)
            assert not waiting.done()
            other.rollback()
            assert waiting.result().status_code == 200
    assert vectors.ledger.read_head() == before


def test_wrong_keys_are_counted_and_slowed(ledger: Ledger) -> None:
    key = ledger.add_key("anna", 10)
    with running(FakeLabeller(), ledger, Limits(failure_seconds=1.0)) as service:
        for _ in range(6):
            refused(post(service, [vector(1)], key="ucds_wrong"), 401, "unknown-key")
        begun = time.monotonic()
        refused(post(service, [vector(1)], key="ucds_wrong"), 401, "unknown-key")
        assert time.monotonic() - begun >= 1.0
        assert post(service, [vector(1)], key=key).status_code == 200
        text = httpx.get(f"{service.url}/metrics").text
    assert 'ucds_failed_authentications_total{reason="unknown-key"} 7.0' in text


def test_a_key_whose_time_is_over_is_refused(vectors: Service) -> None:
    assert vectors.ledger is not None
    vectors.ledger.change_key("anna", expires=datetime.now(UTC) - timedelta(seconds=1))
    refused(post(vectors, [vector(1)]), 403, "expired-key")
    vectors.ledger.change_key("anna", expires=datetime.now(UTC) + timedelta(days=1))
    assert post(vectors, [vector(1)]).status_code == 200


def test_a_key_is_told_its_balance_and_its_limits(vectors: Service) -> None:
    assert vectors.ledger is not None
    key = vectors.ledger.add_key("berta", 1000, rate=0.01)
    answer = post(vectors, [vector(1, i) for i in range(7)], key=key)
    assert answer.headers["ratelimit-policy"] == '"budget";q=1000, "rate";q=1;w=10'
    assert re.fullmatch(r'"budget";r=0993, "rate";r=0;t=(6..|700)', answer.headers["ratelimit"])
    with vectors.client(key=key) as client:
        info = client.get("/v1/info")
        assert ServiceInfo.model_validate(info.json()).budget == Budget(limit=1000, used=7, remaining=993)
        assert info.headers["ratelimit"] == '"budget";r=0993'
        over = client.post("/v1/labels", content=npy([vector(3)]), headers=NPY)
    refused(over, 429, "over-rate")
    assert over.headers["ratelimit"].startswith('"budget";r=0993, "rate";r=0;t=')


def test_concurrent_requests_get_what_each_would_get_alone(ledger: Ledger) -> None:
    key = ledger.add_key("many", 10_000)
    requests = [[vector((i * 7 + j) % K, 100 * i + j) for j in range(1 + i % 9)] for i in range(60)]
    room_for_all = Limits(max_batch=20, max_queue=sum(map(len, requests)))
    with running(FakeLabeller(), ledger, room_for_all) as service, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda rows: post(service, rows, key=key).json(), requests))
    for rows, answer in zip(requests, answers, strict=True):
        assert answer.get("labels") == [int(row[0]) for row in rows], answer
    assert ledger.list_keys()[-1].used == sum(map(len, requests))


def test_the_length_of_an_answer_says_nothing_of_its_labels(vectors: Service) -> None:
    low = post(vectors, [vector(1, i) for i in range(9)])
    high = post(vectors, [vector(11, i) for i in range(9)])
    assert len(low.content) == len(high.content)
    assert low.headers.keys() == high.headers.keys()
    assert json.loads(low.content).keys() == LabelAnswer.model_fields.keys()


@pytest.mark.parametrize("limit", [None, 0, 1000])
def test_rendered_answers_are_the_schema_s(limit: int | None) -> None:
    budget = Budget(limit=limit, used=0, remaining=limit)
    answer = LabelAnswer(
        labels=[0, 99, 5],
        n_clusters=100,
        model='a "name" é',
        model_digest="d" * 32,
        budget=budget,
        receipt=None,
    )
    assert LabelAnswer.model_validate_json(render_answer(answer)) == answer


def test_the_description_declares_every_refusal(vectors: Service) -> None:
    with vectors.client() as client:
        schema = client.get("/openapi.json").json()
        page = client.get("/docs").text
    answers = schema["paths"]["/v1/labels"]["post"]["responses"]
    for status in ("401", "403", "408", "413", "415", "422", "429", "503"):
        assert PROBLEM_TYPE in answers[status]["content"]
    assert schema["components"]["schemas"]["LabelAnswer"]["additionalProperties"] is False
    assert "<script" not in page
    assert "/v1/labels" in page


def test_metrics_are_for_the_operator_and_name_nobody(vectors: Service) -> None:
    post(vectors, [vector(1)])
    with vectors.client() as client:
        text = client.get("/metrics").text
        client.get("/made/up/path")
        later = client.get("/metrics").text
    assert 'ucds_requests_total{path="/v1/labels",status="200"} 1.0' in text
    assert "anna" not in text
    assert "made" not in later
    with running(FakeLabeller(), metrics_from=("10.0.0.0/8",)) as elsewhere:
        refused(httpx.get(f"{elsewhere.url}/metrics"), 403, "not-for-you")


def test_stopping_finishes_what_was_accepted() -> None:
    labeller = FakeLabeller()
    labeller.gate.clear()
    with ThreadPoolExecutor() as pool:
        with running(labeller) as service:
            answer = pool.submit(post, service, [vector(4)])
            wait_until(lambda: service.app.state.answering.queue.held == 1)
            threading.Timer(0.5, labeller.gate.set).start()
        assert answer.result().json()["labels"] == [4]


def test_the_ledger_keeps_keys_of_contents_and_no_images(pictures: Service) -> None:
    content = picture(2)
    with pictures.client() as client:
        client.post("/v1/labels", files=files(content))
    assert pictures.ledger is not None
    record = pictures.ledger.list_keys()[0]
    known = pictures.ledger.known(record, "d" * 32, [content_key(content)])
    assert known == {content_key(content): 2}
