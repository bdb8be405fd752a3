"""Tests of the embedded data set: which digits it shows, and that it is always the same."""

import hashlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from ucds.demo.digits import SIDE, STYLES, write_digits


def numbers(root: Path, style: str = "*") -> list[int]:
    return [int(path.stem) for path in root.glob(f"{style}/*/*.png")]


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*.png")
    }


def test_every_digit_is_drawn_once_in_one_domain(drawn: Path) -> None:
    assert sorted(numbers(drawn)) == list(range(1797))
    assert sorted(path.name for path in drawn.iterdir()) == sorted(STYLES)
    assert sorted(len(numbers(drawn, style)) for style in STYLES) == [449, 449, 449, 450]


def test_folders_tell_the_class_that_scikit_learn_tells(drawn: Path) -> None:
    target = load_digits().target
    paths = [path for path in drawn.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"\d{4}\.png", path.name) for path in paths)
    assert all(int(path.parent.name) == target[int(path.stem)] for path in paths)
    for style in STYLES:  # every class occurs, in proportions that chance made
        counts = Counter(path.parent.name for path in (drawn / style).glob("*/*"))
        assert len(counts) == 10
        assert min(counts.values()) > 25
        assert len(set(counts.values())) > 1


def test_pictures_are_small_squares_in_colour(drawn: Path) -> None:
    for style in STYLES:
        with Image.open(next((drawn / style).glob("*/*.png"))) as image:
            assert (image.size, image.mode) == ((SIDE, SIDE), "RGB")


def test_no_two_pictures_are_alike(drawn: Path) -> None:
    assert len(set(contents(drawn).values())) == 1797


def test_styles_differ_as_they_say(drawn: Path) -> None:
    def mean_colour(style: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        pictures = [np.asarray(Image.open(path)) for path in sorted((drawn / style).glob("*/*.png"))[:50]]
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
