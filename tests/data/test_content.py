"""Columns of ids and keys: they behave like tuples, and find texts and copies as dictionaries would."""

import numpy as np
import pytest

from ucds.data.content import (
    Column,
    find_places,
    first_of_each,
    first_positions,
    first_repeated,
    keys_of,
    number_rows,
    texts_of,
)

WORDS = ("zebra", "", "ähre", "a/b.png", "zebr", "0")
NAMES = ("\udcff.png", "a.png")  # of files, one of them not in UTF-8
KEYS = [bytes([i % 3]) * 15 + bytes([i // 3]) for i in range(6)]
COLUMNS = {
    "row ids": (number_rows(7), tuple(map(str, range(7)))),
    "texts": (texts_of(WORDS), WORDS),
    "names": (texts_of(NAMES), NAMES),
    "chosen": (texts_of(WORDS).take(np.array([3, 3, 0])), (WORDS[3], WORDS[3], WORDS[0])),
    "keys": (keys_of(KEYS), tuple(KEYS)),
    "chosen keys": (keys_of(KEYS).take(np.array([5, 0])), (KEYS[5], KEYS[0])),
    "nothing": (texts_of(()), ()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_like_a_tuple(name: str) -> None:
    column: Column[str] | Column[bytes]
    column, entries = COLUMNS[name]
    assert len(column) == len(entries)
    assert tuple(column) == entries
    assert column == entries
    assert entries == column
    assert column == list(entries)
    assert column != (*entries, "more")
    assert not entries or column != (*entries[:-1], "other")
    assert column[1:-1] == entries[1:-1]
    assert [column[np.int64(i)] for i in range(-len(entries), len(entries))] == [*entries, *entries]
    assert column[np.arange(len(entries)) % 2 == 1] == entries[1::2]
    assert column[[0] * bool(entries)] == entries[:1]
    assert repr(column).startswith("[")
    with pytest.raises(IndexError):
        column[len(entries)]
    with pytest.raises(IndexError):
        column[-len(entries) - 1]


def test_the_first_sample_of_each_content_is_found() -> None:
    keys = keys_of([bytes([c]) * 16 for c in b"babcab"])
    assert first_of_each(keys).tolist() == [0, 1, 0, 3, 1, 0]
    assert first_positions(keys).tolist() == [0, 1, 3]
    assert first_of_each([]).tolist() == []
    differ_in_a_byte = [bytes(i) + b"\1" + bytes(15 - i) for i in range(16)]
    assert first_of_each([*differ_in_a_byte, bytes(16)]).tolist() == list(range(17))


@pytest.mark.parametrize("wanted", [("7", "x", "39", "40", "0", "7"), ("7", "\udcff", "39", "40", "0", "7")])
def test_texts_are_found_where_they_are(wanted: tuple[str, ...]) -> None:
    known = texts_of([str(i) for i in np.random.default_rng(0).permutation(40)])
    for held in (known, list(known)):
        found = find_places(wanted, held).tolist()
        assert [known[p] if p >= 0 else None for p in found] == ["7", None, "39", None, "0", "7"]
    assert find_places(wanted, ()).tolist() == [-1] * 6


def test_the_first_text_that_is_repeated_is_named() -> None:
    assert first_repeated(("b", "a", "b", "a")) == "b"
    assert first_repeated(NAMES) is None
    assert first_repeated(WORDS) is None
