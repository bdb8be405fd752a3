"""Columns of ids and keys: they behave like tuples, and find texts and copies as dictionaries would."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.data.columns import (
    Chosen,
    Column,
    Keys,
    RowIds,
    Texts,
    domains_of,
    find_places,
    first_of_each,
    first_positions,
    first_repeated,
    pack,
)

WORDS = ("zebra", "", "ähre", "a/b.png", "\udcff", "zebr", "0")
KEYS = [bytes([i % 3]) * 15 + bytes([i // 3]) for i in range(6)]
COLUMNS = {
    "row ids": (RowIds(7), tuple(map(str, range(7)))),
    "texts": (Texts(WORDS), WORDS),
    "chosen": (Chosen(WORDS, np.array([3, 3, 0])), (WORDS[3], WORDS[3], WORDS[0])),
    "keys": (Keys.of(KEYS), tuple(KEYS)),
    "chosen keys": (Chosen(Keys.of(KEYS), np.array([5, 0])), (KEYS[5], KEYS[0])),
    "nothing": (Texts(()), ()),
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
    assert column[1:-1] == entries[1:-1]
    assert [column[np.int64(i)] for i in range(-len(entries), len(entries))] == [*entries, *entries]
    with pytest.raises(IndexError):
        column[len(entries)]
    with pytest.raises(IndexError):
        column[-len(entries) - 1]


def test_a_column_differs_where_one_entry_does() -> None:
    assert RowIds(3) != ("0", "1", "3")
    assert RowIds(3) != "012"
    assert Texts(["ab", "c"]) != ("a", "bc")


def test_numbers_of_rows_are_packed_to_nothing() -> None:
    assert isinstance(pack(["0", "1", "2"]), RowIds)
    assert isinstance(pack(["1", "2"]), Texts)
    assert pack(WORDS) == WORDS
    column = RowIds(2)
    assert pack(column) is column


def test_keys_that_lie_in_one_array_are_not_copied() -> None:
    keys = Keys.of(KEYS)
    assert Keys.of(keys) is keys
    assert Keys.of(Chosen(keys, np.array([4, 1]))) == (KEYS[4], KEYS[1])


def test_the_first_sample_of_each_content_is_found() -> None:
    letters = [np.frombuffer(bytes([c]) * 16, np.uint8) for c in b"babcab"]
    keys = Keys(np.stack(letters))
    assert first_of_each(keys).tolist() == [0, 1, 0, 3, 1, 0]
    assert first_positions(keys).tolist() == [0, 1, 3]
    assert first_of_each(Keys.of([])).tolist() == []


def test_keys_that_differ_in_any_byte_are_different() -> None:
    rows = np.zeros((17, 16), np.uint8)
    rows[np.arange(16), np.arange(16)] = 1
    assert first_of_each(Keys(rows)).tolist() == list(range(17))


@pytest.mark.parametrize(
    "known", [RowIds(40), Texts([str(i) for i in range(40)]), [str(i) for i in range(40)]]
)
def test_texts_are_found_where_they_are(known: object) -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(40)
    shuffled = Chosen(known, order)  # type: ignore[type-var]
    wanted = ("7", "x", "39", "40", "0", "7")
    assert find_places(wanted, known).tolist() == [7, -1, 39, -1, 0, 7]  # type: ignore[arg-type]
    found = find_places(wanted, shuffled)
    assert [shuffled[p] if p >= 0 else None for p in found.tolist()] == ["7", None, "39", None, "0", "7"]
    assert find_places(RowIds(42), RowIds(40)).tolist() == [*range(40), -1, -1]
    assert find_places(wanted, ()).tolist() == [-1] * 6


def test_texts_of_one_hash_are_told_apart() -> None:
    class Same(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 1

    known = [Same("a"), Same("b"), Same("c")]
    assert find_places([Same("c"), Same("x"), Same("a")], known).tolist() == [2, -1, 0]
    assert find_places([Same("x")], [Same("a")]).tolist() == [-1]
    assert first_repeated(known) is None
    assert first_repeated([*known, Same("b")]) == "b"


def test_the_first_text_that_is_repeated_is_named() -> None:
    assert first_repeated(("b", "a", "b", "a")) == "b"
    assert first_repeated(RowIds(5)) is None
    assert first_repeated(WORDS) is None


def test_domains_are_numbered_and_a_single_one_takes_no_memory() -> None:
    assert domains_of([2, 1, 3]).tolist() == [0, 0, 1, 2, 2, 2]
    single = domains_of([5])
    assert single.tolist() == [0] * 5
    assert single.strides == (0,)
    with pytest.raises(ValueError, match="read-only"):
        single[0] = 1


def test_joined_texts_are_those_of_all_parts() -> None:
    parts = [Texts(["ä", ""]), Texts([]), Texts(["b" * 9])]
    assert Texts.joined(parts) == ("ä", "", "b" * 9)
    assert len(Texts.joined([])) == 0
