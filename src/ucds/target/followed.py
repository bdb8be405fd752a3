"""Says which facts about samples their clusters follow, and which clusters follow a fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ucds.data.about import FOLDERS, About, choose_rows, column_of, read_values
from ucds.errors import InputError, brief, shown
from ucds.math.arrays import IntArray
from ucds.math.followed import find_following

LEVEL = 0.05
"""Rate of false alarms: how often a column is reported although the clusters follow none."""

FLOOR = 0.02
"""Least effect that is reported, however certain a smaller one may be."""

CLEAR = 0.5
"""Least excess of a value in a cluster that a summary mentions."""

MOST_TESTED = 10_000
"""Largest number of samples that are tested; from more, this number is drawn at random."""

_FEWEST_GROUPS = 5  # fewer can be exchanged in too few ways to tell anything


class Explained(NamedTuple):
    """A cluster that follows a column."""

    cluster: int
    text: str  # value that its samples have most in excess; of numbers and dates, those of its middle half
    share: float  # of its samples that have it
    usual: float  # share of all samples that have it

    @property
    def excess(self) -> float:
        """Excess of the share over the usual share, divided by the largest possible excess."""
        return (self.share - self.usual) / max(1 - self.usual, 1e-9)


class Followed(NamedTuple):
    """Result of a test: how far clusters follow a column."""

    name: str
    effect: float  # 0 by chance, 1 at most, see ucds.math.followed
    p_value: float
    is_followed: bool
    clusters: tuple[Explained, ...]  # that follow it, the clearest first


def what_is_followed(clusters: IntArray, about: About, group: str | None = None) -> list[Followed]:
    """Test which columns the clusters ``(n,)`` of samples follow; the strongest comes first.

    Columns with a single value, or with a different value for most samples, are left out. The column
    ``group`` says which samples belong together, such as those of a patient; without it, all are independent.
    """
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(clusters))[:MOST_TESTED])
    texts = choose_rows(about, rows)
    groups = None if group is None else _number_groups(column_of(texts, group), group)
    columns = {name: values for name in texts if name != group and _tells(values := read_values(texts[name]))}
    if not columns:
        return []
    numbers, inside = np.unique(clusters[rows], return_inverse=True)
    found = []
    tested = find_following(inside, list(columns.values()), rng, groups)
    for (name, values), (effect, p_value, by_cluster) in zip(columns.items(), tested, strict=True):
        is_followed, explained = p_value <= LEVEL and effect >= FLOOR, list[Explained]()
        if is_followed:
            sure = np.flatnonzero(by_cluster <= LEVEL).tolist()
            explained = [_explain(int(numbers[k]), inside == k, texts[name], values) for k in sure]
            explained.sort(key=lambda each: -each.excess)
        found.append(Followed(name, effect, p_value, is_followed, tuple(explained)))
    return sorted(found, key=lambda one: -one.effect)


def tell_followed(clusters: IntArray, about: About, group: str | None, say: Callable[[str], None]) -> None:
    """Say which columns the clusters ``(n,)`` follow, and how far; see :func:`what_is_followed`."""
    found = what_is_followed(clusters, about, group)
    names = [f"{shown(one.name, 40)} ({one.effect:.2f} of 1)" for one in found if one.is_followed]
    say(f"the clusters follow {len(names)} of {len(found)} columns{': ' * bool(names)}{', '.join(names)}")
    if sentence := describe_followed(found, "samples"):
        say(sentence)


def describe_followed(found: Sequence[Followed], what: str) -> str:
    """Say which cluster a column explains most clearly; nothing if there is none.

    Folders may be classes, so they are mentioned only if no other column is clear.
    """
    clear = [(one.name, one.clusters[0]) for one in found if one.clusters and one.clusters[0].excess >= CLEAR]
    if not clear:
        return ""
    technical = [one for one in clear if one[0] not in FOLDERS]
    name, (cluster, text, share, usual) = max(technical or clear, key=lambda one: one[1].excess)
    sentence = (
        f"in cluster {cluster}, {share:.0%} of the {what} have the {shown(name, 40)} {text}; of all {what}, "
        f"{usual:.0%} have it"
    )
    return f"{sentence}. Look at this cluster before you rely on it" if technical else sentence


def _number_groups(texts: Sequence[str], name: str) -> IntArray:
    """Number the groups of samples; a sample whose group is unknown is a group by itself."""
    named = np.array([text or f"\0{place}" for place, text in enumerate(texts)], object)
    groups = np.unique(named, return_inverse=True)[1].astype(np.int64)
    if (count := int(groups.max()) + 1) < _FEWEST_GROUPS:
        raise InputError(
            f"{count} groups of {brief(name)} are too few for a test (at least {_FEWEST_GROUPS}): "
            "leave out `group`, or name a finer column"
        )
    return groups


def _tells(values: NDArray[Any]) -> bool:
    """Return whether values differ, and are not names of single samples."""
    different = len(np.unique(values))
    return different > 1 and (values.dtype.kind == "f" or 2 * different <= len(values))


def _explain(cluster: int, own: NDArray[np.bool_], texts: Sequence[str], values: NDArray[Any]) -> Explained:
    """Find the value that sets the ``own`` samples of a cluster apart."""
    if values.dtype.kind == "f":
        low, high = np.nanquantile(values[own], (0.25, 0.75), method="nearest")
        has = (values >= low) & (values <= high)
        text = " to ".join(shown(texts[values.tolist().index(end)], 40) for end in (low, high))
    else:
        inside, usual = (np.bincount(each, minlength=values.max() + 1) for each in (values[own], values))
        has = values == (inside / own.sum() - usual / len(values)).argmax()
        text = shown(texts[int(has.argmax())], 80) or "(unknown)"
    return Explained(cluster, text, float(has[own].mean()), float(has.mean()))
