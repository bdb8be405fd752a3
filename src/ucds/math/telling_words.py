"""Finds words that set clusters apart, in texts of their samples or in the names of their files."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from ucds.math.consensus import Partition

LEAST_SHARE, LEAST_LIFT = 0.1, 2.0
"""Least share of a cluster's samples that have a telling word, and its least ratio to the share of all."""

MOST_WORDS = 20_000
"""Largest number of words that are counted: the most frequent ones."""

_WORD = r"[^\W\d_]{2,}"  # letters of any script


class TellingWords:
    """Words of samples, counted once for all clusterings of them.

    The text of a sample is empty where there is none.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer  # takes a while, and few ask for it

        self._words, self._counts = np.empty(0, dtype=object), sparse.csr_array((len(texts), 0))
        if any(re.search(_WORD, text) for text in texts):
            counter = CountVectorizer(binary=True, token_pattern=_WORD, max_features=MOST_WORDS)
            self._counts = sparse.csr_array(counter.fit_transform(texts), dtype=np.float64)
            self._words = counter.get_feature_names_out()

    def of(self, clusters: Partition, most: int) -> dict[int, list[str]]:
        """List the most telling words of each cluster; clusters without any are left out.

        Source:
            M. Grootendorst, BERTopic: neural topic modeling with a class-based TF-IDF procedure, 2022.
        """
        inside = np.flatnonzero(clusters >= 0)
        numbers, places = np.unique(clusters[inside], return_inverse=True)
        shape = (len(numbers), len(clusters))
        having = sparse.csr_array((np.ones(len(inside)), (places, inside)), shape=shape) @ self._counts
        sizes, everywhere = np.bincount(places), np.asarray(having.sum(0)).ravel()
        words_of = np.asarray(having.sum(1)).ravel()
        found = {}
        for place, number in enumerate(numbers.tolist()):
            row = having[[place]].tocoo()
            columns, count = row.coords[1], row.data
            share = count / sizes[place]
            telling = (share >= LEAST_SHARE) & (share >= LEAST_LIFT * everywhere[columns] / len(inside))
            columns, count = columns[telling], count[telling]
            score = count / max(words_of[place], 1) * np.log1p(words_of.mean() / everywhere[columns])
            best = columns[np.lexsort((columns, -score))][:most]
            if len(best):
                found[number] = [str(word) for word in self._words[best]]
        return found


def words_of_path(path: str) -> str:
    """Return the names of the folders and of the file in a path, without the suffix of the file."""
    return re.sub(r"\.\w+$", "", path)
