"""Tests of a query that is killed at any moment: no answer is asked for twice, and every label is there."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_service import KEY, Clinic, FakeService, label_of

from ucds.data.content import content_key
from ucds.data.folders import scan_folder
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import journal_path

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
    while service.requests == before and client.poll() is None:
        time.sleep(0.001)
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
    while service.requests < 10:
        assert client.poll() is None
        time.sleep(0.001)
    client.send_signal(signal.SIGINT)
    assert client.wait() == 130
    assert client.stderr is not None
    assert b"stopped, with all labels kept" in client.stderr.read()
    assert len(_received(journal_path(clinic.out))) == len(service.charged) < IMAGES


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_clients_lose_nothing_and_pay_nothing_twice(
    kills: int, service: FakeService, clinic: Clinic
) -> None:
    images, out = clinic.images(IMAGES), clinic.out
    contents = {name: (images / name).read_bytes() for name in scan_folder(images).ids}
    keys = {content_key(content).hex(): content for content in contents.values()}
    rng = random.Random(kills)
    # Slow enough that the work outlives the kills.
    service.delay = 0.02
    done = 0
    while done < kills and not out.exists():
        _kill_at_work(service, _start(clinic, images), rng.uniform(0, 0.8 * 0.8 / kills))
        service.forbidden = {keys[key] for key in _received(journal_path(out))}
        done += 1
    last = _start(clinic, images)
    assert last.wait() == 0, last.stderr.read() if last.stderr else ""

    labels = ClusterLabels.load(out)
    assert dict(zip(labels.ids, labels.labels.tolist(), strict=True)) == {
        name: label_of(content) for name, content in contents.items()
    }
    assert done == kills
    assert service.violations == 0  # nobody asked again about a label that was on disk
    assert len(service.charged) == IMAGES
    assert sum(service.asked.values()) <= IMAGES + kills * PARALLEL * BATCH
