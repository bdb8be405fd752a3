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
    assert found.path == inner
    named = {"Art": "Art", "Clipart": "clipart", "Product": "Product", "Real World": "RealWorld"}
    assert found.folders == named


def test_a_wrapper_is_stepped_into_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    inner = make(tmp_path / "PACS" / "kfold", ["art_painting", "cartoon", "photo", "sketch", "splits"])
    for given in (tmp_path, tmp_path / "PACS", inner):
        found = locate(given, "pacs", ["photo"])
        assert found.path == inner
        assert found.domains == ["art_painting", "cartoon", "photo", "sketch"]


def test_what_is_missing_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"PACS is incomplete.*no domain photo, .*put it at .*PACS/\[kfold/\]<"
    ):
        locate(tmp_path, "pacs", ["photo"])
    make(tmp_path / "office31", ["amazon", "webcam"])
    with pytest.raises(UserError, match=r"no domain dslr; put it at .*office31/<domain>"):
        locate(tmp_path, "office31", ["amazon"])
    with pytest.raises(UserError, match="no domain amazon, dslr, webcam; put it at .*absent/office31/<"):
        locate(tmp_path / "absent", "office31", ["amazon"])


def test_a_data_set_that_nobody_knows(tmp_path: Path) -> None:
    make(tmp_path, ["neon", "paper", "chalk"])
    found = locate(tmp_path, "", ["neon", "ink"])
    assert found.path == tmp_path
    assert found.domains is None
    assert found.folders == {"neon": "neon"}
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


@pytest.mark.parametrize(("name", "total"), [("office31", 4110), ("officehome", 15588), ("pacs", 9991)])
def test_complete_copies_have_the_published_totals_and_pass(name: str, total: int) -> None:
    known = KNOWN[name]
    assert sum(known.counts.values()) == total
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_counts(name, made_up(dict(known.counts)), known.n_classes)
        check_counts("mine", made_up({"north": 10, "south": 10}), 2)  # others are not judged


def test_differences_are_said() -> None:
    words = r"Office-31 .*: 497 images of dslr, 498 expected; 30 classes, 31 expected\. The copy may be"
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


def test_the_choice_in_a_domain_does_not_depend_on_the_others():
    truth, domain = five_classes()
    both = imbalanced_subset(truth, domain)
    alone = np.flatnonzero(domain == 1)
    kept = imbalanced_subset(GroundTruth(truth.names, truth.classes[alone]), domain[alone])
    assert (alone[kept] == both[domain[both] == 1]).all()


def test_a_long_tail_falls_off_to_a_tenth():
    classes = np.repeat(np.arange(5), 100)
    truth, domain = GroundTruth(tuple("abcde"), classes), np.zeros(500, dtype=np.int64)
    sizes = np.bincount(classes[long_tail_subset(truth, domain, seed=3)], minlength=5)
    assert sorted(sizes, reverse=True) == [100, 56, 31, 17, 10]
    assert (long_tail_subset(truth, domain) != long_tail_subset(truth, domain, seed=1)[: sizes.sum()]).any()


def test_a_rare_class_keeps_two_samples_of_a_long_tail():
    truth, domain = GroundTruth(("a", "b"), np.repeat([0, 1], 4)), np.zeros(8, dtype=np.int64)
    kept = long_tail_subset(truth, domain)
    assert sorted(np.bincount(truth.classes[kept])) == [2, 4]


def test_a_small_subset_is_of_its_size_and_follows_the_seed():
    positions = np.arange(50, 400)
    kept = small_subset(positions, seed=1)
    assert len(kept) == 100
    assert (np.diff(kept) > 0).all()
    assert set(kept) <= set(positions)
    assert (kept != small_subset(positions, seed=2)).any()
    assert (small_subset(positions[:30]) == positions[:30]).all()
