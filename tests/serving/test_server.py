"""`ucds serve` as its owner starts it."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from serving_kit import NPY, WIDTH, FakeLabeller, make_run, npy, serving_process, vector

from ucds.errors import UserError
from ucds.serving.app import create_app
from ucds.serving.checkpoints import read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.server import Address, describe_exposure, run_server
from ucds.serving.settings import Limits


def test_from_a_run_to_labels_and_a_clean_end(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    key, marks = Ledger(run).add_key("anna", 5), tmp_path / "checkpoints"
    shown = {"Authorization": f"Bearer {key}"}
    with serving_process(run, "--checkpoints", str(marks)) as (process, url):
        assert httpx.get(f"{url}/v1/info").status_code == 401
        answer = httpx.post(f"{url}/v1/labels", content=npy([vector(1), vector(2)]), headers=NPY | shown)
        assert answer.status_code == 200
        assert answer.json()["model"] == "mine"
        assert answer.json()["budget"]["remaining"] == 3
        info = httpx.get(f"{url}/v1/info", headers=shown).json()
        assert (info["width"], info["signer"]) == (WIDTH, answer.json()["receipt"]["signer"])
        with httpx.Client() as idle:  # its connection is open, and must not hold up the end
            idle.get(f"{url}/healthz")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert [checkpoint.entries for checkpoint in read_checkpoints(marks)] == [2, 3]


def test_only_a_source_model_is_served(
    tmp_path: Path, run: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("serve", make_run(tmp_path / "theirs", role="target"), "--port", 0) == 2
    refused = capfd.readouterr().err
    assert "role 'target'" in refused
    assert refused.count("\n") == 1


def test_what_the_provider_is_told_before_the_start(ledger: Ledger) -> None:
    outside, inside = Address("0.0.0.0", 0), Address("127.0.0.1", 0)
    assert "is answered, without a key" in describe_exposure(inside, None)[0]
    told = [said[:20] for said in describe_exposure(outside, ledger)]
    assert told == ["warning: there is no", "warning: no TLS: key"]
    ledger.add_key("anna", 1)
    assert describe_exposure(inside, ledger) == []
    ledger.revoke_key("anna")
    assert "there is no active key" in describe_exposure(inside, ledger)[0]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False), ("", False)],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert Address(host, 0).is_loopback is loopback


def test_a_port_that_is_taken_and_a_host_that_is_not(tmp_path: Path) -> None:
    with Address("127.0.0.1", 0).bind() as bound:
        bound.main.listen()
        taken = bound.main.getsockname()[1]
        for refused in (Address("127.0.0.1", taken), Address("127.0.0.1", 0, health_port=taken)):
            with pytest.raises(UserError, match="cannot listen"):
                refused.bind()
    with pytest.raises(UserError, match="no address"):
        Address("no such host.invalid", 0).bind()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    chain, key = folder / "cert.pem", folder / "key.pem"
    request = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)]
    try:
        subprocess.run(["openssl", "req", *request, *names], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, so there is no certificate")
    return chain, key


@pytest.mark.slow
def test_tls(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    run = make_run(tmp_path / "run")
    with serving_process(run, "--open", "--tls-cert", str(chain), "--tls-key", str(key)) as (_, url):
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(chain))
        answer = httpx.post(f"{url}/v1/labels", content=npy([vector(1)]), headers=NPY, verify=trusted)
        assert answer.status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/healthz")  # nobody vouches for it


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_for_health_alone(tmp_path: Path, workers: int) -> None:
    chain, key = certificate(tmp_path)
    run, port = make_run(tmp_path / "run"), free_port()
    options = ("--tls-cert", str(chain), "--tls-key", str(key), "--allow-host", "labels.example.org")
    more = ("--open", "--health-port", str(port), "--workers", str(workers))
    with serving_process(run, *options, *more) as (process, _), httpx.Client() as client:
        statuses = {
            path: client.get(f"http://127.0.0.1:{port}{path}").status_code
            for path in ("/healthz", "/readyz", "/v1/info", "/metrics")
        }
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert statuses == {"/healthz": 200, "/readyz": 200, "/v1/info": 404, "/metrics": 404}


def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    with pytest.raises(UserError, match="both"):
        Address(certificate=chain)
    with pytest.raises(UserError, match="no file"):
        Address(certificate=chain, private_key=tmp_path / "none")
    app = create_app(FakeLabeller())
    with pytest.raises(UserError, match="cannot be used"):
        run_server(app, Address(port=0, certificate=key, private_key=chain), Limits())


def test_limits_under_which_nothing_could_be_answered() -> None:
    with pytest.raises(UserError, match="max_batch"):
        Limits(max_batch=0)
    with pytest.raises(UserError, match="no room"):
        Limits(max_batch=100, max_queue=50)
