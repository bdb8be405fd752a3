"""The service as a function of Python: from a run folder to answers, and back to where it was."""

from __future__ import annotations

import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_kit import NPY, WIDTH, K, in_thread, make_run, npy, vector, wait_until
from typer.testing import CliRunner

import ucds
from ucds.cli.app import app
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.serving.ledger import Ledger
from ucds.serving.serve import serve
from ucds.serving.server import Address
from ucds.serving.settings import Limits


def ask(url: str) -> list[int]:
    answer = httpx.post(f"{url}/v1/labels", content=npy([vector(1), vector(2)]), headers=NPY)
    labels: list[int] = answer.json()["labels"]
    return labels


def test_a_run_folder_is_served_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    run, notices = make_run(tmp_path / "mine"), list[str]()
    limits = Limits(max_batch=7)
    start = partial(serve, run, Address(port=0), limits=limits, open_to_all=True, notice=notices.append)
    with in_thread(lambda ready, stop: start(accelerator="cpu", ready=ready, stop=stop)) as url:
        info = httpx.get(f"{url}/v1/info").json()
        assert (info["model"], info["n_clusters"], info["width"]) == ("mine", K, WIDTH)
        assert info["max_batch"] == 7
        assert len(ask(url)) == 2
    assert notices == ["warning: everybody who can reach the service is answered, without a key or a limit"]
    assert sorted(path.name for path in run.iterdir()) == ["model.safetensors"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v1/info")


def test_a_folder_s_ledger_and_another_place(tmp_path: Path) -> None:
    run, elsewhere = make_run(tmp_path / "mine"), tmp_path / "keys.sqlite"
    book = Ledger(elsewhere)
    key = book.add_key("anna", 5)
    book.close()
    start = partial(serve, run, Address(port=0), ledger=elsewhere, accelerator="cpu")
    with in_thread(lambda ready, stop: start(ready=ready, stop=stop)) as url:
        assert httpx.get(f"{url}/v1/info").status_code == 401
        shown = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{url}/v1/info", headers=shown).status_code == 200
    assert not (run / "ledger.sqlite").exists()


def test_the_package_offers_it() -> None:
    assert ucds.serve is serve


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    theirs = make_run(tmp_path / "theirs", role="target")
    nowhere = Address("no such host.invalid", 0)
    refusals: list[tuple[type[UserError], str, dict[str, Any]]] = [
        (InputError, "not a run folder", {"run": tmp_path / "nothing"}),
        (InputError, "role 'target'", {"run": theirs}),
        (InputError, "there is no ledger", {"run": run}),
        (InputError, "leave out --open, or the ledger", {"run": run, "ledger": "x", "open_to_all": True}),
        (InputError, "no address", {"run": run, "address": nowhere, "open_to_all": True}),
        (InputError, "leave out scheme and port", {"run": run, "hosts": ["labels.example.org:443"]}),
        (InputError, "leave out scheme and port", {"run": run, "hosts": ["https://labels.example.org"]}),
        (InputError, "at least one sample", {"run": run, "model_batch": 0}),
        (InputError, "no network", {"run": run, "metrics_from": ("everywhere",), "open_to_all": True}),
        (InputError, "no folder", {"run": run, "ledger": tmp_path / "no" / "such.sqlite"}),
        (DamagedFileError, "cannot be opened", {"run": run, "ledger": run / "model.safetensors"}),
    ]
    for kind, words, arguments in refusals:
        with pytest.raises(kind, match=words):
            serve(**({"address": Address(port=0)} | arguments), accelerator="cpu")


def test_a_queue_that_was_asked_for_is_not_made_longer(tmp_path: Path) -> None:
    import ucds.cli  # noqa: F401  (it adds the commands)

    refused = CliRunner().invoke(app, ["serve", str(tmp_path), "--open", "--max-queue", "100"])
    assert isinstance(refused.exception, InputError)
    assert "a queue of 100 has no room for a request of 256" in str(refused.exception)


def test_a_refusal_leaves_no_thread_behind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine")
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match="cannot listen"):
            serve(run, Address(port=port), accelerator="cpu", open_to_all=True)
    wait_until(lambda: set(threading.enumerate()) <= before, seconds=10)
