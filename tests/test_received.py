"""Files that come from somebody else: none leads out of its folder, or waits for ever."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_service import INFO
from quick import quick

import ucds
from ucds.data.about import KeptAbout
from ucds.data.features import FeatureFolder
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import Journal, read_receipts
from ucds.page.findings import read_record
from ucds.page.report import report
from ucds.page.review import review
from ucds.received import open_inside, open_received
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.target.review import Review
from ucds.training.centring import Centring
from ucds.training.inputs import open_for_training
from ucds.training.model_file import load_model
from ucds.training.run_folder import RunFolder

pytestmark = pytest.mark.timeout(60)  # a pipe that is opened would wait for ever

SECRET = "the contents of a foreign file"
CPU = ucds.Compute("cpu", cache=None)
EDGES = ucds.EncoderOptions("ucds/oriented_edges", "none", 32)

KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link to a foreign file": lambda path, foreign: path.symlink_to(foreign),
    "link to nothing": lambda path, foreign: path.symlink_to(foreign.with_name("absent")),
    "second name of a foreign file": lambda path, foreign: path.hardlink_to(foreign),
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "hollow file": lambda path, _: _make_hollow(path),
}


def _make_hollow(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def _train_on(run: Path) -> None:
    from ucds.gradients.session import Session

    session = Session(ucds.PCDSettings(), CPU, folder=RunFolder(run))
    session.open({}, resume=True)
    session.write("stage", 1, "losses", {})
    session.close()


def _go_on(run: Path) -> None:
    from ucds.gradients.checkpoint import read_checkpoint

    read_checkpoint(run)


USES: dict[str, Callable[[Path], object]] = {
    "run.json": read_record,
    "labels.json": read_record,
    "clusters.json": read_record,
    "transfer.json": read_record,
    "stability.json": read_record,
    "votes.npz": Review,
    "features.npy": Review,
    "names.json": Review,
    "centres.npz": Centring.load,
    "about.npz": lambda run: KeptAbout.load(run / "about.npz"),
    "answers.jsonl": lambda run: Review(run).name(0, "cats"),
    ".review": lambda run: review(run, open_browser=False, compute=CPU),
    ".lock": lambda run: RunFolder(run).open({}, resume=True),
    "log.jsonl": _train_on,
    "checkpoint.pt": _go_on,
    "model.safetensors": load_model,
    "report.html": lambda run: report(run, compute=CPU),
    "signing-key.pem": lambda run: Signer.open(run / "signing-key.pem"),
    "ledger.sqlite": lambda run: Ledger(run, create=True).close(),
    "given labels": lambda folder: ClusterLabels.load(folder / "given labels"),
    "given answers": lambda folder: Review(folder).take(folder / "given answers"),
    "given receipts": lambda folder: read_receipts(folder / "given receipts"),
    "labels.receipts": lambda folder: Journal(folder / "labels.receipts", url="x", info=INFO).__exit__(),
}
"""Each file that others may have put into a run folder, and something that reads or writes it."""

REPLACED = {"report.html"}
"""Files that are written anew, whatever was there."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., dict[str, Any]]) -> Path:
    """A run of three clusters of embeddings."""
    root = tmp_path_factory.mktemp("received")
    np.save(root / "target.npy", blobs({"a": 60}, 3)["a"])
    settings = quick(bottleneck_width=8)
    return ucds.train_target(
        root / "target.npy", root / "run", n_clusters=3, settings=settings, compute=CPU
    ).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file of the receiver: JSON, so that it would be read where it is taken for one of a run."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "home" / "settings.json"
    path.write_text(json.dumps({"sentence": SECRET, "use": "own"}))
    return path


def _use_instead(path: Path, kind: str, foreign: Path, use: Callable[[], object]) -> None:
    """Put something else in the place of a file, and see that its use is refused or does no harm."""
    path.unlink(missing_ok=True)
    KINDS[kind](path, foreign)
    before = foreign.read_bytes()
    said = ""
    try:
        use()
    except (UserError, OSError) as refusal:  # of an error of the system, the command line makes one line
        said = str(refusal)
    assert "\n" not in said
    assert SECRET not in said
    harmless = kind in ("link to nothing", "second name of a foreign file") or path.name in REPLACED
    assert said or harmless, "it was taken for a file of the run"
    assert foreign.read_bytes() == before
    assert not foreign.with_name("absent").exists()


OF_NETWORKS = ("log.jsonl", "checkpoint.pt")
EVERYWHERE = ("link to a foreign file", "pipe")
"""What shows that a file is not opened as one of somebody else: its content, or that nothing ever comes."""
CASES = [
    pytest.param(name, kind, marks=[pytest.mark.torch] if name in OF_NETWORKS else [])
    for name in USES
    for kind in KINDS
    if kind in EVERYWHERE or name in ("run.json", "answers.jsonl", "ledger.sqlite")
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_file_of_a_run_folder_leads_out_of_it(run: Path, foreign: Path, name: str, kind: str) -> None:
    _use_instead(run / name, kind, foreign, lambda: USES[name](run))


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, write_images: Callable[..., list[Path]]) -> Path:
    """A folder of features of six images, beside these."""
    root = tmp_path_factory.mktemp("features")
    write_images(root / "images", [f"{number}.png" for number in range(6)])
    ucds.features(root / "images", root / "features", encoder=EDGES, compute=CPU)
    return root / "features"


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize(
    "name", ["features.json", "encoder.safetensors", "part-000000.npy", "part-000000.part"]
)
def test_no_file_of_a_folder_of_features_leads_out_of_it(
    features: Path, foreign: Path, tmp_path: Path, name: str, kind: str
) -> None:
    copy = tmp_path / "features"
    shutil.copytree(features, copy)

    def use() -> None:
        found = ucds.data.sources.find_samples(copy, by_domain=False)
        open_for_training(found, ucds.EncoderOptions(), CPU)

    _use_instead(copy / name, kind, foreign, use)


def _shown_of(folder: Path) -> list[bool]:
    """Whether a picture is shown of each sample of a folder of features; where there is none, it is grey."""
    pictures = FeatureFolder(folder, by_domain=False).find_pictures(None)
    if pictures.are_gone:
        return []
    pixels = pictures.read(np.arange(len(pictures.paths)))
    return [bool((picture != 128).any()) for picture in pixels]


def _change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_pictures_of_features_are_those_that_the_features_were_computed_from(
    features: Path, tmp_path: Path, write_images: Callable[..., list[Path]]
) -> None:
    assert _shown_of(features) == [True] * 6
    copy, other, linked = tmp_path / "features", tmp_path / "private", tmp_path / "linked"
    shutil.copytree(features, copy)
    write_images(other, [f"{number}.png" for number in range(6)], first_seed=50)
    shutil.copy(features.with_name("images") / "3.png", other)
    _change(copy / "features.json", root=str(other))
    assert _shown_of(copy) == [False, False, False, True, False, False]
    linked.mkdir()
    (linked / "3.png").symlink_to(other / "3.png")
    _change(copy / "features.json", root=str(linked))
    assert _shown_of(copy) == []


@pytest.fixture(params=[os.supports_dir_fd, set()], ids=["from folder to folder", "as on Windows"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened as on systems that open folders, and as on those that do not."""
    monkeypatch.setattr(os, "supports_dir_fd", request.param)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../other", "a/../../other", "inner/out/other", "..", "", "a\0b"]
)
def test_no_name_leads_out_of_a_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "other").write_text(SECRET)
    (folder / "inner" / "out").symlink_to(tmp_path)
    with pytest.raises((DamagedFileError, OSError)):
        open_inside(folder, name)
    (tmp_path / "link").symlink_to(folder)
    (folder / "inner" / "file").write_text("x")
    for inside in ("inner/file", "./inner//file"):
        assert open_inside(tmp_path / "link", inside).read() == b"x"


@pytest.mark.usefixtures("either_way")
def test_what_is_no_file_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(DamagedFileError, match="link is a link, and is not opened: put an"):
        open_received(tmp_path / "link")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(DamagedFileError, match="socket is hollow or not a file"):
            open_received(tmp_path / "socket")
    with pytest.raises(FileNotFoundError):
        open_received(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("file")
    assert open_received(tmp_path / "link", follow=True).read() == b"x"  # that the user named


def test_a_run_that_names_other_samples_than_its_own_shows_none_of_them(
    run: Path, tmp_path: Path, blobs: Callable[..., dict[str, Any]]
) -> None:
    np.save(tmp_path / "private.npy", blobs({"a": 60}, 3, seed=9)["a"])
    assert report(run, compute=CPU).samples == 60
    _change(run / "run.json", images=str(tmp_path / "private.npy"))
    with pytest.raises(InputError, match=r"private\.npy does not hold the run's samples"):
        report(run, compute=CPU)
    assert report(run, tmp_path / "private.npy", compute=CPU).samples == 60  # which the user names
    (run / "votes.npz").unlink()
    with pytest.raises(InputError, match="does not hold the run's samples"):
        Review(run)


ENTRIES = [
    *(("run.json", {"seed": seed}) for seed in (float("nan"), "x", 1.5, [1])),
    *(("run.json", {name: wrong}) for name in ("images", "data", "method") for wrong in (5, ["/etc"])),
    *(("run.json", {name: 5}) for name in ("reviewed", "earlier", "settings", "update", "versions")),
    *(("run.json", {"settings": {"most_samples": "x"}}), ("run.json", {"update": {"sentences": 5}})),
    *(("stability.json", wrong) for wrong in ({}, {"own_agreement": "x"})),
    ("stability.json", {"own_agreement": 1.0, "second_opinion": {"sentence": 5}}),
    *(("transfer.json", wrong) for wrong in ({}, {"sentence": 5}, {"sentence": None})),
]


@pytest.mark.parametrize(("file", "wrong"), ENTRIES, ids=str)
def test_an_entry_of_another_kind_is_damage_and_no_fault_of_ucds(
    tmp_path: Path, file: str, wrong: dict[str, Any]
) -> None:
    (tmp_path / "run.json").write_text('{"seed": null, "images": null, "settings": null, "update": null}')
    read_record(tmp_path)  # what is not known does no harm
    (tmp_path / file).write_text(json.dumps(wrong))
    with pytest.raises(DamagedFileError, match=rf"{file} is damaged: delete it, and go on without it$"):
        read_record(tmp_path)
