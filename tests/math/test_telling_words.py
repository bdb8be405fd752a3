"""Words tell clusters apart that are frequent in one and rare in all, in any script."""

import numpy as np
import pytest

from ucds.math.telling_words import TellingWords, words_of_path

CLUSTERS = np.repeat([0, 1, 7, -1], [6, 6, 6, 2])


def test_words_that_occur_everywhere_or_hardly_ever_tell_nothing() -> None:
    texts = ["the red car"] * 6 + ["the brown dog"] * 5 + ["the dog zebra"] + ["the собака"] * 6 + ["car"] * 2
    found = TellingWords(texts).of(CLUSTERS, 3)
    assert found == {0: ["car", "red"], 1: ["dog", "brown", "zebra"], 7: ["собака"]}
    assert TellingWords(texts).of(CLUSTERS, 1)[1] == ["dog"]


@pytest.mark.parametrize("texts", [[""] * 20, ["IMG 12"] * 20, [f"{i:04}" for i in range(20)]])
def test_names_that_tell_nothing_give_no_words(texts: list[str]) -> None:
    assert TellingWords(texts).of(CLUSTERS, 3) == {}


def test_folders_and_names_are_words_and_suffixes_are_not() -> None:
    assert words_of_path("summer/beach_day.jpg") == "summer/beach_day"
    words = TellingWords([words_of_path(f"{'beach' if i < 10 else 'city'}/IMG_{i}.JPG") for i in range(20)])
    assert words.of(np.repeat([0, 1], 10), 3) == {0: ["beach"], 1: ["city"]}
