"""A table with numbers of different units: standardise its columns, then cluster the rows.

    python examples/table.py

Two laboratories have measured wines (scikit-learn's data set of 178 wines, of three grapes), and the second
one's instruments read higher. The first laboratory provides labels; the second clusters its own wines. Takes
a few seconds on a CPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from ucds import clustering_accuracy, label, predict, train_source, train_target


def write_table(path: Path, names: list[str], values: np.ndarray) -> None:
    """Write numbers as CSV, a row a wine, with a column of ids."""
    rows = [f"wine-{i}," + ",".join(f"{value:.6g}" for value in row) for i, row in enumerate(values)]
    path.write_text("\n".join([",".join(["id", *names]), *rows]) + "\n")


def main() -> None:
    wine = load_wine()
    theirs = np.random.default_rng(0).permutation(len(wine.target)) % 2 == 0
    measured = wine.data * np.where(theirs, 1.0, 1.15)[:, None]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, rows in (("provider", ~theirs), ("client", theirs)):
            # Each side by itself: units and offsets of instruments are no news about wines.
            values = StandardScaler().fit_transform(measured[rows])
            write_table(folder / f"{name}.csv", [n.replace("/", " ") for n in wine.feature_names], values)
        train_source(folder / "provider.csv", folder / "source", n_clusters=3)
        label(folder / "source", folder / "client.csv", folder / "labels.json")
        train_target(folder / "client.csv", folder / "target", labels=folder / "labels.json")
        found = predict(folder / "target", folder / "client.csv", folder / "clusters.csv")
    print(f"{found.ids[0]} is in cluster {found.clusters[0]}, with confidence {found.confidence[0]:.2f}")
    accuracy = clustering_accuracy(found.clusters, wine.target[theirs])
    print(f"the client's clusters agree with the grapes: {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
