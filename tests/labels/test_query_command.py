"""Tests of `ucds query` and of its function in Python: what it writes and says, and kills at any moment."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cli_kit import SHORT_TARGET, run_command, run_successfully
from fake_service import KEY, Clinic, FakeService, label_of
from serving_kit import wait_until

import ucds
from ucds.data.content import content_key
from ucds.data.folders import scan_folder
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import journal_path

QUICK = (*SHORT_TARGET, "--accelerator", "cpu", "--set=bottleneck_width=8", "--set=batch_size=16")
BALANCE = {"limit": 100, "used": 60, "remaining": 40}


@pytest.fixture(autouse=True)
def _empty_folder_and_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UCDS_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def embeddings() -> Iterator[FakeService]:
    """A service that answers about vectors."""
    running = FakeService("embeddings", width=6)
    yield running
    running.close()


@pytest.fixture
def vectors(blobs: Callable[..., dict[str, np.ndarray]], tmp_path: Path) -> Path:
    """60 vectors around five centres in turn."""
    np.save(tmp_path / "x.npy", blobs({"a": 60}, n_clusters=5)["a"])
    return tmp_path / "x.npy"


def test_a_missing_or_wrong_key_is_told_in_one_line(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("query", clinic.images(2), "--url", clinic.service.url, "--out", "o")
    status, _, told = run_command(*command, "--key", "wrong")
    assert status == 2
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert "401" in told
    monkeypatch.delenv("UCDS_KEY")
    status, _, told = run_command(*command)
    assert status == 2
    assert "environment variable UCDS_KEY, or --key" in told
    assert not Path("o").exists()


def test_a_few_queries_are_spread_and_the_same_again_by_command_and_function(
    embeddings: FakeService, vectors: Path
) -> None:
    command = ("query", vectors, "--url", embeddings.url, "--max-queries", 5, "--accelerator", "cpu")
    done = run_successfully(*command, "--out", "a.json", "--seed", 1)
    assert "5 labels of 7 clusters written to a.json" in done.err
    assert KEY not in done.err + done.out
    labels = ClusterLabels.load(Path("a.json"))
    assert {int(name) % 5 for name in labels.ids} == set(range(5))  # one of each group
    with ucds.LabelClient(embeddings.url, KEY) as client:
        given = {"max_queries": 5, "seed": 1, "compute": ucds.Compute("cpu")}
        again = ucds.query(str(vectors), "b.json", client, **given)
    assert again.ids == labels.ids
    assert Path("b.json").read_bytes() == Path("a.json").read_bytes()
    assert sum(embeddings.asked.values()) == 10
    trained = run_successfully("train-target", vectors, "--labels", "a.json", "--out", "run", *QUICK)
    assert "warning: 5 of 60 samples have a label of the provider" in trained.err


def test_images_are_chosen_by_the_owners_own_backbone_and_copies_come_free(clinic: Clinic) -> None:
    images, service = clinic.images(12), clinic.service
    for path in sorted(images.rglob("*.png")):
        (path.parent / f"copy-{path.name}").write_bytes(path.read_bytes())
    backbone = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--accelerator", "cpu")
    run_successfully("query", images, "--url", service.url, "--out", "l", "--max-queries", 4, *backbone)
    labels = ClusterLabels.load(Path("l"))
    assert len(labels.ids) == 8
    assert sum(service.asked.values()) == 4


def test_a_used_up_budget_can_be_gone_on_with(embeddings: FakeService, vectors: Path) -> None:
    embeddings.limit = 29  # no whole number of requests
    command = ("query", vectors, "--url", embeddings.url, "--out", "l", "--accelerator", "cpu")
    for _ in range(2):
        status, _, said = run_command(*command)
        assert status == 2
        assert "used up: 29 labels for 60 samples are kept" in said
        assert "go on with what there is by --max-queries 29" in said
    assert len(embeddings.charged) == 29
    known = set(embeddings.charged)
    embeddings.asked.clear()
    run_successfully(*command, "--max-queries", 29)
    assert len(ClusterLabels.load(Path("l")).ids) == 29
    Path("l").unlink()
    embeddings.limit, embeddings.info["budget"] = 60, BALANCE  # it covers the 31 that are not known
    run_successfully(*command)
    rows = np.load(vectors)
    assert ClusterLabels.load(Path("l")).labels.tolist() == [label_of(row.tobytes()) for row in rows]
    assert len(embeddings.charged) == 60
    assert not known & embeddings.asked.keys()


def test_a_query_beyond_the_budget_needs_overdraw(embeddings: FakeService, vectors: Path) -> None:
    embeddings.info["budget"] = BALANCE
    command = ("query", vectors, "--url", embeddings.url, "--out", "l.json")
    status, _, said = run_command(*command)
    assert status == 2
    assert "40 of 100 labels are left of the budget of this key" in said
    assert "error: 40 labels are left of the budget of this key, and 60 samples have no label yet" in said
    assert "ask about fewer by --max-queries 40, or use up what is left by --overdraw" in said
    assert embeddings.requests == 0
    run_successfully(*command, "--max-queries", 40)
    Path("l.json").unlink()
    run_successfully(*command, "--overdraw")


def test_labels_are_for_the_data_that_was_labelled(embeddings: FakeService, vectors: Path) -> None:
    """The rows of every array are called "0", "1" and so on."""
    run_successfully("query", vectors, "--url", embeddings.url, "--out", "l.json")
    values = np.load(vectors)
    train = ("--labels", "l.json", *QUICK)
    np.save("other.npy", values[::-1] + 1)
    status, _, said = run_command("train-target", "other.npy", "--out", "other", *train)
    assert status == 2
    assert "the labels belong to other data: of 60 samples with these names, none" in said
    values[:3] += 1
    np.save("changed.npy", values)
    said = run_successfully("train-target", "changed.npy", "--out", "changed", *train).err
    assert "3 of 60 samples have changed since they were labelled" in said


IMAGES, BATCH, PARALLEL = 120, 2, 4

LISTENING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from ucds.cli import main; main()"
)
"""A shell without job control lets what it starts in the background, these tests too, ignore interrupts."""


def _start(clinic: Clinic, images: Path) -> subprocess.Popen[bytes]:
    clinic.service.info["max_batch"] = BATCH
    command = [sys.executable, "-c", LISTENING, "query", str(images)]
    command += ["--url", clinic.service.url, "--out", str(clinic.out)]
    return subprocess.Popen(command, env={"UCDS_KEY": KEY}, stderr=subprocess.PIPE)


def _kill_at_work(service: FakeService, client: subprocess.Popen[bytes], pause: float) -> None:
    """Kill a client some time after its first request of this life, however slowly it started."""
    before = service.requests
    wait_until(lambda: service.requests > before or client.poll() is not None)
    time.sleep(pause)
    client.send_signal(signal.SIGKILL)
    client.wait()


def _received(journal: Path) -> set[str]:
    """Keys of the labels in whole lines of a journal, read without the code under test."""
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
    return {key for line in lines for key in json.loads(line.partition(b" ")[2])["labels"]}


def test_a_client_that_is_asked_to_stop_keeps_what_is_under_way(service: FakeService, clinic: Clinic) -> None:
    service.delay = 0.3  # so that the signal comes long before the end, however busy the machine
    client = _start(clinic, clinic.images(IMAGES))
    wait_until(lambda: service.requests >= 10)
    client.send_signal(signal.SIGINT)
    assert client.wait() == 130
    assert b"stopped, with all labels kept" in client.stderr.read()
    assert len(_received(journal_path(clinic.out))) == len(service.charged) < IMAGES


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_clients_lose_nothing_and_pay_nothing_twice(kills: int, clinic: Clinic) -> None:
    images, out, service = clinic.images(IMAGES), clinic.out, clinic.service
    contents = {name: (images / name).read_bytes() for name in scan_folder(images).ids}
    known, rng = set[str](), random.Random(kills)

    def check_new_questions() -> None:
        """Make sure that nobody asked again about a label that was on disk."""
        assert not known & {content_key(content).hex() for content in service.asked}
        service.asked.clear()

    service.delay = 0.02  # slow enough that the work outlives the kills
    for _ in range(kills):
        assert not out.exists()
        _kill_at_work(service, _start(clinic, images), rng.uniform(0, 0.8 * 0.8 / kills))
        check_new_questions()
        known = _received(journal_path(out))
    last = _start(clinic, images)
    assert last.wait() == 0, last.stderr.read() if last.stderr else ""

    labels = ClusterLabels.load(out)
    assert dict(zip(labels.ids, labels.labels.tolist(), strict=True)) == {
        name: label_of(content) for name, content in contents.items()
    }
    check_new_questions()
    assert len(service.charged) == IMAGES
    assert sum(service.answered) <= IMAGES + kills * PARALLEL * BATCH
