"""Class names from folders."""

import warnings

import numpy as np
import pytest

from ucds.data.folders import Scan
from ucds.data.ground_truth import read_ground_truth
from ucds.errors import UcdsWarning


def scan_of(*domains: tuple[str, list[str]]) -> Scan:
    paths = tuple(path for _, paths in domains for path in paths)
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
        pytest.param(
            [("a", ["a/images/bike/x.jpg", "a/images/mug/x.jpg"])],
            ["bike", "mug"],
            id="wrapper in the domain",
        ),
        pytest.param(
            [("photo", ["kfold/photo/dog/x.jpg", "kfold/photo/cat/x.jpg"])],
            ["dog", "cat"],
            id="wrapper above",
        ),
        pytest.param(
            [("a", ["a/bike/2010/x.jpg", "a/mug/x.jpg", "a/mug/old/x.jpg"])],
            ["bike", "mug", "mug"],
            id="deeper",
        ),
        pytest.param([("clinic", ["bike/x.jpg", "mug/x.jpg"])], ["bike", "mug"], id="one folder"),
        pytest.param(
            [("clinic", ["images/bike/x.jpg", "images/mug/x.jpg"])], ["bike", "mug"], id="one folder, wrapper"
        ),
        pytest.param(
            [("a", ["a/bike/x.jpg", "a/mug/x.jpg"]), ("b", ["b/mug/x.jpg", "b/mug/y.jpg"])],
            ["bike", "mug", "mug", "mug"],
            id="a domain with one class",
        ),
        pytest.param([("a", ["a/x.jpg", "a/y.jpg"]), ("b", ["b/x.jpg"])], None, id="no folders"),
        pytest.param([("a", ["a/images/x.jpg"]), ("b", ["b/images/x.jpg"])], None, id="wrappers only"),
        pytest.param([("clinic", ["x.jpg", "y.jpg"])], None, id="one folder, no classes"),
        pytest.param([("data", ["0", "1", "2"])], None, id="vectors"),
    ],
)
def test_layouts(domains, expected):
    assert classes(*domains) == expected


def test_files_beside_the_class_folders():
    mixed = scan_of(("a", ["a/bike/x.jpg", "a/mug/x.jpg", "a/loose.jpg"]))
    with pytest.warns(UcdsWarning, match="1 of 3 files lie outside"):
        assert read_ground_truth(mixed) is None


def test_class_names_are_shared_by_name_not_by_place():
    assert classes(("a", ["a/mug/x.jpg", "a/pen/x.jpg"]), ("b", ["b/bike/x.jpg", "b/pen/x.jpg"])) == [
        "mug",
        "pen",
        "bike",
        "pen",
    ]
