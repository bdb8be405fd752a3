"""Runs that see each group of samples from its own mean: in the training, and of known and unseen groups."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.math.metrics import clustering_accuracy

K, N, WIDTH = 3, 180, 32
BRIEF = quick(bottleneck_width=16)
CPU = ucds.Compute("cpu")

CENTRES = np.random.default_rng(0).normal(size=(K, WIDTH))
SHIFTS = 3 * np.random.default_rng(1).normal(size=(4, WIDTH))
SHIFTS[3] = 2 * (CENTRES[1] - CENTRES[0])  # without a mean of its own, one kind is taken for another


def write(folder: Path, parts: dict[str, int]) -> tuple[Path, Path, Any]:
    """Write samples of scanners, so many of each, and their table; return the three kinds too.

    A scanner moves its samples by more than the kinds lie apart.
    """
    counts = list(parts.values())
    kinds = np.concatenate([np.arange(count) % K for count in counts])
    shifts = SHIFTS[np.repeat(["ABCD".index(scanner) for scanner in parts], counts)]
    noise = np.random.default_rng(len(parts)).normal(size=(len(kinds), WIDTH))
    np.save(folder / "x.npy", (CENTRES[kinds] + shifts + 0.3 * noise).astype(np.float32))
    rows = [f"{i},{scanner}" for i, scanner in enumerate(np.repeat(list(parts), counts))]
    (folder / "x.csv").write_text("\n".join(["id,scanner", *rows]) + "\n")
    return folder / "x.npy", folder / "x.csv", kinds


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    return write(tmp_path_factory.mktemp("known"), {"A": N // 2, "B": N // 2, "C": 9})


@pytest.fixture(scope="module")
def centred(known: tuple[Path, Path, Any]) -> Path:
    samples, table, _ = known
    given: dict[str, Any] = {"about": table, "centre_by": "scanner", "settings": BRIEF, "compute": CPU}
    return ucds.train_target(samples, samples.with_name("run"), n_clusters=K, **given).folder


@pytest.fixture
def run(centred: Path, tmp_path: Path) -> Path:
    shutil.copytree(centred, tmp_path / "run")
    return tmp_path / "run"


def test_clusters_no_longer_follow_the_scanner(
    centred: Path, known: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    samples, _, kinds = known
    plain = ucds.train_target(samples, tmp_path / "plain", n_clusters=K, settings=BRIEF, compute=CPU).folder
    large = slice(N)
    for run, good in ((plain, False), (centred, True)):
        found = ucds.predict(run, samples, compute=CPU).clusters[large]
        assert (clustering_accuracy(found, kinds[large]) > 0.95) == good


def test_samples_of_the_training_need_no_table(
    run: Path, known: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    samples, table, _ = known
    with_table = ucds.predict(run, samples, about=table, compute=CPU)
    np.save(tmp_path / "moved.npy", np.load(samples)[::-1])
    assert np.array_equal(ucds.predict(run, samples, compute=CPU).clusters, with_table.clusters)
    assert np.array_equal(
        ucds.predict(run, tmp_path / "moved.npy", compute=CPU).clusters, with_table.clusters[::-1]
    )
    assert ucds.report(run, compute=CPU).samples == N + 9


@pytest.mark.parametrize(("count", "is_centred"), [(32, True), (31, False)])
def test_an_unseen_group_has_a_mean_of_its_own_from_32_samples_on(
    run: Path, tmp_path: Path, count: int, is_centred: bool
) -> None:
    samples, table, kinds = write(tmp_path, {"D": count})
    found = ucds.predict(run, samples, about=table, compute=CPU).clusters
    assert (clustering_accuracy(found, kinds) > 0.95) == is_centred
    alone = ucds.load(run, compute=CPU).predict(samples)  # the model itself sees every sample alike
    assert np.array_equal(found, alone) != is_centred


def test_new_samples_without_a_table_are_told_of(run: Path, tmp_path: Path) -> None:
    samples, _, _ = write(tmp_path, {"A": 40})
    with pytest.warns(UcdsWarning, match="40 new samples lack values of scanner"):
        ucds.predict(run, samples, compute=CPU)


def test_a_reviewed_run_stays_centred(run: Path, known: tuple[Path, Path, Any], tmp_path: Path) -> None:
    samples, table, _ = known
    review = ucds.Review(run)
    review.name(0, "first")
    reviewed = review.finish(tmp_path / "reviewed").path
    before, after = (ucds.predict(one, samples, about=table, compute=CPU) for one in (run, reviewed))
    assert (before.clusters == after.clusters).mean() > 0.98
    assert after.names == {0: "first"}


@pytest.mark.parametrize(
    ("column", "settings", "words"),
    [
        ("patient", BRIEF, "two groups of at least 32 samples, but it has 0"),
        pytest.param("scanner", ucds.PCDSettings(), "is for the method consensus", marks=pytest.mark.torch),
    ],
)
def test_what_cannot_be_centred_is_refused(
    column: str, settings: Any, words: str, known: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    rows = [f"{i},{i // 20},{i % 2}" for i in range(N + 9)]
    (tmp_path / "about.csv").write_text("\n".join(["id,patient,scanner", *rows]) + "\n")
    given = {"about": tmp_path / "about.csv", "centre_by": column, "settings": settings, "compute": CPU}
    with pytest.raises(InputError, match=words):
        ucds.train_target(known[0], tmp_path / "run", n_clusters=K, **given)
    assert not (tmp_path / "run").exists()


def test_a_run_is_resumed_with_the_same_column_alone(run: Path, known: tuple[Path, Path, Any]) -> None:
    samples, table, _ = known

    def resume(**named: Any) -> bool:
        options = ucds.RunOptions(resume=True)
        done = ucds.train_target(
            samples, run, n_clusters=K, settings=BRIEF, options=options, compute=CPU, **named
        )
        return done.resumed_finished

    assert resume(about=table, centre_by="scanner")
    with pytest.raises(InputError, match="its centre_by is"):
        resume()


@pytest.mark.parametrize("damage", ["cut", "foreign", "a group without mean"])
def test_damaged_means_are_found(run: Path, known: tuple[Path, Path, Any], damage: str) -> None:
    path = run / "centres.npz"
    with np.load(path) as opened:
        arrays = dict(opened)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "foreign":
        np.savez(path, words=arrays["words"])
    else:
        np.savez(path, **arrays | {"means": arrays["means"][1:]})
    with pytest.raises(DamagedFileError, match="centres.npz is damaged"):
        ucds.predict(run, known[0], compute=CPU)
