"""A run that was updated shows all samples that still lie where they were found, in every form of input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_kit import run_successfully
from PIL import Image
from quick import Listener
from review_kit import BRIEF, EDGES

import ucds
from ucds.page.session import Session
from ucds.target.review import Review

pytestmark = pytest.mark.filterwarnings("ignore::ucds.UcdsWarning")
CPU, EACH = ucds.Compute("cpu"), 48
VALUES = np.random.default_rng(0).normal(size=(4 * EACH, 6)) + 5 * np.eye(6)[np.arange(4 * EACH) % 3]


def draw(place: Path, week: int) -> Path:
    """Draw stripes of three kinds; no two pictures are the same."""
    folder, rng = place / f"pictures {week}", np.random.default_rng(week)
    for number in range(EACH):
        pixels, kind = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8), number % 3
        pixels[:: 4 + 4 * kind, :: 1 + 8 * (kind == 2)] += 150
        (folder / str(kind)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / str(kind) / f"{number}.png")
    return folder


def compute_features(place: Path, week: int) -> Path:
    options = ("--backbone", EDGES.backbone, "--weights", EDGES.weights)
    run_successfully("features", draw(place, week), "--out", place / f"features {week}", *options)
    return place / f"features {week}"


def write_table(place: Path, week: int) -> Path:
    frame = pd.DataFrame(VALUES[EACH * week : EACH * (week + 1)], columns=list("abcdef"))
    frame.insert(0, "text", [f"text {row}" for row in range(EACH * week, EACH * (week + 1))])
    frame.to_csv(place / f"week {week}.csv", index=False)
    return place / f"week {week}.csv"


def save_array(place: Path, week: int) -> Path:
    np.save(place / f"week {week}.npy", VALUES[EACH * week : EACH * (week + 1)])
    return place / f"week {week}.npy"


FORMS: dict[str, Callable[[Path, int], Path]] = {
    "folder": draw,
    "features": compute_features,
    "table": write_table,
    "npy": save_array,
}


def open_session(run: Path, images: Path | None = None) -> Session:
    return Session(Review(run), images, None, CPU)


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pictures that took those of another folder; they lie in `pictures 0` and `inbox` beside it."""
    place = tmp_path_factory.mktemp("weeks")
    first, second = draw(place, 0), draw(place / "inbox", 1)
    run = ucds.train_target(first, place / "run", n_clusters=3, encoder=EDGES, settings=BRIEF).folder
    return ucds.update(run, second, place / "next", compute=CPU).path


@pytest.mark.parametrize("form", FORMS)
def test_samples_are_shown_wherever_an_update_found_them(form: str, tmp_path: Path) -> None:
    write, encoder = FORMS[form], EDGES if form == "folder" else None
    first, second = (write(tmp_path, week) for week in (0, 1))
    run = ucds.train_target(first, tmp_path / "run", n_clusters=3, encoder=encoder, settings=BRIEF).folder
    run = ucds.update(run, second, tmp_path / "next", compute=CPU).path
    done = ucds.report(run, compute=CPU)
    assert done.samples == 96
    assert not [line for line in done.warnings if "few for" in line or "longer" in line]
    fixed = open_session(run).fixed()
    assert (len(fixed["ids"]), fixed["missing"]) == (96, [])
    assert fixed["pictures"] == ("server" if form in ("folder", "features") else "")
    texts = fixed["texts"] or [None] * 96
    assert texts[0] == ("text 0" if form == "table" else None)
    assert sum(text is not None for text in texts) in (0, 96)
    first.rename(tmp_path / f"moved{first.suffix}")
    done = ucds.report(run, compute=CPU)
    assert done.samples == 48
    assert "48 of 96 samples of the run are no longer where it found them" in " ".join(done.warnings)


def test_a_picture_is_its_own_wherever_it_lies_and_all_are_sorted(two_weeks: Path, tmp_path: Path) -> None:
    shutil.copytree(two_weeks.with_name("pictures 0"), tmp_path / "whole")
    shutil.copytree(two_weeks.with_name("inbox"), tmp_path / "whole" / "more")
    contents = sorted(path.read_bytes() for path in (tmp_path / "whole").rglob("*.png"))
    for moved in (None, tmp_path / "whole"):
        session = open_session(two_weeks, moved)
        assert session.files is not None
        assert len({session.picture(row, 64) for row in range(96)}) == len(set(contents)) == 96
        session.review.sort_into(tmp_path / "sorted", session.files)
        there = [path.read_bytes() for path in (tmp_path / "sorted").glob("[!.]*/*")]
        assert sorted(there) == contents
    done = ucds.report(two_weeks, tmp_path / "whole", tmp_path / "r.html", compute=CPU)
    assert not any("other images" in line for line in done.warnings)


def test_a_run_whose_places_are_of_two_kinds_or_no_places_is_shown(tmp_path: Path) -> None:
    first, second = draw(tmp_path, 0), compute_features(tmp_path, 1)
    run = ucds.train_target(first, tmp_path / "run", n_clusters=3, encoder=EDGES, settings=BRIEF).folder
    run = ucds.update(run, second, tmp_path / "next", compute=CPU).path
    done = ucds.report(run, compute=CPU)
    assert (done.samples, "48 of 96 samples" in " ".join(done.warnings)) == (96, False)
    session = open_session(run)
    assert (session.fixed()["pictures"], session.fixed()["missing"]) == ("server", [])
    assert len({session.picture(row, 64) for row in range(96)}) == 96
    described = json.loads((run / "run.json").read_text())
    for earlier in (None, [[], 3, None], ["\0", str(tmp_path / "run.json")]):
        (run / "run.json").write_text(json.dumps(described | {"earlier": earlier}))
        assert ucds.report(run, compute=CPU).samples == 48


def test_a_new_machine_encodes_nothing_that_the_run_remembers(two_weeks: Path, tmp_path: Path) -> None:
    for images, samples in ((None, 96), (two_weeks.with_name("pictures 0"), 48)):
        listener = Listener()
        compute = ucds.Compute("cpu", cache=tmp_path / "cache", reporter=listener)
        assert ucds.report(two_weeks, images, tmp_path / "r.html", compute=compute).samples == samples
        assert {title for title, _ in listener.begun} <= {"decode images"}


def test_weeks_are_shown_where_one_folder_grows_and_others_are_new(tmp_path: Path) -> None:
    grows = draw(tmp_path, 0)
    run = ucds.train_target(grows, tmp_path / "run", n_clusters=3, encoder=EDGES, settings=BRIEF).folder
    for week in range(1, 4):
        new = grows if week % 2 else tmp_path / f"inbox {week}"
        new.mkdir(exist_ok=True)
        pixels = np.random.default_rng(week).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(new / f"week {week}.png")
        run = ucds.update(run, new, tmp_path / f"run {week}", compute=CPU).path
    places = json.loads((run / "run.json").read_text())
    assert places["earlier"] == [str(tmp_path / "inbox 2")]
    Image.fromarray(pixels[::-1]).save(grows / "not taken yet.png")
    done = ucds.report(run, compute=CPU)
    assert done.samples == EACH + 3
    assert "1 samples there are new to the run, and left out" in " ".join(done.warnings)
    assert open_session(run).fixed()["missing"] == []
    for name in ("model.safetensors", "votes.npz"):
        assert str(tmp_path).encode() not in (run / name).read_bytes()
