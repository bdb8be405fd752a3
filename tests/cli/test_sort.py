"""`ucds sort`: the first hour in one command, and a run's own names without an option."""

import io
import json
import shlex
import shutil
import sys
import webbrowser
from pathlib import Path

import pytest
from cli_kit import EDGES, draw_domain, run_command, run_successfully
from PIL import Image

BARE = EDGES[:4]  # the encoder alone


@pytest.fixture(scope="module")
def sorted_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shapes in a folder without class folders, sorted."""
    place = tmp_path_factory.mktemp("my photos")
    draw_domain(place / "drawn", ("green", "white"), 3, count=10)
    (place / "photos").mkdir()
    for number, path in enumerate(sorted((place / "drawn").rglob("*.png"))):
        shutil.copy(path, place / f"photos/IMG_{number}.png")
    shutil.copy(place / "photos/IMG_0.png", place / "photos/copy.png")
    done = run_successfully("sort", place / "photos", *BARE)
    (place / "told").write_text(done.err)
    return place


@pytest.fixture
def place(sorted_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(sorted_once, tmp_path / "my photos")
    return tmp_path / "my photos"


def test_the_run_lies_beside_the_images_and_three_commands_say_how_to_go_on(sorted_once: Path) -> None:
    run = sorted_once / "photos-groups"
    assert (run / "report.html").exists()
    assert json.loads((run / "clusters.json").read_text())["asked"] == "auto"
    told = (sorted_once / "told").read_text()
    assert told.count("duplicates another") == 1  # training and report both find it
    commands = [shlex.split(line.partition(": ")[2]) for line in told.splitlines() if ": ucds " in line]
    assert [words[1] for words in commands] == ["review", "predict", "update"]
    assert all(str(run) in words for words in commands)
    words = commands[1][1:]
    run_successfully(*words, *(["--sort-how", "link"]))
    folders = Path(words[words.index("--sort-into") + 1])
    assert folders == sorted_once / "photos-sorted"
    assert sum(1 for _ in folders.glob("*/*.png")) == 31


def test_the_same_command_opens_what_is_there_and_other_images_are_refused(sorted_once: Path) -> None:
    photos, model = sorted_once / "photos", sorted_once / "photos-groups/model.safetensors"
    before = model.read_bytes()
    run_successfully("sort", photos, *BARE)
    Image.new("RGB", (30, 30)).save(photos / "new.png")
    refused = run_command("sort", photos, *BARE)
    (photos / "new.png").unlink()
    assert refused.status == 2
    told = "photos-groups holds a run on other samples, or some samples have changed: choose another --out"
    assert told in refused.err
    assert model.read_bytes() == before


def test_the_folder_is_known_by_its_own_name(sorted_once: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sorted_once / "photos/sub").mkdir()
    monkeypatch.chdir(sorted_once / "photos")
    run_successfully("sort", "sub/..", *BARE)
    Path("sub").rmdir()
    assert [path.name for path in sorted_once.glob("**/*-groups")] == ["photos-groups"]


def test_what_is_in_the_way_is_left_alone(place: Path) -> None:
    shutil.rmtree(place / "photos-groups")
    (place / "photos-groups").mkdir()
    (place / "photos-groups/mine.txt").write_text("mine")
    refused = run_command("sort", place / "photos", *BARE)
    assert refused.status == 2
    assert "holds no run to resume" in refused.err
    assert [path.name for path in (place / "photos-groups").iterdir()] == ["mine.txt"]
    inside = run_command("sort", place / "photos", *BARE, "--out", place / "photos/run")
    assert "lies inside" in inside.err


@pytest.mark.parametrize(
    ("terminal", "display", "more", "opens"),
    [
        (True, ":0", (), True),
        (True, ":0", ("--no-open",), False),
        (False, ":0", (), False),
        (True, "", (), False),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have a screen without DISPLAY")
def test_a_browser_opens_where_somebody_looks(
    sorted_once: Path,
    terminal: bool,
    display: str,
    more: tuple[str, ...],
    opens: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("cli_kit.io.StringIO", type("Screen", (io.StringIO,), {"isatty": lambda _: terminal}))
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    run_successfully("--quiet", "sort", sorted_once / "photos", *BARE, *more)
    assert len(opened) == opens
