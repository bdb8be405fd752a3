"""The service as a function of Python and as a command: from a run folder to answers, and back."""

from __future__ import annotations

import re
import signal
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_kit import NPY, WIDTH, K, in_thread, make_run, npy, serving_process, vector, wait_until

import ucds
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.serve import serve


def ask(url: str, key: str) -> list[int]:
    shown = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(
        f"{url}/v1/labels", content=npy([vector(1), vector(2)]), headers=NPY | shown, timeout=30
    )
    labels: list[int] = answer.json()["labels"]
    return labels


def test_the_first_start_makes_a_ledger_and_shows_a_key(tmp_path: Path) -> None:
    run, notices = make_run(tmp_path / "mine"), list[str]()
    start = partial(serve, run, port=0, limits=Limits(max_batch=7), notice=notices.append, accelerator="cpu")
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        key = notices[-1].rpartition(" ")[2]
        assert len(ask(url, key)) == 2
        info = httpx.get(f"{url}/v1/info", headers={"Authorization": f"Bearer {key}"}).json()
    assert (info["model"], info["n_clusters"], info["width"]) == ("mine", K, WIDTH)
    assert (info["max_batch"], info["budget"]["limit"]) == (7, 10_000)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/info")
    notices.clear()
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        assert len(ask(url, key)) == 2  # the same ledger
    assert not notices
    private = {
        path.name: path.stat().st_mode & 0o077 for path in run.iterdir() if path.suffix != ".safetensors"
    }
    assert set(private.values()) == {0}
    assert {"ledger.sqlite", "signing-key.pem"} <= private.keys()


def test_a_folder_s_ledger_and_another_place(tmp_path: Path) -> None:
    run, elsewhere = make_run(tmp_path / "mine"), tmp_path / "keys.sqlite"
    book = Ledger(elsewhere, create=True)
    key = book.add_key("anna", 5)
    book.close()
    start = partial(serve, run, port=0, ledger=elsewhere, accelerator="cpu")
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        assert httpx.get(f"{url}/v1/info").status_code == 401
        assert len(ask(url, key)) == 2
    assert not (run / "ledger.sqlite").exists()


def test_a_ledger_without_an_active_key_is_said(tmp_path: Path) -> None:
    run, notices = make_run(tmp_path / "mine"), list[str]()
    book = Ledger(run, create=True)
    book.add_key("anna", 5)
    book.revoke_key("anna")
    book.close()
    start = partial(serve, run, port=0, accelerator="cpu", notice=notices.append)
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)):
        assert [text for text in notices if "no active key" in text]


def test_the_package_offers_it() -> None:
    assert ucds.serve is serve


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    theirs = make_run(tmp_path / "theirs", role="target")
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
    ]
    for kind, words, arguments in refusals:
        with pytest.raises(kind, match=words):
            serve(**({"port": 0} | arguments), accelerator="cpu")


def test_a_refusal_leaves_no_thread_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="cannot listen"):
        serve(run, port=taken.getsockname()[1], accelerator="cpu")
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=10)


@pytest.mark.timeout(300)
def test_the_command_hides_its_memory_and_ends_with_status_0_at_sigterm(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    with serving_process(run, "--checkpoints", str(tmp_path / "checkpoints")) as (process, url):
        owner = Path(f"/proc/{process.pid}/mem").stat().st_uid
        assert owner == 0  # what is not dumpable belongs to root, whoever runs it
        assert httpx.get(f"{url}/v1/info").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert re.fullmatch(r'(\{"signer":.*\}\n)+', (tmp_path / "checkpoints").read_text())
