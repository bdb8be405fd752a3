"""Class names from folders."""

import warnings

import numpy as np
import pytest

from ucds.data.content import texts_of
from ucds.data.folders import Scan
from ucds.data.ground_truth import read_ground_truth
from ucds.errors import UcdsWarning


def scan_of(*domains: tuple[str, list[str]]) -> Scan:
    paths = texts_of([path for _, paths in domains for path in paths])
    domain = np.repeat(np.arange(len(domains)), [len(paths) for _, paths in domains])
    return Scan(None, paths, domain, tuple(name for name, _ in domains))


def classes(*domains: tuple[str, list[str]]) -> list[str] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UcdsWarning)
        truth = read_ground_truth(scan_of(*domains))
    return None if truth is None else [truth.names[k] for k in truth.classes]


def test_classes_are_the_folders_below_the_domains():
    truth = read_ground_truth(
        scan_of(("a", ["a/mug/1.jpg", "a/bike/1.jpg"]), ("b", ["b/mug/1.jpg", "b/pen/1.jpg"]))
    )
    assert truth.names == ("bike", "mug", "pen")
    assert truth.classes.tolist() == [1, 0, 1, 2]
    assert truth.classes.dtype == np.int64
    assert truth.n_classes == 3


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        pytest.param([("a", ["a/images/bike/x", "a/images/mug/x"])], ["bike", "mug"], id="wrapper below"),
        pytest.param([("a", ["kfold/a/dog/x", "kfold/a/cat/x"])], ["dog", "cat"], id="wrapper above"),
        pytest.param([("a", ["a/bike/9/x", "a/mug/x", "a/mug/8/x"])], ["bike", "mug", "mug"], id="deeper"),
        pytest.param([("clinic", ["bike/x", "mug/x"])], ["bike", "mug"], id="one folder"),
        pytest.param([("clinic", ["images/bike/x", "images/mug/x"])], ["bike", "mug"], id="one wrapper"),
        pytest.param(
            [("a", ["a/mug/x", "a/pen/x"]), ("b", ["b/bike/x", "b/pen/x"]), ("c", ["c/pen/x", "c/pen/y"])],
            ["mug", "pen", "bike", "pen", "pen", "pen"],
            id="shared by name, not by place",
        ),
        pytest.param([("a", ["a/x", "a/y"]), ("b", ["b/x"])], None, id="no folders"),
        pytest.param([("a", ["a/images/x"]), ("b", ["b/images/x"])], None, id="wrappers only"),
        pytest.param([("clinic", ["x", "y"])], None, id="one folder, no classes"),
    ],
)
def test_layouts(domains, expected):
    assert classes(*domains) == expected


def test_files_beside_the_class_folders():
    mixed = scan_of(("a", ["a/bike/x.jpg", "a/mug/x.jpg", "a/loose.jpg"]))
    with pytest.warns(UcdsWarning, match="1 of 3 files lie outside"):
        assert read_ground_truth(mixed) is None
