"""Every mistake that a user can make is answered by one line, and leaves nothing behind."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import in_subprocess, run_command, tree


@pytest.fixture(scope="session")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders that no command can use."""
    root = tmp_path_factory.mktemp("bad")
    (root / "occupied").mkdir()
    (root / "occupied" / "thesis.txt").write_text("years of work")
    (root / "empty" / "one").mkdir(parents=True)
    np.save(root / "equal.npy", np.ones((9, 6), np.float32))
    (root / "images.tar").write_bytes(b"junk" * 1000)
    return root


SOURCE = "train-source {vectors}/source.npz --clusters 4 --out {new}"
PICTURES = "train-source {pictures}/source --clusters 4 --weights none"
ALONE = "train-target {vectors}/target.npy --out {new}"
PREDICT = "predict {runs}/target {vectors}/target.npy --out {new}.csv"
MISTAKES: list[Any] = [
    ("train-source {bad}/absent --clusters 4 --out {new}", "no folder"),
    ("train-source {bad}/equal.npy --clusters 4 --out {new}", "only 1 of the 9 samples are different"),
    ("train-source {bad}/empty --clusters 4 --out {new}", "images"),
    (f"{PICTURES} --out {{new}} --domains day,noon", "'noon'"),
    (f"{PICTURES} --out {{new}} --image-size 8", "--image-size"),
    (f"{PICTURES} --out {{pictures}}/source/run", "lies inside"),
    pytest.param(f"{PICTURES} --out {{new}} --backbone resnet81", "did you mean", marks=pytest.mark.torch),
    (f"{SOURCE} --domains ''", "--domains '' holds an empty name"),
    (f"{SOURCE} --epochs 3", "--epochs"),
    (f"{SOURCE} --resume --out {{bad}}/occupied", "holds no run to resume"),
    (f"{SOURCE} --out {{vectors}}/labels.json", "is a file: choose another --out"),
    ("train-source {vectors}/source.npz --out {new}", "--clusters"),
    (f"{ALONE} --clusters 37", "36 samples cannot form 37 clusters"),
    (f"{ALONE} --labels {{bad}}/absent.json", "cannot read the label file"),
    (ALONE, "give the --labels of a provider, or --clusters to cluster alone"),
    ("label {bad}/absent {vectors}/target.npy --out {new}.json", "run folder"),
    (f"{PREDICT} --sort-into {{new}}-sorted", "needs image files"),
    (
        "predict {runs}/target {pictures}/target --out {new}.csv --sort-into {pictures}/target/sorted",
        "lies inside",
    ),
    ("predict {runs}/target {bad}/images.tar --out {new}.csv", "is neither a folder"),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(
    line: str,
    words: str,
    vectors: Path,
    pictures: Path,
    runs: Path,
    bad: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"vectors": vectors, "pictures": pictures, "runs": runs, "bad": bad}
    before = {name: tree(place) for name, place in places.items()}
    found = run_command(*shlex.split(line.format(**places, new=tmp_path / "new")))
    assert found.status == 2
    (told,) = (one for one in found.err.splitlines() if not one.startswith("warning: "))
    assert told.startswith("error: ")
    assert words in told
    assert found.out == ""
    assert {name: tree(place) for name, place in places.items()} == before
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "unit", "method", "texts"),
    [
        ("UCDS_CACHE_LIMIT", "GB", "consensus", ("much", "nan", "inf")),
        pytest.param("UCDS_CHECKPOINT_SECONDS", "seconds", "pcd", ("soon",), marks=pytest.mark.torch),
    ],
)
def test_a_variable_that_is_no_number_is_refused(
    name: str, unit: str, method: str, texts: tuple[str, ...], vectors: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    line = f"{SOURCE} --method {method}".format(vectors=vectors, new=tmp_path / "new")
    for text in texts:
        monkeypatch.setenv(name, text)
        found = run_command(*line.split())
        assert (found.status, found.err) == (2, f"error: {name} is a number of {unit}, not {text!r}\n")
    assert tree(tmp_path) == {}


@pytest.mark.slow
def test_offline_default_weights_are_one_clear_error(pictures: Path, tmp_path: Path) -> None:
    caches = {"HF_HOME": "hub", "TORCH_HOME": "torch", "UCDS_CACHE": "cache"}  # which hold nothing
    offline = {name: str(tmp_path / folder) for name, folder in caches.items()} | {"HF_HUB_OFFLINE": "1"}
    arguments = ("train-source", pictures / "source", "--clusters", "3", "--out", tmp_path / "new")
    found = in_subprocess(*arguments, "--backbone", "resnet18", env=offline)
    assert found.status == 2
    (line,) = (line for line in found.err.splitlines() if line)
    assert line.startswith("error: ")
    assert "--weights" in line
    assert not (tmp_path / "new").exists()
