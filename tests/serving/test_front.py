"""What every request meets first, and what the operator can read of it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from serving_kit import NPY, FakeLabeller, Service, files, npy, picture, running, vector, wait_until

from ucds.errors import NoSpaceError
from ucds.serving.front import LOOPBACK_HOSTS, writing_access_log
from ucds.serving.ledger import Ledger


def test_every_answer_has_an_id_and_is_kept_by_nobody(vectors: Service) -> None:
    with vectors.client() as client:
        for path, status in (("/v1/info", 200), ("/healthz", 200), ("/nothing", 404), ("/docs", 200)):
            answer = client.get(path)
            assert answer.status_code == status
            assert answer.headers["cache-control"] == "no-store"
            assert len(answer.headers["x-request-id"]) == 32
        mine = client.get("/healthz", headers={"X-Request-ID": "trace-7.a_B"})
        assert mine.headers["x-request-id"] == "trace-7.a_B"
        for strange in ("a b", "x" * 65, '"', "a,b"):
            other = client.get("/healthz", headers={"X-Request-ID": strange})
            assert other.headers["x-request-id"] != strange


def test_a_fault_has_an_id_too(vectors: Service) -> None:
    vectors.app.state.answering.labeller.label = lambda rows: 1 / 0
    with vectors.client() as client:
        answer = client.post("/v1/labels", content=npy([vector(1)]), headers=NPY)
    assert answer.status_code == 500
    assert len(answer.headers["x-request-id"]) == 32


def test_only_the_names_of_the_service_are_answered() -> None:
    with running(FakeLabeller(), hosts=(*LOOPBACK_HOSTS, "Labels.example.org")) as service:
        for name, status in {
            "127.0.0.1": 200,
            "LOCALHOST:8000": 200,
            "[::1]:99": 200,
            "labels.example.org": 200,
            "evil.example.org": 421,
            "localhost.evil.example.org": 421,
            "localhost:80:80": 421,
            "": 421,
        }.items():
            answer = httpx.get(f"{service.url}/healthz", headers={"Host": name})
            assert answer.status_code == status, name
    assert answer.json()["type"] == "urn:ucds:problem:wrong-host"


def test_packed_bodies_are_refused(vectors: Service) -> None:
    with vectors.client() as client:
        for encoding, status in {"gzip": 415, "br": 415, "identity, gzip": 415, "identity": 200}.items():
            headers = NPY | {"Content-Encoding": encoding}
            answer = client.post("/v1/labels", content=npy([vector(1)]), headers=headers)
            assert answer.status_code == status
            if status == 415:
                assert answer.headers["accept-encoding"] == "identity"


def test_the_access_log_has_a_line_a_request_and_no_secret(ledger: Ledger, tmp_path: Path) -> None:
    place, key = tmp_path / "access.log", ledger.add_key("anna", 10)
    with writing_access_log(place), running(FakeLabeller(), ledger) as service:
        service.key = key
        with service.client() as client:
            client.post("/v1/labels", content=npy([vector(7)]), headers=NPY | {"X-Request-ID": "mine"})
            client.get("/healthz?secret=1")
            client.get("/no%22where%0a", headers={"Authorization": "Bearer x"})
            wait_until(lambda: place.read_text().count("\n") == 3)
            place.rename(tmp_path / "access.log.1")  # as logrotate does
            client.post("/v1/labels", files=files(picture(1)))
    old, new = (tmp_path / "access.log.1").read_text(), place.read_text()
    lines = [json.loads(line) for line in (old + new).splitlines()]
    assert [line["status"] for line in lines] == [200, 200, 404, 415]
    first = lines[0]
    assert (first["id"], first["key"], first["method"], first["path"]) == (
        "mine",
        "anna",
        "POST",
        "/v1/labels",
    )
    assert first["client"] == "127.0.0.1"
    assert first["bytes"] == len(npy([vector(7)]))
    assert 0 < first["seconds"] < 30
    assert key not in old + new
    assert "secret" not in old + new


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoSpaceError, match="access log"), writing_access_log(tmp_path / "no" / "log"):
        pass


def test_a_log_that_fails_for_a_while_loses_its_lines_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with writing_access_log(folder / "access.log"), running(FakeLabeller()) as service:
        folder.rename(tmp_path / "moved")
        for _ in range(3):
            httpx.get(f"{service.url}/healthz")
        wait_until(lambda: "access log" in caplog.text)
        folder.mkdir()

        def is_written() -> bool:
            httpx.get(f"{service.url}/healthz")
            return (folder / "access.log").exists()

        wait_until(is_written)
    assert '"path": "/healthz"' in (folder / "access.log").read_text()
    assert caplog.text.count("its lines are lost") == 1
