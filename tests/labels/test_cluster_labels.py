"""Tests of cluster labels: what they hold, what is refused, and their file."""

import hashlib
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.data.vectors import VectorSamples
from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.labels.cluster_labels import ClusterLabels, marks_of

KEYS = [bytes([i]) * 16 for i in range(3)]


def labels(
    values: Any = (0, 2, 1), ids: Any = ("a", "b", "c"), n_clusters: int = 3, contents: Any = None
) -> ClusterLabels:
    return ClusterLabels(ids, np.asarray(values), n_clusters, "somebody", contents)


MARKED = labels(contents=marks_of(KEYS))


def content(**changes: Any) -> dict[str, Any]:
    fields = {
        "format": "ucds-labels/1",
        "provider": "p",
        "n_clusters": 3,
        "ids": ["a", "b"],
        "labels": [0, 2],
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def test_labels_are_a_read_only_copy() -> None:
    given = np.array([0, 2, 1], dtype=np.int16)
    held = labels(given)
    given[0] = 1
    assert held.labels.dtype == np.int64
    assert held.labels.tolist() == [0, 2, 1]
    with pytest.raises(ValueError, match="read-only"):
        held.labels[0] = 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"values": np.zeros(0, np.int64), "ids": ()}, "there are no labels"),
        ({"ids": ("b", "a", "b")}, "sample 'b' is labelled twice"),
        ({"n_clusters": 0}, "0 clusters were announced"),
        ([0.0, 1.0, 2.0], "list of integers, not float64"),
        ([True, False, True], "list of integers, not bool"),
        ([[0], [1], [2]], r"of shape \(3, 1\)"),
        ([0, 1], "3 sample ids but 2 labels"),
        ([0, 1, 3], r"labels lie in \[0, 3\], but 3 clusters"),
        ([-1, 0, 1], r"labels lie in \[-1, 1\]"),
        (np.array([0, 1, 2**64 - 1], np.uint64), "but 3 clusters"),
    ],
)
def test_what_cannot_be_labels_is_refused(values: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        labels(**values if isinstance(values, dict) else {"values": values})


def test_align_gives_each_sample_its_own_label_in_any_order() -> None:
    rng = np.random.default_rng(0)
    ids = tuple(f"{i:03}" for i in range(50))
    values = rng.integers(7, size=50)
    held = labels(values, ids, 7)
    wanted = tuple(ids[i] for i in rng.permutation(50)[:20])
    with pytest.warns(UcdsWarning, match="30 of 50 labels belong to samples that were not given"):
        aligned = held.align((*wanted, "without a label"))
    assert aligned.ids == wanted
    assert aligned.labels.tolist() == [values[int(name)] for name in wanted]
    assert (aligned.n_clusters, aligned.provider) == (7, "somebody")
    assert held.align(ids).fingerprint == held.fingerprint


def test_rows_in_finds_the_labelled_and_is_strict_in_order() -> None:
    held = labels()
    assert held.rows_in(("a", "b", "c")).tolist() == [0, 1, 2]
    assert held.rows_in(("x", "a", "b", "y", "c")).tolist() == [1, 2, 4]
    with pytest.raises(InputError, match="another order"):
        held.rows_in(("a", "c", "b"))
    with pytest.raises(InputError, match="other samples"):
        held.rows_in(("a", "b"))


def test_the_fingerprint_changes_with_any_id_or_label() -> None:
    others = [labels([0, 2, 2]), labels([0, 1, 2]), labels([0, 2], ids=("a", "b"))]
    others += [labels(ids=ids) for ids in (("a", "b", "d"), ("a", "c", "b"), ("ab", "", "c"))]
    assert len({one.fingerprint for one in (labels(), *others)}) == 7
    assert labels(np.array([0, 2, 1], np.int8)).fingerprint == labels().fingerprint


@pytest.mark.parametrize("contents", [None, marks_of(KEYS)])
def test_a_file_holds_an_entry_a_line_and_nothing_else_and_comes_back_as_it_was(
    tmp_path: Path, contents: Any
) -> None:
    held = ClusterLabels(("0", "ö/ä.png", "a\nb"), np.array([0, 2, 1]), 3, 'Klinik "Süd"', contents)
    held.save(tmp_path / "labels.json")
    text = (tmp_path / "labels.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert text == json.dumps(found, ensure_ascii=False, indent=0) + "\n"
    digest = found.pop("digest")
    written = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    assert digest == hashlib.sha256(written).hexdigest()
    fields = {"format", "provider", "n_clusters", "ids", "labels"}
    assert found.keys() == fields | ({"contents"} if contents else set())
    again = ClusterLabels.load(tmp_path / "labels.json")
    assert (again.ids, again.n_clusters, again.provider) == (held.ids, 3, 'Klinik "Süd"')
    assert (again.labels.tolist(), again.contents) == ([0, 2, 1], contents)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "ucds-labels/3"}, "format: Input should be 'ucds-labels/1' or 'ucds-labels/2'"),
        ({"format": "ucds-labels/2"}, "its digest does not match"),
        ({"digest": "0" * 64}, "its digest does not match"),
        ({"contents": ["0" * 16]}, "2 sample ids but 1 marks of contents"),
        ({"contents": ["0" * 16, "code"]}, "contents.1: String should match"),
        ({"scores": [[0.1, 0.9]]}, "scores: Extra inputs are not permitted"),
        ({"labels": [0, 1.0]}, "labels.1: Input should be a valid integer"),
        ({"labels": [-1, 0]}, "but 3 clusters"),
        ({"labels": [0, 2**70]}, "labels.1: Input should be less than or equal to 100000"),
        ({"n_clusters": 10**12}, "n_clusters: Input should be less than or equal to 100000"),
        (b"null", "the whole: Input should be an object"),
        *((data, "whole: Invalid JSON") for data in (b"", b"\xff\xfe", b"[" * 200_000)),
    ],
)
def test_a_file_with_anything_else_is_refused(
    tmp_path: Path, changes: dict[str, Any] | bytes, reason: str
) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(changes if isinstance(changes, bytes) else json.dumps(content(**changes)).encode())
    with pytest.raises(DamagedFileError, match=reason) as error:
        ClusterLabels.load(path)
    assert str(error.value).startswith(f"{path} is not a usable label file: ")
    assert "\n" not in str(error.value)


def test_any_changed_bit_is_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    held = labels(ids=("ö.png", "b", "c"), contents=marks_of(KEYS))
    held.save(path)
    whole, generator = path.read_bytes(), random.Random(0)
    for place in generator.sample(range(len(whole)), 60):
        changed = whole[place] ^ 1 << generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
        with suppress(DamagedFileError):
            again = ClusterLabels.load(path)
            assert (again.fingerprint, again.provider) == (held.fingerprint, held.provider)
            assert tuple(again.contents or ()) == held.contents


def test_a_file_of_version_1_is_read_whatever_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(content()).encode())
    assert ClusterLabels.load(tmp_path / "labels.json").labels.tolist() == [0, 2]


def test_labels_of_other_contents_are_left_out_and_the_rest_keep_all_that_is_known() -> None:
    some = MARKED.take(np.array([True, False, True]))
    assert (some.ids, some.labels.tolist()) == (("a", "c"), [0, 1])
    assert some.contents == marks_of([KEYS[0], KEYS[2]])
    assert (some.n_clusters, some.provider) == (3, "somebody")
    assert MARKED.take(np.ones(3, bool)) is MARKED
    assert MARKED.align(("a", "b", "c"), KEYS).labels.tolist() == [0, 2, 1]
    assert MARKED.align(("a", "b", "c")).labels.tolist() == [0, 2, 1]
    assert labels().align(("a", "b", "c"), [b"x" * 16] * 3).labels.tolist() == [0, 2, 1]
    with pytest.warns(UcdsWarning, match="1 of 3 samples have changed since they were labelled"):
        kept = MARKED.align(("c", "b", "a"), [KEYS[2], b"x" * 16, KEYS[0]])
    assert (kept.ids, kept.labels.tolist()) == (("c", "a"), [1, 0])
    assert kept.contents == marks_of([KEYS[2], KEYS[0]])
    with pytest.raises(InputError, match="the labels belong to other data: of 3 samples"):
        MARKED.align(("a", "b", "c"), KEYS[::-1][:1] + KEYS[:2])


def test_a_training_takes_no_labels_of_other_data(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    marks = marks_of(VectorSamples(rows).keys)
    of_rows = ClusterLabels(tuple(map(str, range(9))), np.arange(9) % 3, 3, "p", marks)
    with pytest.raises(InputError, match="the labels belong to other data: of 9 samples"):
        ucds.train_target(rows + 1, tmp_path / "run", labels=of_rows)


def test_labels_that_say_nothing_are_refused_or_warned_of() -> None:
    with pytest.raises(InputError, match="labels of a single cluster say nothing"):
        labels([0, 0, 0], n_clusters=1).align(("a", "b", "c"))
    with pytest.warns(UcdsWarning, match="all 3 labels are 2: they say nothing"):
        labels([2, 2, 2]).align(("a", "b", "c"))
