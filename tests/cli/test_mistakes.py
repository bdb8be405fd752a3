"""Every mistake that a user can make is answered by one line, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import draw_domain, in_subprocess, run_command, tree

Arguments = list[str]
NO_WEIGHTS = ("--weights", "none")


@pytest.fixture(scope="session")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders that no command can use."""
    root = tmp_path_factory.mktemp("bad")
    (root / "occupied").mkdir()
    (root / "occupied" / "thesis.txt").write_text("years of work")
    (root / "empty" / "one").mkdir(parents=True)
    draw_domain(root / "flawed" / "good", ("white", "black"), 4, count=1)
    (root / "flawed" / "bad").mkdir()
    (root / "flawed" / "bad" / "x.png").write_bytes(b"no picture")
    np.save(root / "equal.npy", np.ones((9, 6), np.float32))
    (root / "images.tar").write_bytes(b"junk" * 1000)
    (root / "broken").mkdir()
    (root / "broken" / "model.safetensors").write_bytes(b"junk")
    return root


def source(*more: str, data: str = "{v}/source.npz", clusters: str = "4", out: str = "{new}") -> Arguments:
    return ["train-source", data, "--clusters", clusters, "--out", out, *more]


def pictures_source(*more: str) -> Arguments:
    return source(*more, data="{pictures}/source")


def target(
    *more: str, data: str = "{v}/target.npy", labels: str = "{v}/labels.json", out: str = "{new}"
) -> Arguments:
    return ["train-target", data, "--labels", labels, "--out", out, *more]


def alone(*more: str) -> Arguments:
    return ["train-target", "{v}/target.npy", "--out", "{new}", *more]


def label(run: str, data: str = "{v}/target.npy", out: str = "{new}.json") -> Arguments:
    return ["label", run, data, "--out", out]


def predict(run: str, data: str = "{v}/target.npy", *more: str, out: str = "{new}.csv") -> Arguments:
    return ["predict", run, data, "--out", out, *more]


MISTAKES = {
    # Of data.
    "no such data": (source(data="{bad}/absent"), "no folder"),
    "no such vectors": (source(data="{bad}/absent.npz"), "There is no file"),
    "vectors are all equal": (source(data="{bad}/equal.npy"), "only 1 of the 9 samples are different"),
    "no images": (source(*NO_WEIGHTS, data="{bad}/empty"), "images"),
    "a domain of bad images": (
        source("--backbone", "ucds/oriented_edges", *NO_WEIGHTS, "--quiet", data="{bad}/flawed"),
        "None of the 1 files of 'bad' can be used",
    ),
    "unknown domain of a folder": (pictures_source("--domains", "day,noon", *NO_WEIGHTS), "'noon'"),
    "no domain of an archive": (source("--domains", ""), "--domains '' holds an empty name"),
    "results among the inputs": (
        source(*NO_WEIGHTS, data="{pictures}/source", out="{pictures}/source/run"),
        "lies inside",
    ),
    "more clusters than target samples": (alone("--clusters", "37"), "36 samples cannot form 37 clusters"),
    # Of the command line.
    "range beyond the samples": (alone("--clusters", "2..37"), "allow to try at most 7 clusters, not 37"),
    "clusters missing": (["train-source", "{v}/source.npz", "--out", "{new}"], "--clusters"),
    "data missing": (["train-source", "--clusters", "4", "--out", "{new}"], "data"),
    "unknown option": (source("--epochs", "3"), "--epochs"),
    "unknown command": (["train"], "train"),
    "unknown method": (source("--method", "kmeans"), "--method"),
    "image too small": (pictures_source("--image-size", "8"), "--image-size"),
    # Of the encoder.
    "unknown backbone": (pictures_source("--backbone", "resnet81", *NO_WEIGHTS), "did you mean"),
    "backbone for vectors": (source("--backbone", "resnet18"), "--backbone, --weights and --image-size"),
    # Of the run folder.
    "out occupied, resumed": (source("--resume", out="{bad}/occupied"), "holds no run to resume"),
    "out is a file": (source(out="{v}/labels.json"), "is a file: choose another --out"),
    # Of labels.
    "labels missing": (target(labels="{bad}/absent.json"), "cannot read the label file"),
    "labels of other samples": (target(labels="{v}/foreign.json"), "none of the 36 samples has a label"),
    "no labels at all": (
        alone(),
        "give the --labels of a provider, or --clusters to cluster alone",
    ),
    # Of models.
    "label without a run": (label("{bad}/absent"), "run folder"),
    "label with other width": (label("{runs}/source", "{v}/wide.npy"), "takes 6"),
    "label below a file": (label("{runs}/source", out="{v}/labels.json/l.json"), "labels.json is a file"),
    "predict with a source run": (predict("{runs}/source"), "a provider answers with labels"),
    "predict with a broken run": (predict("{bad}/broken"), "is damaged"),
    "sort among the inputs": (
        predict("{runs}/target", "{pictures}/target", "--sort-into", "{pictures}/target/sorted"),
        "lies inside",
    ),
    "sort vectors": (
        predict("{runs}/target", "{v}/target.npy", "--sort-into", "{new}-sorted"),
        "needs image files",
    ),
    "predict into a folder": (predict("{runs}/target", out="{bad}/occupied"), "name the file to write"),
    "predict an archive": (predict("{runs}/target", "{bad}/images.tar"), "is neither a folder"),
    "evaluate vectors": (["evaluate", "{runs}/target", "{v}/target.npy"], "has no class folders"),
}


OF_NETWORKS = ("unknown backbone",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(*mistake, id=name, marks=[pytest.mark.torch] if name in OF_NETWORKS else [])
        for name, mistake in MISTAKES.items()
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: Arguments,
    words: str,
    vectors: Path,
    pictures: Path,
    runs: Path,
    bad: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"v": vectors, "pictures": pictures, "runs": runs, "bad": bad}
    before = {name: tree(place) for name, place in places.items()}
    found = run_command(*(part.format(**places, new=tmp_path / "new") for part in arguments))
    assert found.status == 2
    lines = [line for line in found.err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, found.err
    assert lines[0].startswith("error: ")
    assert words in lines[0]
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
    arguments = source("--method", method, data=str(vectors / "source.npz"), out=str(tmp_path / "new"))
    for text in texts:
        monkeypatch.setenv(name, text)
        found = run_command(*arguments)
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
