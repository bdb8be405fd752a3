"""Known data sets, on made-up scans."""

import warnings

import numpy as np
import pytest

from ucds.data.folders import Scan
from ucds.errors import UcdsWarning
from ucds.experiments.layouts import (
    LAYOUTS,
    OFFICE_31,
    OFFICE_HOME,
    PACS,
    check_layout,
    plain_name,
    recognise,
)


def made_up(counts: dict[str, int]) -> Scan:
    """A scan with the given numbers of files; no folder of theirs names a class."""
    paths = [f"{name}/{i}.jpg" for name, count in counts.items() for i in range(count)]
    domain = np.repeat(np.arange(len(counts)), list(counts.values()))
    return Scan(None, tuple(paths), domain, tuple(counts))


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (("amazon", "dslr", "webcam"), OFFICE_31),
        (("amazon", "webcam"), OFFICE_31),
        (("Art", "Clipart", "Product", "Real World"), OFFICE_HOME),
        (("art", "clipart", "product", "real_world"), OFFICE_HOME),
        (("Clipart", "RealWorld"), OFFICE_HOME),
        (("art_painting", "cartoon", "photo", "sketch"), PACS),
        (("Art Painting", "Photo"), PACS),
        (("photo",), None),
        (("amazon", "photo"), None),
        (("amazon", "webcam", "mine"), None),
    ],
)
def test_data_sets_are_known_by_their_domains(names, layout):
    assert recognise(names) is layout


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_complete_copies_pass(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = check_layout(made_up(dict(layout.counts)), layout.n_classes)
    assert len(lines) == len(layout.counts) + 1
    assert all(line.startswith(f"{layout.name}: ") and "as expected" in line for line in lines)


def test_published_totals():
    assert sum(OFFICE_31.counts.values()) == 4110
    assert sum(OFFICE_HOME.counts.values()) == 15588
    assert sum(PACS.counts.values()) == 9991


def test_differences_are_said():
    with pytest.warns(
        UcdsWarning, match=r"dslr 497 images, but 498 expected; .*: 30 classes, but 31 expected"
    ):
        lines = check_layout(made_up({"amazon": 2817, "dslr": 497}), 30)
    assert sum("expected" in line and "as expected" not in line for line in lines) == 2
    assert "Office-31 (common release): amazon 2,817 images, as expected" in lines


def test_other_data_sets_are_not_judged():
    assert check_layout(made_up({"north": 10, "south": 10}), 2) == []


def test_classes_that_nobody_counted_are_not_judged():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = check_layout(made_up(dict(PACS.counts)))
    assert len(lines) == len(PACS.counts)
    assert not any("classes" in line for line in lines)


def test_a_data_set_without_class_folders_is_told_apart_from_one_not_looked_at():
    with pytest.warns(UcdsWarning, match="PACS: 0 classes, but 7 expected"):
        assert check_layout(made_up(dict(PACS.counts)), 0)[-1] == "PACS: 0 classes, but 7 expected"


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Real World", "realworld"), ("real_world", "realworld"), ("Art-Painting", "artpainting")],
)
def test_names_are_compared_without_case_and_separators(name, plain):
    assert plain_name(name) == plain
