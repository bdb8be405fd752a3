"""Tests of noise on embeddings: what crosses, what the label file says, and that training goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_service import KEY, FakeService, label_of

from ucds.data.content import content_key
from ucds.errors import DamagedFileError, InputError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.marks import marks_of
from ucds.labels.noise import Noise

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)


@pytest.fixture
def service() -> Iterator[FakeService]:
    running = FakeService("embeddings", width=6)
    yield running
    running.close()


@pytest.fixture
def ask(
    service: FakeService, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., int]:
    """Run `ucds query` about the rows, in an empty folder."""
    monkeypatch.setenv("UCDS_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", ROWS)
    return lambda out, *more: run("query", "x.npy", "--url", service.url, "--out", out, *more)


def received(service: FakeService) -> np.ndarray:
    return np.array([np.frombuffer(content, "<f4") for content in service.asked])


def test_noise_has_the_stated_length_and_belongs_to_the_embedding() -> None:
    row = np.random.default_rng(1).normal(size=4000).astype(np.float32)
    for scale in (0.25, 1.0):
        noise = Noise(scale).add_to(row) - row
        assert abs(np.linalg.norm(noise) / np.linalg.norm(row) - scale) < 0.05 * scale
        assert abs(noise @ row) < 0.06 * np.linalg.norm(noise) * np.linalg.norm(row)
    np.testing.assert_array_equal(Noise(1.0).add_to(row), Noise(1.0).add_to(row.copy()))
    other = Noise(1.0, seed=1).add_to(row) - row
    assert abs(np.corrcoef(other, Noise(1.0).add_to(row) - row)[0, 1]) < 0.1
    np.testing.assert_array_equal(Noise(0.0).add_to(row), row)
    for scale in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="from 0 on"):
            Noise(scale)


def test_only_noisy_embeddings_cross_and_the_file_belongs_to_the_true_ones(
    ask: Callable[..., int], service: FakeService
) -> None:
    assert ask("labels.json", "--noise", 0.5) == 0
    labels = ClusterLabels.load("labels.json")
    assert labels.noise == 0.5
    assert labels.contents is not None
    assert list(labels.contents) == list(marks_of([content_key(row.tobytes()) for row in ROWS]))
    sent = [Noise(0.5).add_to(row).tobytes() for row in ROWS]
    assert set(service.asked) == set(sent)
    assert labels.labels.tolist() == [label_of(content) for content in sent]
    ratio = np.linalg.norm(received(service), axis=1).mean() / np.linalg.norm(ROWS, axis=1).mean()
    assert 1.05 < ratio < 1.2  # the square root of 1.25
    assert ask("again.json", "--noise", 0.5) == 0  # the same noise again, so that nothing new is told
    assert set(service.asked) == set(sent)
    assert ask("other.json", "--noise", 0.5, "--seed", 1) == 0
    assert len(service.asked) == 2 * len(ROWS)


def test_without_the_option_nothing_of_it_is_in_the_file(
    ask: Callable[..., int], service: FakeService
) -> None:
    assert ask("labels.json") == 0
    assert ClusterLabels.load("labels.json").noise is None
    assert "noise" not in Path("labels.json").read_text()
    np.testing.assert_array_equal(np.sort(received(service), 0), np.sort(ROWS, 0))
    with_noise = ClusterLabels(("a",), np.array([0]), 2, "p", None, 0.5)
    with_noise.save("noisy.json")
    assert with_noise.align(("a",)).noise == 0.5
    Path("noisy.json").write_text(Path("noisy.json").read_text().replace("0.5", "0.25"))
    with pytest.raises(DamagedFileError, match="digest"):
        ClusterLabels.load("noisy.json")


def test_few_queries_can_be_noisy_and_a_client_trains_with_them(
    ask: Callable[..., int], service: FakeService, run: Callable[..., int]
) -> None:
    assert ask("labels.json", "--noise", 0.5, "--max-queries", 10, "--accelerator", "cpu") == 0
    assert len(service.asked) == 10
    assert len(ClusterLabels.load("labels.json").ids) == 10
    train = (
        "train-target",
        "x.npy",
        "--labels",
        "labels.json",
        "--clusters",
        3,
        "--out",
        "mine",
        "--no-report",
    )
    assert run(*train, "--accelerator", "cpu") == 0


def test_images_are_never_sent_with_noise(
    service: FakeService,
    run: Callable[..., int],
    make_images: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("query", make_images(3), "--url", service.url, "--out", "o.json", "--noise", 1) == 2
    assert "these samples are images" in capsys.readouterr().err
    assert not service.asked
