"""What the page shows of samples: pictures where there are any, else texts or ids."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_kit import draw_domain, run_successfully
from PIL import Image
from review_kit import BRIEF

import ucds
from ucds.errors import InputError
from ucds.page.session import Session
from ucds.target.review import Review
from ucds.training.run_folder import MAP_FILE


def open_session(run: Path, moved: Path | None = None, pictures: Path | None = None) -> Session:
    return Session(Review(run), moved, pictures, ucds.Compute("cpu"))


def colour_of(session: Session, row: int) -> list[int]:
    corner = np.asarray(Image.open(io.BytesIO(session.picture(row, 128))))[:8, :8]
    return [round(value) for value in corner.mean((0, 1))]


def test_pictures_that_moved_are_found_and_those_that_are_gone_are_asked_about_no_more(
    fresh: Path, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained.parent / "pictures", tmp_path / "moved")
    session = open_session(fresh, tmp_path / "moved")
    ids, asked = session.fixed()["ids"], set(session.question()["question"]["doubtful"])
    assert (session.fixed()["pictures"], session.fixed()["missing"]) == ("server", [])
    for row in asked:
        (tmp_path / "moved" / ids[row]).unlink()
    session = open_session(fresh, tmp_path / "moved")
    assert set(session.fixed()["missing"]) == asked
    question = session.question()["question"]
    assert question is None or set(question["doubtful"]) != asked
    with pytest.raises(InputError, match="has no image"):
        session.picture(min(asked), 128)


def test_report_review_and_reviewed_run_have_one_map_which_is_computed_once(fresh: Path) -> None:
    page, session = ucds.report(fresh).path.read_text(), open_session(fresh)
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["fixed"]
    places = {name: (x, y) for name, x, y in zip(data["ids"], data["x"], data["y"], strict=True)}
    found = session.map()
    assert list(zip(found["x"], found["y"], strict=True)) == [places[name] for name in session.fixed()["ids"]]
    kept = dict(np.load(fresh / MAP_FILE))
    np.savez(fresh / MAP_FILE, points=kept["points"][::-1], digest=kept["digest"])
    assert session.map()["x"] == found["x"][::-1]
    session.review.answer("mixed")
    assert (session.review.finish().path / MAP_FILE).read_bytes() == (fresh / MAP_FILE).read_bytes()
    for bad in (b"", b"no arrays", (fresh / MAP_FILE).read_bytes()[:400]):
        (fresh / MAP_FILE).write_bytes(bad)
        assert session.map() == found
    np.savez(fresh / MAP_FILE, points=kept["points"][::-1], digest=kept["digest"][::-1])  # of other features
    assert session.map() == found


def test_a_run_on_a_folder_of_features_shows_the_pictures_below_images(tmp_path: Path) -> None:
    draw_domain(tmp_path / "first", ("green", "white"), 3, count=12)
    edges = ("--backbone", "ucds/oriented_edges", "--weights", "none")
    run_successfully("features", tmp_path / "first", "--out", tmp_path / "features", *edges)
    ucds.train_target(tmp_path / "features", tmp_path / "run", n_clusters=4, settings=BRIEF)
    (tmp_path / "first").rename(tmp_path / "moved")
    assert open_session(tmp_path / "run").fixed()["pictures"] == ""
    gone = next((tmp_path / "moved").rglob("*.png"))
    gone.unlink()
    session = open_session(tmp_path / "run", pictures=tmp_path / "moved")
    ids, missing = session.fixed()["ids"], session.fixed()["missing"]
    assert [ids[row] for row in missing] == [gone.relative_to(tmp_path / "moved").as_posix()]
    ground = [0, 128, 0]  # of all pictures
    assert colour_of(session, 1 if missing == [0] else 0) == pytest.approx(ground, abs=4)
    review = Review(tmp_path / "run")
    review.answer("mixed")
    shutil.move(tmp_path / "run" / "answers.jsonl", tmp_path / "answers.jsonl")
    taken = {"answers": tmp_path / "answers.jsonl", "images": tmp_path / "moved"}
    with pytest.raises(ucds.InputError, match="`hosts` are for the page"):
        ucds.review(tmp_path / "run", **taken, hosts=["host.example"])
    done = ucds.review(tmp_path / "run", **taken)
    assert done is not None
    assert 'id="sheet-0"' in (done.path / "report.html").read_text()
