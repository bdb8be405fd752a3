"""What a client sees: answers, refusals, and the shape of both."""

from __future__ import annotations

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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

from ucds.labels.wire import PROBLEM_TYPE, Budget, LabelAnswer, Problem, ServiceInfo
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits


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


def test_the_kept_answer_is_given_even_if_the_model_would_say_otherwise(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    with running(labeller, ledger) as service:
        assert post(service, [vector(5)], key=key).json()["labels"] == [5]
        labeller.label = lambda rows: rows[:, 0].astype(int) * 0  # type: ignore[method-assign]
        assert post(service, [vector(5), vector(6)], key=key).json()["labels"] == [5, 0]


def test_float64_and_float32_of_the_same_value_are_one_sample(vectors: Service) -> None:
    with vectors.client() as client:
        client.post("/v1/labels", content=npy([[1.0, 0.5, 0, 0]], "f8"), headers=NPY)
        answer = client.post("/v1/labels", content=npy([[1.0, 0.5, -0.0, 0]], "f4"), headers=NPY)
    assert answer.json()["budget"]["used"] == 1


def test_info_says_what_is_accepted(vectors: Service, ledger: Ledger) -> None:
    with vectors.client() as client:
        info = ServiceInfo.model_validate(client.get("/v1/info").json())
    assert (info.accepts, info.width, info.max_batch) == ("embeddings", WIDTH, 20)
    assert info.budget == Budget(limit=100, used=0, remaining=100)
    with (
        running(FakeImageLabeller(), ledger, Limits(max_image_pixels=1_000_000)) as service,
        service.client(key=vectors.key) as client,
    ):
        info = ServiceInfo.model_validate(client.get("/v1/info").json())
    assert (info.accepts, info.width, info.max_image_pixels) == ("images", None, 1_000_000)


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


def test_a_key_that_ended_is_refused_from_the_next_request_on(vectors: Service) -> None:
    assert post(vectors, [vector(1)]).status_code == 200
    vectors.ledger.set_key("anna", expires="2020-01-01")
    refused(post(vectors, [vector(1)]), 403, "expired-key")
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
    key = vectors.ledger.add_key("slow", 1000, rate=0.5)  # saves up 5 samples
    assert post(vectors, [vector(1, i) for i in range(8)], key=key).status_code == 200
    answer = post(vectors, [vector(1, 0)], key=key)
    refused(answer, 429, "over-rate")
    assert 5 <= int(answer.headers["retry-after"]) <= 8
    assert post(vectors, [vector(1, 0)]).status_code == 200  # other keys are not concerned


def test_a_wrong_media_type_is_refused(vectors: Service, pictures: Service) -> None:
    with vectors.client() as client:
        refused(client.post("/v1/labels", files=files(picture(1))), 415, "wrong-type")
        refused(client.post("/v1/labels", content=b"x"), 415, "wrong-type")
    with pictures.client(key=vectors.key) as client:
        refused(client.post("/v1/labels", content=npy([vector(1)]), headers=NPY), 415, "wrong-type")


def test_unusable_samples_get_null_and_a_reason_and_the_others_are_charged(pictures: Service) -> None:
    with pictures.client() as client:
        contents = files(picture(1), b"no image", picture(2), picture(3)[:60], b"no image", bytes(200_001))
        answer = LabelAnswer.model_validate(client.post("/v1/labels", files=contents).json())
    assert answer.labels == [1, None, 2, None, None, None]
    assert [sample.position for sample in answer.unusable] == [1, 3, 4, 5]
    assert answer.unusable[0].reason == "not an image of a known format"
    assert answer.unusable[3].reason == "longer than 200,000 bytes"
    assert answer.budget.used == 2
    assert answer.receipt is not None


def test_where_no_sample_is_usable_nothing_is_charged_and_signed(pictures: Service) -> None:
    with pictures.client() as client:
        answer = LabelAnswer.model_validate(client.post("/v1/labels", files=files(b"a", b"b")).json())
    assert (answer.labels, answer.budget.used, answer.receipt) == ([None, None], 0, None)


def test_rows_that_hold_no_numbers_are_unusable(vectors: Service) -> None:
    answer = post(vectors, [vector(1), [float("nan"), 0, 0, 0], [0, 0, float("inf"), 0]])
    assert answer.json()["labels"] == [1, None, None]
    assert answer.json()["unusable"][0] == {"position": 1, "reason": "holds NaN or infinity"}
    assert answer.json()["budget"]["used"] == 1


def test_a_full_queue_is_told_to_come_again(ledger: Ledger) -> None:
    labeller, keys = FakeLabeller(), [ledger.add_key(name, 100) for name in ("anna", "bert")]
    labeller.gate.clear()
    with (
        running(labeller, ledger, Limits(max_batch=8, max_queue=8)) as service,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(post, service, [vector(1, i) for i in range(8)], key=keys[0])
        wait_until(lambda: service.queued == 8)
        answer = post(service, [vector(2)], key=keys[1])
        refused(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        labeller.gate.set()
        assert first.result().json()["labels"] == [1] * 8
        assert post(service, [vector(2)], key=keys[1]).json()["labels"] == [2]


def test_a_failing_model_charges_nothing_and_the_service_goes_on(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    with running(labeller, ledger) as service:
        good = labeller.label
        labeller.label = lambda rows: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        problem = refused(post(service, [vector(1)], key=key), 500, "fault")
        assert "division" not in problem.detail
        labeller.label = good  # type: ignore[method-assign]
        assert post(service, [vector(1)], key=key).json()["budget"]["used"] == 1


@pytest.mark.parametrize("what", ["deleted", "emptied"])
def test_a_ledger_that_is_gone_stops_the_answers(vectors: Service, what: str) -> None:
    path = Path(vectors.ledger.place, "ledger.sqlite")
    assert post(vectors, [vector(1)]).status_code == 200
    if what == "deleted":
        path.unlink()
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DROP TABLE log")
    answer = post(vectors, [vector(2)])
    refused(answer, 503, "ledger-away")
    assert answer.headers["retry-after"] == "5"
    refused(httpx.get(f"{vectors.ops}/readyz"), 503, "ledger-away")
    assert httpx.get(f"{vectors.ops}/healthz").status_code == 200


def test_failed_authentications_are_security_events_and_figures(
    vectors: Service, caplog: pytest.LogCaptureFixture
) -> None:
    vectors.ledger.add_key("bert", 10)
    for key in ("ucds_wrong", None):
        post(vectors, [vector(1)], key=key) if key else httpx.get(f"{vectors.url}/v1/info")
    vectors.ledger.revoke_key("anna")
    refused(post(vectors, [vector(1)]), 403, "revoked-key")
    lines = [json.loads(record.message) for record in caplog.records if record.name == "ucds.security"]
    assert [(line["event"], line["reason"], line["key"]) for line in lines] == [
        ("failed-authentication", "unknown-key", None),
        ("failed-authentication", "no-key", None),
        ("failed-authentication", "revoked-key", "anna"),
    ]
    assert {line["client"] for line in lines} == {"127.0.0.1"}
    figures = httpx.get(f"{vectors.ops}/metrics").text
    assert 'ucds_failed_authentications_total{reason="unknown-key"} 1.0' in figures


def test_a_key_is_bound_to_its_network_by_the_word_of_the_proxy_alone(ledger: Ledger) -> None:
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


def test_the_length_of_an_answer_says_nothing_of_its_labels(vectors: Service) -> None:
    low = post(vectors, [vector(1, i) for i in range(9)])
    high = post(vectors, [vector(11, i) for i in range(9)])
    assert len(low.content) == len(high.content)
    assert low.headers.keys() == high.headers.keys()
    assert json.loads(low.content).keys() == LabelAnswer.model_fields.keys()


def test_the_description_declares_every_refusal(vectors: Service) -> None:
    with vectors.client() as client:
        schema = client.get("/openapi.json").json()
    answers = schema["paths"]["/v1/labels"]["post"]["responses"]
    for status in ("401", "403", "408", "411", "413", "415", "422", "429", "503"):
        assert PROBLEM_TYPE in answers[status]["content"]
    assert schema["components"]["schemas"]["LabelAnswer"]["additionalProperties"] is False


def test_figures_are_on_the_operators_port_and_name_nobody(vectors: Service) -> None:
    post(vectors, [vector(1)])
    with vectors.client() as client:
        for hidden in ("/metrics", "/healthz", "/readyz", "/docs", "/made/up/path"):
            refused(client.get(hidden), 404, "not-found")
    text = httpx.get(f"{vectors.ops}/metrics").text
    assert 'ucds_requests_total{path="/v1/labels",status="200"} 1.0' in text
    assert "anna" not in text
    assert "made" not in text
    assert httpx.get(f"{vectors.ops}/readyz").text == "ready\n"


def test_stopping_finishes_what_was_accepted(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    labeller.gate.clear()
    with ThreadPoolExecutor() as pool:
        with running(labeller, ledger) as service:
            answer = pool.submit(post, service, [vector(4)], key=key)
            wait_until(lambda: service.queued == 1)
            threading.Timer(0.5, labeller.gate.set).start()
        assert answer.result().json()["labels"] == [4]


def test_what_is_in_work_after_the_time_to_stop_is_told_to_come_again(ledger: Ledger) -> None:
    key, labeller = ledger.add_key("anna", 100), FakeLabeller()
    labeller.gate.clear()
    with ThreadPoolExecutor() as pool:
        with running(labeller, ledger, Limits(shutdown_seconds=1)) as service:
            answer = pool.submit(post, service, [vector(4)], key=key)
            wait_until(lambda: service.queued == 1)
            threading.Timer(3, labeller.gate.set).start()
        refused(answer.result(), 503, "stopping")
    assert ledger.list_keys()[0].used == 0
