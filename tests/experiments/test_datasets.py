"""Tests of finding data sets, and of the words when they are not there."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from ucds.data.content import texts_of
from ucds.data.folders import Scan
from ucds.data.ground_truth import GroundTruth
from ucds.errors import UcdsWarning, UserError
from ucds.experiments.datasets import (
    KNOWN,
    check_counts,
    imbalanced_subset,
    locate,
    long_tail_subset,
    objects_in,
    small_subset,
)

pytestmark = pytest.mark.torch


def make(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
    return root


def test_case_spaces_and_hyphens_do_not_matter(tmp_path: Path) -> None:
    inner = make(tmp_path / "Office-Home", ["Art", "clipart", "Product", "RealWorld"])
    found = locate(tmp_path, "officehome", ["Real World", "Clipart"])
    named = {"Art": "Art", "Clipart": "clipart", "Product": "Product", "Real World": "RealWorld"}
    assert (found.path, found.folders) == (inner, named)


def test_a_wrapper_is_stepped_into_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    inner = make(tmp_path / "PACS" / "kfold", ["art_painting", "cartoon", "photo", "sketch", "splits"])
    for given in (tmp_path, tmp_path / "PACS", inner):
        found = locate(given, "pacs", ["photo"])
        assert (found.path, found.domains) == (inner, ["art_painting", "cartoon", "photo", "sketch"])


def test_what_is_missing_and_where_to_put_it(tmp_path: Path) -> None:
    make(tmp_path / "office31", ["amazon", "webcam"])
    for root, name, words in (
        (tmp_path, "office31", r"no domain dslr; put it at .*office31/<domain>"),
        (tmp_path / "absent", "pacs", r"no domain photo, .*put it at .*absent/PACS/\[kfold/\]<"),
    ):
        with pytest.raises(UserError, match=words):
            locate(root, name, [])


def test_a_data_set_that_nobody_knows(tmp_path: Path) -> None:
    make(tmp_path, ["neon", "paper", "chalk"])
    found = locate(tmp_path, "", ["neon", "ink"])
    assert (found.path, found.domains, found.folders) == (tmp_path, None, {"neon": "neon"})
    with pytest.raises(UserError, match="no domain ink: it needs one folder per domain"):
        locate(tmp_path, "", ["ink"])
    make(tmp_path / "my-scans", ["north", "south"])
    assert locate(tmp_path, "my scans", ["north"]).path == tmp_path / "my-scans"


def test_domains_of_one_data_set_may_show_the_same_objects() -> None:
    assert objects_in("office31", "dslr") == objects_in("office31", "webcam") != "webcam"
    assert [objects_in(name, "photo") for name in ("pacs", "mine")] == ["photo", "photo"]


def made_up(counts: dict[str, int]) -> Scan:
    """A scan with the given numbers of files; no folder of theirs names a class."""
    paths = [f"{name}/{i}.jpg" for name, count in counts.items() for i in range(count)]
    domain = np.repeat(np.arange(len(counts)), list(counts.values()))
    return Scan(None, texts_of(paths), domain, tuple(counts))


def test_only_copies_that_differ_from_the_published_counts_are_warned_of() -> None:
    totals = {name: sum(known.counts.values()) for name, known in KNOWN.items()}
    assert totals == {"office31": 4110, "officehome": 15588, "pacs": 9991}
    with warnings.catch_warnings(action="error"):
        check_counts("pacs", made_up(dict(KNOWN["pacs"].counts)), 7)
        check_counts("mine", made_up({"north": 10, "south": 10}), 2)  # others are not judged
    words = r"Office-31 .*: 497 images of dslr, 498 expected; 30 classes, 31 expected\."
    with pytest.warns(UcdsWarning, match=words):
        check_counts("office31", made_up({"amazon": 2817, "dslr": 497}), 30)


def five_classes() -> tuple[GroundTruth, np.ndarray]:
    """Five classes; 10, 7, 20, 4, 9 samples of them in domain 0, one more of each in domain 1."""
    sizes = np.array([10, 7, 20, 4, 9])
    classes = np.concatenate([np.repeat(np.arange(5), sizes), np.repeat(np.arange(5), sizes + 1)])
    domain = np.repeat([0, 1], [sizes.sum(), sizes.sum() + 5])
    order = np.random.default_rng(7).permutation(len(classes))
    return GroundTruth(tuple("abcde"), classes[order]), domain[order]


def test_the_first_half_of_the_classes_becomes_rare():
    truth, domain = five_classes()
    kept = imbalanced_subset(truth, domain)
    for d, expected in enumerate(([3, 2, 20, 4, 9], [3, 2, 21, 5, 10])):
        assert np.bincount(truth.classes[kept][domain[kept] == d], minlength=5).tolist() == expected
    assert (np.diff(kept) > 0).all()
    # The choice in a domain does not depend on the others.
    alone = np.flatnonzero(domain == 1)
    of_one = imbalanced_subset(GroundTruth(truth.names, truth.classes[alone]), domain[alone])
    assert (alone[of_one] == kept[domain[kept] == 1]).all()


def test_a_long_tail_falls_off_to_a_tenth():
    classes = np.repeat(np.arange(5), 100)
    truth, domain = GroundTruth(tuple("abcde"), classes), np.zeros(500, dtype=np.int64)
    sizes = np.bincount(classes[long_tail_subset(truth, domain, seed=3)], minlength=5)
    assert sorted(sizes, reverse=True) == [100, 56, 31, 17, 10]
    assert (long_tail_subset(truth, domain) != long_tail_subset(truth, domain, seed=1)[: sizes.sum()]).any()
    few = GroundTruth(("a", "b"), np.repeat([0, 1], 4))  # of a rare class two are left
    assert sorted(np.bincount(few.classes[long_tail_subset(few, domain[:8])])) == [2, 4]


def test_a_small_subset_is_of_its_size_and_follows_the_seed():
    positions = np.arange(50, 400)
    kept = small_subset(positions, seed=1)
    assert len(kept) == 100
    assert (np.diff(kept) > 0).all()
    assert set(kept) <= set(positions)
    assert (kept != small_subset(positions, seed=2)).any()
    assert (small_subset(positions[:30]) == positions[:30]).all()
