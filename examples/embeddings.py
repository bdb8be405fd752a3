"""A provider and a client with embeddings: the client receives one integer for each sample, and no more.

    python examples/embeddings.py

Three hospitals, the provider, train a model on embeddings of their unlabelled digits. A clinic, the client,
has a scanner of its own; it asks for labels and trains its own model. Takes a few seconds on a CPU.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from ucds import SourceClustering, TargetClustering, clustering_accuracy


def main() -> None:
    digits = load_digits()
    rng = np.random.default_rng(0)
    site = rng.integers(4, size=len(digits.data))
    # Each site's scanner has a contrast and a brightness of its own.
    contrast, brightness = rng.uniform(0.5, 1.5, size=(4, 64)), rng.normal(0, 3, size=(4, 64))
    vectors = digits.data * contrast[site] + brightness[site]
    ours, theirs = site < 3, site == 3

    provider = SourceClustering(n_clusters=10, random_state=0)
    provider.fit(vectors[ours], sample_domain=site[ours])
    answers = provider.label(vectors[theirs])  # one integer for each sample: all that the clinic receives

    clinic = TargetClustering(n_clusters=10, random_state=0)
    clinic.fit(vectors[theirs], source_labels=answers)

    # The true digits are used only here, to score both.
    truth = digits.target[theirs]
    asked, own = clustering_accuracy(answers.labels, truth), clustering_accuracy(clinic.labels_, truth)
    print(f"the provider's labels agree with the digits: {100 * asked:.1f} %")
    print(f"the clinic's own model agrees with them:     {100 * own:.1f} %")


if __name__ == "__main__":
    main()
