"""Checkpoints are written where and when the operator says, and hold what the log held."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from serving_kit import wait_until

from ucds.errors import DamagedFileError, InputError, ServiceUnavailableError
from ucds.labels.receipts import is_authentic
from ucds.serving.audit import Head
from ucds.serving.checkpoints import Checkpoint, CheckpointWriter, parse_place, read_checkpoints
from ucds.serving.evidence import claims_of_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer


@pytest.fixture
def signer(ledger: Ledger, tmp_path: Path) -> Signer:
    made = Signer.open(tmp_path / "key.pem")
    ledger.set_signer(made.public)
    return made


def grow(ledger: Ledger, writer: CheckpointWriter, count: int) -> None:
    """Add entries, as charges would."""
    for _ in range(count):
        ledger.add_key(f"key{ledger.read_head().entries}", 1)
        writer.note(ledger.read_head().entries)


def check(ledger: Ledger, path: Path, entries: list[int]) -> None:
    found = read_checkpoints(path)
    assert [checkpoint.entries for checkpoint in found] == entries
    assert all(is_authentic(checkpoint) for checkpoint in found)
    assert all(ledger.holds(Head(checkpoint.entries, checkpoint.hash)) for checkpoint in found)
    claims, faults = claims_of_checkpoints(path)
    assert faults == []
    assert ledger.verify(claims=claims).faults == ()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_at_the_start_every_so_many_entries_and_at_the_end(
    ledger: Ledger, signer: Signer, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "checkpoints"
    if kind == "folder":
        path.mkdir()
    writer = CheckpointWriter(ledger, signer, parse_place(path), every=3)
    grow(ledger, writer, 2)
    check(ledger, path, [1])
    grow(ledger, writer, 1)
    wait_until(lambda: len(read_checkpoints(path)) == 2)
    grow(ledger, writer, 1)
    writer.close()
    check(ledger, path, [1, 4, 5])
    CheckpointWriter(ledger, signer, parse_place(path)).close()  # nothing is new
    check(ledger, path, [1, 4, 5])


@contextmanager
def http_place(status: int = 201) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server that takes files by PUT, and those it took."""
    taken: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            taken[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/bucket", taken
    finally:
        server.shutdown()
        server.server_close()


def test_an_address_takes_each_under_its_own_name(ledger: Ledger, signer: Signer) -> None:
    with http_place() as (url, taken):
        writer = CheckpointWriter(ledger, signer, parse_place(url), every=2)
        grow(ledger, writer, 2)
        wait_until(lambda: len(taken) == 2)
        writer.close()
    assert list(taken) == ["/bucket/000000000001.json", "/bucket/000000000003.json"]
    assert all(is_authentic(Checkpoint.model_validate_json(content)) for content in taken.values())


def test_the_query_of_an_address_stays_at_its_end_and_is_not_shown(ledger: Ledger, signer: Signer) -> None:
    with http_place() as (url, taken):
        CheckpointWriter(ledger, signer, parse_place(f"{url}/?signature=s%2Fecret")).close()
    assert list(taken) == ["/bucket/000000000001.json?signature=s%2Fecret"]
    with http_place(403) as (url, _):
        place = parse_place(f"{url.replace('://', '://user:password@')}?signature=secret")
        with pytest.raises(ServiceUnavailableError, match=f"^{url} answers 403"):
            CheckpointWriter(ledger, signer, place)
    with pytest.raises(ServiceUnavailableError, match=f"^{url} cannot be reached"):  # it is closed now
        CheckpointWriter(ledger, signer, place)


def test_a_place_that_fails_later_is_tried_again_and_costs_no_answer(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = CheckpointWriter(ledger, signer, parse_place(folder), every=1, retry_seconds=0.05)
    away = folder.rename(tmp_path / "away")
    folder.write_text("a file in its place")
    grow(ledger, writer, 2)
    wait_until(lambda: writer.failures >= 2)
    folder.unlink()
    away.rename(folder)
    wait_until(lambda: len(read_checkpoints(folder)) == 2)
    writer.close()
    check(ledger, folder, [1, 3])


class SlowPlace:
    """A place that waits for a gate before it keeps a checkpoint, or fails while it is away."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.begun = 0
        self.is_away = False
        self.gate = threading.Event()
        self.gate.set()

    def write(self, checkpoint: Checkpoint) -> None:
        self.begun += 1
        assert self.gate.wait(30)
        if self.is_away:
            raise ServiceUnavailableError("the place is away")
        self.kept.append(checkpoint.entries)

    def read_last(self) -> None:
        pass


def test_entries_that_come_during_a_write_are_written_at_the_end(ledger: Ledger, signer: Signer) -> None:
    place = SlowPlace()
    writer = CheckpointWriter(ledger, signer, place, every=3)
    place.gate.clear()
    grow(ledger, writer, 3)
    wait_until(lambda: place.begun == 2)
    grow(ledger, writer, 2)
    closing = threading.Thread(target=writer.close)
    closing.start()
    time.sleep(0.3)  # it asks for the end while the checkpoint of 4 entries is being written
    place.gate.set()
    closing.join(30)
    assert place.kept == [1, 4, 6]


def test_further_entries_do_not_shorten_the_wait_after_a_failure(
    ledger: Ledger, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    place = SlowPlace()
    writer = CheckpointWriter(ledger, signer, place, every=1)
    place.is_away = True
    grow(ledger, writer, 1)
    wait_until(lambda: writer.failures == 1)
    for _ in range(20):
        grow(ledger, writer, 1)
        time.sleep(0.01)
    assert writer.failures == 1
    writer.close()  # tries once more, and waits for nothing
    assert (writer.failures, place.kept) == (2, [1])
    assert len(caplog.records) == 2


def test_places_that_cannot_be_used_are_refused_at_the_start(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no folder"):
        parse_place(tmp_path / "no" / "such")
    for url in ("http://[bad", "https://localhost:abc", "https://a..b", "https://me:secret@a..b"):
        with pytest.raises(InputError, match="the address of the checkpoints cannot be used") as unusable:
            parse_place(url)
        assert "secret" not in str(unusable.value)
    (tmp_path / "notes").write_text("my notes, without an end")
    (tmp_path / "table").write_text('{"entries": 1}\n')
    with pytest.raises(DamagedFileError, match="not a file of checkpoints"):
        CheckpointWriter(ledger, signer, parse_place(tmp_path / "table"))
    with pytest.raises(DamagedFileError, match="not a file of checkpoints"):
        CheckpointWriter(ledger, signer, parse_place(tmp_path / "notes"))
    assert (tmp_path / "notes").read_text() == "my notes, without an end"
    with http_place(403) as (url, _), pytest.raises(ServiceUnavailableError, match="answers 403"):
        CheckpointWriter(ledger, signer, parse_place(url))
    with pytest.raises(ServiceUnavailableError, match=r"127.0.0.1:1 cannot be reached") as caught:
        CheckpointWriter(ledger, signer, parse_place("http://name:secret@127.0.0.1:1/"))
    assert "secret" not in str(caught.value)


def test_a_service_does_not_start_on_a_ledger_that_was_wound_back(
    ledger: Ledger, signer: Signer, tmp_path: Path
) -> None:
    writer = CheckpointWriter(ledger, signer, parse_place(tmp_path / "checkpoints"))
    grow(ledger, writer, 3)
    writer.close()
    restored = Ledger(tmp_path / "older.sqlite")
    restored.set_signer(signer.public)
    with pytest.raises(InputError, match="does not hold entry 4 of the checkpoint"):
        CheckpointWriter(restored, signer, parse_place(tmp_path / "checkpoints"))
    restored.close()


def test_a_checkpoint_that_was_changed_is_found(ledger: Ledger, signer: Signer, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    CheckpointWriter(ledger, signer, parse_place(path)).close()
    text = path.read_text()
    path.write_text(text.replace('"entries":1', '"entries":2'))
    claims, faults = claims_of_checkpoints(path)
    assert claims == []
    assert "wrong signature" in faults[0]
