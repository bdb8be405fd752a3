"""How well tables of numbers are clustered whose rows keep their lengths, and how well by directions alone.

    python benchmarks/tables.py [DATA ...] [--weights ENCODER=FILE] [--cache DIR] [--seeds 5]

With DATA, the features of its images are clustered as embeddings of the user's own, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_features import parser_of, read_domains
from records import Row, complete, spread, table
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from ucds import FunctionEncoder, SourceClustering, TargetClustering

Table = tuple[NDArray[Any], NDArray[np.int64]]
FAR = 4.5e6
INTRODUCTION = """# Tables of numbers

Made by `python benchmarks/tables.py` from `tables.jsonl`; not edited by hand. Adjusted Rand index in percent,
mean +- standard deviation over seeds, with the right number of clusters. *k-means*: ten starts of
scikit-learn's. *Directions*: rows brought to unit length, as features of images are. *Lengths*: what `ucds`
does with vectors of your own ([when, and why](../docs/consensus.md#vectors-of-your-own)). *Labels*: the same
for half of the rows, with labels of a provider that has the others, in two domains, one of which is moved. A
star marks columns that were standardised. Rows of the synthetic tables are drawn anew for each seed. In half
of wine (89 rows), one row changes the index by about three points.

The radius, and the number of dimensions from which on directions count, were chosen on one other draw of each
synthetic table, on the tables of scikit-learn and on webcam and dslr: no other table confirms them yet.
"""


def draw(name: str, seed: int) -> Table:
    """Draw clumps of a family: on a line, around one in the middle, at two distances, of unequal sizes."""
    rng, form = np.random.default_rng(seed), np.random.default_rng(7)
    if name == "line":
        classes = np.arange(150) % 3
        return 5.0 * classes[:, None] + 0.3 * rng.normal(size=(150, 2)), classes
    if name == "cross":
        classes = np.arange(250) % 5
        centres = 10.0 * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
        return centres[classes] + 0.5 * rng.normal(size=(250, 2)), classes
    if name == "two distances":
        classes, ways = np.arange(400) % 8, form.normal(size=(4, 8))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        return np.concatenate([4 * ways, 10 * ways])[classes] + rng.normal(size=(400, 8)), classes
    if name == "grid":
        classes = np.arange(450) % 9
        return 4.0 * np.column_stack(divmod(classes, 3)) + 0.7 * rng.normal(size=(450, 2)), classes
    classes = np.repeat(np.arange(4), [300, 100, 50, 30])
    return 5 * form.normal(size=(4, 3))[classes] + rng.normal(size=(480, 3)), classes


DRAWN = ("line", "cross", "two distances", "grid", "unequal sizes")
FAR_AWAY = ("line", "two distances")


def tables(seed: int) -> Iterator[tuple[str, Table]]:
    """Yield the tables by name; those of scikit-learn are the same for all seeds."""
    for name in DRAWN:
        rows, classes = draw(name, seed)
        yield name, (rows, classes)
        if name in FAR_AWAY:
            yield f"{name}, far from zero", (rows + FAR, classes)
    for name in ("iris", "wine", "breast_cancer", "digits"):
        rows, classes = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield name, (rows, classes)
        if name != "digits":
            yield f"{name}*", (StandardScaler().fit_transform(rows), classes)


def measure(name: str, given: Table, seed: int) -> Iterator[Row]:
    """Cluster a table in every way, alone and with the labels of a provider."""
    rows, classes = given
    k = len(np.unique(classes))

    def row(way: str, found: NDArray[np.int64], truth: NDArray[np.int64]) -> Row:
        score = round(float(adjusted_rand_score(truth, found)), 4)
        return {"table": name, "seed": seed, "way": way, "samples": len(truth), "ari": score}

    yield row("k-means", KMeans(k, n_init=10, random_state=seed).fit_predict(rows), classes)
    order = np.random.default_rng(seed).permutation(len(rows))
    provider, client = np.sort(order[: len(rows) // 2]), np.sort(order[len(rows) // 2 :])
    domain = np.arange(len(provider)) % 2
    moved = rows[provider] + 0.2 * domain[:, None] * rows.std(0)
    for way in ("directions", "lengths"):
        own = FunctionEncoder(np.asarray, rows.shape[1]) if way == "directions" else None
        how: dict[str, Any] = {"random_state": seed, "accelerator": "cpu", "backbone": own}
        yield row(way, TargetClustering(k, **how).fit(rows).labels_, classes)
        labels = SourceClustering(k, **how).fit(moved, sample_domain=domain).predict(rows[client])
        taught = TargetClustering(k, **how).fit(rows[client], source_labels=labels)
        yield row(f"{way}, labels", taught.labels_, classes[client])


def page(runs: Sequence[Row]) -> str:
    """Write the table of all runs."""
    rows = []
    for name, own in pd.DataFrame(runs).groupby("table", sort=False):
        rows.append({"table": name, "rows": f"{own['samples'].max():,}", "seeds": own["seed"].nunique()})
        for way, each in own.groupby("way", sort=False):
            found = 100 * each["ari"]
            rows[-1][str(way)] = spread(found) if len(found) > 1 else f"{found.iloc[0]:.1f}"
    return f"{INTRODUCTION}\n{table(rows, 'lrrrrrrr')}\n"


if __name__ == "__main__":
    options = parser_of("Measure how well tables of numbers are clustered.").parse_args()
    images = [
        (f"images: {one.name}", (one.vectors, one.classes)) for of in read_domains(options) for one in of
    ]
    jobs = (
        ({"table": name, "seed": seed}, partial(measure, name, given, seed))
        for seed in range(options.seeds)
        for name, given in [*tables(seed), *images]
    )
    complete(__file__, jobs, page)
