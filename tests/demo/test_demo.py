"""Tests of the demo: the digits that it draws, what it refuses and prints, and once the whole of it."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from ucds.demo.digits import SIDE, STYLES, write_digits
from ucds.demo.story import (
    LARGE,
    SMALL,
    STYLE_OF,
    TURNED,
    Place,
    ask_a_person,
    check_folder,
    describe,
    give_pictures,
    visit_all,
)
from ucds.errors import UserError
from ucds.training.progress import Quiet


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``digits`` of a demo, drawn once."""
    root = tmp_path_factory.mktemp("demo") / "digits"
    write_digits(root)
    return root


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*.png")
    }


def test_every_digit_is_drawn_once_in_one_domain_and_in_the_folder_of_its_class(drawn: Path) -> None:
    paths, target = [path for path in drawn.rglob("*") if path.is_file()], load_digits().target
    assert sorted(path.name for path in paths) == [f"{number:04}.png" for number in range(1797)]
    assert all(int(path.parent.name) == target[int(path.stem)] for path in paths)
    assert len(set(contents(drawn).values())) == 1797  # no two are alike
    assert sorted(path.name for path in drawn.iterdir()) == sorted(STYLES)
    for style in STYLES:  # every class occurs, in proportions that chance made
        counts = Counter(path.parent.name for path in (drawn / style).glob("*/*"))
        assert counts.total() in (449, 450)
        assert len(counts) == 10
        assert min(counts.values()) > 25
        assert len(set(counts.values())) > 1


def test_styles_differ_as_they_say(drawn: Path) -> None:
    def mean_colour(style: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        pictures = [np.asarray(Image.open(path)) for path in sorted((drawn / style).glob("*/*.png"))[:50]]
        assert np.shape(pictures) == (50, SIDE, SIDE, 3)
        return np.mean(pictures, axis=(0, 1, 2))

    assert mean_colour("paper").min() > 150  # light
    assert mean_colour("chalk").max() < 150  # dark boards
    blueprint, neon = mean_colour("blueprint"), mean_colour("neon")
    assert blueprint[2] > blueprint[:2].max() + 30  # blue
    assert neon[1] > neon[0]  # a green tube


@pytest.mark.slow
def test_drawing_again_gives_the_same_bytes_also_over_the_old_ones(drawn: Path) -> None:
    before = contents(drawn)
    np.random.seed(5)  # noqa: NPY002  (global state must not matter)
    write_digits(drawn)
    assert contents(drawn) == before


def test_new_empty_and_earlier_folders_are_taken_and_others_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    check_folder(tmp_path)
    for name in ("digits", "small-clinic-images", "turned-clinic-images", "cache", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.json").touch()
    check_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file: choose another `out`"):
        check_folder(tmp_path / "file")
    with pytest.raises(UserError, match="holds other things than a demo"):
        check_folder(tmp_path)


def test_the_small_clinic_gets_other_pictures_with_another_seed(drawn: Path) -> None:
    def pictures(seed: int) -> set[str]:
        place = Place(drawn.parent, seed, Quiet())
        give_pictures(place, SMALL)
        theirs = place.images(SMALL)
        return {path.relative_to(theirs).as_posix() for path in theirs.rglob("*.png")}

    first, other = pictures(0), pictures(1)
    assert len(first) == len(other) == 100 != len(first & other)
    chalk = drawn / "chalk"
    assert first | other < {path.relative_to(chalk).as_posix() for path in chalk.rglob("*.png")}


def test_all_clinics_and_the_person_are_told_of() -> None:
    visit = {"images": 100, "alone": 0.7, "provider": 0.75, "asked": 0.8, "sentence": "the guard chose own"}
    review = {"clinic": TURNED, "answers": 8, "before": 0.8, "after": 0.875}
    week = {"joined": 60, "moved": 2, "accuracy": 0.9}
    metrics = {"n_clusters": 10, "clinics": {SMALL: visit, TURNED: visit}, "review": review, "week": week}
    holder = {"name": "large-clinic", "used": 449, "terms": {"budget": 449}}
    verdict = {"number": 3, "faults": ["entry 2"]}
    told = describe(metrics, holder=holder, verdict=verdict, out="here", page="here/report.html")
    for clinic in ("small clinic", "turned clinic"):
        assert f"{clinic}, 100 pictures 70.0 75.0 80.0" in " ".join(told.split())
        assert f"{clinic.capitalize()}: the guard chose own." in told
    assert "8 questions about the clusters of the turned clinic" in told
    assert "80.0% to 87.5%" in told
    assert "asked about 449 of 449 samples; 3 entries, all NOT as written: entry 2." in told


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_demo(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ucds", "demo", "--out", str(out), "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads((out / "metrics.json").read_text())
    clinics, review = found["clinics"], found["review"]
    assert list(clinics) == [SMALL, LARGE, TURNED]
    assert review["clinic"] == TURNED
    assert review["before"] == clinics[TURNED]["asked"]
    assert review["after"] >= review["before"] + 0.01
    assert found["week"]["joined"] == 60
    assert found["week"]["accuracy"] > 0.7
    # The situations that the demo is about: labels that help, that have little weight, that are set aside.
    assert clinics[SMALL]["use"] != "own"
    assert clinics[SMALL]["asked"] > clinics[SMALL]["alone"]
    assert clinics[LARGE]["use"] == "opinion"
    assert clinics[TURNED]["use"] == "own"
    assert clinics[TURNED]["asked"] == clinics[TURNED]["alone"]
    assert [clinics[name]["images"] for name in clinics] == [100, 449, 449]
    printed = done.stdout.splitlines()
    assert any("entries, all as they were written" in line for line in printed)
    page = out / "runs" / SMALL / "report.html"
    assert printed[-1] == f"Open {page} in a browser: it shows what the small clinic found."
    assert page.stat().st_size > 100_000
    assert {path.name for path in (out / "digits").iterdir()} == set(STYLES)
    check_folder(out)  # it may be run again in its own folder


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the visits to the clinics found with five seeds, and what a person changed in the turned one."""
    found = []
    for seed in range(5):
        place = Place(tmp_path_factory.mktemp("demo"), seed, Quiet())
        write_digits(place.digits)
        for clinic in STYLE_OF:
            give_pictures(place, clinic)
        found.append({**visit_all(place), "review": ask_a_person(place, TURNED)})
    return found


def gains(seeds: list[dict[str, Any]], name: str) -> list[float]:
    return [100 * (one[name]["asked"] - one[name]["alone"]) for one in seeds]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_over_five_seeds_asking_helps_the_small_clinic_and_a_person_the_turned_one(
    seeds: list[dict[str, Any]],
) -> None:
    assert np.mean(gains(seeds, SMALL)) > 2.5
    assert min(gains(seeds, SMALL) + gains(seeds, LARGE)) > -2
    assert [one[TURNED]["use"] for one in seeds] == 5 * ["own"]
    assert gains(seeds, TURNED) == 5 * [0]
    # Of five seeds two lose two points: a part is set apart from a cluster that is half of its own digit.
    helped = [100 * (one["review"]["after"] - one["review"]["before"]) for one in seeds]
    assert np.mean(helped) > 0.5, helped
    assert min(helped) > -3, helped


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.xfail(strict=True, reason="the guard lets labels decide, which costs 1.5 points on average")
def test_over_five_seeds_asking_harms_the_large_clinic_little(seeds: list[dict[str, Any]]) -> None:
    assert np.mean(gains(seeds, LARGE)) > -0.5
