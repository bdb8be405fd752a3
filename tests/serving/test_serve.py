"""The service as a function of Python and as a command: from a run folder to answers, and back."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import label_service
import pytest
from serving_kit import WIDTH, K, Service, command_for_images, in_thread, make_run, vector, wait_until

from ucds.errors import DamagedFileError, InputError, UserError
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.serve import serve


@contextmanager
def started(run: Path, notices: list[str], **options: Any) -> Iterator[Service]:
    start = partial(serve, run, port=0, notice=notices.append, accelerator="cpu", **options)
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        yield Service(url)


def test_the_first_start_makes_a_ledger_and_shows_a_key(tmp_path: Path) -> None:
    run, notices = make_run(tmp_path / "mine"), list[str]()
    with started(run, notices, limits=Limits(max_batch=7, max_image_pixels=99)) as service:
        key = notices[-1].rpartition(" ")[2]
        assert service.ask(vector(1), key=key).status_code == 200
        info = service.info(key)
    assert (info["model"], info["n_clusters"], info["width"]) == ("mine", K, WIDTH)
    assert (info["max_batch"], info["max_image_pixels"], info["budget"]["limit"]) == (7, 99, 10_000)
    with pytest.raises(httpx.ConnectError):
        service.info(key)
    notices.clear()
    with started(run, notices) as service:
        assert service.ask(vector(1), key=key).status_code == 200  # the same ledger
    assert not notices
    files = {path.name: path for path in run.iterdir() if path.suffix != ".safetensors"}
    assert {path.stat().st_mode & 0o077 for path in files.values()} == {0}
    assert {"ledger.sqlite", "signing-key.pem"} <= files.keys()


def test_an_answer_does_not_wait_for_acknowledgements(vectors: Service) -> None:
    times = list[float]()
    with vectors.client() as client:
        for _ in range(40):  # on one connection
            begun = time.monotonic()
            client.get("/v1/info").raise_for_status()
            times.append(time.monotonic() - begun)
    assert min(times[20:]) < 0.03  # the system would wait 40 ms each time once the connection is old


def test_a_ledger_elsewhere_and_one_without_an_active_key(tmp_path: Path) -> None:
    run, elsewhere, notices = make_run(tmp_path / "mine"), tmp_path / "keys.sqlite", list[str]()
    book = Ledger(elsewhere, create=True)
    key = book.add_key("anna", 5)
    with started(run, notices, ledger=elsewhere) as service:
        assert httpx.get(f"{service.url}/v1/info").status_code == 401
        assert service.ask(vector(1), key=key).status_code == 200
    assert not (run / "ledger.sqlite").exists()
    assert not notices
    book.revoke_key("anna")
    book.close()
    with started(run, notices, ledger=elsewhere):
        assert "no active key" in notices[0]


def test_what_cannot_be_served_is_refused_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    theirs = make_run(tmp_path / "theirs", role="target")
    before, taken = set(threading.enumerate()), socket.create_server(("127.0.0.1", 0))
    refusals: list[tuple[type[UserError], str, dict[str, Any]]] = [
        (InputError, "not a run folder", {"run": tmp_path / "nothing"}),
        (InputError, "role 'target'", {"run": theirs}),
        (InputError, "no address", {"run": run, "host": "no such host.invalid"}),
        (InputError, "can be reached from other machines.* --behind-proxy", {"run": run, "host": "0.0.0.0"}),
        (InputError, "can be reached from other machines", {"run": run, "host": ""}),
        (InputError, "address or network of a proxy", {"run": run, "behind_proxy": "proxy"}),
        (InputError, "no ledger", {"run": run, "host": "0.0.0.0", "behind_proxy": "10.0.0.0/8"}),
        (InputError, "at least one sample", {"run": run, "model_batch": 0}),
        (InputError, "no folder", {"run": run, "ledger": tmp_path / "no" / "such.sqlite"}),
        (DamagedFileError, "cannot be used", {"run": run, "ledger": run / "model.safetensors"}),
        (InputError, "cannot listen", {"run": run, "port": taken.getsockname()[1]}),
    ]
    with taken:
        for kind, words, arguments in refusals:
            with pytest.raises(kind, match=words):
                serve(**({"port": 0} | arguments), accelerator="cpu")
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=10)


@pytest.mark.timeout(300)
def test_the_command_hides_its_memory_and_ends_with_status_0_at_sigterm(tmp_path: Path) -> None:
    run, marks = make_run(tmp_path / "mine"), tmp_path / "checkpoints"
    with label_service.service(run, "--port", 0, "--checkpoints", marks) as (process, url):
        owner = Path(f"/proc/{process.pid}/mem").stat().st_uid
        assert owner == 0  # what is not dumpable belongs to root, whoever runs it
        assert httpx.get(f"{url}/v1/info").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert re.fullmatch(r'(\{"signer":.*\}\n)+', marks.read_text())


@pytest.mark.slow
def test_sigterm_ends_the_service_whatever_is_being_decoded(tmp_path: Path) -> None:
    limits = ("decode-seconds=600", "shutdown-seconds=1", "waste-seconds=1000")
    with command_for_images(tmp_path / "run", *limits) as (service, process), ThreadPoolExecutor(1) as pool:
        lost = pool.submit(service.ask, label_service.slow_bmp())  # whose decoding takes some 3 s
        time.sleep(1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 14
        assert lost.exception() or lost.result().status_code >= 500
